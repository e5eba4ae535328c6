/* One staged hang: the two processes, what they share, and what each of them does. */
#ifndef RUCP_HANG_H
#define RUCP_HANG_H

#include "../check.h"

#include <stdint.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

enum { HANDLER = 3, EAGER = 4000, LONG = 1 << 20, HUGE = 256 << 20, WORDS = 512 };

#define OK(call) CHECK((call) == UCS_OK)

typedef struct {
    volatile size_t length; /* of the address; 0: not there yet */
    char            address[1024];
} side_t;

typedef struct {
    side_t           waiter, other;
    size_t           key_length;
    char             key[512];
    volatile int     begin, met;
    volatile uint16_t port;
    _Alignas(4096) volatile uint64_t words[WORDS];
} shared_t;

typedef struct {
    const char *name;
    uint64_t    features;
    void (*waiter)(void);
    void (*other)(void);
    int stop_other;   /* stop it before the waiter begins, after both have met if `meet` */
    int meet;         /* they exchange a message first */
    int apart;        /* each in a network of its own, which answers nothing */
} case_t;

extern shared_t           *shared;
extern ucp_worker_h        worker;
extern ucp_ep_h            ep;
extern const case_t       *this_case;
extern pid_t               other;
extern ucp_request_param_t none; /* an operation without parameters */

/* process.c: a process with one worker. */

void progress(void);
void hang(void);
void finish(ucs_status_ptr_t request);
void network_of_its_own(const char *address);
void open_worker(side_t *side);
void connect_to(side_t *side);
void meet(void);
void share_memory(void);

/* other.c: what the other process does after both have met. */

void progresses(void);
void sleeps(void);
void computes(void);
void sends_tag_2(void);
void dies(void);
void keeps_messages(void);
void lacks_descriptors(void);
void accepts_nobody(void);
void accepts_and_sleeps(void);
void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status);

/* waiter.c: what the waiter does. `big` has HUGE bytes. */

extern char *big;

void receives(void);
void receives_and_stops(void);
void receives_and_blocks(void);
void receives_asleep(void);
void fills(void);
void sends_long(void);
void sends_short(void);
void sends_short_later(void);
void sends_sync(void);
void sends_message(void);
void puts_much(void);
void gets(void);
void fetches(void);
void flushes(void);
void reads_stream(void);
void is_not_accepted(void);
void closes(void);
void is_busy(void);
void receives_and_computes(void);

#endif
