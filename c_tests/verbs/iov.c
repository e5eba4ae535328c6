/*
 * Scatter-gather lists: the device gathers and scatters memory for messages, puts and gets; every byte is checked,
 * and no byte is copied in between.
 *
 * To be run with HCACTL, and with work requests shorter than the lists (UCX_RMA_ZCOPY_MAX_SEG_SIZE).
 */
#define _GNU_SOURCE
#include "counters.h"
#include "exposed.h"
#include "party.h"

#include <stdlib.h>
#include <string.h>

/* Whole pages and odd ends, an empty entry and a short one; more entries than a work request has SGEs. */
static const size_t lengths[] = {70000, 4096, 0, 1, 200001, 65536, 12345, 9000, 33333, 100000, 8191, 50000};
enum { PIECES = sizeof(lengths) / sizeof(*lengths), GAP = 333 };

static unsigned char *memory;
static ucp_dt_iov_t   list[PIECES];

static const ucp_request_param_t none = {.op_attr_mask = 0};
static const ucp_request_param_t iov  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = UCP_DATATYPE_IOV};

static unsigned char value_of(size_t at)
{
    return (unsigned char)(at * 2654435761u >> 13);
}

/* The list, and the bytes of all its entries. Bytes between the entries must not change. */
static size_t make_list(int filled)
{
    size_t at = 0, place = 0;

    memory = calloc(2, 1 << 20);
    for (int i = 0; i < PIECES; i++) {
        list[i] = (ucp_dt_iov_t){.buffer = memory + place, .length = lengths[i]};
        for (size_t n = 0; filled && n < lengths[i]; n++) {
            memory[place + n] = value_of(at + n);
        }
        at += lengths[i];
        place += lengths[i] + GAP;
    }
    return at;
}

static void check_list(void)
{
    size_t at = 0;

    for (int i = 0; i < PIECES; i++) {
        const unsigned char *piece = list[i].buffer;
        size_t               good = 0, gap = 0;

        for (size_t n = 0; n < lengths[i]; n++) {
            good += piece[n] == value_of(at + n);
        }
        for (size_t n = 0; n < GAP; n++) {
            gap += piece[lengths[i] + n] == 0;
        }
        WANT_TRUE(good == lengths[i] && gap == GAP);
        at += lengths[i];
    }
}

static void check_bytes(const unsigned char *bytes, size_t size)
{
    size_t good = 0;

    for (size_t n = 0; n < size; n++) {
        good += bytes[n] == value_of(n);
    }
    WANT_TRUE(good == size && bytes[size] == 0);
}

static void sends_list(party_t *self)
{
    make_list(1);
    WANT(UCS_OK, finish(self, ucp_tag_send_nbx(self->ep, list, PIECES, 1, &iov)));
    notify_peer(self);
}

static void sent(void)
{
    party_t        self;
    size_t         size  = make_list(0);
    unsigned char *bytes = calloc(1, size + 1);
    long           words = counter("words"), lists = counter("lists");

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends_list);
    WANT(UCS_OK, finish(&self, receive_tag(&self, bytes, size, 1)));
    check_bytes(bytes, size);
    WANT_TRUE(counter("words") == words + 1 && counter("lists") > lists);
    kill_and_check(&self);
}

static void receives_list(party_t *self)
{
    size_t size = make_list(0);

    WANT_TRUE(size > 0);
    WANT(UCS_OK, finish(self, ucp_tag_recv_nbx(self->worker, list, PIECES, 1, -1, &iov)));
    check_list();
    notify_peer(self);
}

/* No device scatters into remote entries: messages carry the data. */
static void received(void)
{
    party_t        self;
    size_t         size  = make_list(0);
    unsigned char *bytes = calloc(1, size + 1);

    for (size_t n = 0; n < size; n++) {
        bytes[n] = value_of(n);
    }
    start(&self, UCP_ERR_HANDLING_MODE_PEER, receives_list);
    WANT(UCS_OK, finish(&self, send_tag(&self, bytes, size)));
    kill_and_check(&self);
}

static void accessed(void)
{
    party_t    self;
    size_t     size = make_list(1);
    ucp_rkey_h rkey = open_memory(&self, size + 1, register_memory);
    long       lists = counter("lists");

    WANT(UCS_OK, finish(&self, ucp_put_nbx(self.ep, list, PIECES, (uintptr_t)there, rkey, &iov)));
    WANT(UCS_OK, finish(&self, ucp_ep_flush_nbx(self.ep, &none)));
    check_bytes(there, size);
    WANT_TRUE(counter("lists") > lists);
    free(memory);
    make_list(0);
    lists = counter("lists");
    WANT(UCS_OK, finish(&self, ucp_get_nbx(self.ep, list, PIECES, (uintptr_t)there, rkey, &iov)));
    check_list();
    WANT_TRUE(counter("lists") > lists);
    close_memory(&self, rkey);
}

static const case_t cases[] = {
    {"iov: a message", sent},
    {"iov: a receive", received},
    {"iov: put and get", accessed},
};

CHECK_MAIN(cases)
