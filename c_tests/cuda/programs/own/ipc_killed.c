/*
 * The sender of 50 MB from a device is killed while the receiver copies from its memory: the receive ends, the endpoint
 * fails, what was open is closed, and the receiver goes on.
 */
#define _GNU_SOURCE
#include "gpu.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (50 << 20)

static volatile int failures;

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep;
    failures += status != UCS_OK;
}

static ucp_ep_h connect_guarded(const side_t *side, const void *address)
{
    ucp_ep_h        ep     = NULL;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address        = address,
        .err_mode       = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb = on_failure,
    };

    must(side, ucp_ep_create(side->worker, &params, &ep), "ucp_ep_create");
    return ep;
}

/* The process B: a child of A, so that A sees it killed and the bed does not. */
static void sender(bed_t *bed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->b, GPU0, LENGTH);

    area_fill(&source, 0, LENGTH, 1);
    ucs_status_ptr_t sent = ucp_tag_send_nbx(bed->b->ep, source.memory, LENGTH, 1, &param);
    bed_wait(bed, sent);
    for (;;) {
        bed_progress(bed);
    }
}

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucp_request_param_t force  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    pid_t               victim = 0;

    if (bed->b != NULL) { /* the one that is killed is a child, and this process only waits for it */
        victim = fork();
        if (victim != 0) {
            int status = 0;
            waitpid(victim, &status, 0);
            want(bed->b, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it was killed");
            _exit(0);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        victim = getpid();
    }
    gpu_open();
    bed_open_unconnected(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->b != NULL) {
        bed_transfer(bed, bed->b, &victim, sizeof(victim), &victim, sizeof(victim));
        bed->b->ep = connect_guarded(bed->b, to_a);
        sender(bed);
    }
    bed_transfer(bed, bed->b, &victim, sizeof(victim), &victim, sizeof(victim));
    bed->a->ep = connect_guarded(bed->a, to_b);
    area_t              target = area_make(bed->a, GPU1, LENGTH);
    ucp_tag_recv_info_t info;
    BED_UNTIL(bed, ucp_tag_probe_nb(bed->a->worker, 1, -1, 0, &info) != NULL);
    gpu_fault("late_us=300000");
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->a->worker, target.memory, LENGTH, 1, -1, &param);
    BED_UNTIL(bed, gpu_calls("cuMemcpyAsync") > 0);
    int under_way = UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS;
    kill(victim, SIGKILL);
    want(bed->a, under_way, "killed under way");
    ucs_status_t status = bed_wait(bed, received);
    int          kept   = area_check(&target, 0, LENGTH, 0, 1)[0] == 'g';
    want(bed->a, status != UCS_OK || kept, "the receive ends with %s", status_name(status));
    gpu_fault("late_us=0");
    BED_UNTIL(bed, failures > 0);
    want(bed->a, failures == 1, "callbacks %d", failures);
    bed_wait(bed, ucp_ep_close_nbx(bed->a->ep, &force));
    area_free(&target);
    want(bed->a, gpu_calls("cuIpcOpenMemHandle_v2") == 1 && gpu_calls("cuIpcCloseMemHandle") == 1,
         "opened %llu, closed %llu",
         gpu_calls("cuIpcOpenMemHandle_v2"), gpu_calls("cuIpcCloseMemHandle"));

    /* It goes on: a message to itself. */
    ucp_address_t *own;
    size_t         length;
    must(bed->a, ucp_worker_get_address(bed->a->worker, &own, &length), "address");
    ucp_ep_h self   = bed_connect(bed->a, own);
    area_t   source = area_make(bed->a, GPU0, 1 << 20), again = area_make(bed->a, MANAGED, 1 << 20);
    area_fill(&source, 0, 1 << 20, 2);
    received              = ucp_tag_recv_nbx(bed->a->worker, again.memory, 1 << 20, 2, -1, &param);
    ucs_status_ptr_t sent = ucp_tag_send_nbx(self, source.memory, 1 << 20, 2, &param);
    ucs_status_t     send_status = bed_wait(bed, sent), receive_status = bed_wait(bed, received);
    want(bed->a, send_status == UCS_OK && receive_status == UCS_OK && area_check(&again, 0, 1 << 20, 0, 2)[0] == 'g',
         "a message to itself afterwards: %s, %s", status_name(send_status), status_name(receive_status));
    area_free(&source);
    area_free(&again);
    ucp_worker_release_address(bed->a->worker, own);
    bed_disconnect(bed, self);
    ucp_worker_destroy(bed->a->worker);
    ucp_cleanup(bed->a->context);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
