/*
 * Operations that the interconnect rejects, of each kind and with each of its codes: the endpoint fails once with the
 * status of the code, and with a log line that names it; the requests end; the worker goes on with another peer; a new
 * endpoint to the same peer works. In the end all edata tags are free again.
 */
#include "check.h"
#include "finish.h"
#include "wire.h"

#include <ucp/api/ucpx.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SECONDS = 10,
    SENDS   = 20,
    LONG    = 1 << 20,
    PAGE    = 64 << 10,
    NUMBERS = 126, /* notices of single operations that can be outstanding: src/tl/tofu/op_queue/edata_tags.rs */
    FAILED  = 0,
    OTHER   = 1,
};

static const struct {
    int          code;
    const char  *name;
    ucs_status_t status;
} codes[] = {
    {-128, "UTOFU_ERR_TCQ_OTHER", UCS_ERR_IO_ERROR},
    {-129, "UTOFU_ERR_TCQ_DESC", UCS_ERR_IO_ERROR},
    {-130, "UTOFU_ERR_TCQ_MEMORY", UCS_ERR_IO_ERROR},
    {-131, "UTOFU_ERR_TCQ_STADD", UCS_ERR_IO_ERROR},
    {-132, "UTOFU_ERR_TCQ_LENGTH", UCS_ERR_IO_ERROR},
    {-192, "UTOFU_ERR_MRQ_OTHER", UCS_ERR_IO_ERROR},
    {-193, "UTOFU_ERR_MRQ_PEER", UCS_ERR_CONNECTION_RESET},
    {-194, "UTOFU_ERR_MRQ_LCL_MEMORY", UCS_ERR_IO_ERROR},
    {-195, "UTOFU_ERR_MRQ_RMT_MEMORY", UCS_ERR_IO_ERROR},
    {-196, "UTOFU_ERR_MRQ_LCL_STADD", UCS_ERR_IO_ERROR},
    {-197, "UTOFU_ERR_MRQ_RMT_STADD", UCS_ERR_IO_ERROR},
    {-198, "UTOFU_ERR_MRQ_LCL_LENGTH", UCS_ERR_IO_ERROR},
    {-199, "UTOFU_ERR_MRQ_RMT_LENGTH", UCS_ERR_IO_ERROR},
};

static const ucp_request_param_t none = {.op_attr_mask = 0};

static ucp_context_h  context;
static ucp_worker_h   worker, peers[2];
static ucp_ep_h       ep[2], back; /* from peers[FAILED] */
static ucp_rkey_h     rkey[2];
static unsigned       failures, failures_back;
static ucs_status_t   failure;
static unsigned char *own, *theirs;
static ucp_mem_h      theirs_h;
static void          *key;
static char           log_file[64];

/* Starts one operation, or several, with ep[FAILED] or, if possible, with the other endpoint. */
typedef int begin_t(int i, ucs_status_ptr_t *requests);

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)failed;
    ++*(unsigned *)arg;
    if (arg == &failures) {
        failure = status;
    }
}

static void progress(void *arg)
{
    (void)arg;
    ucp_worker_progress(worker);
    ucp_worker_progress(peers[0]);
    ucp_worker_progress(peers[1]);
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_with(request, SECONDS, progress, NULL);
}

static ucs_status_t flush(int i)
{
    return finish(ucp_ep_flush_nbx(ep[i], &none));
}

/* No keepalive flush goes to the other peer: the rejected operation is not a keepalive. */
static ucp_ep_h endpoint(ucp_worker_h from, ucp_worker_h to, unsigned *count)
{
    ucp_address_t  *address;
    size_t          length;
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       (count != NULL ? UCP_EP_PARAM_FIELD_ERR_HANDLER : 0),
        .err_mode    = count != NULL ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = on_failure, .arg = count},
    };
    ucp_ep_h made = NULL;

    WANT(UCS_OK, ucp_worker_get_address(to, &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(from, &params, &made));
    ucp_worker_release_address(to, address);
    return made;
}

static void connect_to(int i)
{
    if (i == FAILED) {
        failures = 0;
    }
    ep[i] = endpoint(worker, peers[i], i == FAILED ? &failures : NULL);
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep[i], key, &rkey[i]));
}

static void close_to(int i)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = i == FAILED ? UCP_EP_CLOSE_FLAG_FORCE : 0};

    ucp_rkey_destroy(rkey[i]);
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep[i], &param)));
}

static unsigned char *fresh(void)
{
    unsigned char *bytes = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    WANT_TRUE(bytes != MAP_FAILED);
    memset(bytes, 1, LONG);
    return bytes;
}

static void open_all(void)
{
    ucp_params_t         params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                          .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64};
    ucp_worker_params_t  worker_params = {.field_mask = 0};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .length     = LONG};
    size_t               length;

    snprintf(log_file, sizeof(log_file), "/tmp/refused.%d.log", getpid());
    setenv("UCX_LOG_LEVEL", "diag", 1);
    setenv("UCX_LOG_FILE", log_file, 1);
    own         = fresh();
    theirs      = fresh();
    map.address = theirs;
    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peers[0]));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peers[1]));
    WANT(UCS_OK, ucp_mem_map(context, &map, &theirs_h));
    WANT(UCS_OK, ucp_rkey_pack(context, theirs_h, &key, &length));
    connect_to(FAILED);
    connect_to(OTHER);
}

static void close_all(void)
{
    close_to(FAILED);
    close_to(OTHER);
    ucp_rkey_buffer_release(key);
    WANT(UCS_OK, ucp_mem_unmap(context, theirs_h));
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peers[0]);
    ucp_worker_destroy(peers[1]);
    ucp_cleanup(context);
    munmap(own, LONG);
    munmap(theirs, LONG);
    unlink(log_file);
}

/* --- rejected operations --- */

static int message(int i, ucs_status_ptr_t *requests, size_t size)
{
    for (int n = 0; n < SENDS; n++) {
        requests[n] = ucp_tag_send_nbx(ep[i], own, size, 1, &none);
    }
    return SENDS;
}

/* In a descriptor, from a buffer, in several frames. */
static int message_short(int i, ucs_status_ptr_t *requests) { return message(i, requests, 8); }
static int message_buffered(int i, ucs_status_ptr_t *requests) { return message(i, requests, 1000); }
static int message_in_frames(int i, ucs_status_ptr_t *requests) { return message(i, requests, 4000); }

static int put(int i, ucs_status_ptr_t *requests, size_t size)
{
    requests[0] = ucp_put_nbx(ep[i], own, size, (uintptr_t)theirs, rkey[i], &none);
    return 1;
}

static int put_short(int i, ucs_status_ptr_t *requests) { return put(i, requests, 8); }
static int put_tiny(int i, ucs_status_ptr_t *requests) { return put(i, requests, 20); }
static int put_buffered(int i, ucs_status_ptr_t *requests) { return put(i, requests, 1000); }
static int put_in_place(int i, ucs_status_ptr_t *requests) { return put(i, requests, LONG); }

static int get(int i, ucs_status_ptr_t *requests, size_t size)
{
    requests[0] = ucp_get_nbx(ep[i], own, size, (uintptr_t)theirs, rkey[i], &none);
    return 1;
}

static int get_buffered(int i, ucs_status_ptr_t *requests) { return get(i, requests, 8); }
static int get_in_place(int i, ucs_status_ptr_t *requests) { return get(i, requests, LONG); }

/* More than there are tags: some share one. */
static int gets_shared(int i, ucs_status_ptr_t *requests)
{
    for (int n = 0; n < 2 * NUMBERS; n++) {
        get(i, &requests[n], 8);
    }
    return 2 * NUMBERS;
}

static int atomic(int i, ucs_status_ptr_t *requests, void *reply)
{
    static const uint64_t one   = 1;
    ucp_request_param_t   param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                                                   (reply != NULL ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0),
                                   .datatype     = ucp_dt_make_contig(sizeof(one)),
                                   .reply_buffer = reply};

    requests[0] = ucp_atomic_op_nbx(ep[i], UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)theirs, rkey[i], &param);
    return 1;
}

static int fetch(int i, ucs_status_ptr_t *requests) { return atomic(i, requests, own); }

/* Those without a reply share one tag. */
static int adds(int i, ucs_status_ptr_t *requests)
{
    for (int n = 0; n < SENDS; n++) {
        atomic(i, &requests[n], NULL);
    }
    return SENDS;
}

static int signal_of(int i, ucs_status_ptr_t *requests, size_t size)
{
    ucpx_signal_t signal = {.field_mask = UCPX_SIGNAL_FIELD_OP | UCPX_SIGNAL_FIELD_CQ_ID | UCPX_SIGNAL_FIELD_VALUE,
                            .op         = UCPX_SIGNAL_OP_NOTIFY,
                            .cq_id      = 0,
                            .value      = 5};

    requests[0] = ucpx_put_signal_nbx(ep[i], own, size, (uintptr_t)theirs, rkey[i], &signal, &none);
    return 1;
}

static int signal_short(int i, ucs_status_ptr_t *requests) { return signal_of(i, requests, 8); }
static int signal_in_place(int i, ucs_status_ptr_t *requests) { return signal_of(i, requests, LONG); }

/* An RDMA read by the receiver. */
static ucs_status_ptr_t announced;

static void announce(void)
{
    ucp_tag_recv_info_t info;
    time_t              end = time(NULL) + SECONDS;

    failures_back = 0;
    back          = endpoint(peers[FAILED], worker, &failures_back);
    WANT(UCS_OK, finish(ucp_tag_send_nbx(back, theirs, 8, 7, &none)));
    WANT(UCS_OK, finish(ucp_tag_recv_nbx(worker, own, 8, 7, ~0ull, &none)));
    announced = ucp_tag_send_nbx(back, theirs, LONG, 8, &none);
    while (ucp_tag_probe_nb(worker, 8, ~0ull, 0, &info) == NULL && time(NULL) < end) {
        progress(NULL);
    }
}

static int rendezvous(int i, ucs_status_ptr_t *requests)
{
    (void)i;
    requests[0] = ucp_tag_recv_nbx(worker, own, LONG, 8, ~0ull, &none);
    return 1;
}

static void end_announced(void)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t    closed;

    /* The sender's request fails, too. */
    WANT_TRUE(finish(announced) < 0);
    closed = ucp_ep_close_nbx(back, &param);
    WANT(UCS_OK, finish(closed));
}

/* A flush that waits for arrival. */
static int question(int i, ucs_status_ptr_t *requests)
{
    requests[0] = ucp_ep_flush_nbx(ep[i], &none);
    return 1;
}

/* --- codes --- */

static int named(const char *name)
{
    FILE *lines = fopen(log_file, "r");
    char  line[512];
    int   found = 0;

    while (lines != NULL && fgets(line, sizeof(line), lines) != NULL) {
        found += strstr(line, "has failed") != NULL && strstr(line, name) != NULL;
    }
    if (lines != NULL) {
        fclose(lines);
    }
    return found;
}

static void works(int i)
{
    ucs_status_ptr_t requests[2];

    put(i, &requests[0], 8);
    get(i, &requests[1], 1000);
    WANT(UCS_OK, finish(requests[0]));
    WANT(UCS_OK, finish(requests[1]));
    WANT(UCS_OK, finish(ucp_tag_send_nbx(ep[i], own, 1000, 1, &none)));
    WANT(UCS_OK, flush(i));
}

/* Posts as many atomic operations as there are tags, without progress between them. Returns how many got one. */
static unsigned long post_with_all_numbers(void)
{
    static uint64_t  replies[NUMBERS];
    ucs_status_ptr_t requests[NUMBERS];
    unsigned long    before = counter("atomics"), posted;

    for (int n = 0; n < NUMBERS; n++) {
        atomic(FAILED, &requests[n], &replies[n]);
    }
    posted = counter("atomics") - before;
    for (int n = 0; n < NUMBERS; n++) {
        WANT(UCS_OK, finish(requests[n]));
        WANT_TRUE(n == 0 || replies[n] == replies[n - 1] + 1);
    }
    return posted;
}

/* All tags are free, sooner or later: the worker's own operations (keepalive, credits, the notice of a close) have some
 * for a while. */
static void has_all_numbers(void)
{
    time_t        end = time(NULL) + SECONDS;
    unsigned long posted;

    works(FAILED);
    do {
        progress(NULL);
        posted = post_with_all_numbers();
    } while (posted != NUMBERS && time(NULL) < end);
    WANT_TRUE(posted == NUMBERS);
}

/* The next operation of the worker is rejected: it has been started, or `begin` starts it. */
static void refuse(size_t c, begin_t *begin, unsigned flags)
{
    ucs_status_ptr_t requests[2 * NUMBERS];
    char             order[64];
    time_t           end  = time(NULL) + SECONDS;
    int              want = named(codes[c].name) + 1, count;

    snprintf(order, sizeof(order), "fail_nth=1,fail_code=%d", codes[c].code);
    if (begin == question) {
        WANT(UCS_OK, finish(ucp_put_nbx(ep[FAILED], own, 8, (uintptr_t)theirs, rkey[FAILED], &none)));
    }
    if (begin == rendezvous) {
        announce();
    }
    fault(order);
    count = begin(FAILED, requests);
    while (failures == 0 && time(NULL) < end) {
        progress(NULL);
    }
    WANT_TRUE(failures == 1);
    WANT_TRUE(failure == codes[c].status);
    for (int n = 0; n < count; n++) {
        ucs_status_t status = finish(requests[n]);

        WANT_TRUE(status != UCS_INPROGRESS);
        if (flags & 1) {
            WANT_TRUE(status == codes[c].status);
        }
    }
    WANT_TRUE(flush(FAILED) == codes[c].status);
    /* The peer may log a line of its own: that its ring was freed. */
    WANT_TRUE(named(codes[c].name) >= want);
    works(OTHER);
    WANT_TRUE(failures == 1);
    if (begin == rendezvous) {
        end_announced();
    }
    close_to(FAILED);
    connect_to(FAILED);
    works(FAILED);
}

/* `signaled`: the requests end with the status of the failure. */
static void all_codes(begin_t *begin, int signaled)
{
    open_all();
    works(FAILED);
    works(OTHER);
    for (size_t c = 0; c < sizeof(codes) / sizeof(codes[0]); c++) {
        refuse(c, begin, signaled);
    }
    has_all_numbers();
    close_all();
}

/* --- a get of a list that is not posted --- */

enum { PIECES = 64, STEP = 16 };

static struct {
    void      *buffers[PIECES];
    size_t     lengths[PIECES];
    uint64_t   addrs[PIECES];
    ucp_rkey_h rkeys[PIECES];
} list;

static ucs_status_ptr_t get_list(int i)
{
    ucp_dt_local_sgl_t  local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS,
                                  .buffers = list.buffers, .lengths = list.lengths};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                  .remote_addrs = list.addrs, .rkeys = list.rkeys};
    ucp_request_param_t param  = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &remote, .remote_count = PIECES,
    };

    for (int n = 0; n < PIECES; n++) {
        list.buffers[n] = own + n * STEP;
        list.lengths[n] = 8;
        list.addrs[n]   = (uintptr_t)theirs + n * STEP;
        list.rkeys[n]   = rkey[i];
    }
    return ucp_get_nbx(ep[i], &local, PIECES, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param);
}

/* The first, one in the middle and the last: those before it are posted, and none behind it. No byte is stored. */
static void get_of_a_list(void)
{
    static const int nths[] = {1, 20, PIECES};
    unsigned long    before;
    char             order[64];

    open_all();
    for (size_t n = 0; n < sizeof(nths) / sizeof(nths[0]); n++) {
        time_t           end = time(NULL) + SECONDS;
        ucs_status_ptr_t request;

        works(FAILED);
        works(OTHER);
        memset(own, 1, LONG);
        memset(theirs, 2, LONG);
        before = counter("gets");
        snprintf(order, sizeof(order), "post_fail_nth=%d", nths[n]);
        fault(order);
        request = get_list(FAILED);
        fault("post_fail_nth=0");
        WANT_TRUE(counter("gets") == before + nths[n] - 1);
        while (failures == 0 && time(NULL) < end) {
            progress(NULL);
        }
        WANT_TRUE(failures == 1 && failure == UCS_ERR_IO_ERROR);
        WANT(UCS_ERR_IO_ERROR, finish(request));
        WANT_TRUE(own[0] == 1 && memcmp(own, own + 1, LONG - 1) == 0);
        WANT(UCS_ERR_IO_ERROR, flush(FAILED));
        WANT(UCS_OK, finish(get_list(OTHER)));
        WANT_TRUE(own[0] == 2 && own[8] == 1 && own[(PIECES - 1) * STEP + 7] == 2);
        WANT_TRUE(failures == 1);
        close_to(FAILED);
        connect_to(FAILED);
    }
    has_all_numbers();
    close_all();
}

#define REFUSED(what, signaled) \
    static void refused_##what(void) \
    { \
        all_codes(what, signaled); \
    }

REFUSED(message_short, 0)
REFUSED(message_buffered, 0)
REFUSED(message_in_frames, 0)
REFUSED(put_short, 0)
REFUSED(put_tiny, 0)
REFUSED(put_buffered, 0)
REFUSED(put_in_place, 0)
REFUSED(get_buffered, 1)
REFUSED(get_in_place, 1)
REFUSED(gets_shared, 0)
REFUSED(fetch, 1)
REFUSED(adds, 0)
REFUSED(signal_short, 0)
REFUSED(signal_in_place, 0)
REFUSED(question, 1)
REFUSED(rendezvous, 1)

/* --- addresses outside of an rkey --- */

/* The owner rejects accesses beyond its end: the request fails, and the endpoint does not. */
static void beyond(void)
{
    static const struct {
        size_t at, size;
    } all[] = {{LONG, 8}, {LONG - 4, 8}, {LONG - 100, 1000}, {PAGE, LONG}, {(size_t)-8, 8}};
    uint64_t         one = 1;
    ucs_status_ptr_t request;

    open_all();
    memset(theirs, 3, LONG);
    for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++) {
        uint64_t there = (uintptr_t)theirs + all[n].at;

        works(FAILED);
        memset(theirs, 3, LONG);
        request = ucp_put_nbx(ep[FAILED], own, all[n].size, there, rkey[FAILED], &none);
        WANT_TRUE(finish(request) != UCS_INPROGRESS);
        WANT(UCS_ERR_INVALID_ADDR, flush(FAILED));
        /* An access in fragments is rejected in fragments. */
        WANT_TRUE(theirs[0] == 3 && (theirs[LONG - 1] == 3 || all[n].size == LONG));
        request = ucp_get_nbx(ep[FAILED], own, all[n].size, there, rkey[FAILED], &none);
        WANT(UCS_ERR_INVALID_ADDR, finish(request));
        SURVIVE(flush(FAILED));
    }
    for (int n = 0; n < 2; n++) {
        ucp_request_param_t param = {.op_attr_mask =
                                         UCP_OP_ATTR_FIELD_DATATYPE | (n ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0),
                                     .datatype     = ucp_dt_make_contig(sizeof(one)),
                                     .reply_buffer = own};

        request =
            ucp_atomic_op_nbx(ep[FAILED], UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)theirs + LONG, rkey[FAILED], &param);
        WANT_TRUE(finish(request) == UCS_ERR_INVALID_ADDR || n == 0);
        WANT_TRUE(flush(FAILED) == UCS_ERR_INVALID_ADDR || n == 1);
    }
    WANT_TRUE(failures == 0);
    works(FAILED);
    has_all_numbers();
    close_all();
}

/* The adapter does not know memory that its owner has unmapped: the endpoint fails, and the log line has the reason. */
static void memory_unmapped(void)
{
    static begin_t *const all[] = {put_short,    put_tiny,     put_buffered, put_in_place, get_buffered,
                                   get_in_place, gets_shared,  fetch,        adds};
    static const char     name[] = "UTOFU_ERR_MRQ_RMT_STADD";
    ucp_mem_map_params_t  map    = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                    .length     = LONG};
    ucs_status_ptr_t      requests[2 * NUMBERS];
    time_t                end;
    int                   lines, count;
    size_t                length;

    open_all();
    map.address = theirs;
    for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++) {
        works(FAILED);
        works(OTHER);
        lines = named(name);
        end   = time(NULL) + SECONDS;
        WANT(UCS_OK, ucp_mem_unmap(context, theirs_h));
        count = all[n](FAILED, requests);
        while (failures == 0 && time(NULL) < end) {
            progress(NULL);
        }
        WANT_TRUE(failures == 1 && failure == UCS_ERR_IO_ERROR);
        for (int i = 0; i < count; i++) {
            WANT_TRUE(finish(requests[i]) != UCS_INPROGRESS);
        }
        WANT(UCS_ERR_IO_ERROR, flush(FAILED));
        WANT_TRUE(named(name) == lines + 1);
        WANT(UCS_OK, finish(ucp_tag_send_nbx(ep[OTHER], own, 1000, 1, &none)));
        WANT(UCS_OK, flush(OTHER));
        close_to(FAILED);
        close_to(OTHER);
        ucp_rkey_buffer_release(key);
        WANT(UCS_OK, ucp_mem_map(context, &map, &theirs_h));
        WANT(UCS_OK, ucp_rkey_pack(context, theirs_h, &key, &length));
        connect_to(FAILED);
        connect_to(OTHER);
    }
    has_all_numbers();
    close_all();
}

static const case_t cases[] = {
    {"refused: short messages", refused_message_short},
    {"refused: messages", refused_message_buffered},
    {"refused: messages of several frames", refused_message_in_frames},
    {"refused: put of a word", refused_put_short},
    {"refused: short put", refused_put_tiny},
    {"refused: put", refused_put_buffered},
    {"refused: zero-copy put", refused_put_in_place},
    {"refused: get", refused_get_buffered},
    {"refused: zero-copy get", refused_get_in_place},
    {"refused: gets that share tags", refused_gets_shared},
    {"refused: atomic operation with a reply", refused_fetch},
    {"refused: atomic operations without", refused_adds},
    {"refused: put with signal", refused_signal_short},
    {"refused: zero-copy put with signal", refused_signal_in_place},
    {"refused: flush", refused_question},
    {"refused: rendezvous", refused_rendezvous},
    {"refused: get of a list", get_of_a_list},
    {"refused: beyond the memory of an rkey", beyond},
    {"refused: memory that was unmapped", memory_unmapped},
};

CHECK_MAIN(cases)
