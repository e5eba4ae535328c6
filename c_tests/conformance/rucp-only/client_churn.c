/*
 * A worker that outlives its peers: after many short-lived clients it uses as much memory as after a few. Each
 * client is a process of its own, started by exec; one of three kills itself instead of closing in order.
 */
#define _GNU_SOURCE
#include "check.h"
#include "workers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHURN = 10000, CHURN_SLACK = 64 << 10 };
/* Deaths are detected with a delay: the rings of some dead clients exist at the same time, and the inbox grows. */
enum { RING_PARTS = 4 };
/* Overhead of the heap itself, with freed memory it keeps. A client that is never released takes 600 bytes, or 240,000
 * bytes for all. */
enum { MAPPINGS_SLACK = 4 + RING_PARTS, BYTES_SLACK = 160 << 10, BYTES_KEPT = 600, MAX_KEPT = 256 };
enum { HELLO = 1, BYE, ANSWER, FEW = 50, MANY = 400, AT_ONCE = 6, KILL_EVERY = 3, BUFFER = 2048, SECONDS = 100 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* --- a client, in a process of its own --- */

typedef struct {
    pid_t  pid;     /* identifies the client to the server */
    size_t length;  /* of its address; 0: the server replies on the endpoint that comes with the message */
    char   address[BUFFER];
} hello_t;

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep, (void)status;
}

static ucs_status_t on_answer(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)data, (void)length, (void)param;
    *(int *)arg = 1;
    return UCS_OK;
}

static void finish(ucp_worker_h worker, ucs_status_ptr_t request)
{
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    release_request(request);
}

static size_t from_hex(const char *hex, unsigned char *bytes)
{
    size_t length = strlen(hex) / 2;

    for (size_t i = 0; i < length; i++) {
        sscanf(hex + 2 * i, "%2hhx", &bytes[i]);
    }
    return length;
}

/* A client that wants no answer: the server has nothing of it but what it was sent. */
static int is_silent(const char *kind)
{
    return strcmp(kind, "silent") == 0;
}

static ucp_ep_h client_endpoint(ucp_worker_h worker, const char *kind, const char *where)
{
    static unsigned char address[BUFFER];
    struct sockaddr_in   server = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_ep_params_t      params = {.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER};
    ucp_ep_h             ep;

    params.err_handler.cb = on_failure;
    params.err_mode       = strcmp(kind, "reply") == 0 || is_silent(kind) || strcmp(kind, "churn_unhandled") == 0 ?
                                    UCP_ERR_HANDLING_MODE_NONE :
                                    UCP_ERR_HANDLING_MODE_PEER;
    if (strcmp(kind, "session") == 0) {
        server.sin_port = htons((uint16_t)atoi(where));
        params.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
        params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr.addr    = (const struct sockaddr *)&server;
        params.sockaddr.addrlen = sizeof(server);
    } else {
        params.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        from_hex(where, address);
        params.address = (const ucp_address_t *)address;
    }
    must(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    return ep;
}

/* One endpoint after the other to the same worker; memory must stay at its size after a tenth of them. */
static int churn(ucp_worker_h worker, const char *kind, const char *where, int count, int *answered)
{
    hello_t hello = {.pid = getpid()};
    size_t  few   = 0;

    for (int i = 1; i <= count; i++) {
        ucp_ep_h ep = client_endpoint(worker, kind, where);

        *answered = 0;
        finish(worker, send_header(ep, HELLO, &hello, offsetof(hello_t, address), UCP_AM_SEND_FLAG_REPLY));
        while (!*answered) {
            ucp_worker_progress(worker);
        }
        finish(worker, ucp_ep_close_nbx(ep, &plain));
        few = i == count / 10 ? mallinfo2().uordblks : few;
    }
    return mallinfo2().uordblks > few + CHURN_SLACK;
}

/* client KIND WHERE KILLED, or of churn: NUMBER */
static int client(char **argv)
{
    const char    *kind     = argv[0];
    int            answered = 0;
    hello_t        hello    = {.pid = getpid()};
    ucp_context_h  context  = new_context(UCP_FEATURE_AM);
    ucp_worker_h   worker   = new_worker(context, UCS_THREAD_MODE_SINGLE);
    ucp_ep_h       ep;
    ucp_address_t *address;

    alarm(SECONDS);
    set_handler(worker, ANSWER, on_answer, &answered);
    if (strncmp(kind, "churn", 5) == 0) {
        answered = churn(worker, kind, argv[1], atoi(argv[2]), &answered);
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
        return answered;
    }
    ep = client_endpoint(worker, kind, argv[1]);
    if (strcmp(kind, "both") == 0) {
        must(ucp_worker_get_address(worker, &address, &hello.length), "ucp_worker_get_address");
        memcpy(hello.address, address, hello.length);
        ucp_worker_release_address(worker, address);
    }
    finish(worker, send_header(ep, HELLO, &hello, offsetof(hello_t, address) + hello.length,
                        is_silent(kind) ? 0 : UCP_AM_SEND_FLAG_REPLY));
    while (!answered && !is_silent(kind)) {
        ucp_worker_progress(worker);
    }
    /* What was not answered may still be on its way. */
    finish(worker, ucp_ep_flush_nbx(ep, &plain));
    if (atoi(argv[2])) {
        raise(SIGKILL);
    }
    finish(worker, send_header(ep, BYE, &hello, offsetof(hello_t, address), 0));
    finish(worker, ucp_ep_close_nbx(ep, &plain));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}

/* --- the server --- */

typedef struct {
    pid_t    pid;
    ucp_ep_h ep;
    int      ends; /* its client has sent its last message, or has failed */
} served_t;

typedef struct {
    ucp_context_h          context;
    ucp_worker_h           worker;
    ucp_listener_h         listener;
    ucp_conn_request_h     waiting[AT_ONCE];
    size_t                 waits;
    served_t               served[AT_ONCE + MANY];
    size_t                 serves;
    unsigned               hellos, closes;
    ucs_status_ptr_t       closing[AT_ONCE + MANY];
    atomic_int             over;
    atomic_uint            steps;
    size_t                 flushes;
    const char            *kind;
    char                   where[2 * BUFFER];
} server_t;

/* Memory, descriptors and mappings of a process. */
typedef struct {
    size_t descriptors, mappings, segments, bytes;
} held_t;

static served_t *served_by(server_t *server, ucp_ep_h ep, pid_t pid)
{
    for (size_t i = 0; i < server->serves; i++) {
        if ((ep != NULL && server->served[i].ep == ep) || (pid != 0 && server->served[i].pid == pid)) {
            return &server->served[i];
        }
    }
    return NULL;
}

static void server_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    served_t *served = served_by(arg, ep, 0);

    (void)status;
    if (served != NULL) {
        served->ends = 1;
    }
}

static void serve(server_t *server, ucp_ep_params_t params, pid_t pid)
{
    ucp_ep_h ep;

    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb  = server_failure;
    params.err_handler.arg = server;
    /* The client may have been killed meanwhile. */
    if (ucp_ep_create(server->worker, &params, &ep) == UCS_OK) {
        server->served[server->serves++] = (served_t){.pid = pid, .ep = ep};
    }
}

static ucs_status_t on_hello(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
    server_t       *server = arg;
    const hello_t  *hello  = header;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_ep_h        ep     = param->reply_ep;

    (void)header_length, (void)data, (void)length;
    server->hellos++;
    if (hello->length != 0) {
        char *address = malloc(hello->length);

        memcpy(address, hello->address, hello->length);
        params.address = (const ucp_address_t *)address;
        serve(server, params, hello->pid);
        free(address);
        served_t *served = served_by(server, NULL, hello->pid);
        ep               = served != NULL ? served->ep : NULL;
    }
    if (ep != NULL) {
        release_request(send_header(ep, ANSWER, NULL, 0, 0));
    }
    return UCS_OK;
}

static ucs_status_t on_bye(void *arg, const void *header, size_t header_length, void *data, size_t length,
                           const ucp_am_recv_param_t *param)
{
    const hello_t *hello  = header;
    served_t      *served = served_by(arg, NULL, hello->pid);

    (void)header_length, (void)data, (void)length, (void)param;
    if (served != NULL) {
        served->ends = 1;
    }
    return UCS_OK;
}

static void on_conn_request(ucp_conn_request_h request, void *arg)
{
    server_t *server = arg;

    server->waiting[server->waits++] = request;
}

static void server_open(server_t *server, const char *kind, ucs_thread_mode_t mode)
{
    struct sockaddr_in     any    = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_listener_params_t  listen = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
    };
    ucp_listener_attr_t    attr   = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_address_t         *address;
    size_t                 length;

    memset(server, 0, sizeof(*server));
    server->kind    = kind;
    server->context = new_context(UCP_FEATURE_AM);
    server->worker  = new_worker(server->context, mode);
    set_handler(server->worker, HELLO, on_hello, server);
    set_handler(server->worker, BYE, on_bye, server);
    listen.sockaddr.addr    = (const struct sockaddr *)&any;
    listen.sockaddr.addrlen = sizeof(any);
    listen.conn_handler.cb  = on_conn_request;
    listen.conn_handler.arg = server;
    must(ucp_listener_create(server->worker, &listen, &server->listener), "ucp_listener_create");
    must(ucp_listener_query(server->listener, &attr), "ucp_listener_query");
    if (strcmp(kind, "session") == 0) {
        snprintf(server->where, sizeof(server->where), "%d", ntohs(((struct sockaddr_in *)&attr.sockaddr)->sin_port));
        return;
    }
    must(ucp_worker_get_address(server->worker, &address, &length), "ucp_worker_get_address");
    for (size_t i = 0; i < length; i++) {
        snprintf(server->where + 2 * i, 3, "%02x", ((unsigned char *)address)[i]);
    }
    ucp_worker_release_address(server->worker, address);
}

/* Progresses, accepts clients, and closes the endpoints of those that have ended. */
static void server_step(server_t *server)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST};

    for (int i = 0; i < 32; i++) {
        ucp_worker_progress(server->worker);
    }
    atomic_fetch_add(&server->steps, 1);
    while (server->waits > 0) {
        params.conn_request = server->waiting[--server->waits];
        serve(server, params, 0);
    }
    for (size_t i = 0; i < server->serves; i++) {
        if (server->served[i].ends) {
            server->closing[server->closes++] = ucp_ep_close_nbx(server->served[i].ep, &plain);
            server->served[i]                 = server->served[--server->serves];
            i--;
        }
    }
    for (size_t i = 0; i < server->closes; i++) {
        ucs_status_ptr_t close = server->closing[i];

        if (!UCS_PTR_IS_PTR(close) || ucp_request_check_status(close) != UCS_INPROGRESS) {
            release_request(close);
            server->closing[i--] = server->closing[--server->closes];
        }
    }
}

static void start_client(server_t *server, int number)
{
    pid_t pid = fork();
    char  text[16];

    if (pid == 0) {
        snprintf(text, sizeof(text), "%d", number);
        execl("/proc/self/exe", "client_churn", "client", server->kind, server->where, text, NULL);
        _exit(127);
    }
    WANT_TRUE(pid > 0);
}

static int reap_client(void)
{
    int status;

    if (waitpid(-1, &status, WNOHANG) <= 0) {
        return 0;
    }
    WANT_TRUE((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return 1;
}

static void serve_clients(server_t *server, int count)
{
    int started = 0, ended = 0;

    while (ended < count && !check_failed()) {
        if (started < count && started - ended < AT_ONCE) {
            start_client(server, started++ % KILL_EVERY == 0);
        }
        server_step(server);
        ended += reap_client();
    }
}

static size_t descriptors(void)
{
    DIR   *directory = opendir("/proc/self/fd");
    size_t count     = 0;

    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static held_t count_resources(void)
{
    held_t held = {.descriptors = descriptors(), .bytes = mallinfo2().uordblks};
    FILE  *maps = fopen("/proc/self/maps", "r");
    char   line[1024];

    while (fgets(line, sizeof(line), maps) != NULL) {
        held.mappings++;
        held.segments += strstr(line, "SYSV") != NULL || strstr(line, "/memfd:") != NULL ||
                         strstr(line, "/dev/shm") != NULL;
    }
    fclose(maps);
    return held;
}

/* A thread that flushes the worker, and so all of its peers, once for each step of the server's. */
static void *flush(void *arg)
{
    server_t *server = arg;

    while (!atomic_load(&server->over)) {
        unsigned         steps   = atomic_load(&server->steps);
        ucs_status_ptr_t request = ucp_worker_flush_nbx(server->worker, &plain);

        while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
            sched_yield();
        }
        release_request(request);
        server->flushes++;
        while (atomic_load(&server->steps) == steps) {
            sched_yield();
        }
    }
    return NULL;
}

static int is_at_most(held_t held, held_t wanted)
{
    return held.descriptors <= wanted.descriptors && held.mappings <= wanted.mappings &&
           held.segments <= wanted.segments && held.bytes <= wanted.bytes;
}

/*
 * Progresses until no more memory is used than wanted, for this many seconds at most: deaths are detected with a delay.
 */
static held_t settle(server_t *server, held_t wanted, int seconds)
{
    time_t end = time(NULL) + seconds;
    held_t held;

    do {
        for (int i = 0; i < 100; i++) {
            server_step(server);
        }
        held = count_resources();
    } while (time(NULL) < end && (!is_at_most(held, wanted) || server->serves > 0 || server->closes > 0));
    return held;
}

static void no_more(const char *what, size_t most, size_t many)
{
    char text[128];

    snprintf(text, sizeof(text), "%zu after %d clients, where %zu were expected", many, FEW + MANY, most);
    check(__FILE__, __LINE__, what, many <= most, text);
}

/* `kept`: clients whose state may be kept, because the server could still reply to them. */
static void churn_clients(const char *kind, size_t kept, ucs_thread_mode_t mode)
{
    static server_t server;
    held_t          fresh, few, most, many;
    pthread_t       flusher;

    alarm(SECONDS);
    server_open(&server, kind, mode);
    if (mode == UCS_THREAD_MODE_MULTI) {
        WANT_TRUE(pthread_create(&flusher, NULL, flush, &server) == 0);
    }
    fresh = count_resources();
    serve_clients(&server, FEW);
    few  = settle(&server, fresh, 2);
    most = few;
    most.mappings += MAPPINGS_SLACK;
    most.segments += RING_PARTS;
    most.bytes += BYTES_SLACK + kept * BYTES_KEPT;
    serve_clients(&server, MANY);
    many = settle(&server, most, 20);
    if (mode == UCS_THREAD_MODE_MULTI) {
        atomic_store(&server.over, 1);
        while (pthread_tryjoin_np(flusher, NULL) != 0) {
            server_step(&server);
        }
        WANT_TRUE(server.flushes > 0);
    }
    WANT_TRUE(server.hellos == FEW + MANY);
    WANT_TRUE(server.serves == 0 && server.closes == 0);
    no_more("descriptors", most.descriptors, many.descriptors);
    no_more("mappings", most.mappings, many.mappings);
    no_more("shared memory", most.segments, many.segments);
    no_more("bytes", most.bytes, many.bytes);
    if (getenv("CLIENT_CHURN_BYTES") != NULL) {
        printf("    %s: %zu bytes at first, %zu after %d, %zu after %d\n", kind, fresh.bytes, few.bytes, FEW,
               many.bytes, FEW + MANY);
    }
    ucp_listener_destroy(server.listener);
    ucp_worker_destroy(server.worker);
    ucp_cleanup(server.context);
}

/* A client that lives makes and closes endpoints. */
static void outlive_endpoints(const char *kind, ucs_thread_mode_t mode)
{
    static server_t server;
    unsigned        seen = 0;
    size_t          few = 0, many = 0;
    double          begin = 0;
    struct timespec now;

    alarm(SECONDS);
    server_open(&server, kind, mode);
    start_client(&server, CHURN);
    while (!reap_client()) {
        ucp_worker_progress(server.worker);
        if (server.hellos > seen && server.hellos % (CHURN / 10) == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            seen = server.hellos;
            many = mallinfo2().uordblks;
            few  = seen == CHURN / 10 ? many : few;
            if (getenv("CLIENT_CHURN_BYTES") != NULL) {
                printf("    %u: %zu bytes, %.1f us a cycle\n", seen, many,
                       (now.tv_sec + now.tv_nsec * 1e-9 - begin) * 1e6 / (CHURN / 10));
            }
            begin = now.tv_sec + now.tv_nsec * 1e-9;
        }
    }
    WANT_TRUE(server.hellos == CHURN);
    WANT_TRUE(many <= few + CHURN_SLACK);
    ucp_listener_destroy(server.listener);
    ucp_worker_destroy(server.worker);
    ucp_cleanup(server.context);
}

static void closed_endpoints(void)
{
    outlive_endpoints("churn", UCS_THREAD_MODE_SINGLE);
}

static void closed_endpoints_unhandled(void)
{
    outlive_endpoints("churn_unhandled", UCS_THREAD_MODE_SINGLE);
}

static void answered_clients(void)
{
    churn_clients("reply", MAX_KEPT - FEW, UCS_THREAD_MODE_SINGLE);
}

static void silent_clients(void)
{
    churn_clients("silent", 0, UCS_THREAD_MODE_SINGLE);
}

static void connected_clients(void)
{
    churn_clients("both", 0, UCS_THREAD_MODE_SINGLE);
}

static void accepted_clients(void)
{
    churn_clients("session", 0, UCS_THREAD_MODE_SINGLE);
}

static void connected_to_threads(void)
{
    churn_clients("both", 0, UCS_THREAD_MODE_MULTI);
}

static void accepted_by_threads(void)
{
    churn_clients("session", 0, UCS_THREAD_MODE_MULTI);
}

static const case_t cases[] = {
    {"answered_clients", answered_clients},
    {"silent_clients", silent_clients},
    {"connected_clients", connected_clients},
    {"accepted_clients", accepted_clients},
    {"connected_to_threads", connected_to_threads},
    {"accepted_by_threads", accepted_by_threads},
    {"closed_endpoints", closed_endpoints},
    {"closed_endpoints_unhandled", closed_endpoints_unhandled},
};

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "client") == 0) {
        return client(argv + 2);
    }
    return check_main(cases, sizeof(cases) / sizeof(cases[0]), argc > 1 ? argv[1] : NULL);
}
