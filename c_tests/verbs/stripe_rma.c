/*
 * Long puts and gets striped over several ports: every byte is in its place, and operations after a fence take effect
 * after all before it, whichever port is the slowest; also when all ports but that of the connection fail during a
 * transfer: the ports go "down", or their devices have "refused" posted work. Or one process is "killed" during a
 * transfer: the requests of the other all complete. Or endpoints fail over, and all ports "fail" in turn.
 *
 *   stripe_rma HCACTL DEVICES none|down|refused|killed|fail
 *
 * SOFT_HCA_DEVICES has to be the same number. Two processes run all operations on each other at the same time.
 */
#define _GNU_SOURCE
#include "must.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOB = 1024, ROUNDS = 12, FAULT_AT = 5, LONGEST = 3 << 20, SPOTS = 16, SPOT = 200, AREAS = 4 };

typedef struct {
    unsigned char address[BLOB], key[BLOB];
    uint64_t      window;
    _Atomic int   meetings, in_flight;
} side_t;

static side_t *side; /* two, shared by the processes */

typedef struct {
    int            rank;
    ucp_context_h  context;
    ucp_worker_h   worker;
    ucp_ep_h       ep;
    ucp_mem_h      memory;
    ucp_rkey_h     rkey;
    unsigned char *window; /* written by the other process: LONGEST bytes of each area, and a flag */
    unsigned char *own;
    int            failures, meetings;
} rank_t;

static const ucp_request_param_t none = {.op_attr_mask = 0};

/* Waits until the other process has arrived here, too; progresses, as the other may need it. */
static void meet(rank_t *self)
{
    side[self->rank].meetings = ++self->meetings;
    while (side[1 - self->rank].meetings < self->meetings)
        ucp_worker_progress(self->worker);
}

static unsigned char byte_of(int rank, int round, int what, size_t i)
{
    return (unsigned char)(i * 31 + (i >> 12) + (size_t)(rank * 7 + round * 3 + what * 101));
}

/* Odd lengths, some of them too short for striping. */
static size_t length_of(int round, int what)
{
    return ((size_t)LONGEST >> ((round + what) % 3 * 2)) - (size_t)(round * 131 + 200);
}

static void fill(unsigned char *bytes, size_t length, int rank, int round, int what)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_of(rank, round, what, i);
}

static int is_filled(const unsigned char *bytes, size_t length, int rank, int round, int what)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_of(rank, round, what, i)) {
            fprintf(stderr, "stripe_rma: rank %d, round %d, %d: byte %zu of %zu\n", rank, round, what, i, length);
            return 0;
        }
    }
    return 1;
}

static ucs_status_t finish(rank_t *self, ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request))
        return UCS_PTR_STATUS(request);
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(self->worker);
    status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

static void flush(rank_t *self)
{
    must(finish(self, ucp_ep_flush_nbx(self->ep, &none)) == UCS_OK, "flush");
}

static uint64_t there(rank_t *self, int area)
{
    return side[1 - self->rank].window + (uint64_t)area * LONGEST;
}

static ucs_status_ptr_t put(rank_t *self, const void *from, size_t length, uint64_t to)
{
    return ucp_put_nbx(self->ep, from, length, to, self->rkey, &none);
}

static ucs_status_ptr_t get(rank_t *self, void *into, size_t length, uint64_t from)
{
    return ucp_get_nbx(self->ep, into, length, from, self->rkey, &none);
}

/* Puts, a flush, and gets of the written data. */
static void back_and_forth(rank_t *self, int round)
{
    ucs_status_ptr_t request[AREAS];

    for (int area = 0; area < AREAS; area++) {
        fill(self->own + (size_t)area * LONGEST, length_of(round, area), self->rank, round, area);
        request[area] = put(self, self->own + (size_t)area * LONGEST, length_of(round, area), there(self, area));
    }
    flush(self);
    for (int area = 0; area < AREAS; area++)
        must(finish(self, request[area]) == UCS_OK, "a put");
    meet(self);
    for (int area = 0; area < AREAS; area++)
        must(is_filled(self->window + (size_t)area * LONGEST, length_of(round, area), 1 - self->rank, round, area),
             "put");
    memset(self->own, 0, (size_t)AREAS * LONGEST);
    for (int area = 0; area < AREAS; area++)
        request[area] = get(self, self->own + (size_t)area * LONGEST, length_of(round, area), there(self, area));
    for (int area = 0; area < AREAS; area++) {
        must(finish(self, request[area]) == UCS_OK, "a get");
        must(is_filled(self->own + (size_t)area * LONGEST, length_of(round, area), self->rank, round, area), "get");
    }
    meet(self);
}

/* A long put, a fence, and a word that signals its arrival. */
static void announced(rank_t *self, int round)
{
    volatile uint64_t *flag = (volatile uint64_t *)(self->window + (size_t)AREAS * LONGEST);
    uint64_t           word = (uint64_t)round + 1;
    ucs_status_ptr_t   request[2];

    fill(self->own, LONGEST, self->rank, round, 9);
    request[0] = put(self, self->own, LONGEST, there(self, 0));
    must(ucp_worker_fence(self->worker) == UCS_OK, "fence");
    request[1] = put(self, &word, sizeof(word), there(self, AREAS));
    while (*flag != word)
        ucp_worker_progress(self->worker);
    must(is_filled(self->window, LONGEST, 1 - self->rank, round, 9), "a word has come before the put in front of it");
    must(finish(self, request[0]) == UCS_OK && finish(self, request[1]) == UCS_OK, "announced");
    flush(self);
    meet(self);
}

/* Short puts, a fence, and a long put over all of them; a fence, and short puts again. */
static void overwrite_fenced(rank_t *self, int round)
{
    ucs_status_ptr_t request[2 * SPOTS + 1];
    unsigned char    spot[SPOT];

    memset(spot, 0xee, sizeof(spot));
    fill(self->own, LONGEST, self->rank, round, 11);
    for (int i = 0; i < SPOTS; i++)
        request[i] = put(self, spot, i % 2 ? SPOT : 8, there(self, 0) + (uint64_t)i * (LONGEST / SPOTS));
    must(ucp_worker_fence(self->worker) == UCS_OK, "fence");
    request[SPOTS] = put(self, self->own, LONGEST, there(self, 0));
    must(ucp_worker_fence(self->worker) == UCS_OK, "fence");
    for (int i = 0; i < SPOTS; i++)
        request[SPOTS + 1 + i] =
            put(self, spot, i % 2 ? SPOT : 8, there(self, 0) + (uint64_t)i * (LONGEST / SPOTS) + 4096);
    flush(self);
    for (int i = 0; i < 2 * SPOTS + 1; i++)
        must(finish(self, request[i]) == UCS_OK, "painted over");
    meet(self);
    for (int i = 0; i < SPOTS; i++) {
        unsigned char *later = self->window + (size_t)i * (LONGEST / SPOTS) + 4096;

        must(memcmp(later, spot, i % 2 ? SPOT : 8) == 0, "a long put has come after what is behind it");
        for (size_t j = 0; j < SPOT; j++)
            later[j] = byte_of(1 - self->rank, round, 11, (size_t)(later - self->window) + j);
    }
    must(is_filled(self->window, LONGEST, 1 - self->rank, round, 11),
         "a long put has come before what is in front of it");
    meet(self);
}

/* A long get, a fence, and a long put to the memory that the get reads. */
static void read_before(rank_t *self, int round)
{
    ucs_status_ptr_t request[2];

    fill(self->window, LONGEST, self->rank, round, 13);
    fill(self->own + LONGEST, LONGEST, self->rank, round, 14);
    meet(self);
    request[0] = get(self, self->own, LONGEST, there(self, 0));
    must(ucp_worker_fence(self->worker) == UCS_OK, "fence");
    request[1] = put(self, self->own + LONGEST, LONGEST, there(self, 0));
    must(finish(self, request[0]) == UCS_OK && finish(self, request[1]) == UCS_OK, "read before");
    flush(self);
    must(is_filled(self->own, LONGEST, 1 - self->rank, round, 13), "a put has come before the get in front of it");
    meet(self);
    must(is_filled(self->window, LONGEST, 1 - self->rank, round, 14), "the put behind a get");
    meet(self);
}

static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ++((rank_t *)argument)->failures;
}

static ucs_status_ptr_t put_or_get(rank_t *self, int area)
{
    unsigned char *here = self->own + (size_t)area * LONGEST;

    return area % 2 ? get(self, here, LONGEST, there(self, area)) : put(self, here, LONGEST, there(self, area));
}

/* Puts and gets, repeatedly, until the other process is killed: operations in flight complete, with errors. */
static void kill_and_check(rank_t *self)
{
    ucs_status_ptr_t request[AREAS];
    int              failed = 0;

    meet(self);
    for (int area = 0; area < AREAS; area++)
        request[area] = put_or_get(self, area);
    side[self->rank].in_flight = 1;
    while (self->failures == 0) {
        ucp_worker_progress(self->worker);
        for (int area = 0; area < AREAS; area++) {
            if (!UCS_PTR_IS_PTR(request[area]) || ucp_request_check_status(request[area]) != UCS_OK)
                continue;
            ucp_request_free(request[area]);
            request[area] = put_or_get(self, area);
        }
    }
    for (int area = 0; area < AREAS; area++)
        failed += finish(self, request[area]) != UCS_OK;
    must(self->rank == 0 && self->failures == 1 && failed > 0, "nothing has failed");
}

static void begin(rank_t *self, ucp_err_handling_mode_t mode)
{
    ucp_params_t         params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t  alone  = {.field_mask = 0};
    size_t               size   = (size_t)AREAS * LONGEST + 4096, length;
    side_t              *mine = &side[self->rank], *other = &side[1 - self->rank];
    ucp_mem_map_params_t map;
    ucp_address_t       *address;
    void                *key;

    self->window = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    self->own    = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(self->window != MAP_FAILED && self->own != MAP_FAILED, "memory");
    must(ucp_init(&params, NULL, &self->context) == UCS_OK, "ucp_init");
    must(ucp_worker_create(self->context, &alone, &self->worker) == UCS_OK, "ucp_worker_create");
    must(ucp_worker_get_address(self->worker, &address, &length) == UCS_OK && length <= BLOB, "address");
    memcpy(mine->address, address, length);
    ucp_worker_release_address(self->worker, address);
    map = (ucp_mem_map_params_t){.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                 .address    = self->window,
                                 .length     = size};
    must(ucp_mem_map(self->context, &map, &self->memory) == UCS_OK, "ucp_mem_map");
    must(ucp_rkey_pack(self->context, self->memory, &key, &length) == UCS_OK && length <= BLOB, "ucp_rkey_pack");
    memcpy(mine->key, key, length);
    ucp_rkey_buffer_release(key);
    mine->window = (uint64_t)(uintptr_t)self->window;
    meet(self);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                          .address     = (ucp_address_t *)other->address,
                          .err_mode    = mode,
                          .err_handler = {.cb = on_failure, .arg = self}};
    must(ucp_ep_create(self->worker, &to, &self->ep) == UCS_OK, "ucp_ep_create");
    must(ucp_ep_rkey_unpack(self->ep, other->key, &self->rkey) == UCS_OK, "ucp_ep_rkey_unpack");
}

static void end(rank_t *self)
{
    ucp_rkey_destroy(self->rkey);
    must(ucp_mem_unmap(self->context, self->memory) == UCS_OK, "ucp_mem_unmap");
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static void order(const char *hcactl, const char *what, int devices)
{
    char command[256];

    snprintf(command, sizeof(command), "%s %s=%d", hcactl, what, devices);
    must(system(command) == 0, "hcactl");
}

static int rank_main(int rank, const char *hcactl, int devices, const char *fault)
{
    const int in_turn = strcmp(fault, "fail") == 0;
    rank_t    self    = {.rank = rank};

    begin(&self, in_turn ? UCP_ERR_HANDLING_MODE_FAILOVER : UCP_ERR_HANDLING_MODE_PEER);
    for (int round = 0; round < ROUNDS; round++) {
        if (round == FAULT_AT && strcmp(fault, "killed") == 0) {
            kill_and_check(&self);
            break;
        }
        /* Injects the fault at all devices but the first, which the connection itself uses. */
        if (round == FAULT_AT && strcmp(fault, "none") != 0 && !in_turn && rank == 0 && devices > 1)
            order(hcactl, strcmp(fault, "refused") == 0 ? "posts_refused" : "port_down", ((1 << devices) - 1) & ~1);
        if (round > 0 && in_turn && rank == 0 && devices > 1)
            order(hcactl, "port_down", 1 << (round - 1) % devices);
        back_and_forth(&self, round);
        announced(&self, round);
        overwrite_fenced(&self, round);
        read_before(&self, round);
    }
    end(&self);
    return 0;
}

/* Bytes that each device has written and read. */
static void count_moved(const char *hcactl, long *moved)
{
    char  line[256];
    FILE *pipe = popen(hcactl, "r");

    must(pipe != NULL, "hcactl");
    while (fgets(line, sizeof(line), pipe) != NULL) {
        int  device;
        long bytes;

        if (sscanf(line, "moved[%d]=%ld", &device, &bytes) == 2)
            moved[device] = bytes;
    }
    pclose(pipe);
}

int main(int argc, char **argv)
{
    long  moved[4] = {0}, all = 0;
    int   devices, killed, failed = 0;
    pid_t child[2];

    must(argc == 4, "usage: stripe_rma HCACTL DEVICES none|down|refused|killed|fail");
    devices = atoi(argv[2]);
    killed  = strcmp(argv[3], "killed") == 0;
    side    = mmap(NULL, 2 * sizeof(*side), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(side != MAP_FAILED, "mmap");
    for (int rank = 0; rank < 2; rank++) {
        child[rank] = fork();
        must(child[rank] >= 0, "fork");
        if (child[rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(rank_main(rank, argv[1], devices, argv[3]));
        }
    }
    if (killed)
        return kill_one(child, &side[0].in_flight);
    failed = wait_ranks(child);
    count_moved(argv[1], moved);
    for (int d = 0; d < 4; d++)
        all += moved[d];
    printf("%s\n", failed ? "failed" : "complete");
    must(all > 0, "no port has moved anything");
    /* How many bytes each device carries when they fail in turn depends on timing. */
    for (int d = 0; d < devices && strcmp(argv[3], "fail") != 0; d++)
        must(moved[d] > all / 20, "a port has moved next to nothing");
    return failed;
}
