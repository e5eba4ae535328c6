/*
 * Two ends with different window and packet sizes: each end keeps to the limits of the other, and everything arrives.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 30000, FLOOD = 3000, SECONDS = 20 };

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
} end_t;

static end_t ends[2];

static void progress(void)
{
    ucp_worker_progress(ends[0].worker);
    ucp_worker_progress(ends[1].worker);
}

/* `settings`: pairs of names and values, up to a NULL. */
static void end_open(end_t *end, const char *const *settings)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_config_t       *config;

    WANT(UCS_OK, ucp_config_read(NULL, NULL, &config));
    for (; settings[0] != NULL; settings += 2) {
        WANT(UCS_OK, ucp_config_modify(config, settings[0], settings[1]));
    }
    WANT(UCS_OK, ucp_init(&params, config, &end->context));
    ucp_config_release(config);
    WANT(UCS_OK, ucp_worker_create(end->context, &worker_params, &end->worker));
}

static void connect_to(end_t *from, end_t *to)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t  *address;
    size_t          length;

    WANT(UCS_OK, ucp_worker_get_address(to->worker, &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(from->worker, &params, &from->ep));
    ucp_worker_release_address(to->worker, address);
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    time_t end = time(NULL) + SECONDS;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < end) {
        progress();
    }
    ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

static void message(int from, size_t size)
{
    static char         out[MOST], in[MOST];
    ucp_request_param_t none = {.op_attr_mask = 0};

    for (size_t i = 0; i < size; i++) {
        out[i] = (char)(i * 31 + size);
    }
    ucs_status_ptr_t received = ucp_tag_recv_nbx(ends[1 - from].worker, in, size, 7, (ucp_tag_t)-1, &none);
    WANT(UCS_OK, finish(ucp_tag_send_nbx(ends[from].ep, out, size, 7, &none)));
    WANT(UCS_OK, finish(received));
    WANT_TRUE(memcmp(in, out, size) == 0);
}

/* More messages than any window has room for, before any is received. */
static void flood(int from)
{
    static ucs_status_ptr_t sent[FLOOD];
    static uint64_t         out[FLOOD], in[FLOOD];
    ucp_request_param_t     none = {.op_attr_mask = 0};

    for (uint64_t i = 0; i < FLOOD; i++) {
        out[i]  = i;
        sent[i] = ucp_tag_send_nbx(ends[from].ep, &out[i], 8, 9, &none);
    }
    for (uint64_t i = 0; i < FLOOD; i++) {
        WANT(UCS_OK, finish(ucp_tag_recv_nbx(ends[1 - from].worker, &in[i], 8, 9, (ucp_tag_t)-1, &none)));
        WANT_TRUE(in[i] == i);
    }
    for (uint64_t i = 0; i < FLOOD; i++) {
        WANT(UCS_OK, finish(sent[i]));
    }
}

static void play(const char *const *first, const char *const *second)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    end_open(&ends[0], first);
    end_open(&ends[1], second);
    connect_to(&ends[0], &ends[1]);
    connect_to(&ends[1], &ends[0]);
    for (int i = 0; i < 2; i++) {
        for (size_t size = 8; size < MOST; size = size * 2 + 1) {
            message(i, size);
            message(1 - i, size);
        }
        flood(i);
    }
    for (int i = 0; i < 2; i++) {
        finish(ucp_ep_close_nbx(ends[i].ep, &force));
    }
    for (int i = 0; i < 2; i++) {
        ucp_worker_destroy(ends[i].worker);
        ucp_cleanup(ends[i].context);
    }
}

static const char *const usual[] = {NULL, NULL};

static void windows(void)
{
    const char *const few[] = {"RC_FC_WND_SIZE", "2", "UD_MAX_WINDOW", "2", NULL, NULL};
    const char *const many[] = {"RC_FC_ENABLE", "n", NULL, NULL};

    play(usual, few);
    play(few, many);
}

static void packets(void)
{
    const char *const small[] = {"IB_SEG_SIZE", "600", NULL, NULL};
    const char *const large[] = {"IB_SEG_SIZE", "60000", NULL, NULL};

    play(usual, small);
    play(large, usual);
    play(small, large);
}

static const case_t cases[] = {
    {"differing: windows", windows},
    {"differing: packets", packets},
};

CHECK_MAIN(cases)
