/*
 * A job in which every rank has an endpoint to every rank and talks to its two neighbours: a queue pair is made for
 * each of those two and none for the others, or none at all where the program's estimate of endpoints is too high for
 * RC. Ranks are processes; the counters of the software HCA show how many queue pairs there were.
 *
 *   neighbours RANKS HCACTL QUEUES [DATAGRAMS]   RC queue pairs of each rank, and UD queue pairs
 */
#define _GNU_SOURCE
#include "must.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256, ADDRESS = 1024, ROUNDS = 20 };

/* Shared by the ranks and their parent. */
typedef struct {
    pthread_barrier_t barrier;
    unsigned char     address[MOST][ADDRESS];
} job_t;

static job_t *job;

static void exchange_with_neighbours(ucp_worker_h worker, ucp_ep_h *ep, int rank, int ranks)
{
    const ucp_request_param_t none = {.op_attr_mask = 0};

    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (int side = 0; side < 2; side++) {
            int      to = (rank + (side ? 1 : ranks - 1)) % ranks, from = (rank + (side ? ranks - 1 : 1)) % ranks;
            uint64_t sent = round << 32 | (unsigned)rank, received = 0;
            /* the tag has the side from which the message comes: with two ranks both neighbours are the same rank */
            ucs_status_ptr_t receive =
                ucp_tag_recv_nbx(worker, &received, sizeof(received), round << 1 | side, UINT64_MAX, &none);

            wait_for(worker, ucp_tag_send_nbx(ep[to], &sent, sizeof(sent), round << 1 | side, &none), "send");
            wait_for(worker, receive, "receive");
            must(received == (round << 32 | (unsigned)from), "another message than the neighbour's");
        }
    }
    wait_for(worker, ucp_worker_flush_nbx(worker, &none), "flush");
}

static int rank_main(int rank, int ranks)
{
    const ucp_request_param_t none   = {.op_attr_mask = 0};
    ucp_params_t              params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                        .features   = UCP_FEATURE_TAG,
                                        .estimated_num_eps = (size_t)ranks};
    ucp_worker_params_t       alone  = {.field_mask = 0};
    ucp_ep_h                  ep[MOST];
    ucp_context_h             context;
    ucp_worker_h              worker;
    ucp_address_t            *address;
    size_t                    length;

    must(ucp_init(&params, NULL, &context) == UCS_OK, "ucp_init");
    must(ucp_worker_create(context, &alone, &worker) == UCS_OK, "ucp_worker_create");
    must(ucp_worker_get_address(worker, &address, &length) == UCS_OK && length <= ADDRESS, "address");
    memcpy(job->address[rank], address, length);
    ucp_worker_release_address(worker, address);
    pthread_barrier_wait(&job->barrier);
    for (int peer = 0; peer < ranks; peer++) {
        ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (void *)job->address[peer]};

        must(ucp_ep_create(worker, &to, &ep[peer]) == UCS_OK, "ucp_ep_create");
    }
    exchange_with_neighbours(worker, ep, rank, ranks);
    for (int peer = 0; peer < ranks; peer++)
        wait_for(worker, ucp_ep_close_nbx(ep[peer], &none), "close");
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}

/* Queue pairs of this kind that were ever made on this wire. */
static long queues_made(const char *hcactl, const char *kind)
{
    char  line[128];
    long  count = -1;
    FILE *counters = popen(hcactl, "r");

    must(counters != NULL, "hcactl");
    while (fgets(line, sizeof(line), counters) != NULL)
        if (strncmp(line, kind, strlen(kind)) == 0)
            sscanf(line + strlen(kind), "_queues=%ld", &count);
    pclose(counters);
    return count;
}

int main(int argc, char **argv)
{
    int                   ranks = argc > 3 ? atoi(argv[1]) : 0, failed = 0, status;
    long                  made, datagrams;

    must(ranks >= 3 && ranks <= MOST, "usage: neighbours RANKS HCACTL QUEUES, 3 to 256 ranks");
    job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(job != MAP_FAILED, "mmap");
    open_barrier(&job->barrier, ranks);
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank stays at the barrier when the parent is killed */
            return rank_main(rank, ranks);
        }
    while (wait(&status) > 0)
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    made      = queues_made(argv[2], "rc");
    datagrams = queues_made(argv[2], "ud");
    printf("%d ranks, %d failed, %ld queue pairs for connections, %ld for datagrams\n", ranks, failed, made, datagrams);
    return failed > 0 || made != atol(argv[3]) * ranks || (argc > 4 && datagrams != atol(argv[4]) * ranks);
}
