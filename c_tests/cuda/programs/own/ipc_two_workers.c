/*
 * Two threads of the receiver, each with a worker of the same context, copy from one allocation of the sender at the
 * same time: it is opened once.
 */
#include "gpu.h"

#include <pthread.h>
#include <unistd.h>

#define LENGTH (2 << 20)

typedef struct {
    ucp_worker_h       worker;
    const area_t      *target;
    pthread_barrier_t *begin;
    ucs_status_t       status;
} receiver_t;

static void *receive(void *arg)
{
    receiver_t         *receiver = arg;
    ucp_request_param_t param    = {.op_attr_mask = 0};
    side_t              side     = {.worker = receiver->worker, .name = 'B'};
    bed_t               alone    = {.b = &side, .link = -1};

    pthread_barrier_wait(receiver->begin);
    receiver->status =
        bed_wait(&alone, ucp_tag_recv_nbx(receiver->worker, receiver->target->memory, LENGTH, 1, -1, &param));
    return NULL;
}

static void receive_both(side_t *side, ucp_worker_h second)
{
    area_t            targets[2] = {area_make(side, GPU1, LENGTH), area_make(side, GPU1, LENGTH)};
    pthread_barrier_t begin;
    receiver_t        receivers[2];
    pthread_t         threads[2];

    gpu_fault("open_us=100000"); /* so that both open it at the same time */
    pthread_barrier_init(&begin, NULL, 2);
    for (int i = 0; i < 2; i++) {
        area_set(&targets[i], 0);
        receivers[i] = (receiver_t){i ? second : side->worker, &targets[i], &begin, UCS_INPROGRESS};
        if (pthread_create(&threads[i], NULL, receive, &receivers[i]) != 0) {
            _exit(7);
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        want(side, receivers[i].status == UCS_OK && area_check(&targets[i], 0, LENGTH, 0, 1)[0] == 'g',
             "worker %d: %s", i, status_name(receivers[i].status));
    }
    unsigned long long opened = gpu_calls("cuIpcOpenMemHandle_v2");
    want(side, opened == 1, "opened %llu", opened);
    pthread_barrier_destroy(&begin);
    area_free(&targets[0]);
    area_free(&targets[1]);
}

static void script(bed_t *bed)
{
    static char         to_second[BED_ADDRESS_MAX];
    bed_params_t        params    = {.features = UCP_FEATURE_TAG, .thread_mode = UCS_THREAD_MODE_MULTI};
    ucp_request_param_t plain     = {.op_attr_mask = 0};
    ucp_worker_params_t of_worker = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                     .thread_mode = UCS_THREAD_MODE_MULTI};
    ucp_worker_h        second    = NULL;
    ucp_address_t      *address   = NULL;
    size_t              length    = 0;

    gpu_open();
    bed_open(bed, &params);
    if (bed->b != NULL) {
        must(bed->b, ucp_worker_create(bed->b->context, &of_worker, &second), "ucp_worker_create");
        must(bed->b, ucp_worker_get_address(second, &address, &length), "ucp_worker_get_address");
    }
    bed_transfer(bed, bed->b, address, length, to_second, sizeof(to_second));
    area_t           source = area_make(bed->a, GPU0, LENGTH);
    ucs_status_ptr_t sent[2];
    ucp_ep_h         ep = NULL;
    area_fill(&source, 0, LENGTH, 1);
    if (bed->a != NULL) {
        ep      = bed_connect(bed->a, to_second);
        sent[0] = ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &plain);
        sent[1] = ucp_tag_send_nbx(ep, source.memory, LENGTH, 1, &plain);
        for (int i = 0; i < 2; i++) {
            ucs_status_t status = bed_wait(bed, sent[i]);
            want(bed->a, status == UCS_OK, "sent: %s", status_name(status));
        }
        bed_disconnect(bed, ep);
    } else {
        ucp_worker_release_address(second, address);
        receive_both(bed->b, second);
    }
    bed_sync(bed);
    area_free(&source);
    if (second != NULL) {
        ucp_worker_destroy(second);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
