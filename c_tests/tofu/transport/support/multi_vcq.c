#define _GNU_SOURCE
#include "finish.h"
#include "multi_vcq.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

ucp_context_h  context;
ucp_worker_h   worker, peer;
ucpx_cq_h      queue;
ucp_ep_h       ep;
ucp_rkey_h     rkey;
ucp_mem_h      theirs_h;
unsigned char *theirs, *own;
unsigned       failures;

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg, (void)failed, (void)status;
    failures++;
}

void progress(void)
{
    ucp_worker_progress(worker);
    ucp_worker_progress(peer);
}

static void progress_both(void *arg)
{
    (void)arg;
    progress();
}

ucs_status_t settle(ucs_status_ptr_t request)
{
    return finish_with(request, SECONDS, progress_both, NULL);
}

ucs_status_t flush(void)
{
    return settle(ucp_ep_flush_nbx(ep, &none));
}

unsigned char *fresh(int value)
{
    unsigned char *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    WANT_TRUE(bytes != MAP_FAILED);
    memset(bytes, value, SIZE);
    return bytes;
}

unsigned queues(void)
{
    return (unsigned)atoi(getenv("UCX_TOFU_VCQS_PER_WORKER"));
}

void open_all(void)
{
    ucpx_cq_params_t     cq_params     = {.field_mask = 0};
    ucp_params_t         params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                          .features   = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG |
                                                        UCP_FEATURE_AM};
    ucp_worker_params_t  worker_params = {.field_mask = 0};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
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
    WANT(UCS_OK, settle(ucp_put_nbx(ep, "begin", 5, (uint64_t)theirs, rkey, &none)));
    WANT(UCS_OK, flush());
}

ucs_status_ptr_t close_ep(void)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    ucp_rkey_destroy(rkey);
    return ucp_ep_close_nbx(ep, &param);
}

void close_rest(void)
{
    WANT(UCS_OK, ucp_mem_unmap(context, theirs_h));
    FIND(ucpx_cq_destroy)(queue);
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peer);
    ucp_cleanup(context);
    munmap(theirs, SIZE);
    munmap(own, SIZE);
}

void close_all(void)
{
    WANT(UCS_OK, settle(close_ep()));
    close_rest();
}

unsigned interfaces_of(size_t size)
{
    if (size < 64 << 10) {
        return 1;
    }
    return size >= (size_t)queues() * (16 << 10) ? queues() : (unsigned)(size / (16 << 10));
}

void carried(unsigned long bytes[MOST])
{
    char name[32];

    for (int tni = 0; tni < MOST; tni++) {
        snprintf(name, sizeof(name), "bytes[%d]", tni);
        bytes[tni] = counter(name);
    }
}

void want_carried(const char *what, const unsigned long before[MOST], unsigned interfaces, size_t each)
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

void pattern(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)((i >> 8) * 31 + i + seed);
    }
}
