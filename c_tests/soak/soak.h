//! What the parts of the soak test share: the options, the state of a process, and checks.
#ifndef SOAK_H
#define SOAK_H

#include "../check.h"

#include <ucp/api/ucp.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_PROCESSES = 16,
    MAX_THREADS   = 8,
    BLOB          = 4096,      /* of an address or a key */
    RECEIVES      = 8,         /* posted by each thread */
    IN_FLIGHT     = 16,        /* messages that a thread sends before it waits for the oldest */
    SLOT          = 256 << 10, /* bytes of each window that one thread of one process may write */
    SYNC_EVERY    = 16,        /* one of this many messages is sent synchronously: receivers cannot fall behind far */
    AM_ID         = 5,
    STUCK_SECONDS = 60 /* seconds without any progress, under load, before an operation counts as stuck */
};

typedef enum { TAGGED, ACTIVE, PUT, GET, ADD, KINDS } kind_t;

/** Shared by the processes outside of UCP: their addresses, and counters of their operations. */
typedef struct shared {
    struct {
        size_t        address_length, key_length;
        unsigned char address[BLOB], key[BLOB];
        uint64_t      window; /* base address of its memory */
    } process[MAX_PROCESSES];
    atomic_int  arrived[8];                                        /* one barrier each */
    atomic_int  drained;                                           /* threads that have sent all their messages */
    atomic_int  failed;                                            /* a process has found an error */
    atomic_long sent[MAX_PROCESSES][MAX_PROCESSES][MAX_THREADS];   /* tagged, from, to, thread */
    atomic_long sent_active[MAX_PROCESSES][MAX_PROCESSES];         /* from, to */
    atomic_long added[MAX_PROCESSES][MAX_PROCESSES * MAX_THREADS]; /* by target window and by origin */
    atomic_long done[KINDS], bytes;
} shared_t;

/** In front of every message; what follows is the pattern of `seed`. */
typedef struct message {
    uint32_t from, thread, seed, length; /* of the whole message */
    uint64_t sequence;
} message_t;

typedef struct thread {
    int       number;
    uint64_t  random;
    long      expected[MAX_PROCESSES]; /* the next sequence number from each process */
    long      next[MAX_PROCESSES];     /* the next one to each process */
    long      received;
    unsigned char *scratch;
    struct {
        unsigned char *buffer;
        void          *request;
    } receive[RECEIVES];
    unsigned oldest; /* receive of all that are posted */
    struct {
        unsigned char *buffer;
        void          *request;
    } send[IN_FLIGHT];
    unsigned sends;
} thread_t;

/* --- options --- */

extern int    processes, threads;
extern size_t largest; /* bytes of a message */

/* --- this process --- */

extern shared_t      *shared;
extern int            me;
extern ucp_context_h  context;
extern ucp_worker_h   worker;
extern ucp_ep_h       endpoints[MAX_PROCESSES];
extern ucp_rkey_h     keys[MAX_PROCESSES];
extern unsigned char *window; /* memory that the others access */

/* --- checks and progress (process.c) --- */

double   now(void); /* monotonic seconds */
void     check_status(ucs_status_t status, const char *what);
uint32_t draw(thread_t *t);
/** Small ones most of the time: any number of bits is as likely as any other. */
size_t   draw_length(thread_t *t, size_t most);
/** The pattern of a seed, from byte `from` on. */
void     fill(unsigned char *bytes, size_t from, size_t to, uint32_t of);
void     verify(const unsigned char *bytes, size_t from, size_t to, uint32_t of, const char *what);
/** Counts an operation. */
void     count(kind_t kind, size_t length);
/** One iteration of every loop. Yields if nothing happened: there are more threads than cores. */
void     progress(void);
/** Waits for the request of a call. Not for sends: those may wait for receives, see `send_buffer`. */
ucs_status_t wait_for(ucs_status_ptr_t request, const char *what);

#define UNTIL(condition, what)                                                                                        \
    do {                                                                                                              \
        double since_ = now();                                                                                        \
        while (!(condition)) {                                                                                        \
            progress();                                                                                               \
            CHECK(now() - since_ < STUCK_SECONDS, "stuck: %s", what);                                                 \
        }                                                                                                             \
    } while (0)

/* --- tagged and active messages (messages.c) --- */

extern atomic_long active_received, active_open; /* complete; whose data are still at the sender */

ucs_status_t on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
                       const ucp_am_recv_param_t *info);
void post_receive(thread_t *t, unsigned slot);
/** Checks the receives in the order in which they were posted: the messages of each sender must arrive so. */
void look_at_receives(thread_t *t);
/** Makes room for one more message: waits until the oldest in flight has been sent. */
unsigned char *send_buffer(thread_t *t);
void send_tagged(thread_t *t, int to);
void send_active(thread_t *t, int to);

/* --- remote memory (windows.c) --- */

/** Bytes of a window; its counters lie behind its slots. */
size_t window_size(void);
void put_and_get(thread_t *t, int to);
void add(thread_t *t, int to);
/** This process's counters have the values that the others have made. */
void check_counters(void);

#endif
