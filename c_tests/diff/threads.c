/* Threads on one worker: each sends and receives under its own tags; in MULTI mode freely, in SERIALIZED by turns. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, MESSAGES = 300, AM_ID = 5 };

#define LARGEST 100000

typedef struct job {
    void    (*work)(struct job *);
    side_t   *side;
    window_t *window; /* side A's threads only */
    int       number;
    int       sends; /* else it receives */
    unsigned  good, bad;
} job_t;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int             by_turns;
static atomic_uint     am_calls, am_good;
static atomic_int      running;

static void begin(void)
{
    if (by_turns) {
        pthread_mutex_lock(&turn);
    }
}

static void end(void)
{
    if (by_turns) {
        pthread_mutex_unlock(&turn);
    }
}

static size_t size_of(int message)
{
    static const size_t sizes[] = {8, 0, 100, 2000, 8, 9000, 8, 1, 40000, 64, LARGEST, 8};

    return sizes[message % 12];
}

/* Waits like bed_wait(), but from any thread. */
static ucs_status_t wait_for(side_t *side, ucs_status_ptr_t request)
{
    ucs_status_t status;
    time_t       limit = time(NULL) + 20;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    for (unsigned turns = 1;; turns++) {
        begin();
        ucp_worker_progress(side->worker);
        status = ucp_request_check_status(request);
        if (status != UCS_INPROGRESS) {
            ucp_request_free(request);
        }
        end();
        if (status != UCS_INPROGRESS) {
            return status;
        }
        if (turns % 64 == 0) {
            sched_yield();
            if (time(NULL) > limit) {
                fact(side, "HANG in a thread");
                _exit(3);
            }
        }
    }
}

static unsigned seed_of(const job_t *job, int message)
{
    return (unsigned)(job->number * 10000 + message);
}

static void send_one(job_t *job, int message, void *buffer)
{
    size_t              size  = size_of(message);
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    request;

    data_fill(buffer, size, seed_of(job, message));
    begin();
    request = ucp_tag_send_nbx(job->side->ep, buffer, size, (ucp_tag_t)job->number << 16 | (ucp_tag_t)message, &param);
    end();
    ucs_status_t status = wait_for(job->side, request);
    job->good += status == UCS_OK;
    job->bad += status != UCS_OK;
}

static void receive_one(job_t *job, int message, void *buffer)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    request;

    /* any message of ours, in order */
    begin();
    request = ucp_tag_recv_nbx(job->side->worker, buffer, LARGEST, (ucp_tag_t)job->number << 16, 0xffff0000, &param);
    end();
    ucs_status_t status = wait_for(job->side, request);
    int          right  = status == UCS_OK && data_check(buffer, size_of(message), seed_of(job, message))[0] == 'g';
    job->good += right;
    job->bad += !right;
}

static void tag_job(job_t *job)
{
    void *buffer = malloc(LARGEST);

    for (int message = 0; message < MESSAGES; message++) {
        if (job->sends) {
            send_one(job, message, buffer);
        } else {
            receive_one(job, message, buffer);
        }
    }
    free(buffer);
}

static ucs_status_t on_am(void *arg, const void *header, size_t header_length, void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    uint32_t seed;

    (void)arg, (void)param;
    memcpy(&seed, header, sizeof(seed));
    atomic_fetch_add(&am_good, header_length == 4 && data_check(data, length, seed)[0] == 'g');
    atomic_fetch_add(&am_calls, 1);
    return UCS_OK;
}

/* Active messages from every thread at once. */
static void am_job(job_t *job)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    char                data[512];

    for (int message = 0; message < MESSAGES; message++) {
        uint32_t seed = seed_of(job, message);
        size_t   size = (size_t)message % sizeof(data);
        data_fill(data, size, seed);
        begin();
        ucs_status_ptr_t request = ucp_am_send_nbx(job->side->ep, AM_ID, &seed, 4, data, size, &param);
        end();
        job->good += wait_for(job->side, request) == UCS_OK;
    }
}

/* Each thread puts into and gets from its own part of the window, and all add to one counter. */
static void rma_job(job_t *job)
{
    ucp_request_param_t param = {.op_attr_mask = 0}, counter = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE,
                                                                .datatype     = ucp_dt_make_contig(8)};
    uint64_t            base  = job->window->remote + 4096 + (uint64_t)job->number * 16384, one = 1;
    char                out[4096], in[4096];

    for (int message = 0; message < MESSAGES; message++) {
        size_t size = (size_t)message * 13 % sizeof(out) + 1;
        data_fill(out, size, seed_of(job, message));
        begin();
        ucs_status_ptr_t put = ucp_put_nbx(job->side->ep, out, size, base, job->window->rkey, &param);
        end();
        ucs_status_t status = wait_for(job->side, put);
        begin();
        ucs_status_ptr_t flush = ucp_ep_flush_nbx(job->side->ep, &param);
        end();
        wait_for(job->side, flush);
        begin();
        ucs_status_ptr_t get = ucp_get_nbx(job->side->ep, in, size, base, job->window->rkey, &param);
        end();
        wait_for(job->side, get);
        begin();
        ucs_status_ptr_t add = ucp_atomic_op_nbx(job->side->ep, UCP_ATOMIC_OP_ADD, &one, 1, job->window->remote,
                                                 job->window->rkey, &counter);
        end();
        wait_for(job->side, add);
        int right = status == UCS_OK && data_check(in, size, seed_of(job, message))[0] == 'g';
        job->good += right;
        job->bad += !right;
    }
    begin();
    ucs_status_ptr_t flush = ucp_worker_flush_nbx(job->side->worker, &param);
    end();
    wait_for(job->side, flush);
}

static void *job_thread(void *argument)
{
    job_t *job = argument;

    job->work(job);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/*
 * Starts the threads of the local sides and returns their counts. Until all have ended the calling thread
 * progresses as well: the other side may live here and have no thread of its own.
 */
static job_t run_threads(bed_t *bed, job_t *jobs, int count, void (*work)(job_t *))
{
    pthread_t threads[2 * THREADS];
    job_t     sum = {0};

    atomic_store(&running, count);
    for (int i = 0; i < count; i++) {
        jobs[i].work = work;
        pthread_create(&threads[i], NULL, job_thread, &jobs[i]);
    }
    while (atomic_load(&running) > 0) {
        begin();
        bed_progress(bed);
        end();
        sched_yield();
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum.good += jobs[i].good;
        sum.bad += jobs[i].bad;
    }
    return sum;
}

static void tag_facts(bed_t *bed)
{
    job_t jobs[2 * THREADS];
    int   count = 0;

    for (int i = 0; i < THREADS; i++) {
        if (bed->a != NULL) {
            jobs[count++] = (job_t){.side = bed->a, .number = i, .sends = 1};
        }
        if (bed->b != NULL) {
            jobs[count++] = (job_t){.side = bed->b, .number = i, .sends = 0};
        }
    }
    job_t sum = run_threads(bed, jobs, count, tag_job);
    rule(bed->a != NULL ? bed->a : bed->b, "2.2.1", "tags: good %u, bad %u", sum.good, sum.bad);
    bed_sync(bed);
}

static void am_facts(bed_t *bed)
{
    job_t jobs[THREADS];

    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job_t){.side = bed->a, .number = i};
    }
    if (bed->a != NULL) {
        job_t sum = run_threads(bed, jobs, THREADS, am_job);
        rule(bed->a, "2.2.1", "active messages sent: %u", sum.good);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, atomic_load(&am_calls) == THREADS * MESSAGES);
        rule(bed->b, "2.2.1", "active messages: %u, good %u", atomic_load(&am_calls), atomic_load(&am_good));
        atomic_store(&am_calls, 0);
        atomic_store(&am_good, 0);
    }
    bed_sync(bed);
}

static void rma_facts(bed_t *bed)
{
    window_t window;
    job_t    jobs[THREADS];

    window_open(bed, &window, WINDOW_ALLOCATED, 4096 + THREADS * 16384);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job_t){.side = bed->a, .window = &window, .number = i};
    }
    if (bed->a != NULL) {
        job_t sum = run_threads(bed, jobs, THREADS, rma_job);
        rule(bed->a, "2.2.1", "puts and gets: good %u, bad %u", sum.good, sum.bad);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "2.2.1", "counted: %lu", *(unsigned long *)window.memory);
    }
    window_close(bed, &window);
}

static void mode_facts(bed_t *bed, ucs_thread_mode_t mode)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID, .cb = on_am};
    bed_params_t           params  = {
                   .features    = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64,
                   .thread_mode = mode,
    };

    by_turns = mode == UCS_THREAD_MODE_SERIALIZED;
    bed_open(bed, &params);
    if (bed->b != NULL) {
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "set handler");
    }
    bed_sync(bed);
    tag_facts(bed);
    am_facts(bed);
    rma_facts(bed);
    bed_close(bed);
}

static void script(bed_t *bed)
{
    mode_facts(bed, UCS_THREAD_MODE_MULTI);
    mode_facts(bed, UCS_THREAD_MODE_SERIALIZED);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
