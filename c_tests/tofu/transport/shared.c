/*
 * Long puts and gets by several network interfaces: UCX_TOFU_VCQS_PER_WORKER is RAILS and UCX_MAX_RMA_RAILS no less. Every interface
 * carries its part, what has to be behind all parts is, and one that fails ends the request and the endpoint.
 */
#define _GNU_SOURCE
#include "check.h"
#include "wire.h"

#include "../../../include/ucp/api/ucpx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SIZE ((size_t)8 << 20)

enum { SECONDS = 20, MOST = 6, ROUNDS = 100, LONG = 1 << 20, LINE = 256 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

static ucp_context_h  context;
static ucp_worker_h   worker, peer;
static ucpx_cq_h      queue;
static ucp_ep_h       ep;
static ucp_rkey_h     rkey;
static ucp_mem_h      theirs_h;
static unsigned char *theirs, *own;
static unsigned       failures;

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg, (void)failed, (void)status;
    failures++;
}

static void progress(void)
{
    ucp_worker_progress(worker);
    ucp_worker_progress(peer);
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    time_t       end = time(NULL) + SECONDS;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && time(NULL) < end) {
        progress();
    }
    ucp_request_free(request);
    return status;
}

static ucs_status_t flush(void)
{
    return finish(ucp_ep_flush_nbx(ep, &none));
}

static unsigned char *fresh(int value)
{
    unsigned char *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    WANT_TRUE(bytes != MAP_FAILED);
    memset(bytes, value, SIZE);
    return bytes;
}

/* Of a worker. */
static unsigned queues(void)
{
    return (unsigned)atoi(getenv("UCX_TOFU_VCQS_PER_WORKER"));
}

/* The program is linked to a library of UCX's own, which does not have them. */
#define FIND(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_DEFAULT, #name))

static void open_all(void)
{
    ucpx_cq_params_t     cq_params     = {.field_mask = 0};
    ucp_params_t         params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                          .features   = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG};
    ucp_worker_params_t  worker_params = {.field_mask = 0};
    ucp_mem_map_params_t map           = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                          .length     = SIZE};
    ucp_ep_params_t      ep_params     = {.field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                          .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
                                          .err_handler = {.cb = on_failure}};
    ucp_address_t       *address;
    size_t               length;
    void                *key;

    failures = 0;
    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peer));
    WANT(UCS_OK, FIND(ucpx_cq_create)(peer, &cq_params, &queue));
    WANT(UCS_OK, ucp_worker_get_address(peer, &address, &length));
    ep_params.address = address;
    WANT(UCS_OK, ucp_ep_create(worker, &ep_params, &ep));
    ucp_worker_release_address(peer, address);
    own         = fresh(1);
    theirs      = fresh(0);
    map.address = theirs;
    WANT(UCS_OK, ucp_mem_map(context, &map, &theirs_h));
    WANT(UCS_OK, ucp_rkey_pack(context, theirs_h, &key, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep, key, &rkey));
    ucp_rkey_buffer_release(key);
    WANT(UCS_OK, finish(ucp_put_nbx(ep, "begin", 5, (uint64_t)theirs, rkey, &none)));
    WANT(UCS_OK, flush());
}

static void close_all(void)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    ucp_rkey_destroy(rkey);
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &param)));
    WANT(UCS_OK, ucp_mem_unmap(context, theirs_h));
    FIND(ucpx_cq_destroy)(queue);
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peer);
    ucp_cleanup(context);
    munmap(theirs, SIZE);
    munmap(own, SIZE);
}

static ucs_status_ptr_t put(const void *from, size_t size)
{
    return ucp_put_nbx(ep, from, size, (uint64_t)theirs, rkey, &none);
}

static ucs_status_ptr_t get(void *into, size_t size)
{
    return ucp_get_nbx(ep, into, size, (uint64_t)theirs, rkey, &none);
}

static void carried(unsigned long bytes[MOST])
{
    char name[32];

    for (int tni = 0; tni < MOST; tni++) {
        snprintf(name, sizeof(name), "bytes[%d]", tni);
        bytes[tni] = counter(name);
    }
}

/* So many interfaces have carried so much each, give or take what is said besides, and the others none. */
static void want_carried(const char *what, const unsigned long before[MOST], unsigned interfaces, size_t each)
{
    unsigned long after[MOST];
    unsigned      found = 0;

    carried(after);
    for (int tni = 0; tni < MOST; tni++) {
        unsigned long moved = after[tni] - before[tni];

        if (moved >= each - LINE * MOST && moved <= each + 1024) {
            found++;
        } else if (moved > 1024) {
            fprintf(stderr, "%s: interface %d carried %lu bytes, not %zu\n", what, tni, moved, each);
            WANT_TRUE(!"parts that are alike");
        }
    }
    if (found != interfaces) {
        fprintf(stderr, "%s: %u interfaces, not %u\n", what, found, interfaces);
        WANT_TRUE(!"as many interfaces as may");
    }
}

static void pattern(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)((i >> 8) * 31 + i + seed);
    }
}

static void parts(void)
{
    static const size_t sizes[] = {64 << 10, LONG, LONG + 12345, SIZE};
    unsigned long       before[MOST];
    unsigned            seed = 1;

    open_all();
    carried(before);
    WANT(UCS_OK, finish(put(own, (64 << 10) - 1)));
    WANT(UCS_OK, flush());
    want_carried("put that is too short", before, 1, (64 << 10) - 1);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t   size = sizes[i];
        unsigned all  = size >= (size_t)queues() * (16 << 10) ? queues() : (unsigned)(size / (16 << 10));

        pattern(own, size, seed++);
        carried(before);
        WANT(UCS_OK, finish(put(own, size)));
        WANT(UCS_OK, flush());
        want_carried("put", before, all, size / all);
        WANT_TRUE(memcmp(own, theirs, size) == 0);
        pattern(theirs, size, seed++);
        carried(before);
        WANT(UCS_OK, finish(get(own, size)));
        want_carried("get", before, all, size / all);
        WANT_TRUE(memcmp(own, theirs, size) == 0);
    }
    close_all();
}

/* What rails may have overtaken is in front of the entry in the queue all the same. Behind a fence everything is. */
static void signals(int fenced)
{
    ucpx_cq_entry_t  entry  = {.field_mask = 0};
    ucpx_signal_t    signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE};
    time_t           end    = time(NULL) + SECONDS;
    ucs_status_ptr_t first, second;

    open_all();
    for (int round = 1; round <= ROUNDS; round++) {
        memset(own, round, LONG);
        signal.value = (uint64_t)round;
        if (fenced) {
            first = put(own, LONG);
            WANT(UCS_OK, ucp_worker_fence(worker));
            second = FIND(ucpx_put_signal_nbx)(ep, own, 8, (uint64_t)theirs + LONG, rkey, &signal, &none);
        } else {
            first  = UCS_STATUS_PTR(UCS_OK);
            second = FIND(ucpx_put_signal_nbx)(ep, own, LONG, (uint64_t)theirs, rkey, &signal, &none);
        }
        while (FIND(ucpx_cq_poll)(queue, &entry, 1) == 0 && time(NULL) < end) {
            progress();
        }
        WANT_TRUE(entry.value == (uint64_t)round);
        for (size_t at = 0; at < LONG; at += LINE) {
            WANT_TRUE(theirs[at] == (unsigned char)round && theirs[at + LINE - 1] == (unsigned char)round);
        }
        WANT(UCS_OK, finish(first));
        WANT(UCS_OK, finish(second));
        WANT(UCS_OK, flush());
    }
    close_all();
}

static void behind_its_data(void)
{
    signals(0);
}

static void behind_a_fence(void)
{
    signals(1);
}

/* A put, a fence, another one to the same place, a fence, a get of it: each by all interfaces. */
static void fences(void)
{
    unsigned char   *other = fresh(0), *into = fresh(0);
    ucs_status_ptr_t requests[3];

    open_all();
    for (int round = 1; round <= ROUNDS; round++) {
        memset(own, round, LONG);
        memset(other, ~round, LONG);
        requests[0] = put(own, LONG);
        WANT(UCS_OK, ucp_worker_fence(worker));
        requests[1] = put(other, LONG);
        WANT(UCS_OK, ucp_worker_fence(worker));
        requests[2] = get(into, LONG);
        for (int i = 0; i < 3; i++) {
            WANT(UCS_OK, finish(requests[i]));
        }
        WANT_TRUE(memcmp(into, other, LONG) == 0);
        /* The other way about: what is got is what was there before. */
        requests[0] = get(into, LONG);
        WANT(UCS_OK, ucp_worker_fence(worker));
        requests[1] = put(own, LONG);
        WANT(UCS_OK, finish(requests[0]));
        WANT(UCS_OK, finish(requests[1]));
        WANT(UCS_OK, flush());
        WANT_TRUE(memcmp(into, other, LONG) == 0 && memcmp(theirs, own, LONG) == 0);
    }
    close_all();
    munmap(other, SIZE);
    munmap(into, SIZE);
}

/* The n-th operation fails: the request ends as the endpoint does, when no adapter is at the memory any more. */
static void failing(int nth, int code, int writes)
{
    ucs_status_ptr_t request;
    ucs_status_t     status;
    char             order[64];
    time_t           end = time(NULL) + SECONDS;

    open_all();
    snprintf(order, sizeof(order), "fail_nth=%d,fail_code=%d", nth, code);
    fault(order);
    request = writes ? put(own, LONG) : get(own, LONG);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    status = finish(request);
    WANT_TRUE(status == UCS_ERR_IO_ERROR || status == UCS_ERR_CONNECTION_RESET || (writes && nth == 1 && status == UCS_OK));
    while (failures == 0 && time(NULL) < end) {
        progress();
    }
    WANT_TRUE(failures == 1);
    close_all();
}

static void failing_puts(void)
{
    for (int nth = 1; nth <= (int)queues(); nth++) {
        failing(nth, -131, 1);
        failing(nth, -197, 1);
        failing(nth, -193, 1);
    }
}

static void failing_gets(void)
{
    for (int nth = 1; nth <= (int)queues(); nth++) {
        failing(nth, -196, 0);
        failing(nth, -193, 0);
    }
}

/* Rails whose registration fails move nothing: the others do. */
static void not_registered(void)
{
    unsigned long before[MOST];
    char          order[32];

    for (int nth = 2; nth <= (int)queues(); nth++) {
        open_all();
        pattern(own, LONG, (unsigned)nth);
        carried(before);
        snprintf(order, sizeof(order), "reg_fail_nth=%d", nth);
        fault(order);
        WANT(UCS_OK, finish(put(own, LONG)));
        WANT(UCS_OK, flush());
        want_carried("put with a rail less", before, queues() - 1, LONG / (queues() - 1));
        WANT_TRUE(memcmp(own, theirs, LONG) == 0);
        close_all();
    }
}

/* A user who closes by force gets his memory back when nothing more is written there. */
static void taken_back(void)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t    request;
    ucs_status_t        status;

    open_all();
    memset(theirs, 5, LONG);
    fault("delay_us=100000");
    request = get(own, LONG);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &param)));
    status = finish(request);
    WANT_TRUE(status == UCS_ERR_CANCELED || status == UCS_ERR_CONNECTION_RESET);
    /* It could not be stopped: so it has to be there by now. */
    for (size_t at = 0; at < LONG; at += LINE) {
        WANT_TRUE(own[at] == 5 && own[at + LINE - 1] == 5);
    }
    fault("delay_us=0");
    ucp_rkey_destroy(rkey);
    WANT(UCS_OK, ucp_mem_unmap(context, theirs_h));
    FIND(ucpx_cq_destroy)(queue);
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peer);
    ucp_cleanup(context);
    munmap(theirs, SIZE);
    munmap(own, SIZE);
}

static const case_t cases[] = {
    {"shared: parts", parts},
    {"shared: signals behind their data", behind_its_data},
    {"shared: signals behind a fence", behind_a_fence},
    {"shared: fences", fences},
    {"shared: puts that fail", failing_puts},
    {"shared: gets that fail", failing_gets},
    {"shared: memory that is not registered", not_registered},
    {"shared: taken back", taken_back},
};

CHECK_MAIN(cases)
