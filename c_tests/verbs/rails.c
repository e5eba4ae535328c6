/*
 * Long messages striped over several ports: they arrive whole, use every rail, and go on when all ports but that of the
 * connection fail during a transfer: the ports go "down", or their devices have "refused" posted work, or they come
 * "back" later and carry messages again. Or one process is "killed" during a transfer: the requests of the other all
 * complete. Or endpoints fail over, and all ports "fail" in turn.
 *
 *   rails HCACTL DEVICES down|refused|back|killed|fail
 *
 * SOFT_HCA_DEVICES has to be the same number. Two processes send to each other at the same time.
 */
#define _GNU_SOURCE
#include "must.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum { ADDRESS = 1024, ROUNDS = 24, DOWN_AT = 12, UP_AT = 18, WINDOW = 3, LONGEST = 4 << 20, ENOUGH = 1 << 20 };

typedef struct {
    _Atomic int   meetings[2];
    _Atomic int   in_flight; /* the process may be killed now */
    int           over;
    unsigned char address[2][ADDRESS];
} job_t;

static job_t *job;

/* Waits until the other process has arrived here, too; progresses, as the other may need it. */
static void meet(ucp_worker_h worker, int rank)
{
    int own = ++job->meetings[rank];

    while (job->meetings[1 - rank] < own)
        ucp_worker_progress(worker);
}

static unsigned char byte_of(int rank, int round, int slot, size_t i)
{
    return (unsigned char)(i * 31 + (i >> 12) + (size_t)(rank * 7 + round * 3 + slot));
}

/* Odd lengths, so that the last part is shorter than the others. */
static size_t length_of(int round, int slot)
{
    return (size_t)(LONGEST >> (slot + round % 3)) - (size_t)(round * 131);
}

/* 1 if one of them is not complete. */
static int is_open(ucs_status_ptr_t *request, int count)
{
    for (int i = 0; i < count; i++) {
        if (UCS_PTR_IS_ERR(request[i]))
            continue;
        if (request[i] != NULL && ucp_request_check_status(request[i]) == UCS_INPROGRESS)
            return 1;
    }
    return 0;
}

static void exchange(ucp_worker_h worker, ucp_ep_h ep, int rank, int round, unsigned char (*buffer)[LONGEST])
{
    const ucp_request_param_t none = {.op_attr_mask = 0};
    ucs_status_ptr_t          request[2 * WINDOW];

    for (int slot = 0; slot < WINDOW; slot++) {
        size_t length = length_of(round, slot);

        memset(buffer[slot], 0, length);
        for (size_t i = 0; i < length; i++)
            buffer[WINDOW + slot][i] = byte_of(rank, round, slot, i);
        request[slot] = ucp_tag_recv_nbx(worker, buffer[slot], length, (ucp_tag_t)slot, UINT64_MAX, &none);
    }
    meet(worker, rank);
    for (int slot = 0; slot < WINDOW; slot++)
        request[WINDOW + slot] =
            ucp_tag_send_nbx(ep, buffer[WINDOW + slot], length_of(round, slot), (ucp_tag_t)slot, &none);
    while (is_open(request, 2 * WINDOW))
        ucp_worker_progress(worker);
    for (int i = 0; i < 2 * WINDOW; i++) {
        must(!UCS_PTR_IS_ERR(request[i]), "a request");
        if (request[i] == NULL)
            continue;
        must(ucp_request_check_status(request[i]) == UCS_OK, "a transfer has failed");
        ucp_request_free(request[i]);
    }
    for (int slot = 0; slot < WINDOW; slot++) {
        size_t length = length_of(round, slot), wrong = 0;

        for (size_t i = 0; i < length; i++)
            wrong += buffer[slot][i] != byte_of(1 - rank, round, slot, i);
        must(wrong == 0, "other bytes have come than were sent");
    }
}

static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ++*(int *)argument;
}

/* Sends and receives that are in flight when the other process is killed. */
static void kill_and_check(ucp_worker_h worker, ucp_ep_h ep, int rank, unsigned char (*buffer)[LONGEST], int *failures)
{
    const ucp_request_param_t none = {.op_attr_mask = 0};
    ucs_status_ptr_t          request[2 * WINDOW];
    int                       failed = 0;

    meet(worker, rank);
    for (int slot = 0; slot < WINDOW; slot++) {
        request[slot]          = ucp_tag_recv_nbx(worker, buffer[slot], LONGEST, (ucp_tag_t)slot, UINT64_MAX, &none);
        request[WINDOW + slot] = ucp_tag_send_nbx(ep, buffer[WINDOW + slot], LONGEST, (ucp_tag_t)slot, &none);
    }
    for (int turn = 0; turn < 64; turn++)
        ucp_worker_progress(worker);
    job->in_flight = 1;
    /* Receives that have not matched stay posted: any peer could send to them. */
    while (is_open(request + WINDOW, WINDOW) || *failures == 0)
        ucp_worker_progress(worker);
    for (int i = 0; i < 2 * WINDOW; i++) {
        if (!UCS_PTR_IS_PTR(request[i]))
            continue;
        if (ucp_request_check_status(request[i]) == UCS_INPROGRESS)
            ucp_request_cancel(worker, request[i]);
        while (ucp_request_check_status(request[i]) == UCS_INPROGRESS)
            ucp_worker_progress(worker);
        failed += ucp_request_check_status(request[i]) != UCS_OK;
        ucp_request_free(request[i]);
    }
    must(rank == 0 && failed > 0, "it was over before");
}

static long counter(const char *hcactl, const char *name)
{
    char  line[256], command[256];
    long  value = -1;
    FILE *pipe;

    snprintf(command, sizeof(command), "%s", hcactl);
    pipe = popen(command, "r");
    must(pipe != NULL, "hcactl");
    while (fgets(line, sizeof(line), pipe) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), "%*[ =:]%ld", &value);
    }
    pclose(pipe);
    return value;
}

/* Injects a fault at these devices, one bit for each. */
static void order_at(const char *hcactl, const char *fault, int devices)
{
    char command[256];

    snprintf(command, sizeof(command), "%s %s=%d", hcactl, fault, devices);
    must(system(command) == 0, "hcactl");
}

/* Injects a fault at this many devices, but not at the first: the connection itself uses that one. */
static void order(const char *hcactl, const char *fault, int devices)
{
    order_at(hcactl, fault, ((1 << devices) - 1) & ~1);
}

/* Bytes that this device has moved. */
static long moved_by(const char *hcactl, int device)
{
    char name[32];

    snprintf(name, sizeof(name), "moved[%d]", device);
    return counter(hcactl, name);
}

/* A connection has two queue pairs; each further device one rail per direction, with two ends. */
static long queues_of(int devices)
{
    return 2 + 4 * (devices - 1);
}

/* Those made in all, once the rails of both directions have come back. */
static long queues_back(int devices)
{
    return queues_of(devices) + 4 * (devices - 1);
}

/*
 * Whether the rails have come back: each of the other devices has moved enough bytes since `before`, which those of one
 * direction can do, and the rails of both directions were connected again.
 */
static int all_carry(const char *hcactl, int devices, const long *before)
{
    int all = counter(hcactl, "rc_queues") >= queues_back(devices);

    for (int device = 1; device < devices; device++)
        all &= moved_by(hcactl, device) - before[device] >= ENOUGH;
    return all;
}

static int rank_main(int rank, const char *hcactl, int devices, const char *fault)
{
    const int                 killed = strcmp(fault, "killed") == 0, refused = strcmp(fault, "refused") == 0;
    const int                 in_turn    = strcmp(fault, "fail") == 0;
    const int                 returns = strcmp(fault, "back") == 0 && devices > 1;
    long                      moved[4] = {0};

    const ucp_request_param_t none   = {.op_attr_mask = 0};
    ucp_params_t              params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t       alone  = {.field_mask = 0};
    unsigned char(*buffer)[LONGEST]  = malloc((size_t)2 * WINDOW * LONGEST);
    ucp_context_h             context;
    ucp_worker_h              worker;
    ucp_address_t            *address;
    size_t                    length;
    ucp_ep_h                  ep;
    int                       failures = 0;

    must(buffer != NULL, "memory");
    must(ucp_init(&params, NULL, &context) == UCS_OK, "ucp_init");
    must(ucp_worker_create(context, &alone, &worker) == UCS_OK, "ucp_worker_create");
    must(ucp_worker_get_address(worker, &address, &length) == UCS_OK && length <= ADDRESS, "address");
    memcpy(job->address[rank], address, length);
    ucp_worker_release_address(worker, address);
    meet(worker, rank);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                          .address     = (ucp_address_t *)job->address[1 - rank],
                          .err_mode    = in_turn ? UCP_ERR_HANDLING_MODE_FAILOVER : UCP_ERR_HANDLING_MODE_PEER,
                          .err_handler = {.cb = on_failure, .arg = &failures}};
    must(ucp_ep_create(worker, &to, &ep) == UCS_OK, "ucp_ep_create");
    for (int round = 0; !job->over; round++) {
        if (round == DOWN_AT && killed) {
            kill_and_check(worker, ep, rank, buffer, &failures);
            ucp_worker_destroy(worker);
            ucp_cleanup(context);
            return 0;
        }
        if (round > 0 && in_turn && rank == 0 && devices > 1)
            order_at(hcactl, "port_down", 1 << (round - 1) % devices);
        if (round == DOWN_AT && !in_turn && rank == 0 && devices > 1)
            order(hcactl, refused ? "posts_refused" : "port_down", devices);
        if (round == UP_AT && rank == 0 && returns) {
            for (int device = 1; device < devices; device++)
                moved[device] = moved_by(hcactl, device);
            order(hcactl, "port_down", 0);
        }
        exchange(worker, ep, rank, round, buffer);
        if (rank == 0)
            job->over = round >= ROUNDS - 1 && (!returns || all_carry(hcactl, devices, moved));
        meet(worker, rank);
    }
    wait_for(worker, ucp_worker_flush_nbx(worker, &none), "flush");
    meet(worker, rank);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    free(buffer);
    return 0;
}

int main(int argc, char **argv)
{
    pid_t child[2];
    int   devices, killed, failed = 0;
    long  queues, wanted;

    must(argc == 4, "usage: rails HCACTL DEVICES down|refused|back|killed|fail");
    devices = atoi(argv[2]);
    killed  = strcmp(argv[3], "killed") == 0;
    job     = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(job != MAP_FAILED, "mmap");
    for (int rank = 0; rank < 2; rank++) {
        child[rank] = fork();
        must(child[rank] >= 0, "fork");
        if (child[rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(rank_main(rank, argv[1], devices, argv[3]));
        }
    }
    if (killed)
        return kill_one(child, &job->in_flight);
    failed = wait_ranks(child);
    queues = counter(argv[1], "rc_queues");
    /* An endpoint that fails over has rails only, if there is a second port. */
    wanted = strcmp(argv[3], "fail") == 0 && devices > 1 ? 4 * devices : queues_of(devices);
    /* Failed rails are requested again while their ports are up. */
    printf("%ld queue pairs, %s\n", queues, failed ? "failed" : "complete");
    must(strcmp(argv[3], "down") == 0 ? queues == wanted : queues >= wanted, "another number of queue pairs");
    must(strcmp(argv[3], "back") != 0 || queues >= queues_back(devices), "no rail has come back");
    return failed;
}
