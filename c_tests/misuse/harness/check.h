/*
 * Checks of misuse: each case runs in a process of its own, so that a crash is one failure among others, and counts
 * the results that differ from the expected ones.
 */
#ifndef CHECK_H
#define CHECK_H

#include <ucp/api/ucp.h>

#include <stddef.h>
#include <stdint.h>

/* --- cases (check.c) --- */

typedef struct {
    const char *name;
    void (*run)(void);
} case_t;

int check_main(const case_t *cases, size_t count, const char *only);

#define CHECK_MAIN(cases)                                                                                             \
    int main(int argc, char **argv)                                                                                   \
    {                                                                                                                 \
        return check_main(cases, sizeof(cases) / sizeof((cases)[0]), argc > 1 ? argv[1] : NULL);                      \
    }

/* Ends the process where a case depends on this call. */
void must(ucs_status_t status, const char *what);

/*
 * Whether a check of this process has failed; for a second process of a case, whose checks are not counted otherwise.
 */
int  check_failed(void);
/* Ends the process of a case that cannot run here: it counts neither as passed nor as failed. */
void check_skip(const char *why) __attribute__((noreturn));
void check(const char *file, int line, const char *what, int fine, const char *got);

/* A status is the expected one. */
#define WANT(wanted, call)                                                                                            \
    do {                                                                                                              \
        ucs_status_t status_ = (call);                                                                                \
        check(__FILE__, __LINE__, #call " -> " #wanted, status_ == (wanted), status_text(status_));                   \
    } while (0)
/* A status pointer is an error (or NULL for UCS_OK). */
#define WANT_PTR(wanted, call)                                                                                        \
    do {                                                                                                              \
        ucs_status_ptr_t ptr_ = (call);                                                                               \
        check(__FILE__, __LINE__, #call " -> " #wanted, !UCS_PTR_IS_PTR(ptr_) && UCS_PTR_STATUS(ptr_) == (wanted),    \
              UCS_PTR_IS_PTR(ptr_) ? "a request" : status_text(UCS_PTR_STATUS(ptr_)));                                \
    } while (0)
#define WANT_TRUE(condition) check(__FILE__, __LINE__, #condition, !!(condition), "false")
/* Any result, as long as the process lives. */
#define SURVIVE(call)                                                                                                 \
    do {                                                                                                              \
        (void)(call);                                                                                                 \
        check(__FILE__, __LINE__, #call, 1, "");                                                                      \
    } while (0)
#define SURVIVE_VOID(call)                                                                                            \
    do {                                                                                                              \
        call;                                                                                                         \
        check(__FILE__, __LINE__, #call, 1, "");                                                                      \
    } while (0)

#define INVALID UCS_ERR_INVALID_PARAM

const char *status_text(ucs_status_t status);
/* Restarts the time limit of the case: a step of it has ended. For cases that start many processes. */
void check_restart_limit(void);

/* --- objects to misuse (fixture.c) --- */

#define ALL_FEATURES                                                                                                  \
    (UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM |                      \
     UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP)

/* A worker with an endpoint to itself, memory, and a key for it. */
typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    ucp_mem_h     memh;
    uint8_t      *memory; /* FIXTURE_MEMORY bytes */
    uint64_t      remote;
    ucp_rkey_h    rkey;
    void         *packed; /* the key as rkey_pack() gave it */
    size_t        packed_length;
} fixture_t;

#define FIXTURE_MEMORY 65536

fixture_t fixture_open(uint64_t features);
void      fixture_close(fixture_t *fixture);
/* Progresses until the request is complete, at most a few seconds, and frees it. */
ucs_status_t fixture_wait(fixture_t *fixture, ucs_status_ptr_t request);
/* Checks that a send to the own worker and its receive still work. */
void fixture_works(fixture_t *fixture);

/* --- memory followed by an inaccessible page (edge.c) --- */

/* The first `length` bytes of `data`, right in front of an inaccessible page. Stays until the end. */
void *edge_copy(const void *data, size_t length);
/* Aligned to 8 bytes: for structs whose fields behind the named one do not exist. */
#define EDGE_STRUCT(type, last_field, value)                                                                          \
    ((type *)edge_copy(&(value), (offsetof(type, last_field) + sizeof(((type *)0)->last_field) + 7) / 8 * 8))

#endif
