/*
 * Two workers without a common transport: ucp_ep_create() fails with the reason in the log, and no request waits.
 * Workers with a common transport use it. EXCLUDED_LOG names the file that the log goes to.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 10 };

typedef struct {
    ucp_context_h  context;
    ucp_worker_h   worker;
    ucp_address_t *address;
} end_t;

static end_t ends[2];

static void open_end(end_t *end, const char *tls)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_config_t       *config;
    size_t              length;

    WANT(UCS_OK, ucp_config_read(NULL, NULL, &config));
    WANT(UCS_OK, ucp_config_modify(config, "TLS", tls));
    WANT(UCS_OK, ucp_init(&params, config, &end->context));
    ucp_config_release(config);
    WANT(UCS_OK, ucp_worker_create(end->context, &worker_params, &end->worker));
    WANT(UCS_OK, ucp_worker_get_address(end->worker, &end->address, &length));
}

static void close_end(end_t *end)
{
    ucp_worker_release_address(end->worker, end->address);
    ucp_worker_destroy(end->worker);
    ucp_cleanup(end->context);
}

static ucs_status_t connect_from(int i, ucp_ep_h *ep)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = ends[1 - i].address};

    return ucp_ep_create(ends[i].worker, &params, ep);
}

static int is_logged(const char *words)
{
    char  line[1024];
    int   found = 0;
    FILE *log   = fopen(getenv("EXCLUDED_LOG"), "r");

    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        found |= strstr(line, words) != NULL;
    }
    if (log != NULL) {
        fclose(log);
    }
    return found;
}

static void connect_apart(int i, const char *first, const char *second, const char *reason)
{
    ucp_ep_h ep;

    open_end(&ends[0], first);
    open_end(&ends[1], second);
    fclose(fopen(getenv("EXCLUDED_LOG"), "w"));
    WANT(UCS_ERR_UNREACHABLE, connect_from(i, &ep));
    WANT_TRUE(is_logged("Destination is unreachable"));
    WANT_TRUE(is_logged(reason));
    close_end(&ends[0]);
    close_end(&ends[1]);
}

/* A process logs one such error, however many peers it cannot reach: each end connects in a process of its own. */
static void apart(const char *first, const char *second, const char *reason)
{
    for (int i = 0; i < 2; i++) {
        int   status = -1;
        pid_t child  = fork();

        if (child == 0) {
            connect_apart(i, first, second, reason);
            fflush(NULL);
            _exit(check_failed());
        }
        WANT_TRUE(waitpid(child, &status, 0) == child && status == 0);
    }
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    for (time_t end = time(NULL) + SECONDS; ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < end;) {
        ucp_worker_progress(ends[0].worker);
        ucp_worker_progress(ends[1].worker);
    }
    ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

static void together(const char *first, const char *second)
{
    ucp_request_param_t none = {.op_attr_mask = 0};

    for (int i = 0; i < 2; i++) {
        uint64_t value = 5, got = 0;
        ucp_ep_h ep    = NULL;

        open_end(&ends[0], first);
        open_end(&ends[1], second);
        WANT(UCS_OK, connect_from(i, &ep));
        ucs_status_ptr_t received = ucp_tag_recv_nbx(ends[1 - i].worker, &got, sizeof(got), 1, -1, &none);
        WANT(UCS_OK, finish(ucp_tag_send_nbx(ep, &value, sizeof(value), 1, &none)));
        WANT(UCS_OK, finish(received));
        WANT_TRUE(got == value);
        WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &none)));
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
}

/* Queue pairs would be connected by TCP. */
static void no_socket(void)
{
    apart("rc_verbs,self", "rc,ud,self", "ud is excluded at one end");
    apart("rc_verbs,self", "rc,self", "ud is excluded at one end");
    apart("^ud,tcp,sm", "ib,self", "ud is excluded at one end");
}

/* One end has RC only, the other UD only. */
static void nothing_in_common(void)
{
    apart("rc_verbs,self", "ud_verbs,self", "by ud only");
    apart("rc_verbs,self", "ud_verbs,tcp", "by ud only");
    apart("rc,self", "ud,self", "by ud only");
    apart("ib,self", "tcp,self", "no other transport");
}

static void by_tcp(void)
{
    together("rc_verbs,tcp", "rc,ud,tcp");
    together("rc_verbs,tcp", "ud_verbs,tcp");
    together("^ud,sm", "^rc,sm");
}

static const case_t cases[] = {
    {"excluded: no socket", no_socket},
    {"excluded: nothing in common", nothing_in_common},
    {"excluded: by tcp", by_tcp},
};

CHECK_MAIN(cases)
