/*
 * One rank of a job whose ranks all exchange messages, puts and gets with each other; which device carries what is
 * printed.
 *
 *   ranks RANK COUNT [watched|unwatched]
 *
 * Prints "address HEX HEX HEX", the worker's address, an address of memory and its remote key, and reads as many words
 * for each rank, a line each, in the order of ranks. Then it prints "to RANK over TRANSPORT/DEVICE" for each of the
 * other ranks, and "done". It ends when its standard input does. With a third word, which says whether endpoints have
 * error handling, rank 0 then sends messages to rank 1 until one fails, and prints "failed STATUS".
 */
#define _GNU_SOURCE
#include "../check.h"
#include "../pattern.h"

#include <ucp/api/ucp.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>

enum { SHORT = 8, LONG = 1 << 20, PUT = 4096, MAX_RANKS = 8, LANES = 4, HEX_BYTES = 8192 };

static ucp_context_h context;
static ucp_worker_h  worker;
static uint8_t      *memory; /* PUT bytes for each rank */

struct rank {
    uint8_t  address[1024];
    uint64_t memory;
    uint8_t  rkey[1024];
    ucp_ep_h ep;
};

static struct rank ranks[MAX_RANKS];
static uint8_t     out[LONG], in[LONG];

void check_report(const char *failure)
{
    printf("failed: %s\n", failure);
    fflush(stdout);
    exit(1);
}

#define OK(call) CHECK((call) == UCS_OK)

static void await(ucs_status_ptr_t result)
{
    ucs_status_t status = UCS_PTR_STATUS(result);

    if (UCS_PTR_IS_PTR(result)) {
        while ((status = ucp_request_check_status(result)) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        ucp_request_free(result);
    }
    CHECK(status == UCS_OK, "%s", ucs_status_string(status));
}

static void open_worker(unsigned count)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    OK(ucp_init(&params, NULL, &context));
    OK(ucp_worker_create(context, &worker_params, &worker));
    memory = mmap(NULL, PUT * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
}

static void print_hex(const void *data, size_t length)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < length; i++) {
        printf("%02x", bytes[i]);
    }
    putchar(' ');
}

static void print_address(unsigned count)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = memory,
                                   .length     = PUT * count};
    ucp_address_t       *address;
    size_t               length;
    ucp_mem_h            mem;
    void                *rkey;
    uint64_t             at = (uintptr_t)memory;

    printf("address ");
    OK(ucp_worker_get_address(worker, &address, &length));
    print_hex(address, length);
    ucp_worker_release_address(worker, address);
    print_hex(&at, sizeof(at));
    OK(ucp_mem_map(context, &params, &mem));
    OK(ucp_rkey_pack(context, mem, &rkey, &length));
    print_hex(rkey, length);
    ucp_rkey_buffer_release(rkey);
    putchar('\n');
    fflush(stdout);
}

static void read_hex(void *data, size_t most)
{
    static char text[HEX_BYTES];
    uint8_t    *bytes = data;

    CHECK(scanf("%8191s", text) == 1);
    size_t length = strlen(text) / 2;
    CHECK(length <= most);
    for (size_t i = 0; i < length; i++) {
        unsigned byte;
        CHECK(sscanf(text + 2 * i, "%2x", &byte) == 1);
        bytes[i] = (uint8_t)byte;
    }
}

static void read_ranks(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        read_hex(ranks[i].address, sizeof(ranks[i].address));
        read_hex(&ranks[i].memory, sizeof(ranks[i].memory));
        read_hex(ranks[i].rkey, sizeof(ranks[i].rkey));
    }
}

static unsigned seed(unsigned from, unsigned to, unsigned round)
{
    return (from * MAX_RANKS + to) * 4 + round;
}

/* A message in both directions. */
static void exchange(unsigned own, unsigned peer, size_t length, unsigned round)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    recv, send;

    fill(out, length, seed(own, peer, round));
    recv = ucp_tag_recv_nbx(worker, in, length, seed(peer, own, round), (ucp_tag_t)-1, &param);
    send = ucp_tag_send_nbx(ranks[peer].ep, out, length, seed(own, peer, round), &param);
    await(send);
    await(recv);
    CHECK(first_wrong(in, length, seed(peer, own, round)) == length);
}

/* A put into the memory of the peer, and a get of it. */
static void access_memory(unsigned own, unsigned peer)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t            there = ranks[peer].memory + (uint64_t)own * PUT;
    ucp_rkey_h          rkey;

    OK(ucp_ep_rkey_unpack(ranks[peer].ep, ranks[peer].rkey, &rkey));
    fill(out, PUT, seed(own, peer, 2));
    await(ucp_put_nbx(ranks[peer].ep, out, PUT, there, rkey, &param));
    await(ucp_ep_flush_nbx(ranks[peer].ep, &param));
    memset(in, 0, PUT);
    await(ucp_get_nbx(ranks[peer].ep, in, PUT, there, rkey, &param));
    CHECK(first_wrong(in, PUT, seed(own, peer, 2)) == PUT);
    ucp_rkey_destroy(rkey);
}

static void print_lanes(unsigned peer)
{
    ucp_transport_entry_t lanes[LANES];
    ucp_ep_attr_t         attr = {.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                                  .transports = {.entries     = lanes,
                                                 .num_entries = LANES,
                                                 .entry_size  = sizeof(lanes[0])}};

    OK(ucp_ep_query(ranks[peer].ep, &attr));
    CHECK(attr.transports.num_entries > 0);
    printf("to %u over %s/%s\n", peer, lanes[0].transport_name, lanes[0].device_name);
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep, (void)status;
}

/* Sends messages until one fails. */
static void send_until_failure(unsigned peer)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucs_status_t        status = UCS_OK;

    while (status == UCS_OK) {
        ucs_status_ptr_t sent = ucp_tag_send_nbx(ranks[peer].ep, out, SHORT, 0, &param);
        status                = UCS_PTR_STATUS(sent);
        if (UCS_PTR_IS_PTR(sent)) {
            while ((status = ucp_request_check_status(sent)) == UCS_INPROGRESS) {
                ucp_worker_progress(worker);
            }
            ucp_request_free(sent);
        }
        ucp_worker_progress(worker);
    }
    printf("failed %d\n", status);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 || argc == 4);
    unsigned own = (unsigned)atoi(argv[1]), count = (unsigned)atoi(argv[2]);
    int      is_watched = argc == 4 && strcmp(argv[3], "watched") == 0;

    CHECK(own < count && count <= MAX_RANKS);
    open_worker(count);
    print_address(count);
    read_ranks(count);
    for (unsigned peer = 0; peer < count; peer++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address    = (ucp_address_t *)ranks[peer].address};
        if (is_watched) {
            params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
            params.err_mode       = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler.cb = on_failure;
        }
        if (peer != own) {
            OK(ucp_ep_create(worker, &params, &ranks[peer].ep));
        }
    }
    for (unsigned step = 1; step < MAX_RANKS; step++) {
        unsigned peer = own ^ step;
        if (peer < count) {
            exchange(own, peer, SHORT, 0);
            exchange(own, peer, LONG, 1);
            access_memory(own, peer);
            exchange(own, peer, SHORT, 3);
            CHECK(first_wrong(memory + peer * PUT, PUT, seed(peer, own, 2)) == PUT);
            print_lanes(peer);
        }
    }
    printf("done\n");
    fflush(stdout);
    /* Peers may still need the progress of this rank: the driver ends the input when all have printed "done". */
    fd_set input;
    do {
        struct timeval no_time = {0, 0};
        ucp_worker_progress(worker);
        FD_ZERO(&input);
        FD_SET(0, &input);
        CHECK(select(1, &input, NULL, NULL, &no_time) >= 0);
    } while (!FD_ISSET(0, &input));
    if (argc == 4 && own == 0) {
        send_until_failure(1);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
