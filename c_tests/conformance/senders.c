/*
 * Messages of several senders on one host, few of them and more than rucp polls in every call. Each sends only after
 * it knows, outside of UCP, of the message before: the receiver, which polls later or all the time, gets them in that
 * order. A call of progress that follows upon idle ones delivers few.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "../random.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* UCX 1.13.1 holds 33 messages in any case that its receiver does not poll. */
enum { MESSAGES = 30, SERIES = 64, IDLE_CALLS = 1000, FEW = 4, ID = 1, WARM_UP = 1000000, WARM_UPS = 4 };

static const int counts[] = {3, 12}; /* of senders, in turn */

/* Shared by the processes, outside of UCP. */
typedef struct {
    atomic_int ready, series, turn, taken, ended;
    char       address[BED_ADDRESS_MAX];
    char       failure_text[64];
} board_t;

static board_t      *board;
static ucp_context_h context;
static ucp_worker_h  worker;
static int           senders;

static void exit_with(const char *why)
{
    snprintf(board->failure_text, sizeof(board->failure_text), "%s", why);
    _exit(3);
}

static void wait_until(atomic_int *number, int at_least, int progress, const char *what)
{
    time_t end = time(NULL) + 40;

    while (atomic_load(number) < at_least) { /* pairs with the release of the process that counts */
        if (progress) {
            ucp_worker_progress(worker);
        }
        sched_yield();
        if (time(NULL) > end) {
            exit_with(what);
        }
    }
}

static void open_worker(void)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features = UCP_FEATURE_AM | UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    if (ucp_init(&params, NULL, &context) != UCS_OK || ucp_worker_create(context, &worker_params, &worker) != UCS_OK) {
        exit_with("no worker");
    }
}

static void wait_for(ucs_status_ptr_t request, const char *what)
{
    time_t end = time(NULL) + 40;

    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
        if (time(NULL) > end) {
            exit_with(what);
        }
    }
    if (UCS_PTR_IS_ERR(request)) {
        exit_with(what);
    }
    if (request != NULL) {
        ucp_request_free(request);
    }
}

/* --- a sender --- */

/*
 * In each series the senders follow each other in another way, which all compute the same: in turn, at random, the last
 * three at random, mostly the first one.
 */
static int sender_of(int series, int number)
{
    unsigned state = (unsigned)(series * MESSAGES + number);
    int      any   = (int)(next_random(&state) % (unsigned)senders);

    switch (series / 4 % 4) {
    case 0:
        return number % senders;
    case 1:
        return any;
    case 2:
        return senders - 1 - any % 3;
    default:
        return any % 2 == 0 ? 0 : any;
    }
}

/* Odd series are of tagged messages; in two of four the receiver polls while the senders send. */
static int is_tagged(int series)
{
    return series % 2;
}

static int is_watched(int series)
{
    return series / 2 % 2;
}

static size_t length_of(int series, int number)
{
    static const size_t lengths[] = {0, 8, 100, 2000};

    return lengths[(series + number) % 4];
}

static void send_one(ucp_ep_h ep, int series, int number)
{
    static char         data[2000];
    static int          header;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};

    header = number;
    if (!is_tagged(series)) {
        wait_for(ucp_am_send_nbx(ep, ID, &header, sizeof(header), data, length_of(series, number), &param), "am");
    } else {
        param.op_attr_mask = 0;
        wait_for(ucp_tag_send_nbx(ep, data, length_of(series, number), (ucp_tag_t)number, &param), "tag");
    }
}

static void send_all(int self)
{
    ucp_request_param_t param     = {.op_attr_mask = 0};
    ucp_ep_params_t     ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_ep_h            ep;

    open_worker();
    wait_until(&board->ready, 1, 0, "no receiver");
    ep_params.address = (void *)board->address;
    if (ucp_ep_create(worker, &ep_params, &ep) != UCS_OK) {
        exit_with("no endpoint");
    }
    for (int i = 1; i <= WARM_UPS; i++) {
        send_one(ep, 0, WARM_UP + i); /* of each length: on UCX the first of a kind waits for the receiver */
        wait_for(ucp_ep_flush_nbx(ep, &param), "flush");
        atomic_fetch_add(&board->ready, 1);
        wait_until(&board->ready, 1 + i * 2 * senders, 1, "no connection"); /* of all, seen by the receiver */
    }
    for (int series = 0; series < SERIES; series++) {
        wait_until(&board->series, series + 1, 0, "no series");
        for (int number = 0; number < MESSAGES; number++) {
            if (sender_of(series, number) == self) {
                wait_until(&board->turn, series * MESSAGES + number, 0, "no turn");
                send_one(ep, series, number);
                atomic_fetch_add(&board->turn, 1); /* releases the message to the next sender */
            }
        }
    }
    wait_until(&board->taken, SERIES, 1, "the receiver has not taken all");
    wait_for(ucp_ep_close_nbx(ep, &param), "close");
    atomic_fetch_add(&board->ended, 1);
    wait_until(&board->ended, senders + 1, 1, "the others have not ended");
}

/* --- the receiver --- */

static int arrived[MESSAGES], arrivals;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header_length, (void)data, (void)length, (void)param;
    if (*(const int *)header >= WARM_UP) {
        atomic_fetch_add(&board->ready, 1);
    } else if (arrivals < MESSAGES) {
        arrived[arrivals++] = *(const int *)header;
    }
    return UCS_OK;
}

static void on_tag(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)user_data;
    if (status == UCS_OK && arrivals < MESSAGES) {
        arrived[arrivals++] = (int)info->sender_tag;
    }
    ucp_request_free(request);
}

static void post_receives(void)
{
    static char         in[MESSAGES][2000];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv = on_tag};

    for (int i = 0; i < MESSAGES; i++) {
        if (!UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in[i], sizeof(in[i]), 0, 0, &param))) {
            exit_with("a receive that is not queued");
        }
    }
}

static int in_order(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        if (arrived[i] != i) {
            return 0;
        }
    }
    return 1;
}

/* Idle until the senders have finished or begun, then polls for messages. */
static void receive_series(int series)
{
    int    first = 0;
    time_t end   = time(NULL) + 40;

    for (int i = 0; i < IDLE_CALLS; i++) {
        ucp_worker_progress(worker);
    }
    arrivals = 0;
    if (is_tagged(series)) {
        post_receives();
    }
    atomic_fetch_add(&board->series, 1);
    if (!is_watched(series)) {
        wait_until(&board->turn, (series + 1) * MESSAGES, 0, "the senders have not sent");
    }
    while (arrivals < MESSAGES) {
        if (ucp_worker_progress(worker) == 0) {
            sched_yield();
        }
        first = first == 0 ? arrivals : first;
        if (time(NULL) > end) {
            exit_with("messages are missing");
        }
    }
    printf("senders %d, series %d: %s, at most %d in a call %d\n", senders, series,
           in_order() ? "in order" : "out of order", FEW, first <= FEW);
    for (int i = 0; !in_order() && i < MESSAGES; i++) {
        printf(" %d%s", arrived[i], i == MESSAGES - 1 ? "\n" : "");
    }
    atomic_fetch_add(&board->taken, 1);
}

static void receive_all(void)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = ID, .cb = on_message};
    ucp_address_t         *address;
    size_t                 length;

    open_worker();
    bed_maps_record('A');
    if (ucp_worker_set_am_recv_handler(worker, &handler) != UCS_OK ||
        ucp_worker_get_address(worker, &address, &length) != UCS_OK || length > BED_ADDRESS_MAX) {
        exit_with("no address");
    }
    memcpy(board->address, address, length);
    ucp_worker_release_address(worker, address);
    atomic_fetch_add(&board->ready, 1);
    wait_until(&board->ready, 1 + WARM_UPS * 2 * senders, 1, "the senders are not connected");
    for (int series = 0; series < SERIES; series++) {
        receive_series(series);
    }
    fflush(stdout);
    wait_until(&board->ended, senders, 1, "the senders have not closed");
    atomic_fetch_add(&board->ended, 1);
}

static void live(int number)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (number < senders) {
        send_all(number);
    } else {
        receive_all();
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    exit(0);
}

/* The processes that failed. */
static int play(void)
{
    int failed = 0, status;

    memset(board, 0, sizeof(*board));
    fflush(stdout);
    for (int i = 0; i <= senders; i++) {
        if (fork() == 0) {
            live(i);
        }
    }
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    printf("senders %d: processes that failed %d%s%s\n", senders, failed, board->failure_text[0] ? ": " : "",
           board->failure_text);
    return failed;
}

int main(void)
{
    int failed = 0;

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        senders = counts[i];
        failed += play();
    }
    return failed != 0;
}
