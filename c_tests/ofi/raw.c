/*
 * The raw fabric: what a provider does without UCP, to compare with. Two processes on this host, endpoints of
 * FI_EP_RDM, no library in between.
 *
 *   raw PROVIDER SMALLEST LARGEST
 *
 * For each power of two from SMALLEST to LARGEST, in bytes: half of the time of a ping-pong, the rate of messages in
 * windows of 64 with a reply for each, and the bandwidth of fi_write from one registered region to another, 16 at a
 * time. Names and units are those of ucpbench.
 */
#include "../check.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, WRITES = 16, NAME = 256, LONGEST = 64 << 20, WARM_UP = 100, BATCHES = 11, LIMIT_SECONDS = 300 };

static const double enough = 2e-3; /* seconds of a batch */

/* What the processes share. */
struct board {
    _Atomic int  arrived;
    char         name[2][NAME];
    size_t       length[2];
    uint64_t     key[2], address[2];
    _Atomic long rounds; /* of a batch */
};

static struct board *board;
static int           rank;

static struct fi_info   *info;
static struct fid_ep    *ep;
static struct fid_cq    *cq;
static struct fid_mr    *mr;
static fi_addr_t         other;
static unsigned char    *memory; /* the first half is sent and written from, the other half received and written to */
static long              received, completed;

void check_report(const char *failure)
{
    fprintf(stderr, "raw: %s\n", failure);
    exit(1);
}

#define OK(call) check_call(#call, (call))
static void check_call(const char *call, long result)
{
    CHECK(result == 0, "%s: %s", call, fi_strerror((int)-result));
}

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void look(void)
{
    struct fi_cq_data_entry entry[WINDOW];
    ssize_t                 got = fi_cq_read(cq, entry, WINDOW);

    CHECK(got > 0 || got == -FI_EAGAIN, "fi_cq_read: %s", fi_strerror((int)-got));
    for (ssize_t i = 0; i < got; i++) {
        *(entry[i].flags & FI_RECV ? &received : &completed) += 1;
    }
}

#define POST(call)                                                                \
    for (ssize_t result_; (result_ = (call)) != 0; look()) {                      \
        CHECK(result_ == -FI_EAGAIN, #call ": %s", fi_strerror((int)-result_));   \
    }

static void meet(void)
{
    int own = ++board->arrived;

    for (int both = (own + 1) / 2 * 2; board->arrived < both;) {
        look();
    }
}

/* --- the endpoint --- */

static void open_endpoint(const char *provider)
{
    struct fi_info    *hints  = fi_allocinfo();
    struct fi_cq_attr  queue  = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .size = 4 * WINDOW};
    struct fi_av_attr  vector = {.type = FI_AV_UNSPEC};
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av     *av;

    hints->caps                   = FI_MSG | FI_RMA;
    hints->ep_attr->type          = FI_EP_RDM;
    hints->domain_attr->mr_mode   = FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    OK(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    OK(fi_cq_open(domain, &queue, &cq, NULL));
    OK(fi_av_open(domain, &vector, &av, NULL));
    OK(fi_endpoint(domain, info, &ep, NULL));
    OK(fi_ep_bind(ep, &av->fid, 0));
    OK(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
    OK(fi_enable(ep));
    OK(fi_mr_reg(domain, memory, 2 * (size_t)LONGEST, FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, &mr,
                 NULL));
    board->length[rank] = NAME;
    OK(fi_getname(&ep->fid, board->name[rank], &board->length[rank]));
    board->key[rank]     = fi_mr_key(mr);
    board->address[rank] = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
    meet();
    CHECK(fi_av_insert(av, board->name[1 - rank], 1, &other, 0, NULL) == 1);
}

/* --- rounds --- */

static void post_receive(size_t size)
{
    POST(fi_recv(ep, memory + LONGEST, size, fi_mr_desc(mr), FI_ADDR_UNSPEC, NULL));
}

static void send_message(size_t size)
{
    if (size <= info->tx_attr->inject_size) {
        POST(fi_inject(ep, memory, size, other));
        completed++;
    } else {
        POST(fi_send(ep, memory, size, fi_mr_desc(mr), other, NULL));
    }
}

static void wait_received(long count)
{
    while (received < count) {
        look();
    }
}

static void wait_completed(long count)
{
    while (completed < count) {
        look();
    }
}

static void ping_pong(size_t size)
{
    long next = received + 1, sent = completed + 1;

    post_receive(size);
    if (rank == 0) {
        send_message(size);
    }
    wait_received(next);
    if (rank == 1) {
        send_message(size);
    }
    wait_completed(sent);
}

static void stream(size_t size)
{
    long next = received + (rank == 0 ? 1 : WINDOW), sent = completed + (rank == 0 ? WINDOW : 1);

    if (rank == 0) {
        post_receive(1);
        for (int i = 0; i < WINDOW; i++) {
            send_message(size);
        }
    } else {
        for (int i = 0; i < WINDOW; i++) {
            post_receive(size);
        }
    }
    wait_received(next);
    if (rank == 1) {
        send_message(1);
    }
    wait_completed(sent);
}

static void write_memory(size_t size)
{
    long sent = completed + WRITES;

    if (rank == 0) {
        for (int i = 0; i < WRITES; i++) {
            POST(fi_write(ep, memory, size, fi_mr_desc(mr), other, board->address[1] + LONGEST, board->key[1], NULL));
        }
        wait_completed(sent);
        send_message(1);
        wait_completed(sent + 1);
    } else {
        long next = received + 1;
        post_receive(1);
        wait_received(next);
    }
}

static void repeat(void (*round)(size_t size), size_t size, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        round(size);
    }
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/*
 * Rounds of a batch: by the shortest of some rounds, as ucpbench does. Batches that are much shorter than a time slice
 * of the kernel would not show what other processes take, and so could not be compared with those of ucpbench.
 */
static long rounds_of(void (*round)(size_t size), size_t size)
{
    enum { FIRST = 4, TRIES = 3 };
    double shortest = 1;

    for (int i = 0; i < TRIES; i++) {
        meet();
        double begin = now();
        repeat(round, size, FIRST);
        double seconds = (now() - begin) / FIRST;
        shortest = seconds < shortest ? seconds : shortest;
    }
    return 1 + (long)(enough / (shortest + 1e-8));
}

/* Seconds of a round: the median of batches, as that of ucpbench. */
static double time_of(void (*round)(size_t size), size_t size)
{
    double batches[BATCHES], begin;
    long   rounds;

    repeat(round, size, WARM_UP);
    rounds = rounds_of(round, size);
    meet();
    if (rank == 0) {
        board->rounds = rounds;
    }
    meet();
    for (int i = 0; i < BATCHES; i++) {
        meet();
        begin = now();
        repeat(round, size, board->rounds);
        batches[i] = (now() - begin) / (double)board->rounds;
    }
    meet();
    if (rank == 0) {
        qsort(batches, BATCHES, sizeof(batches[0]), by_seconds);
    }
    return rank == 0 ? batches[BATCHES / 2] : 0;
}

static void figure(const char *name, size_t size, double value, const char *unit)
{
    if (rank == 0) {
        printf("%s %zu %.5g %s\n", name, size, value, unit);
        fflush(stdout);
    }
}

static void measure(const char *provider, size_t smallest, size_t largest)
{
    open_endpoint(provider);
    for (size_t size = smallest; size <= largest; size *= 2) {
        figure("raw_latency", size, time_of(ping_pong, size) / 2 * 1e6, "us");
        double message = time_of(stream, size) / WINDOW;
        figure("raw_bandwidth", size, (double)size / message / 1e6, "MB/s");
        figure("raw_rate", size, 1e-6 / message, "M/s");
        figure("raw_write_bandwidth", size, (double)size / (time_of(write_memory, size) / WRITES) / 1e6, "MB/s");
    }
    meet();
}

/* This process has the core of its rank to itself, if there are several. */
static void pin(void)
{
    cpu_set_t all, one;
    int       left = rank;

    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&all) > 1; core++) {
        if (CPU_ISSET(core, &all) && left-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            sched_setaffinity(0, sizeof(one), &one);
        }
    }
}

int main(int argc, char **argv)
{
    int   status = 0, failed = 0;
    pid_t child;

    CHECK(argc == 4, "usage: raw PROVIDER SMALLEST LARGEST");
    alarm(LIMIT_SECONDS);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    child = fork();
    CHECK(child >= 0);
    rank = child == 0;
    if (rank == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    pin();
    memory = aligned_alloc(4096, 2 * (size_t)LONGEST);
    CHECK(memory != NULL);
    memset(memory, rank, 2 * (size_t)LONGEST);
    measure(argv[1], strtoul(argv[2], NULL, 0), strtoul(argv[3], NULL, 0));
    if (rank == 0) {
        failed = waitpid(child, &status, 0) != child || status != 0;
    }
    return failed;
}
