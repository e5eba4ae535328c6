/* A peer that is killed: see victim.h. */
#define _GNU_SOURCE
#include "victim.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int failures;

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep;
    failures += status != UCS_OK;
}

ucp_ep_h connect_guarded(const side_t *side, const void *address)
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

void victim_begin(const bed_t *bed)
{
    pid_t victim = fork();

    if (victim != 0) {
        int status = 0;
        waitpid(victim, &status, 0);
        want(bed->b, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it was killed");
        _exit(0);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void message_to_itself(bed_t *bed, size_t length, place_t to)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_address_t      *own;
    size_t              own_length;

    must(bed->a, ucp_worker_get_address(bed->a->worker, &own, &own_length), "address");
    ucp_ep_h self   = bed_connect(bed->a, own);
    area_t   source = area_make(bed->a, GPU0, length), target = area_make(bed->a, to, length);
    area_fill(&source, 0, length, 2);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->a->worker, target.memory, length, 2, -1, &param);
    ucs_status_ptr_t sent     = ucp_tag_send_nbx(self, source.memory, length, 2, &param);
    ucs_status_t     send_status = bed_wait(bed, sent), receive_status = bed_wait(bed, received);
    want(bed->a, send_status == UCS_OK && receive_status == UCS_OK && area_check(&target, 0, length, 0, 2)[0] == 'g',
         "a message to itself afterwards: %s, %s", status_name(send_status), status_name(receive_status));
    area_free(&source);
    area_free(&target);
    ucp_worker_release_address(bed->a->worker, own);
    bed_disconnect(bed, self);
}

pid_t victim_open(bed_t *bed, const bed_params_t *params, char *to_b, char *to_a)
{
    pid_t victim = 0;

    if (bed->b != NULL) {
        victim_begin(bed);
        victim = getpid();
    }
    gpu_open();
    bed_open_unconnected(bed, params);
    bed_exchange_addresses(bed, to_b, to_a);
    bed_transfer(bed, bed->b, &victim, sizeof(victim), &victim, sizeof(victim));
    return victim;
}

void victim_send(bed_t *bed, place_t from, size_t length)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->b, from, length);

    area_fill(&source, 0, length, 1);
    bed_wait(bed, ucp_tag_send_nbx(bed->b->ep, source.memory, length, 1, &param));
    for (;;) {
        bed_progress(bed);
    }
}

void kill_under_way(const bed_t *bed, pid_t victim, ucs_status_ptr_t received)
{
    int under_way = UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS;

    kill(victim, SIGKILL);
    want(bed->a, under_way, "killed under way");
}

void receive_from_killed(bed_t *bed, pid_t victim, area_t *target, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_tag_recv_info_t info;

    BED_UNTIL(bed, ucp_tag_probe_nb(bed->a->worker, 1, -1, 0, &info) != NULL);
    gpu_fault("late_us=300000");
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->a->worker, target->memory, length, 1, -1, &param);
    BED_UNTIL(bed, gpu_calls("cuMemcpyAsync") > 0);
    kill_under_way(bed, victim, received);
    ucs_status_t status = bed_wait(bed, received);
    want(bed->a, status != UCS_OK || area_check(target, 0, length, 0, 1)[0] == 'g', "the receive ends with %s",
         status_name(status));
    gpu_fault("late_us=0");
}

void survivor_close(bed_t *bed)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    BED_UNTIL(bed, failures > 0);
    want(bed->a, failures == 1, "callbacks %d", failures);
    bed_wait(bed, ucp_ep_close_nbx(bed->a->ep, &force));
}

void survivor_end(bed_t *bed, size_t length, place_t to)
{
    message_to_itself(bed, length, to);
    ucp_worker_destroy(bed->a->worker);
    ucp_cleanup(bed->a->context);
}
