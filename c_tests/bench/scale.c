//! Costs of a worker with very many peers, of which it uses few.
//!
//! ucpbench scale [--real|--count] NUMBER. The worker creates an endpoint to each of NUMBER peers that do not exist:
//! made_up_addresses, beside this program, derives their addresses from this worker's. They are on other hosts, so that
//! a network of UCX_TLS leads to them. --real: to each of NUMBER workers of the other process, which any library can
//! do. Then it connects to workers of the other process that do exist, one after the other (`first_use`: from the
//! endpoint's creation to the answer to the first message), exchanges messages with the last one, and closes all.
//!
//! Times are processor time of the thread that calls, except `first_use` and `latency`. `create` and `close` are of one
//! endpoint, the mean of all; `create_last` that of the last tenth. `known` is the creation of a second endpoint to a
//! known peer, `query` one ucp_ep_query of the name, `address_query` one ucp_worker_address_query. `idle` is one
//! progress call while nothing happens, with its share of what the library does now and then; `idle_longest` the
//! longest 64 calls in a row. Memory is per peer: proportional share (PSS), data segment (VmData), malloc
//! (`after_heap`: when the endpoints are closed). Descriptors and mappings are those that the endpoints have added.
//!
//! --count: instead of that the instructions of idle progress, under valgrind --tool=callgrind --collect-atstart=no: of
//! so many calls in so many milliseconds that all periodic work is among them.
#define _GNU_SOURCE
#include "pair.h"
#include "../resources.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <valgrind/callgrind.h>

enum {
    MAX_NUMBER = 1000000,
    LIVE = 11,           /* workers that exist */
    TIMED = 1000,        /* calls of which each is timed by the mean */
    BLOCK = 64,          /* progress calls */
    COUNTED_BLOCKS = 800,
    PAUSE_US = 1000,     /* between two blocks that are counted: the clock of the library advances */
    BYTES = 8,
};

static const ucp_tag_t all_bits = ~(ucp_tag_t)0;
static const ucp_tag_t CLIENT = (ucp_tag_t)1 << 32; /* of a message to a live worker; the low bits are its number */

struct scale {
    const struct effort *effort;
    bool real, count;
    int number;
};

/** Resources of this process. */
struct held {
    double pss_kib, data_kib, heap;
    size_t descriptors, mappings;
};

static double kib_of(const char *file, const char *format)
{
    FILE *lines = fopen(file, "r");
    char line[256];
    long kib = -1;

    while (lines != NULL && kib < 0 && fgets(line, sizeof(line), lines) != NULL) {
        sscanf(line, format, &kib);
    }
    if (kib < 0) {
        die("cannot read %s", file);
    }
    fclose(lines);
    return (double)kib;
}

static struct held held_now(void)
{
    struct mallinfo2 info = mallinfo2();

    return (struct held){.pss_kib = kib_of("/proc/self/smaps_rollup", "Pss: %ld kB"),
                         .data_kib = kib_of("/proc/self/status", "VmData: %ld kB"),
                         .heap = (double)(info.uordblks + info.hblkhd),
                         .descriptors = entries_of("/proc/self/fd"),
                         .mappings = lines_of("/proc/self/maps")};
}

static void report(const struct scale *scale, const char *what, double value, const char *unit)
{
    char name[64];

    snprintf(name, sizeof(name), "scale_%s%s", scale->real ? "real_" : "", what);
    figure(name, scale->number, value, unit);
}

static void report_held(const struct scale *scale, struct held before)
{
    struct held after = held_now();
    double number = scale->number;

    report(scale, "pss", (after.pss_kib - before.pss_kib) * 1024 / number, "B");
    report(scale, "data", (after.data_kib - before.data_kib) * 1024 / number, "B");
    report(scale, "heap", (after.heap - before.heap) / number, "B");
    report(scale, "descriptors", (double)after.descriptors - (double)before.descriptors, "descriptors");
    report(scale, "mappings", (double)after.mappings - (double)before.mappings, "mappings");
}

/* ---- addresses ---- */

/** Addresses of equal room, one behind the other. */
struct addresses {
    unsigned char *bytes;
    size_t room;
};

static const ucp_address_t *address_of(struct addresses addresses, int i)
{
    return (const ucp_address_t *)(addresses.bytes + (size_t)i * addresses.room);
}

/**
 * Derives addresses from that of the worker. They lie in memory that is there before anything is measured. No bytes:
 * the library has addresses of another format.
 */
static struct addresses make_up(ucp_worker_h worker, int number)
{
    struct addresses made_up;
    char program[4096], command[8192];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    int own = memfd_create("address", MFD_CLOEXEC);
    ucp_address_t *address;
    size_t read;
    FILE *pipe;
    int status;

    program[length < 0 ? 0 : length] = '\0';
    check(ucp_worker_get_address(worker, &address, &made_up.room), "ucp_worker_get_address");
    if (own < 0 || write(own, address, made_up.room) != (ssize_t)made_up.room) {
        die("cannot write the worker's address");
    }
    ucp_worker_release_address(worker, address);
    snprintf(command, sizeof(command), "exec '%.*s/made_up_addresses' %d < /proc/%d/fd/%d",
             (int)(strrchr(program, '/') - program), program, number, getpid(), own);
    made_up.bytes = malloc((size_t)number * made_up.room);
    pipe = popen(command, "r");
    if (made_up.bytes == NULL || pipe == NULL) {
        die("no made_up_addresses");
    }
    read = fread(made_up.bytes, made_up.room, (size_t)number, pipe);
    status = pclose(pipe);
    close(own);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && read == 0) {
        free(made_up.bytes);
        return (struct addresses){.bytes = NULL};
    }
    if (status != 0 || read != (size_t)number) {
        die("made_up_addresses has made %zu of %d addresses: scripts/build makes it", read, number);
    }
    return made_up;
}

/** The addresses of the workers of the other process, in the order of its calls of show_workers. */
static struct addresses take_workers(struct place place, int number)
{
    unsigned char *mail = malloc(MAIL_ROOM);
    struct addresses taken = {.bytes = NULL};

    for (int i = 0; i < number; i++) {
        size_t length = exchange(place, "", 1, mail, MAIL_ROOM);

        if (taken.bytes == NULL) {
            taken.room = length + 64; /* numbers in them may differ in length */
            taken.bytes = calloc((size_t)number, taken.room);
        }
        if (taken.bytes == NULL || length > taken.room) {
            die("an address of %zu bytes", length);
        }
        memcpy(taken.bytes + (size_t)i * taken.room, mail, length);
    }
    free(mail);
    return taken;
}

static void show_workers(struct place place, const ucp_worker_h *workers, int number)
{
    for (int i = 0; i < number; i++) {
        ucp_address_t *address;
        size_t length;
        char nothing;

        check(ucp_worker_get_address(workers[i], &address, &length), "ucp_worker_get_address");
        exchange(place, address, length, &nothing, sizeof(nothing));
        ucp_worker_release_address(workers[i], address);
    }
}

/* ---- the process with the peers that exist ---- */

static ucp_context_h open_context(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

    check(ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

static ucp_worker_h open_worker(ucp_context_h context)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_worker_h worker;

    check(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    return worker;
}

static ucp_ep_h connect_to(ucp_worker_h worker, const ucp_address_t *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_ep_h ep;

    check(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    return ep;
}

struct peers {
    ucp_worker_h *worker;
    int number;
};

static void progress_peers(void *argument)
{
    struct peers *peers = argument;

    for (int i = 0; i < peers->number; i++) {
        ucp_worker_progress(peers->worker[i]);
    }
}

static void finish(struct peers *peers, ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            progress_peers(peers);
        }
        ucp_request_free(request);
    }
    check(status, "message");
}

/** Answers this many messages to a live worker. */
static void answer(struct peers *live, int i, ucp_ep_h ep, long messages)
{
    static unsigned char bytes[BYTES];

    for (long k = 0; k < messages; k++) {
        finish(live, ucp_tag_recv_nbx(live->worker[i], bytes, BYTES, CLIENT + (ucp_tag_t)i, all_bits, &plain));
        finish(live, ucp_tag_send_nbx(ep, bytes, BYTES, (ucp_tag_t)i, &plain));
    }
}

static void be_peers(struct place place, const struct scale *scale)
{
    struct peers all = {.number = LIVE + (scale->real ? scale->number : 0)};
    struct peers live;
    ucp_context_h context = open_context();
    char client[MAIL_ROOM];
    ucp_ep_h ep[LIVE];

    all.worker = calloc((size_t)all.number, sizeof(ucp_worker_h));
    for (int i = 0; i < all.number; i++) {
        all.worker[i] = open_worker(context);
    }
    live = (struct peers){.number = LIVE, .worker = all.worker}; /* the first ones */
    exchange(place, "", 1, client, sizeof(client));
    show_workers(place, all.worker, all.number);
    meet(place, NULL, NULL); /* what follows alone is measured, and by itself */
    if (!scale->count && !place.stage->over) {
        for (int i = 0; i < LIVE; i++) {
            ep[i] = connect_to(live.worker[i], (ucp_address_t *)client);
            answer(&live, i, ep[i], 1);
        }
        answer(&live, LIVE - 1, ep[LIVE - 1], TIMED);
        /* Its endpoints to these workers are closed; some libraries need an answer for that. */
        meet(place, progress_peers, &all);
    }
    meet(place, NULL, NULL);
}

/* ---- the worker that is measured ---- */

static void wait_here(ucp_worker_h worker, ucs_status_ptr_t request)
{
    struct peers alone = {.number = 1, .worker = &worker};

    finish(&alone, request);
}

static double cpu_seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/** Progress for some seconds in which nothing happens. */
static void measure_idle(const struct scale *scale, ucp_worker_h worker, const char *prefix)
{
    double begin = cpu_seconds(), at = begin, longest = 0, last = now() + (scale->effort->quick ? 1 : 4);
    long blocks = 0;
    char name[32];

    do {
        double block = at;

        for (int i = 0; i < BLOCK; i++) {
            ucp_worker_progress(worker);
        }
        at = cpu_seconds();
        longest = at - block > longest ? at - block : longest;
        blocks++;
    } while (now() < last);
    snprintf(name, sizeof(name), "%sidle", prefix);
    report(scale, name, (at - begin) / (double)(blocks * BLOCK) * 1e9, "ns");
    snprintf(name, sizeof(name), "%sidle_longest", prefix);
    report(scale, name, longest * 1e6, "us");
}

/** Idle progress, counted: blocks of calls, with pauses in which the clock advances. */
static void count_idle(ucp_worker_h worker)
{
    for (int block = -COUNTED_BLOCKS; block < COUNTED_BLOCKS; block++) {
        if (block == 0) {
            CALLGRIND_ZERO_STATS;
        }
        CALLGRIND_TOGGLE_COLLECT;
        for (int i = 0; i < BLOCK; i++) {
            ucp_worker_progress(worker);
        }
        CALLGRIND_TOGGLE_COLLECT;
        usleep(PAUSE_US);
    }
    CALLGRIND_DUMP_STATS_AT("1 x idle progress");
}

/** Creates the endpoints. */
static void create_all(const struct scale *scale, ucp_worker_h worker, struct addresses addresses, ucp_ep_h *ep)
{
    int number = scale->number, tenth = number - number / 10;
    double begin = cpu_seconds(), last = begin, end;

    for (int i = 0; i < number; i++) {
        last = i == tenth ? cpu_seconds() : last;
        ep[i] = connect_to(worker, address_of(addresses, i));
    }
    end = cpu_seconds();
    report(scale, "create", (end - begin) / number * 1e6, "us");
    report(scale, "create_last", (end - last) / (number - tenth) * 1e6, "us");
}

/** The endpoint or address of the i-th timed call: all over the place. */
static int scattered(int i, int number)
{
    return (int)((unsigned long)i * 2654435761u % (unsigned)number);
}

static void measure_lookups(const struct scale *scale, ucp_worker_h worker, struct addresses addresses, ucp_ep_h *ep)
{
    int number = scale->number;
    ucp_ep_h again[TIMED];
    double begin = cpu_seconds();

    for (int i = 0; i < TIMED; i++) {
        again[i] = connect_to(worker, address_of(addresses, scattered(i, number)));
    }
    report(scale, "known", (cpu_seconds() - begin) / TIMED * 1e6, "us");
    for (int i = 0; i < TIMED; i++) {
        wait_here(worker, ucp_ep_close_nbx(again[i], &plain));
    }
    begin = cpu_seconds();
    for (int i = 0; i < TIMED; i++) {
        ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_NAME};

        check(ucp_ep_query(ep[scattered(i, number)], &attr), "ucp_ep_query");
    }
    report(scale, "query", (cpu_seconds() - begin) / TIMED * 1e6, "us");
    begin = cpu_seconds();
    for (int i = 0; i < TIMED; i++) {
        ucp_worker_address_attr_t attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};

        check(ucp_worker_address_query((ucp_address_t *)address_of(addresses, scattered(i, number)), &attr),
              "ucp_worker_address_query");
    }
    report(scale, "address_query", (cpu_seconds() - begin) / TIMED * 1e6, "us");
}

/** A message to a live worker, and its answer. */
static void round_trip(ucp_worker_h worker, ucp_ep_h ep, int i)
{
    static unsigned char out[BYTES], in[BYTES];
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(worker, in, BYTES, (ucp_tag_t)i, all_bits, &plain);

    wait_here(worker, ucp_tag_send_nbx(ep, out, BYTES, CLIENT + (ucp_tag_t)i, &plain));
    wait_here(worker, receive);
}

static void measure_use(const struct scale *scale, ucp_worker_h worker, struct addresses live, ucp_ep_h *used)
{
    double first[LIVE], begin;

    for (int i = 0; i < LIVE; i++) {
        begin = now();
        used[i] = connect_to(worker, address_of(live, i));
        round_trip(worker, used[i], i);
        first[i] = now() - begin;
    }
    report(scale, "first_use", median(first, LIVE) * 1e6, "us");
    begin = now();
    for (int i = 0; i < TIMED; i++) {
        round_trip(worker, used[LIVE - 1], LIVE - 1);
    }
    report(scale, "latency", (now() - begin) / TIMED / 2 * 1e6, "us");
}

static void close_all(const struct scale *scale, ucp_worker_h worker, ucp_ep_h *ep)
{
    double begin = cpu_seconds();

    for (int i = 0; i < scale->number; i++) {
        wait_here(worker, ucp_ep_close_nbx(ep[i], &plain));
    }
    report(scale, "close", (cpu_seconds() - begin) / scale->number * 1e6, "us");
}

static void measure_all(const struct scale *scale, ucp_worker_h worker, struct addresses live,
                        struct addresses addresses, struct place place)
{
    ucp_ep_h *ep = malloc((size_t)scale->number * sizeof(*ep)), used[LIVE];
    struct held before;
    double begin;

    memset(ep, 0xff, (size_t)scale->number * sizeof(*ep)); /* its pages are not the endpoints' */
    measure_idle(scale, worker, "before_");
    before = held_now();
    create_all(scale, worker, addresses, ep);
    report_held(scale, before);
    measure_idle(scale, worker, "");
    measure_lookups(scale, worker, addresses, ep);
    measure_use(scale, worker, live, used);
    close_all(scale, worker, ep);
    for (int i = 0; i < LIVE; i++) {
        wait_here(worker, ucp_ep_close_nbx(used[i], &plain));
    }
    meet(place, NULL, NULL);
    measure_idle(scale, worker, "after_");
    report(scale, "after_heap", (held_now().heap - before.heap) / scale->number, "B");
    begin = cpu_seconds();
    ucp_worker_destroy(worker);
    report(scale, "destroy", (cpu_seconds() - begin) * 1e6, "us");
    free(ep);
}

static void count_all(const struct scale *scale, ucp_worker_h worker, struct addresses addresses)
{
    for (int i = 0; i < scale->number; i++) {
        connect_to(worker, address_of(addresses, i));
    }
    count_idle(worker);
}

static void play(struct place place, void *argument)
{
    const struct scale *scale = argument;
    struct addresses live, addresses;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t length;
    char nothing;

    if (place.index == 1) {
        be_peers(place, scale);
        return;
    }
    context = open_context();
    worker = open_worker(context);
    check(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    exchange(place, address, length, &nothing, sizeof(nothing));
    ucp_worker_release_address(worker, address);
    live = take_workers(place, LIVE);
    addresses = scale->real ? take_workers(place, scale->number) : make_up(worker, scale->number);
    place.stage->over = addresses.bytes == NULL;
    meet(place, NULL, NULL);
    if (addresses.bytes == NULL) {
        printf("# unsupported: scale\n");
        fflush(stdout);
        meet(place, NULL, NULL);
        return;
    }
    report(scale, "address", (double)length, "B");
    if (scale->count) {
        count_all(scale, worker, addresses);
        meet(place, NULL, NULL);
        return; /* the cost of closing is not counted */
    }
    measure_all(scale, worker, live, addresses, place);
    meet(place, NULL, NULL);
    ucp_cleanup(context);
}

int run_scale(const struct effort *effort, int argc, char **argv)
{
    struct rlimit descriptors = {65536, 65536};
    struct scale scale = {.effort = effort};
    int next = 1;

    if (argc > 2) {
        scale.real = strcmp(argv[next], "--real") == 0;
        scale.count = strcmp(argv[next], "--count") == 0;
        next += scale.real || scale.count;
    }
    if (argc != next + 1 || (scale.number = atoi(argv[next])) < 10 || scale.number > MAX_NUMBER) {
        die("usage: scale [--real|--count] NUMBER (10 to %d)", MAX_NUMBER);
    }
    if (scale.count && !RUNNING_ON_VALGRIND) {
        die("instructions are counted under valgrind --tool=callgrind --collect-atstart=no");
    }
    setrlimit(RLIMIT_NOFILE, &descriptors); /* some libraries need several for each worker; a failure is ignored */
    return start_pair(play, &scale);
}
