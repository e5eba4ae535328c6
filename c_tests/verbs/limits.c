/*
 * Limits of a process or a device. The worker that reaches one logs at level error which limit it is and how to raise
 * it; the endpoint or the worker fails with a status, or the data takes another path, and everything else goes on.
 *
 * To be run with UCX_LOG_LEVEL=error, on a device without other users.
 */
#define _GNU_SOURCE
#include "check.h"
#include "connect.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 1000, SECONDS = 20, LONG = 4 << 20 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

static ucp_context_h context;
static unsigned      failures;
static ucs_status_t  failure;
/* File descriptors of the library's log and of the original output. */
static int log_fd = -1, stdout_fd;

static void capture_log(void)
{
    fflush(stdout);
    log_fd = memfd_create("messages", 0);
    stdout_fd = dup(STDOUT_FILENO);
    WANT_TRUE(log_fd >= 0 && stdout_fd >= 0 && dup2(log_fd, STDOUT_FILENO) == STDOUT_FILENO);
}

/* Whether the library has logged all of these in lines of level error. Ends the capture. */
static void want_logged(const char *const *words)
{
    static char text[1 << 16];
    ssize_t     length;

    fflush(stdout);
    WANT_TRUE(dup2(stdout_fd, STDOUT_FILENO) == STDOUT_FILENO);
    length = pread(log_fd, text, sizeof(text) - 1, 0);
    close(stdout_fd);
    close(log_fd);
    if (check_failed()) {
        printf("%s", text);
    }
    WANT_TRUE(length > 0 && strstr(text, " ERROR ") != NULL);
    for (; *words != NULL; words++) {
        if (strstr(text, *words) == NULL) {
            printf("    not logged: \"%s\". The log:\n%s", *words, text);
        }
        WANT_TRUE(strstr(text, *words) != NULL);
    }
}

#define WANT_LOGGED(...) want_logged((const char *const[]){__VA_ARGS__, NULL})

static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)argument, (void)ep;
    failures++;
    failure = status;
}

static void open_context(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};

    if (log_fd < 0) {
        capture_log();
    }
    WANT(UCS_OK, ucp_init(&params, NULL, &context));
}

static ucs_status_t open_worker(ucp_worker_h *worker)
{
    ucp_worker_params_t params = {.field_mask = 0};

    return ucp_worker_create(context, &params, worker);
}

/* Runs a case in which one of the two ends has the limit of this variable. */
static const char *limit, *most;

static void progress_limited(ucp_worker_h worker)
{
    if (limit != NULL) {
        setenv(limit, most, 1);
    }
    ucp_worker_progress(worker);
    if (limit != NULL) {
        unsetenv(limit);
    }
}

static ucs_status_t finish(ucp_worker_h here, ucp_worker_h there, ucs_status_ptr_t request)
{
    time_t       end = time(NULL) + SECONDS;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && time(NULL) < end) {
        progress_limited(here);
        ucp_worker_progress(there);
    }
    ucp_request_free(request);
    return status;
}

static void close_ep(ucp_worker_h here, ucp_worker_h there, ucp_ep_h ep, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    finish(here, there, ucp_ep_close_nbx(ep, &param));
}

/* A message of this many bytes arrives. */
static void want_transferred(ucp_worker_h here, ucp_worker_h there, ucp_ep_h ep, size_t size)
{
    unsigned char   *out = malloc(size), *in = calloc(1, size);
    ucs_status_ptr_t receive;

    memset(out, 'c', size);
    receive = ucp_tag_recv_nbx(there, in, size, 1, -1, &none);
    WANT(UCS_OK, finish(here, there, ucp_tag_send_nbx(ep, out, size, 1, &none)));
    WANT(UCS_OK, finish(there, here, receive));
    WANT_TRUE(memcmp(in, out, size) == 0);
    free(out);
    free(in);
}

/*
 * An endpoint that reaches the limit fails, at the end that has it; another endpoint succeeds when the limit is gone.
 */
static void fail_and_recover(const char *name, const char *value)
{
    ucp_worker_h here, refused, other;
    ucp_ep_h     ep;
    uint64_t     word = 0;

    open_context();
    WANT(UCS_OK, open_worker(&here));
    WANT(UCS_OK, open_worker(&refused));
    WANT(UCS_OK, open_worker(&other));
    limit = name;
    most  = value;
    ep = connect_workers(here, refused, on_failure, NULL);
    WANT(UCS_ERR_UNREACHABLE, finish(here, refused, ucp_tag_send_nbx(ep, &word, sizeof(word), 1, &none)));
    for (int i = 0; i < TURNS && failures == 0; i++) {
        progress_limited(here);
    }
    WANT_TRUE(failures == 1);
    WANT(UCS_ERR_UNREACHABLE, failure);
    close_ep(here, refused, ep, UCP_EP_CLOSE_FLAG_FORCE);
    limit = NULL;
    ep    = connect_workers(here, other, on_failure, NULL);
    want_transferred(here, other, ep, sizeof(word));
    want_transferred(here, other, ep, LONG);
    close_ep(here, other, ep, 0);
    ucp_worker_destroy(other);
    ucp_worker_destroy(refused);
    ucp_worker_destroy(here);
    ucp_cleanup(context);
}

static void no_buffers(void)
{
    fail_and_recover("SOFT_HCA_MR_LONGEST", "100000");
    WANT_LOGGED("for buffers of a worker", "no buffers can be registered for what is sent",
                "max_mr of `ibv_devinfo -v`", "UCX_RCACHE_MAX_REGIONS");
}

static void no_queues(void)
{
    ucp_worker_h worker;

    setenv("SOFT_HCA_QP_MOST", "0", 1);
    setenv("UCX_TLS", "ud_verbs", 1);
    open_context();
    WANT(UCS_ERR_NO_RESOURCE, open_worker(&worker));
    WANT_LOGGED("no queues on soft0", "ulimit -l", "pairs", "UCX_UD_TX_QUEUE_LEN");
    unsetenv("SOFT_HCA_QP_MOST");
    WANT(UCS_OK, open_worker(&worker));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void no_datagrams(void)
{
    ucp_worker_h worker;

    setenv("SOFT_HCA_MR_LONGEST", "10000", 1);
    setenv("UCX_TLS", "ud_verbs", 1);
    open_context();
    WANT(UCS_ERR_NO_RESOURCE, open_worker(&worker));
    WANT_LOGGED("no buffers can be registered for datagrams", "max_mr of `ibv_devinfo -v`");
    unsetenv("SOFT_HCA_MR_LONGEST");
    WANT(UCS_OK, open_worker(&worker));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

/* Both ends use the shorter packet size of the two. */
static void short_queues(void)
{
    ucp_context_h first;
    ucp_worker_h  here, there;
    ucp_ep_h      ep;
    uint64_t      word = 0;

    setenv("UCX_RC_TX_QUEUE_LEN", "16", 1);
    open_context();
    first = context;
    WANT(UCS_OK, open_worker(&here));
    setenv("UCX_IB_SEG_SIZE", "256", 1);
    open_context();
    WANT(UCS_OK, open_worker(&there));
    ep = connect_workers(here, there, on_failure, NULL);
    WANT(UCS_ERR_UNREACHABLE, finish(here, there, ucp_tag_send_nbx(ep, &word, sizeof(word), 1, &none)));
    WANT_LOGGED("a queue of 16 sends is too short for packets of 256 bytes", "UCX_RC_TX_QUEUE_LEN", "UCX_IB_SEG_SIZE");
    close_ep(here, there, ep, UCP_EP_CLOSE_FLAG_FORCE);
    ucp_worker_destroy(there);
    ucp_worker_destroy(here);
    ucp_cleanup(context);
    ucp_cleanup(first);
}

/* Memory that cannot be registered is sent by copies. */
static void send_unregistered(void)
{
    ucp_worker_h here, there;
    ucp_ep_h     ep;

    setenv("SOFT_HCA_MR_LONGEST", "1048576", 1);
    open_context();
    WANT(UCS_OK, open_worker(&here));
    WANT(UCS_OK, open_worker(&there));
    ep = connect_workers(here, there, on_failure, NULL);
    want_transferred(here, there, ep, LONG);
    want_transferred(here, there, ep, LONG);
    close_ep(here, there, ep, 0);
    ucp_worker_destroy(there);
    ucp_worker_destroy(here);
    ucp_cleanup(context);
}

static void registrations(void)
{
    send_unregistered();
    WANT_LOGGED("registering ", "of memory failed", "registrations with ", "max_mr of `ibv_devinfo -v`",
                "UCX_RCACHE_MAX_REGIONS");
}

/* An unprivileged user with a low RLIMIT_MEMLOCK; the device refuses, as the kernel does for a real one. */
static void locked_memory(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct   sets[2];
    const struct rlimit             little = {.rlim_cur = 2 << 20, .rlim_max = 2 << 20};

    WANT_TRUE(syscall(SYS_capget, &header, sets) == 0);
    sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    WANT_TRUE(syscall(SYS_capset, &header, sets) == 0);
    WANT_TRUE(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    send_unregistered();
    WANT_LOGGED("registering ", "The limit of locked memory is 2097152 bytes", "ulimit -l unlimited", "LimitMEMLOCK");
}

static const case_t cases[] = {
    {"limits: no buffers to send from", no_buffers},
    {"limits: no queues for datagrams", no_queues},
    {"limits: no buffers for datagrams", no_datagrams},
    {"limits: short queues", short_queues},
    {"limits: registrations", registrations},
    {"limits: locked memory", locked_memory},
};

CHECK_MAIN(cases)
