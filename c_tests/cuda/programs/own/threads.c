/* Two threads on one worker of each side send and receive memory of devices; and a forked child, which ends quietly. */
#define _GNU_SOURCE
#include "gpu.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS  2
#define MESSAGES 40

typedef struct {
    side_t *side;
    int     number, good;
} job_t;

static void *run_job(void *arg)
{
    static const size_t lengths[] = {8, 3000, 70000, 700000};
    job_t              *job       = arg;
    ucp_request_param_t param     = {.op_attr_mask = 0};

    for (int i = 0; i < MESSAGES; i++) {
        size_t           length = lengths[i % 4];
        area_t           area   = area_make(job->side, i % 3 == 0 ? GPU1 : GPU0, length);
        unsigned         seed   = (unsigned)(1000 * job->number + i);
        ucp_tag_t        tag    = (ucp_tag_t)job->number;
        ucs_status_ptr_t end;
        ucs_status_t     status;

        if (job->side->name == 'A') {
            area_fill(&area, 0, length, seed);
            end = ucp_tag_send_nbx(job->side->ep, area.memory, length, tag, &param);
        } else {
            area_set(&area, 0);
            end = ucp_tag_recv_nbx(job->side->worker, area.memory, length, tag, -1, &param);
        }
        deadline_t deadline = bed_deadline("a thread's message");
        bed_t      alone    = {.a = job->side, .link = -1};
        while (UCS_PTR_IS_PTR(end) && ucp_request_check_status(end) == UCS_INPROGRESS) {
            bed_poll(&alone, &deadline);
        }
        status = UCS_PTR_IS_PTR(end) ? ucp_request_check_status(end) : UCS_PTR_STATUS(end);
        if (UCS_PTR_IS_PTR(end)) {
            ucp_request_free(end);
        }
        job->good += status == UCS_OK && area_check(&area, 0, length, 0, seed)[0] == 'g';
        area_free(&area);
    }
    return NULL;
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG, .thread_mode = UCS_THREAD_MODE_MULTI};
    pthread_t    threads[THREADS];
    job_t        jobs[THREADS];

    gpu_open();
    bed_open(bed, &params);
    side_t *here = bed->a != NULL ? bed->a : bed->b;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job_t){here, i, 0};
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]) != 0) {
            _exit(7);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        want(here, jobs[i].good == MESSAGES, "thread %d: %d messages are good", i, jobs[i].good);
    }
    bed_sync(bed);
    pid_t child  = fork();
    int   status = -1;
    if (child == 0) {
        ucp_worker_destroy(here->worker);
        ucp_cleanup(here->context);
        _exit(0);
    }
    waitpid(child, &status, 0);
    want(here, status == 0, "a forked child destroys worker and context: %d", status);
    bed_sync(bed);
    jobs[0].good = 0;
    run_job(&jobs[0]);
    want(here, jobs[0].good == MESSAGES, "after the child: %d messages are good", jobs[0].good);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
