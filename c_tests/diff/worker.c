/* Worker and its address: creation, queries, progress, fence and flush without traffic. */
#define _GNU_SOURCE
#include "bed.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_done(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

static ucp_context_h context_make(side_t *side, uint64_t features)
{
    ucp_params_t  params  = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_context_h context = NULL;

    must(side, ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

static ucp_worker_h worker_make(side_t *side, ucp_context_h context, const char *what, ucp_worker_params_t *params)
{
    ucp_worker_h worker = NULL;

    fact(side, "create %s: %s", what, status_name(ucp_worker_create(context, params, &worker)));
    return worker;
}

static void thread_mode_facts(side_t *side, ucp_context_h context)
{
    static const ucs_thread_mode_t modes[] = {UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_SERIALIZED,
                                              UCS_THREAD_MODE_MULTI};

    for (int i = 0; i < 3; i++) {
        ucp_worker_params_t params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = modes[i]};
        ucp_worker_attr_t   attr   = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE};
        ucp_worker_h        worker = worker_make(side, context, "in a thread mode", &params);
        ucs_status_t        status = ucp_worker_query(worker, &attr);
        /* a worker may be safer than requested, never less */
        rule(side, "2.2.2", "thread mode %d: %s, enough %d",
             modes[i], status_name(status), attr.thread_mode >= modes[i]);
        ucp_worker_destroy(worker);
    }
}

static void every_param_facts(side_t *side, ucp_context_h context)
{
    ucp_worker_params_t params = {
        .field_mask   = UCP_WORKER_PARAM_FIELD_CPU_MASK | UCP_WORKER_PARAM_FIELD_EVENTS |
                        UCP_WORKER_PARAM_FIELD_USER_DATA | UCP_WORKER_PARAM_FIELD_FLAGS |
                        UCP_WORKER_PARAM_FIELD_NAME | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT |
                        UCP_WORKER_PARAM_FIELD_CLIENT_ID,
        .events       = UCP_WAKEUP_TAG_RECV,
        .user_data    = side,
        .flags        = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
        .name         = "a worker",
        .am_alignment = 64,
        .client_id    = 7,
    };
    ucp_worker_attr_t attr;

    UCS_CPU_SET(0, &params.cpu_mask);
    ucp_worker_h worker = worker_make(side, context, "with every parameter", &params);
    memset(&attr, 0xa5, sizeof(attr));
    attr.field_mask     = UCP_WORKER_ATTR_FIELD_NAME;
    ucs_status_t status = ucp_worker_query(worker, &attr);
    rule(side, "2.12.2", "query name: %s, '%s'", status_name(status), attr.name);
    rule(side, "2.12.2", "the rest untouched: %d", data_is(&attr.max_am_header, sizeof(attr.max_am_header), 0xa5) &&
         data_is(&attr.address, sizeof(attr.address), 0xa5) && data_is(&attr.thread_mode, 4, 0xa5));
    ucp_worker_destroy(worker);
}

static uint64_t address_uid(side_t *side, ucp_address_t *address)
{
    ucp_worker_address_attr_t attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};

    fact(side, "address_query: %s", status_name(ucp_worker_address_query(address, &attr)));
    return attr.worker_uid;
}

static uint64_t address_facts(side_t *side, ucp_worker_h worker)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    ucp_address_t    *again;
    size_t            length;

    ucs_status_t status = ucp_worker_query(worker, &attr);
    rule(side, "2.12.1", "query address: %s, length sane %d", status_name(status),
         attr.address_length > 0 && attr.address_length < 512);
    rule(side, "2.12.1", "get_address: %s", status_name(ucp_worker_get_address(worker, &again, &length)));
    rule(side, "2.12.1", "two addresses agree: %d",
         length == attr.address_length && memcmp(again, attr.address, length) == 0);
    uint64_t uid = address_uid(side, attr.address);
    rule(side, "2.12.1", "one worker, one uid: %d", uid == address_uid(side, again));
    ucp_worker_release_address(worker, attr.address);
    ucp_worker_release_address(worker, again);

    attr.field_mask    = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    attr.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    rule(side, "2.12.1", "query address for the network: %s", status_name(ucp_worker_query(worker, &attr)));
    rule(side, "2.12.1", "same uid: %d", uid == address_uid(side, attr.address));
    ucp_worker_release_address(worker, attr.address);
    return uid;
}

static void query_facts(side_t *side, ucp_worker_h worker)
{
    ucp_worker_attr_t attr   = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER |
                                              UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING};
    ucs_status_t      status = ucp_worker_query(worker, &attr);

    rule(side, "2.12.3", "query: %s, AM header at least 256 %d, info string at least 64 %d", status_name(status),
         attr.max_am_header >= 256, attr.max_debug_string >= 64);
    memset(&attr, 0xa5, sizeof(attr));
    attr.field_mask = 0;
    status          = ucp_worker_query(worker, &attr);
    rule(side, "2.12.3", "query of nothing: %s, untouched %d", status_name(status),
         data_is((char *)&attr + sizeof(attr.field_mask), sizeof(attr) - sizeof(attr.field_mask), 0xa5));
}

static void idle_facts(bed_t *bed, side_t *side, ucp_worker_h worker)
{
    ucp_request_param_t param = {.op_attr_mask = 0}; /* with NO_IMM_CMPL: flush_requests.c */
    unsigned            last  = 1;

    for (int i = 0; i < 1000 && last != 0; i++) {
        last = ucp_worker_progress(worker);
    }
    fact(side, "idle progress: %u", last);
    fact(side, "fence: %s", status_name(ucp_worker_fence(worker)));
    fact(side, "flush_nbx: %s", ptr_status_name(ucp_worker_flush_nbx(worker, &param)));
    fact(side, "flush: %s", status_name(ucp_worker_flush(worker)));
    fact(side, "flush_nb: %s", status_name(bed_wait(bed, ucp_worker_flush_nb(worker, 0, on_done))));
    fact(side, "request_alloc gives nothing: %d", ucp_request_alloc(worker) == NULL);
}

static void print_facts(side_t *side, ucp_worker_h worker)
{
    char  *text = NULL;
    size_t length;
    FILE  *stream = open_memstream(&text, &length);

    ucp_worker_print_info(worker, stream);
    fclose(stream);
    rule(side, "2.12.3", "print_info begins '%.1s', ends in a newline: %d",
         text, length > 0 && text[length - 1] == '\n');
    free(text);
}

static void side_script(bed_t *bed, side_t *side)
{
    ucp_context_h       context = context_make(side, UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA);
    ucp_worker_params_t params  = {.field_mask = 0};

    thread_mode_facts(side, context);
    every_param_facts(side, context);
    ucp_worker_h one = worker_make(side, context, "one", &params), two = worker_make(side, context, "two", &params);
    fact(side, "two workers, two uids: %d", address_facts(side, one) != address_facts(side, two));
    query_facts(side, one);
    idle_facts(bed, side, one);
    print_facts(side, one);
    ucp_worker_destroy(two);
    ucp_worker_destroy(one);
    ucp_cleanup(context);

    context                = context_make(side, UCP_FEATURE_TAG);
    one                    = worker_make(side, context, "without AM", &params);
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucs_status_t    status = ucp_worker_query(one, &attr);
    fact(side, "AM header without AM: %s, %zu", status_name(status), attr.max_am_header);
    ucp_worker_destroy(one);
    ucp_cleanup(context);
}

static void script(bed_t *bed)
{
    if (bed->a != NULL) {
        side_script(bed, bed->a);
    }
    if (bed->b != NULL) {
        side_script(bed, bed->b);
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
