//! The cost of a network connection between two network namespaces: bare sockets, or UCP over TCP.
//!
//! usage: tcpbench bare|ucp NAMESPACE_A NAMESPACE_B ADDRESS_OF_A SHARE
//! Two processes on two cores, one per namespace. Standard output gets one line per figure, NAME VALUE: `lat_N` is half
//! of a round trip of N bytes in us, `bw_N` a one-way stream of messages of N bytes in MB/s, acknowledged at its end.
//! Both ends poll. A figure is the median of several batches; a batch does 1/SHARE of its usual iterations. With `ucp`
//! the first line is the library's path.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { BATCHES = 7, WINDOW = 32, PORT = 9911, LIMIT_SECONDS = 100, MOST = 4 << 20, WARM_UP = 2 };

static const size_t LATENCIES[] = {8, 1024, 8192, 65536}, STREAMS[] = {64, 8192, 65536, 1 << 20, 4 << 20};

struct end {
    int active; /* the process that measures; the other answers */
    int pipe;   /* to the other process, outside of the network */
    int socket;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    char *buffer;
};

static void die(const char *what)
{
    perror(what);
    _exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void move(int fd, char *bytes, size_t n, int out)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = out ? send(fd, bytes + done, n - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                        : recv(fd, bytes + done, n - done, MSG_DONTWAIT);
        if (r > 0) {
            done += r;
        } else if (r == 0 || (errno != EAGAIN && errno != EINTR)) {
            die("socket");
        }
    }
}

static void finish(struct end *e, ucs_status_ptr_t request)
{
    if (!UCS_PTR_IS_PTR(request)) {
        if (UCS_PTR_STATUS(request) != UCS_OK) {
            die(ucs_status_string(UCS_PTR_STATUS(request)));
        }
        return;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(e->worker);
    }
    if (ucp_request_check_status(request) != UCS_OK) {
        die(ucs_status_string(ucp_request_check_status(request)));
    }
    ucp_request_free(request);
}

static ucs_status_ptr_t start(struct end *e, size_t n, int out)
{
    ucp_request_param_t plain = {.op_attr_mask = 0};

    return out ? ucp_tag_send_nbx(e->ep, e->buffer, n, 1, &plain)
               : ucp_tag_recv_nbx(e->worker, e->buffer, n, 1, (ucp_tag_t)-1, &plain);
}

static void one(struct end *e, size_t n, int out)
{
    if (e->worker == NULL) {
        move(e->socket, e->buffer, n, out);
    } else {
        finish(e, start(e, n, out));
    }
}

static void ping_pong(struct end *e, size_t n, int times)
{
    for (int i = 0; i < times; i++) {
        one(e, n, e->active);
        one(e, n, !e->active);
    }
}

static void stream(struct end *e, size_t n, int times)
{
    ucs_status_ptr_t window[WINDOW] = {NULL};

    for (int i = 0; i < times; i++) {
        if (e->worker == NULL) {
            move(e->socket, e->buffer, n, e->active);
            continue;
        }
        finish(e, window[i % WINDOW]);
        window[i % WINDOW] = start(e, n, e->active);
    }
    for (int i = 0; e->worker != NULL && i < WINDOW; i++) {
        finish(e, window[i]);
    }
    one(e, 1, !e->active);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(struct end *e, const char *name, size_t n, int times, void (*run)(struct end *, size_t, int))
{
    double took[BATCHES];

    for (int i = 0; i < WARM_UP; i++) {
        run(e, n, times);
    }
    for (int i = 0; i < BATCHES; i++) {
        double began = now();
        run(e, n, times);
        took[i] = (now() - began) / times;
    }
    qsort(took, BATCHES, sizeof(took[0]), by_value);
    if (e->active) {
        double t = took[BATCHES / 2];
        printf("%s_%zu %.3f\n", name, n, run == stream ? n / t / 1e6 : t / 2 * 1e6);
    }
}

static void connect_bare(struct end *e, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    char go;

    inet_pton(AF_INET, address, &at.sin_addr);
    if (e->active) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(fd, (void *)&at, sizeof(at)) != 0 || listen(fd, 1) != 0 || write(e->pipe, "g", 1) != 1) {
            die("listen");
        }
        e->socket = accept(fd, NULL, NULL);
        close(fd);
    } else {
        if (read(e->pipe, &go, 1) != 1 || connect(fd, (void *)&at, sizeof(at)) != 0) {
            die("connect");
        }
        e->socket = fd;
    }
    setsockopt(e->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        _exit(1);
    }
}

static void connect_ucp(struct end *e)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker = {.field_mask = 0};
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_request_param_t plain = {.op_attr_mask = 0};
    ucp_address_t *address;
    size_t length, theirs;
    Dl_info info;

    if (e->active && dladdr(ucp_worker_progress, &info) != 0) {
        printf("library %s\n", info.dli_fname);
    }
    must(ucp_init(&params, NULL, &e->context), "ucp_init");
    must(ucp_worker_create(e->context, &worker, &e->worker), "ucp_worker_create");
    must(ucp_worker_get_address(e->worker, &address, &length), "ucp_worker_get_address");
    if (write(e->pipe, &length, sizeof(length)) < 0 || write(e->pipe, address, length) < 0 ||
        read(e->pipe, &theirs, sizeof(theirs)) < 0 || recv(e->pipe, e->buffer, theirs, MSG_WAITALL) < 0) {
        die("exchange of addresses");
    }
    ep.address = (ucp_address_t *)e->buffer;
    must(ucp_ep_create(e->worker, &ep, &e->ep), "ucp_ep_create");
    ucp_worker_release_address(e->worker, address);
    finish(e, ucp_ep_flush_nbx(e->ep, &plain));
}

int main(int argc, char **argv)
{
    struct end e = {.socket = -1};
    int pair[2], status = 0, share;
    char path[200];

    if (argc != 6 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        fprintf(stderr, "usage: tcpbench bare|ucp NAMESPACE_A NAMESPACE_B ADDRESS_OF_A SHARE\n");
        return 2;
    }
    share = atoi(argv[5]);
    alarm(LIMIT_SECONDS);
    pid_t child = fork();
    e.active = child != 0;
    e.pipe = pair[!e.active];
    close(pair[e.active]);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(!e.active, &core);
    sched_setaffinity(0, sizeof(core), &core);
    snprintf(path, sizeof(path), "/run/netns/%s", argv[e.active ? 2 : 3]);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) != 0) {
        die(path);
    }
    /* UCX takes the devices from /sys, which has to show this namespace's. */
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) != 0 ||
        umount2("/sys", MNT_DETACH) != 0 || mount("sysfs", "/sys", "sysfs", 0, NULL) != 0) {
        die("/sys");
    }
    e.buffer = malloc(MOST);
    memset(e.buffer, 1, MOST);
    if (strcmp(argv[1], "bare") == 0) {
        connect_bare(&e, argv[4]);
    } else {
        connect_ucp(&e);
    }
    for (size_t i = 0; i < sizeof(LATENCIES) / sizeof(LATENCIES[0]); i++) {
        measure(&e, "lat", LATENCIES[i], (LATENCIES[i] > 10000 ? 500 : 2000) / share, ping_pong);
    }
    for (size_t i = 0; i < sizeof(STREAMS) / sizeof(STREAMS[0]); i++) {
        int times = (400 << 20) / STREAMS[i] / share;
        measure(&e, "bw", STREAMS[i], times > 20000 ? 20000 : times < 16 ? 16 : times, stream);
    }
    fflush(stdout);
    char bye;
    if (write(e.pipe, "b", 1) != 1 || read(e.pipe, &bye, 1) != 1) {
        die("the other end");
    }
    if (e.active) {
        waitpid(child, &status, 0);
    }
    _exit(status != 0);
}
