/*
 * Atomic operations of many processes on one word, over every transport: no update is lost, and nothing beside the word
 * changes. Each process has a field of the word to itself and all processes share a counter; a field that changes
 * without an operation of its process shows an update that was not atomic. Then tokens are swapped: each is in one
 * place at the end.
 *
 * UCX_TLS, UCX_ATOMIC_MODE: of the owner of the memory. HCACTL: the program that prints the counters of the software
 * HCA or the software Tofu; without it, as on another device, counters are not checked. TOFU: run over the software
 * Tofu, where the adapters execute operations on 4-byte words, too, and only the owner maps the memory, so that
 * concurrent access by others can be interrupted. ALONE: 0 where the CPUs are to execute the operations.
 */
#define _GNU_SOURCE
#include "check.h"
#include "counters.h"
#include "finish.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PLAYERS = 4, COUNTER_BITS = 12, FIELD_BITS = 5, SECONDS = 60, TOKENS = 4000,
       TICKETS = 100 /* upper bound of the operations that connecting takes */ };
#ifdef FEW
enum { ROUNDS = 20, SWAPS = 40 };
#else
enum { ROUNDS = 200, SWAPS = 400 };
#endif

/* UCX_TLS of each player; the owner plays, too. */
static const char *const hca_tls[PLAYERS]  = {"rc,self", "rc,self", "sysv,posix,cma,self", "ud,self"};
static const char *const tofu_tls[PLAYERS] = {"tofu,self", "tofu", "sysv,posix,cma,self", "tcp,self"};

static int on_tofu(void)
{
    return getenv("TOFU") != NULL;
}


typedef struct {
    size_t   address_length, key_length; /* 0: not there yet */
    uint8_t  address[1024], key[256];
    uint64_t remote;
    unsigned done, open; /* players that have finished, and connections open to the owner */
    unsigned busy;       /* players in the counting loop */
    uint64_t tokens; /* sum of the tokens that players hold or have fetched */
    /* The memory that the owner checks. */
    _Alignas(4096) uint64_t words[512];
} shared_t;

static shared_t     *shared;
static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep;
static ucp_rkey_h    key;
static uint64_t      remote;
static size_t        size; /* bytes of the word that operations address */

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)failed;
    *(ucs_status_t *)arg = status;
}

static ucs_status_t lost = UCS_OK;

static void open_worker(void)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
}

static void connect_to_owner(void)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)shared->address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &lost},
    };

    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep, shared->key, &key));
    remote = shared->remote;
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_on(worker, request, SECONDS);
}

static ucs_status_t flush(void)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return finish(ucp_ep_flush_nbx(ep, &param));
}

/*
 * Returns the previous value; 0 and sets `lost` if the owner has died. For a compare-and-swap `operand` is the value to
 * compare.
 */
static uint64_t fetch(ucp_atomic_op_t operation, uint64_t operand, uint64_t reply)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype     = ucp_dt_make_contig(size),
        .reply_buffer = &reply,
    };
    ucs_status_t status = finish(ucp_atomic_op_nbx(ep, operation, &operand, 1, remote, key, &param));

    if (status != UCS_OK && lost == UCS_OK) {
        lost = status;
    }
    return size == 4 ? (uint32_t)reply : reply;
}

static void post(ucp_atomic_op_t operation, uint64_t operand)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(size)};

    WANT_PTR(UCS_OK, ucp_atomic_op_nbx(ep, operation, &operand, 1, remote, key, &param));
}

static unsigned bit_of(int player)
{
    return COUNTER_BITS + (unsigned)player * (size == 4 ? 4 : FIELD_BITS);
}

/* Changes the player's own field by every operation, and adds 4 to the counter. */
static void play_round(int player, uint64_t *own)
{
    unsigned shift = bit_of(player);
    uint64_t field = (uint64_t)15 << shift;
    uint64_t bits  = (uint64_t)(1 + rand() % 15) << shift;
    uint64_t old;

    WANT_TRUE((fetch(UCP_ATOMIC_OP_ADD, 1, 0) & field) == *own);
    WANT_TRUE((fetch(UCP_ATOMIC_OP_XOR, bits, 0) & field) == *own);
    *own ^= bits;
    WANT_TRUE((fetch(UCP_ATOMIC_OP_OR, bits, 0) & field) == *own);
    *own |= bits;
    WANT_TRUE((fetch(UCP_ATOMIC_OP_AND, ~(bits & -bits), 0) & field) == *own);
    *own &= ~(bits & -bits);
    post(UCP_ATOMIC_OP_ADD, 1);
    post(UCP_ATOMIC_OP_XOR, bits);
    *own ^= bits;
    post(UCP_ATOMIC_OP_OR, bits);
    *own |= bits;
    post(UCP_ATOMIC_OP_AND, ~bits);
    *own &= ~bits;
    post(UCP_ATOMIC_OP_ADD, 1);
    WANT(UCS_OK, flush());
    old = fetch(UCP_ATOMIC_OP_ADD, 0, 0);
    WANT_TRUE((old & field) == *own);
    for (;;) {
        uint64_t seen = fetch(UCP_ATOMIC_OP_CSWAP, old, old + 1);
        WANT_TRUE((seen & field) == *own);
        if (seen == old || check_failed()) {
            return;
        }
        old = seen;
    }
}

static void play(int player)
{
    uint64_t own = 0;

    srand(player + 1);
    for (int i = 0; i < ROUNDS && !check_failed(); i++) {
        play_round(player, &own);
    }
    WANT(UCS_OK, flush());
    __atomic_add_fetch(&shared->tokens, own >> COUNTER_BITS, __ATOMIC_RELAXED);
}

static void swap_tokens(int player)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < SWAPS && !check_failed(); i++) {
        uint64_t token = (uint64_t)player * TOKENS + i + 1;
        sum += fetch(UCP_ATOMIC_OP_SWAP, token, 0) - token;
    }
    __atomic_add_fetch(&shared->tokens, size == 4 ? (uint32_t)sum : sum, __ATOMIC_RELAXED);
}

static int until(unsigned *counter, unsigned wanted)
{
    time_t end = time(NULL) + SECONDS;

    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < wanted && time(NULL) < end) {
        if (worker == NULL || ucp_worker_progress(worker) == 0) {
            usleep(10);
        }
    }
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE) >= wanted;
}

static pid_t player_start(int player, void (*act)(int))
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("UCX_TLS", (on_tofu() ? tofu_tls : hca_tls)[player], 1);
        /* A player with memory of its own would advertise it in rkeys, which it packs for no peer. */
        unsetenv("UCX_ATOMIC_MODE");
        WANT_TRUE(until(&shared->open, 1));
        open_worker();
        connect_to_owner();
        act(player);
        __atomic_add_fetch(&shared->done, 1, __ATOMIC_RELEASE);
        until(&shared->done, UINT32_MAX >> 1); /* raised by the owner when all players are done */
        ucp_rkey_destroy(key);
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
        _exit(check_failed());
    }
    return pid;
}

static void own_memory(ucp_mem_h *memh)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length     = sizeof(shared->words),
        .flags      = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_address_t *address;
    void          *packed;
    size_t         length;

    if (on_tofu()) {
        static _Alignas(4096) uint64_t own[512];
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address    = own;
    }
    WANT(UCS_OK, ucp_mem_map(context, &params, memh));
    WANT(UCS_OK, ucp_mem_query(*memh, &attr));
    memset(attr.address, 0, sizeof(shared->words));
    shared->remote = (uint64_t)attr.address + 64;
    WANT(UCS_OK, ucp_rkey_pack(context, *memh, &packed, &length));
    memcpy(shared->key, packed, length);
    ucp_rkey_buffer_release(packed);
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &length));
    memcpy(shared->address, address, length);
    ucp_worker_release_address(worker, address);
    __atomic_store_n(&shared->open, 1, __ATOMIC_RELEASE);
}

static void players_end(const pid_t *pid, int count)
{
    __atomic_store_n(&shared->done, UINT32_MAX, __ATOMIC_RELEASE);
    for (int i = 0; i < count; i++) {
        int status;
        while (waitpid(pid[i], &status, WNOHANG) == 0) {
            ucp_worker_progress(worker);
        }
        WANT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void share(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(shared != MAP_FAILED);
}

/* Runs `act` in every player and in the owner; returns the memory behind the word. */
static uint64_t run_all_players(void (*act)(int))
{
    pid_t     pid[PLAYERS];
    ucp_mem_h memh;

    share();
    for (int i = 0; i < PLAYERS; i++) {
        pid[i] = player_start(i, act);
    }
    open_worker();
    own_memory(&memh);
    connect_to_owner();
    volatile uint32_t *beside = (uint32_t *)remote + 1;
    uint32_t           written = 0;
    act(PLAYERS);
    /* The other half of an 8-byte word belongs to the owner, which writes it without atomic operations. */
    for (time_t end = time(NULL) + SECONDS;
         __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) < PLAYERS && time(NULL) < end;) {
        ucp_worker_progress(worker);
        if (size == 4) {
            *beside = ++written;
        }
    }
    WANT_TRUE(shared->done == PLAYERS);
    players_end(pid, PLAYERS);
    uint64_t value = *(volatile uint64_t *)remote;
    if (size == 4) {
        WANT_TRUE(value >> 32 == written);
        value = (uint32_t)value;
    }
    WANT_TRUE(((uint64_t *)remote)[-1] == 0 && ((uint64_t *)remote)[1] == 0);
    ucp_rkey_destroy(key);
    WANT(UCS_OK, ucp_mem_unmap(context, memh));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return value;
}

static void all_operations(size_t bytes)
{
    const char *alone = getenv("ALONE");
    const char *mode  = alone != NULL && strcmp(alone, "0") == 0 ? "cpu" : getenv("UCX_ATOMIC_MODE");
    long        least =
        (bytes == 8 || on_tofu()) && (mode == NULL || strcmp(mode, "cpu") != 0) ? (PLAYERS + 1) * ROUNDS * 10 : 0;
    long        most  = on_tofu() && least == 0 ? PLAYERS * TICKETS : 0;
    long        before = counter("atomics");

    size = bytes;
    uint64_t value = run_all_players(play);

    /* Every operation is executed entirely or not at all. */
    long done = counter("atomics") - before;
    WANT_TRUE(!has_counters() || (least == 0 ? done <= most : done >= least));

    WANT_TRUE((value & ((1 << COUNTER_BITS) - 1)) == (PLAYERS + 1) * ROUNDS * 4);
    WANT_TRUE(value >> COUNTER_BITS == shared->tokens);
}

static void all_tokens(size_t bytes)
{
    size = bytes;
    uint64_t value = run_all_players(swap_tokens);
    uint64_t sum   = shared->tokens + value;

    WANT_TRUE((size == 4 ? (uint32_t)sum : sum) == 0);
}

static void words_of_8(void) { all_operations(8); }
static void words_of_4(void) { all_operations(4); }
static void tokens_of_8(void) { all_tokens(8); }
static void tokens_of_4(void) { all_tokens(4); }

/* Counts without end. */
static void count_on(int player)
{
    (void)player;
    for (uint64_t old = 0;;) {
        uint64_t seen = fetch(UCP_ATOMIC_OP_CSWAP, old, old + 1);
        if (lost != UCS_OK) {
            return;
        }
        old = seen == old ? old + 1 : seen;
        fetch(UCP_ATOMIC_OP_XOR, 0, 0);
        ucp_worker_progress(worker); /* a player that reaches the memory by the CPU detects the owner's death here */
        if (++shared->words[player] == 100) {
            __atomic_add_fetch(&shared->busy, 1, __ATOMIC_RELEASE);
        }
    }
}

/* Players are killed while they change the word: the counter goes on for the others. */
static void players_die(void)
{
    pid_t     pid[PLAYERS];
    ucp_mem_h memh;

    size = 8;
    share();
    for (int i = 0; i < PLAYERS; i++) {
        pid[i] = player_start(i, count_on);
    }
    open_worker();
    own_memory(&memh);
    connect_to_owner();
    WANT_TRUE(until(&shared->busy, PLAYERS));
    for (int i = 0; i < PLAYERS; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
        uint64_t before = fetch(UCP_ATOMIC_OP_ADD, 1, 0);
        WANT_TRUE(fetch(UCP_ATOMIC_OP_ADD, 0, 0) > before);
    }
    uint64_t before = fetch(UCP_ATOMIC_OP_OR, 0, 0);
    WANT_TRUE(fetch(UCP_ATOMIC_OP_ADD, 1, 0) == before);
    WANT_TRUE(*(volatile uint64_t *)remote == before + 1);
    ucp_rkey_destroy(key);
    WANT(UCS_OK, ucp_mem_unmap(context, memh));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

/* The owner is killed: every process that accesses its memory gets the failure. */
static void owner_dies(void)
{
    pid_t pid[PLAYERS], owner;

    size = 8;
    share();
    owner = fork();
    if (owner == 0) {
        ucp_mem_h memh;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_worker();
        own_memory(&memh);
        for (;;) {
            ucp_worker_progress(worker);
        }
    }
    for (int i = 0; i < PLAYERS; i++) {
        pid[i] = player_start(i, count_on);
    }
    WANT_TRUE(until(&shared->busy, PLAYERS));
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    WANT_TRUE(until(&shared->done, PLAYERS));
    __atomic_store_n(&shared->done, UINT32_MAX, __ATOMIC_RELEASE);
    for (int i = 0; i < PLAYERS; i++) {
        int status;
        WANT_TRUE(waitpid(pid[i], &status, 0) == pid[i]);
        WANT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static const case_t cases[] = {
    {"atomics: words of 8 bytes", words_of_8},   {"atomics: words of 4 bytes", words_of_4},
    {"atomics: tokens of 8 bytes", tokens_of_8}, {"atomics: tokens of 4 bytes", tokens_of_4},
    {"atomics: players die", players_die},       {"atomics: the owner dies", owner_dies},
};

CHECK_MAIN(cases)
