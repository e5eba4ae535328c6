/* Requests, rule by rule: rules that request.c and request_memory.c do not cover (rules.txt 2.1, R4 to R17). */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

#define TAG  0x51
#define LONG 500000
#define EXTRA 2000

static unsigned          calls, nb_calls;
static void             *call_request, *call_user_data;
static ucs_status_t      call_status;
static char              data[LONG], room[LONG];
static ucp_tag_recv_info_t nb_info;

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    calls++;
    call_request   = request;
    call_user_data = user_data;
    call_status    = status;
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)info;
    on_sent(request, status, user_data);
}

static void on_received_nb(void *request, ucs_status_t status, ucp_tag_recv_info_t *info)
{
    (void)request;
    nb_calls++;
    call_status = status;
    nb_info     = *info;
}

static ucs_status_ptr_t post(bed_t *bed, size_t length, uint32_t mask)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | mask,
        .cb.send      = on_sent,
        .user_data    = &calls,
    };

    return bed->a == NULL ? NULL : ucp_tag_send_nbx(bed->a->ep, data, length, TAG, &param);
}

static ucs_status_ptr_t receive(bed_t *bed, size_t length, uint32_t mask)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | mask,
        .cb.recv      = on_received,
        .user_data    = &calls,
    };

    return bed->b == NULL ? NULL : ucp_tag_recv_nbx(bed->b->worker, room, length, TAG, -1, &param);
}

/* A send that completes in its call: NULL and no callback, or a complete request and a callback before the return. */
static void immediate_rules(bed_t *bed)
{
    bed_sync(bed);
    bed_wait(bed, receive(bed, 0, 0)); /* the connection is established by now, and short sends complete at once */
    calls = 0;
    for (int i = 0; i < 2; i++) {
        ucs_status_ptr_t sent = post(bed, 0, i == 0 ? 0 : UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        if (bed->a != NULL) {
            unsigned during = calls;
            rule(bed->a, i == 0 ? "R4" : "R5", "short send: %s, calls during it %u", ptr_status_name(sent), during);
            if (i == 1) {
                rule(bed->a, "R5", "complete %d, ours %d, user data %d, %s", ucp_request_is_completed(sent),
                     call_request == sent, call_user_data == &calls, status_name(call_status));
            }
            bed_wait(bed, sent);
        }
        bed_sync(bed);
        bed_wait(bed, receive(bed, 8, 0));
        calls = 0;
        bed_sync(bed);
    }
}

/* NO_IMM_CMPL has no effect on an empty put and get. For flushes and closes: flush_requests.c. */
static void ignored_rules(bed_t *bed, window_t *window)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    bed_sync(bed);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &param));
        rule(bed->a, "R6", "put of nothing: %s",
             ptr_status_name(ucp_put_nbx(bed->a->ep, data, 0, window->remote, window->rkey, &param)));
        rule(bed->a, "R6", "get of nothing: %s",
             ptr_status_name(ucp_get_nbx(bed->a->ep, data, 0, window->remote, window->rkey, &param)));
    }
    bed_sync(bed);
}

static void forced_rules(bed_t *bed)
{
    static const departure_t sync = {.name = "R7", .on_rucp = "NO_RESOURCE",
                                     .why  = "UCX ignores it in synchronous sends, against its header"};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};

    calls = 0;
    rule(bed->a, "R7", "short send forced: %s", ptr_status_name(post(bed, 8, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)));
    rule(bed->a, "R7", "long send forced: %s", ptr_status_name(post(bed, LONG, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)));
    if (bed->a != NULL) {
        rule_departs(bed->a, &sync, !on_rucp() ? "" :
                     ptr_status_name(ucp_tag_send_sync_nbx(bed->a->ep, data, 8, TAG, &param)));
        rule(bed->a, "R7", "long active message forced: %s",
             ptr_status_name(ucp_am_send_nbx(bed->a->ep, 1, NULL, 0, data, LONG, &param)));
        rule(bed->a, "R7", "nobody was called: %u", calls);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "R7", "only the short one arrived: %s", status_name(bed_wait(bed, receive(bed, 8, 0))));
        rule(bed->b, "R7", "nothing behind it: %s",
             ptr_status_name(receive(bed, 8, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)));
    }
    bed_sync(bed);
}

static void hint_rules(bed_t *bed)
{
    static const departure_t both = {.name = "R8", .why = "UCX looks for it only in builds with parameter checks",
                                     .on_rucp = "INVALID_PARAM"};
    uint32_t flags = UCP_OP_ATTR_FLAG_FAST_CMPL | UCP_OP_ATTR_FLAG_MULTI_SEND;

    if (bed->a != NULL) {
        rule_departs(bed->a, &both, on_rucp() ? ptr_status_name(post(bed, 8, flags)) : "");
    }
    static const size_t lengths[] = {8, 20000, LONG};
    for (int i = 0; i < 3; i++) {
        ucs_status_ptr_t received = receive(bed, LONG, 0);
        ucs_status_ptr_t sent     = post(bed, lengths[i], UCP_OP_ATTR_FLAG_FAST_CMPL);
        rule(bed->b, "R8", "fast, %zu: received %s", lengths[i], status_name(bed_wait(bed, received)));
        rule(bed->a, "R8", "fast, %zu: sent %s", lengths[i], status_name(bed_wait(bed, sent)));
        bed_sync(bed);
    }
}

/* The deprecated functions: callbacks without user data; requests supplied by the user. */
static void old_rules(bed_t *bed)
{
    ucp_context_attr_t  attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    side_t             *any  = bed->a != NULL ? bed->a : bed->b;
    ucp_tag_recv_info_t info;

    must(any, ucp_context_query(any->context, &attr), "ucp_context_query");
    char *memory[2];
    for (int i = 0; i < 2; i++) {
        memory[i] = (char *)aligned_alloc(64, (attr.request_size + 127) / 64 * 64) + attr.request_size;
    }
    ucs_status_t sent = UCS_OK, posted;
    for (int i = 0; i < 2; i++) {
        size_t length = i == 0 ? 8 : LONG;
        if (bed->b != NULL) {
            posted = ucp_tag_recv_nbr(bed->b->worker, room, LONG, ucp_dt_make_contig(1), TAG, -1, memory[0]);
            rule(bed->b, "R11", "recv_nbr: %s", status_name(posted));
        }
        bed_sync(bed);
        if (bed->a != NULL) {
            sent = ucp_tag_send_nbr(bed->a->ep, data, length, ucp_dt_make_contig(1), TAG, memory[1]);
        }
        if (bed->b != NULL) {
            BED_UNTIL(bed, ucp_tag_recv_request_test(memory[0], &info) != UCS_INPROGRESS);
            rule(bed->b, "R12", "tested: %s, length %zu, tag %#lx, not counted as an operation of its own",
                 status_name(ucp_tag_recv_request_test(memory[0], &info)), info.length, (long)info.sender_tag);
        }
        if (bed->a != NULL) {
            if (sent == UCS_INPROGRESS) {
                BED_UNTIL(bed, ucp_request_check_status(memory[1]) != UCS_INPROGRESS);
                sent = ucp_request_check_status(memory[1]);
            }
            rule(bed->a, "R11", "send_nbr: %s", status_name(sent));
        }
        bed_sync(bed);
    }
    nb_calls = 0;
    bed_wait(bed, post(bed, 8, 0));
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, TAG, -1, 0, &info) != NULL);
        void *request = ucp_tag_recv_nb(bed->b->worker, room, 8, ucp_dt_make_contig(1), TAG, -1, on_received_nb);
        rule(bed->b, "R10", "recv_nb of what is there: called %u, length %zu", nb_calls, nb_info.length);
        rule(bed->b, "R11", "and a request all the same: %s", ptr_status_name(request));
        ucp_request_release(request);
        rule(bed->b, "R16", "request_alloc: %d", ucp_request_alloc(bed->b->worker) == NULL);
    }
    bed_sync(bed);
    for (int i = 0; i < 2; i++) {
        free((char *)memory[i] - attr.request_size);
    }
}

/* The status of a freed request as long as its memory serves no other operation: that of its completion.
 * libfabric's provider for UCX tests once more after the free. Freed: a receive still in progress, which
 * returns its status when it has completed, one that was canceled, one that has completed, and a send that needed its
 * receiver. */
static void freed_rules(bed_t *bed)
{
    uint32_t         always   = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    ucs_status_ptr_t early    = receive(bed, 8, always), behind = receive(bed, 8, always);
    ucs_status_ptr_t canceled = receive(bed, 8, always), posted, sent;

    if (bed->b != NULL) {
        ucp_request_cancel(bed->b->worker, canceled);
        ucp_request_free(early);
        rule(bed->b, "R17", "freed while under way: %s", status_name(ucp_request_check_status(early)));
    }
    bed_sync(bed);
    for (int i = 0; i < 2; i++) {
        bed_wait(bed, post(bed, 8, 0));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_request_is_completed(behind));
        rule(bed->b, "R17", "freed before its end: %s", status_name(ucp_request_check_status(early)));
        ucp_request_free(canceled);
        rule(bed->b, "R17", "freed after it was canceled: %s", status_name(ucp_request_check_status(canceled)));
        ucp_request_free(behind);
    }
    posted = receive(bed, LONG, always);
    bed_sync(bed);
    sent = post(bed, LONG, always);
    BED_UNTIL(bed, (bed->a == NULL || ucp_request_is_completed(sent)) &&
                       (bed->b == NULL || ucp_request_is_completed(posted)));
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_request_free(sent);
        rule(bed->a, "R17", "freed send: %s, completed %d", status_name(ucp_request_check_status(sent)),
             ucp_request_is_completed(sent));
    }
    if (bed->b != NULL) {
        ucp_request_free(posted);
        rule(bed->b, "R17", "freed receive: %s, completed %d", status_name(ucp_request_check_status(posted)),
             ucp_request_is_completed(posted));
    }
    bed_sync(bed);
}

/* UCX_EXTRA_OP_ATTR_FLAGS: flags that every operation gets. Read by a context of its own. */
static void extra_rules(side_t *side)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = on_sent};
    ucp_ep_params_t     ep_params     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    side_t              own           = *side;
    ucp_address_t      *address;
    size_t              length;

    setenv("UCX_EXTRA_OP_ATTR_FLAGS", "no_imm_cmpl", 1);
    must(side, ucp_init(&params, NULL, &own.context), "ucp_init");
    unsetenv("UCX_EXTRA_OP_ATTR_FLAGS");
    must(side, ucp_worker_create(own.context, &worker_params, &own.worker), "ucp_worker_create");
    must(side, ucp_worker_get_address(own.worker, &address, &length), "ucp_worker_get_address");
    ep_params.address = address;
    must(side, ucp_ep_create(own.worker, &ep_params, &own.ep), "ucp_ep_create");
    bed_t bed = {.topology = TOPOLOGY_SELF, .a = &own, .b = &own, .link = -1};
    bed_wait(&bed, ucp_tag_send_nbx(own.ep, data, 8, TAG, &param));
    calls                 = 0;
    ucs_status_ptr_t sent = ucp_tag_send_nbx(own.ep, data, EXTRA, TAG, &param);
    static const departure_t extra = {.name = "R15", .on_1_13 = "OK", .on_1_22 = "OK", .on_rucp = "request",
                                      .why  = "UCX knows the option, and it changes nothing"};
    rule_departs(side, &extra, ptr_status_name(sent));
    bed_wait(&bed, sent);
    for (int i = 0; i < 2; i++) {
        ucp_request_param_t none = {.op_attr_mask = 0};
        bed_wait(&bed, ucp_tag_recv_nbx(own.worker, room, EXTRA, TAG, -1, &none));
    }
    bed_disconnect(&bed, own.ep);
    ucp_worker_release_address(own.worker, address);
    ucp_worker_destroy(own.worker);
    ucp_cleanup(own.context);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM};
    window_t     window;

    bed_open(bed, &params);
    window_open(bed, &window, WINDOW_ALLOCATED, 4096);
    bed_wait(bed, post(bed, 0, 0));
    immediate_rules(bed);
    ignored_rules(bed, &window);
    forced_rules(bed);
    hint_rules(bed);
    old_rules(bed);
    freed_rules(bed);
    window_close(bed, &window);
    bed_close(bed);
    if (bed->a != NULL) {
        extra_rules(bed->a);
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
