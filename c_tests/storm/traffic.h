/* The traffic of one process of a storm: operations in flight, and their expected results. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "storm.h"

#include <ucp/api/ucp.h>

enum { RECEIVES = 8, MAX_OPS = 48, MAX_LENGTH = 150000, REGION = 16 << 10, REGIONS = 8, AM_ID = 3, CHUNK = 4096 };
/* Seconds of running time in which any request ends; between two calls of progress a gap counts as GAP at most. */
#define LIMIT_SECONDS 10.0
#define GAP 0.02

typedef enum { TAGGED, ACTIVE, RMA, ADD, STREAM, RECEIVE, STREAM_RECEIVE, ACTIVE_DATA, CLOSE } kind_t;

typedef struct {
    uint32_t from, generation, seed, length;
} head_t;

/* Another process, of one generation. */
typedef struct {
    int           slot;
    unsigned      generation;
    ucp_ep_h      ep; /* NULL: none now */
    ucp_rkey_h    key;
    int           callbacks, busy_rma, busy_add, busy_stream, receives_stream;
    double        killed_at; /* running time at which its death was read from the board; 0: lives */
    uint64_t      added;     /* expected value of the counter; UINT64_MAX: not known */
    uint64_t      sent, received; /* bytes of the streams */
    int           ops;       /* operations in flight that refer to it */
} peer_t;

typedef struct op {
    kind_t         kind;
    peer_t        *peer; /* NULL for wildcard receives */
    double         since;
    int            step, cancelled, ended;
    ucs_status_t   status;
    size_t         length;
    void          *request;
    head_t         head;
    uint64_t       value, result;
    unsigned char *buffer;
    struct op     *next;
} op_t;

extern board_t      *board;
extern int           me;
extern unsigned      my_generation;
extern uint64_t      random_state;
extern double        clock_now; /* running time */
extern ucp_context_h context;
extern ucp_worker_h  worker;
extern op_t         *ops;
extern int           op_count; /* those of `ops` that were drawn */

__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);

#define CHECK(condition, ...)  \
    do {                       \
        if (!(condition)) {    \
            fail(__VA_ARGS__); \
        }                      \
    } while (0)

uint32_t            draw(uint32_t below);
int                 is_killed(const peer_t *peer);
op_t               *new_op(kind_t kind, peer_t *peer, size_t length);
ucp_request_param_t param_of(op_t *op);
/* The result of a call: the operation has completed, or its request will call back. */
void                began(op_t *op, ucs_status_ptr_t returned);
void                post_receive(void);
void                cancel_receive(unsigned which);
ucs_status_t        on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *info);
/* One random operation to a peer. */
void                act_on(peer_t *peer);
/* Completes operations; fails if one takes too long. `posts`: receives are posted again. */
void                look_at_ops(int posts);

#endif
