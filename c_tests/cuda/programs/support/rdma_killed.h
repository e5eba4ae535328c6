/*
 * A program: a process is killed while an adapter moves a message between memory of devices. SENDER_KILLED: the sender,
 * whose adapter writes it; else the receiver. The survivor's request ends, its memory is its own again, and it goes on.
 */
#include "victim.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define LENGTH (8 << 20)
#define UNDER_WAY_MS 250 /* after the RTS: the answer takes 100, and the data as long again */

static const ucp_request_param_t none = {.op_attr_mask = 0};

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static unsigned long long exports(void)
{
    return gpu_calls("cuMemGetHandleForAddressRange");
}

/* B, which is killed. */
static void victim(bed_t *bed, const char *to_a, int sends)
{
    area_t           area = area_make(bed->b, GPU0, LENGTH);
    ucs_status_ptr_t request;

    bed->b->ep = connect_guarded(bed->b, to_a);
    area_fill(&area, 0, LENGTH, 1);
    if (sends) {
        request = ucp_tag_send_nbx(bed->b->ep, area.memory, LENGTH, 1, &none);
    } else {
        request = ucp_tag_recv_nbx(bed->b->worker, area.memory, LENGTH, 1, -1, &none);
    }
    bed_wait(bed, request);
    for (;;) {
        bed_progress(bed);
    }
}

static void survive(bed_t *bed, const char *to_b, pid_t process, int sends)
{
    area_t              area = area_make(bed->a, GPU1, LENGTH);
    ucp_tag_recv_info_t info;
    ucs_status_ptr_t    request;

    bed->a->ep = connect_guarded(bed->a, to_b);
    if (sends) {
        request = ucp_tag_send_nbx(bed->a->ep, area.memory, LENGTH, 1, &none);
    } else {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->a->worker, 1, -1, 0, &info) != NULL);
        request = ucp_tag_recv_nbx(bed->a->worker, area.memory, LENGTH, 1, -1, &none);
    }
    BED_UNTIL(bed, exports() > 0);
    long until = now_ms() + UNDER_WAY_MS;
    while (now_ms() < until && UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        bed_progress(bed);
    }
    kill(process, SIGKILL);
    ucs_status_t status = bed_wait(bed, request);
    /* The data may have arrived on a slow machine. */
    want(bed->a, status != UCS_OK || sends || area_check(&area, 0, LENGTH, 0, 1)[0] == 'g', "the request ends");
    want(bed->a, exports() > 0 && gpu_copies() == 0, "registered, and copied by no driver");
    survivor_close(bed);
    area_free(&area);
    survivor_end(bed, 1 << 20, GPU1);
}

static void script(bed_t *bed)
{
    static char  to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t params  = {.features = UCP_FEATURE_TAG};
    pid_t        process = victim_open(bed, &params, to_b, to_a);

    if (bed->b != NULL) {
        victim(bed, to_a, SENDER_KILLED);
    }
    survive(bed, to_b, process, !SENDER_KILLED);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
