/*
 * Many endpoints: one worker has several endpoints to each of many workers, in another process, all of which it uses at
 * once and closes. Each message arrives once, in the order of its endpoint.
 */
#define _GNU_SOURCE
#include "finish.h"
#include "party.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 40, EACH = 3, MESSAGES = 20, SECONDS = 12, TOTAL = WORKERS * EACH };

typedef struct {
    uint32_t endpoint, number;
} message_t;

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static ucp_context_h open_context(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

static void progress_all(ucp_worker_h *workers)
{
    for (int i = 0; i < WORKERS; i++) {
        ucp_worker_progress(workers[i]);
    }
}

/* The other process: receives on all of its workers. */
static void receive_all(ucp_worker_h *workers)
{
    static message_t        in[WORKERS];
    static ucs_status_ptr_t posted[WORKERS];
    static uint32_t         next[TOTAL];
    time_t                  end      = time(NULL) + SECONDS;
    int                     received = 0, in_order = 0, in_place = 0;

    for (int i = 0; i < WORKERS; i++) {
        posted[i] = ucp_tag_recv_nbx(workers[i], &in[i], sizeof(in[i]), 1, -1, &plain);
    }
    while (received < TOTAL * MESSAGES && time(NULL) < end) {
        progress_all(workers);
        for (int i = 0; i < WORKERS; i++) {
            if (UCS_PTR_IS_PTR(posted[i]) && ucp_request_check_status(posted[i]) == UCS_INPROGRESS) {
                continue;
            }
            if (UCS_PTR_IS_PTR(posted[i])) {
                WANT(UCS_OK, ucp_request_check_status(posted[i]));
                ucp_request_free(posted[i]);
            }
            received++;
            in_place += in[i].endpoint < TOTAL && in[i].endpoint / EACH == (uint32_t)i;
            in_order += in[i].number == next[in[i].endpoint % TOTAL]++;
            posted[i] = ucp_tag_recv_nbx(workers[i], &in[i], sizeof(in[i]), 1, -1, &plain);
        }
    }
    WANT_TRUE(received == TOTAL * MESSAGES);
    WANT_TRUE(in_place == TOTAL * MESSAGES);
    WANT_TRUE(in_order == TOTAL * MESSAGES);
}

static void serve(int link)
{
    ucp_worker_params_t params  = {.field_mask = 0};
    ucp_context_h       context = open_context();
    ucp_worker_h        workers[WORKERS];
    ucp_address_t      *address;
    size_t              length;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < WORKERS; i++) {
        must(ucp_worker_create(context, &params, &workers[i]), "ucp_worker_create");
        must(ucp_worker_get_address(workers[i], &address, &length), "ucp_worker_get_address");
        WANT_TRUE(send(link, address, length, 0) == (ssize_t)length);
    }
    receive_all(workers);
    WANT_TRUE(send(link, check_failed() ? "f" : "t", 1, MSG_NOSIGNAL) == 1);
    for (;;) {
        progress_all(workers);
    }
}

static void many(void)
{
    static ucs_status_ptr_t sent[TOTAL * MESSAGES];
    static message_t        out[TOTAL * MESSAGES];
    static char             addresses[WORKERS][1024];
    party_t                 ends[TOTAL];
    ucp_worker_params_t     params = {.field_mask = 0};
    int                     links[2], count = 0;
    char                    verdict = 'f';
    unsigned                failures = 0;

    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        serve(links[1]);
    }
    memset(ends, 0, sizeof(ends));
    ends[0].context = open_context();
    must(ucp_worker_create(ends[0].context, &params, &ends[0].worker), "ucp_worker_create");
    for (int i = 0; i < WORKERS; i++) {
        WANT_TRUE(recv(links[0], addresses[i], sizeof(addresses[i]), 0) > 0);
        check_restart_limit();
    }
    for (int i = 0; i < TOTAL; i++) {
        ends[i].worker = ends[0].worker;
        party_connect(&ends[i], addresses[i / EACH], UCP_ERR_HANDLING_MODE_PEER);
    }
    for (int number = 0; number < MESSAGES; number++) {
        for (int i = 0; i < TOTAL; i++, count++) {
            out[count]  = (message_t){(uint32_t)i, (uint32_t)number};
            sent[count] = send_tag(&ends[i], &out[count], sizeof(out[count]));
        }
    }
    for (int i = 0; i < count; i++) {
        WANT(UCS_OK, finish(&ends[0], sent[i]));
    }
    check_restart_limit();
    ends[0].link = links[0];
    for (time_t end = time(NULL) + SECONDS; recv(links[0], &verdict, 1, MSG_DONTWAIT) != 1 && time(NULL) < end;) {
        ucp_worker_progress(ends[0].worker);
    }
    WANT_TRUE(verdict == 't');
    check_restart_limit();
    for (int i = 0; i < TOTAL; i++) {
        sent[i] = ucp_ep_close_nbx(ends[i].ep, &plain);
    }
    for (int i = 0; i < TOTAL; i++) {
        WANT(UCS_OK, finish(&ends[0], sent[i]));
        failures += ends[i].failures;
    }
    WANT_TRUE(failures == 0);
    check_restart_limit();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ucp_worker_destroy(ends[0].worker);
    ucp_cleanup(ends[0].context);
}

static const case_t cases[] = {
    {"endpoints: many at once", many},
};

CHECK_MAIN(cases)
