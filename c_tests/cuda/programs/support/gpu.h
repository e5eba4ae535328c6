/* Memory of two GPUs for scripts of the test bed (c_tests/diff/bed): allocation, bytes, checks. */
#ifndef GPU_H
#define GPU_H

#include "bed.h"

typedef enum {
    HOST,
    GPU0,
    GPU1,
    MANAGED,
    PLACES,
    MAPPED0 = PLACES, /* of cuMemMap, made to be shared */
    MAPPED1,
    POOL0, /* of a pool that was made to be shared */
    POOL1,
    ALL_PLACES,
    UNSHARED_MAPPED = ALL_PLACES, /* not made to be shared, on the first device */
    UNSHARED_POOL,
} place_t;

typedef struct {
    place_t place;
    size_t  length; /* bytes */
    char   *memory; /* NULL where the side is in the other process */
} area_t;

extern const char *const place_names[];

/*
 * Initialises the driver and keeps the primary contexts of both devices. For UCX the first one stays current in this
 * thread, and for rucp none.
 */
void gpu_open(void);
/* Makes a context current for UCX, in another thread than that of gpu_open(). */
void gpu_thread(void);

/* An area of `side`; an empty one if the side is in the other process. */
area_t area_make(const side_t *side, place_t place, size_t length);
void   area_free(area_t *area);
/* Writes the bytes of data_fill(seed) at `offset`. */
void area_fill(const area_t *area, size_t offset, size_t length, unsigned seed);
/* All bytes are `value`. */
void area_set(const area_t *area, uint8_t value);
/* data_check_at() of the bytes at `offset`, which are those at `index` of the fill. */
const char *area_check(const area_t *area, size_t offset, size_t length, size_t index, unsigned seed);
/* Whether `length` bytes at `offset` all are `value`. */
int  area_is(const area_t *area, size_t offset, size_t length, uint8_t value);
void area_read(const area_t *area, size_t offset, void *out, size_t length);
void area_write(const area_t *area, size_t offset, const void *bytes, size_t length);
/* The memory type of UCX for the place. */
ucs_memory_type_t area_type(place_t place);

/* How often this process called an entry of the driver. */
unsigned long long gpu_calls(const char *entry);
/* Copies that were posted, or lists of them. */
unsigned long long gpu_copies(void);
/* The calls of all entries that rucp uses. */
unsigned long long gpu_all_calls(void);
/* Injects faults. */
void gpu_fault(const char *assignments);

/* A check of a script that runs on rucp only: the fact begins with "ok" or "BAD". */
void want(const side_t *side, int fine, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Lines that this process has logged since the last call which contain `text`. The log is the file $LOG.PID. */
unsigned logged(const char *text);
/* The next call looks at all lines again. */
void logged_again(void);
/* Those lines of all that this process has logged. */
unsigned printed(const char *text);

#endif
