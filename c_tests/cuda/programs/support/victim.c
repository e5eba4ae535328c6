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

void message_to_itself(bed_t *bed, size_t length, place_t to)
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
