/*
 * The test bed: two sides, A and B, that communicate over UCP in one of three topologies, and the facts they print.
 *
 * A test is one script that every process runs from top to bottom. Where a side lives in another process its
 * pointer is NULL, and everything that takes a side does nothing for NULL; so `if (bed->a) send(); if (bed->b)
 * receive();` reads the same whether the sides share a worker, a process, or nothing.
 */
#ifndef BED_H
#define BED_H

#include <ucp/api/ucp.h>

#include <stddef.h>
#include <stdint.h>

typedef enum {
    TOPOLOGY_SELF, /* A and B are one worker; its endpoint leads to itself */
    TOPOLOGY_PAIR, /* two workers of one context in one process */
    TOPOLOGY_FORK  /* two processes */
} topology_t;

typedef struct facts facts_t;

typedef struct side {
    char          name; /* 'A' or 'B' */
    facts_t      *facts;
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep; /* to the other side */
} side_t;

typedef struct bed {
    topology_t topology;
    side_t    *a, *b; /* NULL where the side lives in the other process */
    side_t     sides[2];
    int        link; /* to the other process, outside of UCP; -1 when there is none */
} bed_t;

/* Settings of contexts and workers for bed_open(). */
typedef struct bed_params {
    uint64_t                       features;
    size_t                         request_size;
    ucp_request_init_callback_t    request_init;
    ucp_request_cleanup_callback_t request_cleanup;
    ucs_thread_mode_t              thread_mode;
    size_t                         am_alignment; /* 0: not given */
} bed_params_t;

/* --- running a script (bed.c) --- */

/* Runs `script` in the topology named by argv[1] and prints the facts of each side. Returns main()'s result. */
int bed_main(int argc, char **argv, void (*script)(bed_t *));

/* Writes the paths of this process's UCX libraries to the file $BED_MAPS.SIDE. */
void bed_maps_record(char side);

/* --- sides: contexts, workers, endpoints (side.c) --- */

void bed_open(bed_t *bed, const bed_params_t *params);
/* Without endpoints. */
void bed_open_unconnected(bed_t *bed, const bed_params_t *params);
/* Flushes and closes the endpoints, destroys workers and contexts; a barrier of both sides. */
void bed_close(bed_t *bed);
/* One more endpoint from `from` to the worker at `address`. */
ucp_ep_h bed_connect(side_t *from, const void *address);
/* Exchanges worker addresses: afterwards `to_b` holds B's where A is local, and `to_a` A's where B is local. */
#define BED_ADDRESS_MAX 8192
void bed_exchange_addresses(bed_t *bed, void *to_b, void *to_a);
/* Closes `ep`, waiting until that is done. */
ucs_status_t bed_disconnect(bed_t *bed, ucp_ep_h ep);

/* --- waiting: every loop is bounded (wait.c) --- */

typedef struct deadline {
    const char *what;
    double      end;
    unsigned    turns;
} deadline_t;

deadline_t bed_deadline(const char *what);
/* Progresses the local workers once; after the deadline prints HANG and ends the process. */
void bed_poll(bed_t *bed, deadline_t *deadline);
void bed_progress(bed_t *bed);

#define BED_UNTIL(bed, condition)                                                                                     \
    do {                                                                                                              \
        deadline_t deadline_ = bed_deadline(#condition);                                                              \
        while (!(condition)) {                                                                                        \
            bed_poll(bed, &deadline_);                                                                                \
        }                                                                                                             \
    } while (0)

/* Waits for the result of a non-blocking call and frees the request; returns the final status. */
ucs_status_t bed_wait(bed_t *bed, ucs_status_ptr_t result);
/* A barrier in which both sides progress. */
void bed_sync(bed_t *bed);
/* Copies bytes from one side to the other outside of UCP. `from` is NULL in the process that receives. */
size_t bed_transfer(bed_t *bed, const side_t *from, const void *data, size_t length, void *out, size_t capacity);

/* --- facts (facts.c) --- */

facts_t *facts_create(void); /* in memory shared with the children, so that a crash loses nothing */
void     facts_print(const facts_t *facts, char side);
void     fact(const side_t *side, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A fact that shows a rule of the contract (R1, T5, 2.4.1): it begins with the rule's name in brackets. */
void     rule(const side_t *side, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/*
 * A rule that the libraries follow differently, on purpose: the expected answer of each, and why. It prints the same
 * text wherever a library gives its expected answer. NULL: the library is not tested, and `actual` is ignored.
 */
typedef struct {
    const char *name, *why, *on_1_13, *on_1_22, *on_rucp;
} departure_t;
void        rule_departs(const side_t *side, const departure_t *departure, const char *actual);
int         on_rucp(void);
int         on_ucx_1_13(void);
int over_sockets(void); /* not through shared memory: by c_tests/transport.h, or because there are two users */
/* Ends the process with a fact when the bed itself fails. */
void        must(const side_t *side, ucs_status_t status, const char *what);
const char *status_name(ucs_status_t status);
const char *ptr_status_name(ucs_status_ptr_t ptr); /* "request" for a pointer to one */

/* --- data (data.c) --- */

void *data_make(size_t length, unsigned seed); /* allocated and filled; never NULL */
void  data_fill(void *data, size_t length, unsigned seed);
/* "good", or "bad": bytes that are not what data_fill(seed) wrote. */
const char *data_check(const void *data, size_t length, unsigned seed);
/* Whether all `length` bytes are `value`. */
int data_is(const void *data, size_t length, uint8_t value);
/* Like data_check() for the bytes at `offset` of a longer fill. */
const char *data_check_at(const void *data, size_t offset, size_t length, unsigned seed);

#endif
