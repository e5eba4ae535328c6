/*
 * The receiver of 50 MB into memory of a device ends by SIGKILL after its device has begun to copy: the sender's
 * request and endpoint fail, and the sender goes on.
 * WAY: cuda_copy
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

/* The first copies have begun, and the last ones have not: this process ends. */
static void receive_and_end(bed_t *bed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              target = area_make(bed->b, GPU0, LENGTH);

    gpu_fault("late_us=5000"); /* so that the transfer takes long */
    ucs_status_ptr_t   received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
    unsigned long long before   = gpu_calls("cuMemcpyAsync");
    BED_UNTIL(bed, gpu_calls("cuMemcpyAsync") >= before + 2);
    if (UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS) {
        raise(SIGKILL);
    }
    _exit(9);
}

/* The process B is a child of the bed's, so that it may end in any way. */
static void be_victim(bed_t *bed)
{
    pid_t victim = fork();

    if (victim != 0) {
        int status = 0;
        waitpid(victim, &status, 0);
        want(bed->b, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended under way");
        _exit(0);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void message_to_itself(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_address_t      *own;
    size_t              length;

    must(bed->a, ucp_worker_get_address(bed->a->worker, &own, &length), "address");
    ucp_ep_h self   = bed_connect(bed->a, own);
    area_t   source = area_make(bed->a, GPU0, 1 << 20), target = area_make(bed->a, GPU1, 1 << 20);
    area_fill(&source, 0, 1 << 20, 2);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->a->worker, target.memory, 1 << 20, 2, -1, &param);
    ucs_status_ptr_t sent     = ucp_tag_send_nbx(self, source.memory, 1 << 20, 2, &param);
    ucs_status_t     send_status = bed_wait(bed, sent), receive_status = bed_wait(bed, received);
    want(bed->a, send_status == UCS_OK && receive_status == UCS_OK && area_check(&target, 0, 1 << 20, 0, 2)[0] == 'g',
         "a message to itself afterwards: %s, %s", status_name(send_status), status_name(receive_status));
    area_free(&source);
    area_free(&target);
    ucp_worker_release_address(bed->a->worker, own);
    bed_disconnect(bed, self);
}

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucp_request_param_t force  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    if (bed->b != NULL) {
        be_victim(bed);
    }
    gpu_open();
    bed_open_unconnected(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->b != NULL) {
        bed->b->ep = connect_guarded(bed->b, to_a);
        receive_and_end(bed);
    }
    bed->a->ep    = connect_guarded(bed->a, to_b);
    area_t source = area_make(bed->a, GPU1, LENGTH);
    area_fill(&source, 0, LENGTH, 1);
    ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "the send ends with %s", status_name(status));
    BED_UNTIL(bed, failures > 0);
    want(bed->a, failures == 1, "callbacks %d", failures);
    bed_wait(bed, ucp_ep_close_nbx(bed->a->ep, &force));
    area_free(&source);
    message_to_itself(bed);
    ucp_worker_destroy(bed->a->worker);
    ucp_cleanup(bed->a->context);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
