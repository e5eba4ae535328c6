/*
 * B stops, and A begins a list of puts or gets to memory of B's device, which messages carry; not all of them fit into
 * the connection. B goes on, and closes its endpoint by force: the list fails, and A can flush its worker, as B answers
 * the pieces that it has got although the last one does not come.
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "lists.h"
#include "victim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECES = 1000, LENGTH = 8 << 10, TOTAL = PIECES * LENGTH };

static const ucp_request_param_t none  = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

static void      *buffers[PIECES];
static size_t     lengths[PIECES];
static uint64_t   addrs[PIECES];
static ucp_rkey_h rkeys[PIECES];

/* Whether a process is stopped by a signal. */
static int is_stopped(pid_t pid)
{
    char  path[64], state = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
            state = 0;
        }
        fclose(file);
    }
    return state == 'T';
}

static void begin_list_and_go_on(bed_t *bed, pid_t owner, const exposed_t *there, list_access_t access)
{
    area_t     near = area_make(bed->a, HOST, TOTAL);
    ucp_rkey_h rkey = exposed_key(bed->a, bed->a->ep, there);
    list_t     list = {.count = PIECES, .buffers = buffers, .lengths = lengths, .addrs = addrs, .rkeys = rkeys};

    for (int i = 0; i < PIECES; i++) {
        buffers[i] = near.memory + (size_t)i * LENGTH;
        lengths[i] = LENGTH;
        addrs[i]   = there->remote + (uint64_t)i * LENGTH;
        rkeys[i]   = rkey;
    }
    area_fill(&near, 0, TOTAL, 1);
    BED_UNTIL(bed, is_stopped(owner));
    ucs_status_ptr_t begun = list_begin(bed, &list, access);
    kill(owner, SIGCONT);
    ucs_status_t status = bed_wait(bed, begun);
    want(bed->a, status == UCS_ERR_CONNECTION_RESET, "the list ends with %s", status_name(status));
    status = bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &none));
    want(bed->a, status == UCS_OK, "a flush of the worker ends with %s", status_name(status));
    ucp_rkey_destroy(rkey);
    survivor_close(bed);
    area_free(&near);
}

static void case_of(bed_t *bed, list_access_t access, const char *to_a, const char *to_b)
{
    side_t   *side  = bed->a != NULL ? bed->a : bed->b;
    pid_t     owner = getpid();
    exposed_t there;

    failures = 0;
    side->ep = connect_guarded(side, bed->a != NULL ? to_b : to_a);
    expose(bed, 0, GPU0, TOTAL, &there);
    bed_wait(bed, ucp_ep_flush_nbx(side->ep, &none)); /* connected */
    bed_sync(bed);
    bed_transfer(bed, bed->b, &owner, sizeof(owner), &owner, sizeof(owner));
    if (bed->b != NULL) {
        raise(SIGSTOP);
        bed_wait(bed, ucp_ep_close_nbx(bed->b->ep, &force));
    } else {
        begin_list_and_go_on(bed, owner, &there, access);
    }
    bed_sync(bed);
    hide(bed, 0, &there);
}

static void script(bed_t *bed)
{
    static char  to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t params = {.features = UCP_FEATURE_RMA};

    gpu_open();
    gpu_fault("ipc_refused=1,export_refused=1");
    bed_open_unconnected(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    case_of(bed, LIST_PUT, to_a, to_b);
    case_of(bed, LIST_GET, to_a, to_b);
    side_t *side = bed->a != NULL ? bed->a : bed->b;
    ucp_worker_destroy(side->worker);
    ucp_cleanup(side->context);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
