/* Sides: contexts, workers and the endpoints between them, in each topology. */
#include "bed.h"

#include <stdlib.h>
#include <string.h>

static void context_open(side_t *side, const bed_params_t *bed_params)
{
    ucp_params_t params = {
        .field_mask      = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE,
        .features        = bed_params->features,
        .request_size    = bed_params->request_size,
        .request_init    = bed_params->request_init,
        .request_cleanup = bed_params->request_cleanup,
    };

    if (bed_params->request_init != NULL) {
        params.field_mask |= UCP_PARAM_FIELD_REQUEST_INIT;
    }
    if (bed_params->request_cleanup != NULL) {
        params.field_mask |= UCP_PARAM_FIELD_REQUEST_CLEANUP;
    }
    must(side, ucp_init(&params, NULL, &side->context), "ucp_init");
}

static void worker_open(side_t *side, const bed_params_t *bed_params)
{
    ucp_worker_params_t params = {
        .field_mask   = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode  = bed_params->thread_mode,
        .am_alignment = bed_params->am_alignment,
    };

    if (bed_params->am_alignment != 0) {
        params.field_mask |= UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
    }
    must(side, ucp_worker_create(side->context, &params, &side->worker), "ucp_worker_create");
}

static size_t address_copy(side_t *side, void *out)
{
    ucp_address_t *address;
    size_t         length;

    if (side == NULL) {
        return 0;
    }
    must(side, ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    if (length > BED_ADDRESS_MAX) {
        abort();
    }
    memcpy(out, address, length);
    ucp_worker_release_address(side->worker, address);
    return length;
}

void bed_exchange_addresses(bed_t *bed, void *to_b, void *to_a)
{
    char   own[BED_ADDRESS_MAX];
    size_t length = address_copy(bed->a, own);

    bed_transfer(bed, bed->a, own, length, to_a, BED_ADDRESS_MAX);
    length = address_copy(bed->b, own);
    bed_transfer(bed, bed->b, own, length, to_b, BED_ADDRESS_MAX);
}

ucp_ep_h bed_connect(side_t *from, const void *address)
{
    ucp_ep_h        ep     = NULL;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
        .address    = address,
    };

    must(from, ucp_ep_create(from->worker, &params, &ep), "ucp_ep_create");
    return ep;
}

void bed_open_unconnected(bed_t *bed, const bed_params_t *params)
{
    if (bed->a != NULL) {
        context_open(bed->a, params);
        worker_open(bed->a, params);
    }
    if (bed->b == NULL) {
        return;
    }
    if (bed->a == NULL) {
        context_open(bed->b, params);
    } else {
        bed->b->context = bed->a->context;
    }
    if (bed->topology == TOPOLOGY_SELF) {
        bed->b->worker = bed->a->worker;
    } else {
        worker_open(bed->b, params);
    }
}

void bed_open(bed_t *bed, const bed_params_t *params)
{
    static char to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];

    bed_open_unconnected(bed, params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->a != NULL) {
        bed->a->ep = bed_connect(bed->a, to_b);
    }
    if (bed->b != NULL) {
        bed->b->ep = bed->topology == TOPOLOGY_SELF ? bed->a->ep : bed_connect(bed->b, to_a);
    }
    bed_sync(bed);
}

ucs_status_t bed_disconnect(bed_t *bed, ucp_ep_h ep)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return bed_wait(bed, ucp_ep_close_nbx(ep, &param));
}

void bed_close(bed_t *bed)
{
    int shared = bed->topology == TOPOLOGY_SELF;

    bed_sync(bed);
    if (bed->a != NULL && bed->a->ep != NULL) {
        fact(bed->a, "close: %s", status_name(bed_disconnect(bed, bed->a->ep)));
    }
    if (bed->b != NULL && bed->b->ep != NULL && !shared) {
        fact(bed->b, "close: %s", status_name(bed_disconnect(bed, bed->b->ep)));
    }
    bed_sync(bed); /* a destroyed worker cannot answer the other side's flush */
    if (bed->a != NULL) {
        ucp_worker_destroy(bed->a->worker);
    }
    if (bed->b != NULL && !shared) {
        ucp_worker_destroy(bed->b->worker);
    }
    ucp_cleanup(bed->a != NULL ? bed->a->context : bed->b->context);
}
