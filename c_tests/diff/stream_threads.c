/*
 * Byte streams with threads: on one worker in MULTI mode several threads send, each on an endpoint of its own, and on
 * the other several receive in different ways; every thread progresses. Each stream arrives whole and in order.
 */
#define _GNU_SOURCE
#include "bed.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAMS = 4, TOTAL = 1 << 20 };

typedef struct {
    side_t     *side;
    ucp_ep_h    ep;
    int         number, sends;
    const char *verdict;
} job_t;

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static int late(time_t end)
{
    sched_yield();
    return time(NULL) > end;
}

/* Waits like bed_wait(), but from any thread. */
static int wait_for(side_t *side, ucs_status_ptr_t r, time_t end, size_t *length)
{
    ucs_status_t status = UCS_PTR_STATUS(r);

    if (UCS_PTR_IS_PTR(r)) {
        do {
            ucp_worker_progress(side->worker);
            status = length != NULL ? ucp_stream_recv_request_test(r, length) : ucp_request_check_status(r);
        } while (status == UCS_INPROGRESS && !late(end));
        if (status == UCS_INPROGRESS) {
            return 0; /* the memory stays its own */
        }
        ucp_request_free(r);
    }
    return status == UCS_OK;
}

static void *send_stream(job_t *job)
{
    uint8_t *data = data_make(TOTAL, (unsigned)job->number);
    time_t   end  = time(NULL) + 20;
    size_t   at   = 0, step = 1;

    job->verdict = "sent";
    while (at < TOTAL) {
        step        = (step * 7 + (unsigned)job->number) % 40000 + 1;
        size_t size = step > TOTAL - at ? TOTAL - at : step;
        if (!wait_for(job->side, ucp_stream_send_nbx(job->ep, data + at, size, &plain), end, NULL)) {
            job->verdict = "a send failed";
            return NULL;
        }
        at += size;
    }
    free(data);
    return NULL;
}

static void *receive_stream(job_t *job)
{
    ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    uint8_t            *in  = calloc(1, TOTAL);
    time_t              end = time(NULL) + 20;
    size_t              got = 0;

    while (got < TOTAL) {
        size_t length = 0, want = TOTAL - got > 3000 ? 3000 : TOTAL - got;
        if (job->number % 2 == 0) {
            void *lent = ucp_stream_recv_data_nb(job->ep, &length);
            if (UCS_PTR_IS_PTR(lent)) {
                memcpy(in + got, lent, length);
                ucp_stream_data_release(job->ep, lent);
                got += length;
            } else if (ucp_worker_progress(job->side->worker) == 0 && late(end)) {
                break;
            }
        } else if (wait_for(job->side, ucp_stream_recv_nbx(job->ep, in + got, want, &length, &all), end, &length)) {
            got += length;
        } else {
            job->verdict = "a receive failed";
            return NULL;
        }
    }
    job->verdict = got == TOTAL ? data_check(in, TOTAL, (unsigned)job->number) : "late";
    free(in);
    return NULL;
}

static void *run_job(void *arg)
{
    job_t *job = arg;

    return job->sends ? send_stream(job) : receive_stream(job);
}

static void run_jobs(bed_t *bed, ucp_ep_h *from_a, ucp_ep_h *from_b)
{
    job_t     jobs[2 * STREAMS];
    pthread_t threads[2 * STREAMS];
    int       count = 0;

    for (int i = 0; i < STREAMS; i++) {
        if (bed->a != NULL) {
            jobs[count++] = (job_t){.side = bed->a, .ep = from_a[i], .number = i, .sends = 1};
        }
        if (bed->b != NULL) {
            jobs[count++] = (job_t){.side = bed->b, .ep = from_b[i], .number = i};
        }
    }
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]) != 0) {
            abort();
        }
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        fact(jobs[i].side, "stream %d: %s", jobs[i].number, jobs[i].verdict);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_STREAM, .thread_mode = UCS_THREAD_MODE_MULTI};
    char         to_b[BED_ADDRESS_MAX], to_a[BED_ADDRESS_MAX];
    ucp_ep_h     from_a[STREAMS], from_b[STREAMS];

    bed_open(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    for (int i = 0; i < STREAMS; i++) {
        if (bed->a != NULL) {
            from_a[i] = bed_connect(bed->a, to_b);
        }
        if (bed->b != NULL) {
            from_b[i] = bed->topology == TOPOLOGY_SELF ? from_a[i] : bed_connect(bed->b, to_a);
        }
    }
    bed_sync(bed);
    for (int round = 0; round < 3; round++) {
        run_jobs(bed, from_a, from_b);
        bed_sync(bed);
    }
    for (int i = 0; i < STREAMS; i++) {
        if (bed->a != NULL) {
            bed_disconnect(bed, from_a[i]);
        }
        if (bed->b != NULL && bed->topology != TOPOLOGY_SELF) {
            bed_disconnect(bed, from_b[i]);
        }
    }
    bed_sync(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
