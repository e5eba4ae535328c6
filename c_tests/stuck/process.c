/* A process of a staged hang: its worker, its endpoint, the memory that its peer accesses. */
#define _GNU_SOURCE
#include "hang.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

shared_t           *shared;
ucp_worker_h        worker;
ucp_ep_h            ep;
const case_t       *this_case;
pid_t               other;
ucp_request_param_t none;

static ucp_context_h context;

void check_report(const char *failure)
{
    fprintf(stderr, "hang: %s\n", failure);
    exit(1);
}

void progress(void)
{
    if (ucp_worker_progress(worker) == 0) {
        usleep(500);
    }
}

void hang(void)
{
    for (;;) {
        progress();
    }
}

void finish(ucs_status_ptr_t request)
{
    CHECK(!UCS_PTR_IS_ERR(request));
    if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            progress();
        }
        OK(ucp_request_check_status(request));
        ucp_request_free(request);
    }
}

void network_of_its_own(const char *address)
{
    char command[200];

    CHECK(unshare(CLONE_NEWNET) == 0);
    snprintf(command, sizeof(command),
             "ip link set lo up && ip link add d0 type veth peer name d1 && ip addr add %s/24 dev d0 && "
             "ip link set d0 arp off up && ip link set d1 arp off up", address);
    CHECK(system(command) == 0);
}

void open_worker(side_t *side)
{
    ucp_params_t        params  = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = this_case->features};
    ucp_worker_params_t wparams = {.field_mask = 0};
    ucp_address_t      *address;
    size_t              length;

    OK(ucp_init(&params, NULL, &context));
    OK(ucp_worker_create(context, &wparams, &worker));
    OK(ucp_worker_get_address(worker, &address, &length));
    CHECK(length <= sizeof(side->address));
    memcpy(side->address, address, length);
    ucp_worker_release_address(worker, address);
    __atomic_store_n(&side->length, length, __ATOMIC_RELEASE);
}

void connect_to(side_t *side)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};

    while (__atomic_load_n(&side->length, __ATOMIC_ACQUIRE) == 0) {
        usleep(500);
    }
    params.address = (ucp_address_t *)side->address;
    OK(ucp_ep_create(worker, &params, &ep));
}

/* A message in each direction. */
void meet(void)
{
    char             in = 0;
    ucs_status_ptr_t receive;

    receive = ucp_tag_recv_nbx(worker, &in, 1, 99, ~0ul, &none);
    finish(ucp_tag_send_nbx(ep, "x", 1, 99, &none));
    finish(receive);
    CHECK(in == 'x');
}

void share_memory(void)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        .length     = sizeof(shared->words),
        .address    = (void *)shared->words,
    };
    ucp_mem_h memh;
    void     *packed;

    OK(ucp_mem_map(context, &params, &memh));
    OK(ucp_rkey_pack(context, memh, &packed, &shared->key_length));
    CHECK(shared->key_length <= sizeof(shared->key));
    memcpy(shared->key, packed, shared->key_length);
}
