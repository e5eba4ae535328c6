/* Signals and completion queues for tests. */
#include "notes.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IN_TIME_SECONDS 10

static const ucp_request_param_t plain = {.op_attr_mask = 0};

ucpx_signal_t note(uint8_t id, uint64_t value)
{
    return (ucpx_signal_t){
        .field_mask = UCPX_SIGNAL_FIELD_OP | UCPX_SIGNAL_FIELD_CQ_ID | UCPX_SIGNAL_FIELD_VALUE,
        .op         = UCPX_SIGNAL_OP_NOTIFY,
        .cq_id      = id,
        .value      = value,
    };
}

ucpx_signal_t flag(ucpx_signal_op_t op, size_t offset, uint64_t value, ucp_rkey_h rkey)
{
    return (ucpx_signal_t){
        .field_mask = UCPX_SIGNAL_FIELD_OP | UCPX_SIGNAL_FIELD_VALUE | UCPX_SIGNAL_FIELD_FLAG_ADDR |
                      UCPX_SIGNAL_FIELD_FLAG_RKEY,
        .op         = op,
        .value      = value,
        .flag_addr  = (uintptr_t)there + offset,
        .flag_rkey  = rkey,
    };
}

ucs_status_ptr_t put_signal(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey,
                            const ucpx_signal_t *signal)
{
    return ucpx_put_signal_nbx(self->ep, data, size, (uintptr_t)there + offset, rkey, signal, &plain);
}

void signalled(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey,
               const ucpx_signal_t *signal)
{
    WANT(UCS_OK, finish(self, put_signal(self, data, size, offset, rkey, signal)));
}

void flushed(party_t *self)
{
    WANT(UCS_OK, finish(self, ucp_ep_flush_nbx(self->ep, &plain)));
}

ucpx_cq_h queue(party_t *self, uint8_t id)
{
    ucpx_cq_params_t params = {.field_mask = UCPX_CQ_PARAM_FIELD_ID, .id = id};
    ucpx_cq_h        cq     = NULL;

    WANT(UCS_OK, ucpx_cq_create(self->worker, &params, &cq));
    return cq;
}

ucpx_cq_entry_t next(ucpx_cq_h cq)
{
    time_t          end   = time(NULL) + IN_TIME_SECONDS;
    ucpx_cq_entry_t entry = {.value = 0};

    while (ucpx_cq_poll(cq, &entry, 1) != 1) {
        if (time(NULL) > end) {
            WANT_TRUE(!"an entry in time");
            return (ucpx_cq_entry_t){.status = UCS_ERR_TIMED_OUT};
        }
    }
    return entry;
}

int next_is(ucpx_cq_h cq, uint64_t value, size_t length, size_t offset)
{
    ucpx_cq_entry_t entry = next(cq);

    WANT_TRUE(entry.kind == UCPX_CQ_ENTRY_SIGNAL);
    WANT(UCS_OK, entry.status);
    WANT_TRUE(entry.value == value);
    WANT_TRUE(entry.length == length);
    if (entry.field_mask & UCPX_CQ_ENTRY_FIELD_ADDRESS) {
        WANT_TRUE(entry.address == (uintptr_t)there + offset);
    }
    WANT_TRUE(entry.peer_uid != 0 && entry.request == NULL && entry.user_data == NULL);
    return length > 0 && !(entry.field_mask & UCPX_CQ_ENTRY_FIELD_ADDRESS);
}

uint64_t uid_of(party_t *self, const void *address)
{
    ucp_worker_address_attr_t attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};

    WANT(UCS_OK, ucp_worker_address_query((void *)(uintptr_t)address, &attr));
    (void)self;
    return attr.worker_uid;
}

int over_queue_pairs(void)
{
    const char *tls = getenv("UCX_TLS");

    return tls != NULL && strncmp(tls, "rc", 2) == 0;
}

int over_network(void)
{
    const char *tls = getenv("UCX_TLS");

    return tls != NULL && (strncmp(tls, "rc", 2) == 0 || strncmp(tls, "ud", 2) == 0 || strncmp(tls, "tcp", 3) == 0);
}
