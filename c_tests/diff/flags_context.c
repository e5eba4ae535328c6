/* Flags and fields of contexts and of mapped memory that no other program names: each alone, with what it changes. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 65536 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* A worker of the context sends a message to itself. */
static const char *works(const side_t *side, ucp_context_h context)
{
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t     ep_params     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    side_t              own           = *side;
    bed_t               bed           = {.topology = TOPOLOGY_SELF, .a = &own, .b = &own, .link = -1};
    uint64_t            out = 77, in = 0;
    ucp_address_t      *address;
    size_t              length;

    own.context = context;
    must(side, ucp_worker_create(context, &worker_params, &own.worker), "ucp_worker_create");
    must(side, ucp_worker_get_address(own.worker, &address, &length), "ucp_worker_get_address");
    ep_params.address = address;
    must(side, ucp_ep_create(own.worker, &ep_params, &own.ep), "ucp_ep_create");
    ucs_status_ptr_t received = ucp_tag_recv_nbx(own.worker, &in, sizeof(in), 1, -1, &plain);
    bed_wait(&bed, ucp_tag_send_nbx(own.ep, &out, sizeof(out), 1, &plain));
    bed_wait(&bed, received);
    bed_disconnect(&bed, own.ep);
    ucp_worker_release_address(own.worker, address);
    ucp_worker_destroy(own.worker);
    return in == out ? "works" : "does not work";
}

static const char *init_outcome(const side_t *side, unsigned major, unsigned minor, const ucp_params_t *params)
{
    static char   text[64];
    ucp_context_h context;
    ucs_status_t  status = ucp_init_version(major, minor, params, NULL, &context);

    snprintf(text, sizeof(text), "%s, %s", status_name(status), status == UCS_OK ? works(side, context) : "-");
    if (status == UCS_OK) {
        ucp_cleanup(context);
    }
    return text;
}

static void init_rule(const side_t *side, const char *what, unsigned major, unsigned minor, const ucp_params_t *params)
{
    rule(side, "F2", "%s: %s", what, init_outcome(side, major, minor, params));
}

static void version_rules(const side_t *side)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};

    init_rule(side, "the version of the headers", UCP_API_MAJOR, UCP_API_MINOR, &params);
    init_rule(side, "version 1.0", 1, 0, &params);
    init_rule(side, "version 1.99", 1, 99, &params);
    init_rule(side, "version 2.0", 2, 0, &params);
    init_rule(side, "version 0.9", 0, 9, &params);
}

/* Features that only the headers of 1.22 name are tested with those alone. */
static void parameter_rules(const side_t *side)
{
#if UCP_API_MINOR >= 20
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NODE_LOCAL_ID,
                           .features = UCP_FEATURE_TAG};

    for (size_t id = 0; id < 3; id++) {
        params.node_local_id = id == 2 ? (size_t)-1 : id;
        init_rule(side, "the process's number on its host", UCP_API_MAJOR, UCP_API_MINOR, &params);
    }
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_EXPORTED_MEMH;
    init_rule(side, "handles that are exported", UCP_API_MAJOR, UCP_API_MINOR, &params);
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_DEVICE;
    init_rule(side, "accesses by devices", UCP_API_MAJOR, UCP_API_MINOR, &params);
#endif
    ucp_params_t every = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                        UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_ESTIMATED_NUM_PPN |
                                        UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_REQUEST_SIZE,
                          .features           = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                                      UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP | UCP_FEATURE_STREAM | UCP_FEATURE_AM,
                          .mt_workers_shared  = 1,
                          .estimated_num_eps  = 100000,
                          .estimated_num_ppn  = 1000,
                          .tag_sender_mask    = 0xff,
                          .request_size       = 8};

    init_rule(side, "every number and every feature", UCP_API_MAJOR, UCP_API_MINOR, &every);
    static const departure_t none = {.name = "F2", .on_rucp = "OK, works", .why = "UCX dies of numbers that are 0"};
    every.estimated_num_eps = every.estimated_num_ppn = 0;
    rule_departs(side, &none, !on_rucp() ? "" : init_outcome(side, UCP_API_MAJOR, UCP_API_MINOR, &every));
}

static void counter_rules(const side_t *side)
{
#if UCP_API_MINOR >= 20
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE};
    ucs_status_t       status = ucp_context_query(side->context, &attr);

    rule(side, "F2", "size of a counter of devices, without the feature: %s", status_name(status));
#else
    (void)side;
#endif
}

/* B's memory mapped with `flags` and `prot`, and put into and read by A. */
static void mapped_rules(bed_t *bed, const char *what, unsigned flags, unsigned prot)
{
    window_t             window = {.length = LENGTH};
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                      (prot != 0 ? UCP_MEM_MAP_PARAM_FIELD_PROT : 0),
        .length     = LENGTH,
        .flags      = flags,
        .prot       = prot,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    char           key[PACKED_KEY_MAX], *data = data_make(LENGTH, 9);

    if (!(flags & UCP_MEM_MAP_ALLOCATE)) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address     = window.user_memory = malloc(LENGTH);
    }
    if (bed->b != NULL) {
        ucs_status_t status = ucp_mem_map(bed->b->context, &params, &window.memh);
        rule(bed->b, "F3", "%s: %s", what, status_name(status));
        must(bed->b, status, "ucp_mem_map");
        must(bed->b, ucp_mem_query(window.memh, &attr), "ucp_mem_query");
        window.remote = (uint64_t)(uintptr_t)attr.address;
    }
    bed_transfer(bed, bed->b, &window.remote, sizeof(window.remote), &window.remote, sizeof(window.remote));
    window_carry_key(bed, window.memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &window.rkey), "ucp_ep_rkey_unpack");
        ucs_status_t put = bed_wait(bed, ucp_put_nbx(bed->a->ep, data, LENGTH, window.remote, window.rkey, &plain));
        bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &plain));
        memset(data, 0, LENGTH);
        ucs_status_t get = bed_wait(bed, ucp_get_nbx(bed->a->ep, data, LENGTH, window.remote, window.rkey, &plain));
        rule(bed->a, "F3", "%s: put %s, get %s, %s", what, status_name(put), status_name(get),
             data_check(data, LENGTH, 9));
    }
    window_close(bed, &window);
    free(data);
}

static void memory_rules(bed_t *bed)
{
    const unsigned all = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ |
                         UCP_MEM_MAP_PROT_REMOTE_WRITE;

    mapped_rules(bed, "no flag", 0, 0);
    mapped_rules(bed, "NONBLOCK", UCP_MEM_MAP_NONBLOCK, all);
    mapped_rules(bed, "ALLOCATE, every access", UCP_MEM_MAP_ALLOCATE, all);
#if UCP_API_MINOR >= 22
    mapped_rules(bed, "SYMMETRIC_RKEY", UCP_MEM_MAP_SYMMETRIC_RKEY, 0);
    mapped_rules(bed, "SYMMETRIC_RKEY, ALLOCATE", UCP_MEM_MAP_SYMMETRIC_RKEY | UCP_MEM_MAP_ALLOCATE, all);
    mapped_rules(bed, "LOCK", UCP_MEM_MAP_LOCK, 0);
    mapped_rules(bed, "LOCK, ALLOCATE", UCP_MEM_MAP_LOCK | UCP_MEM_MAP_ALLOCATE, all);
#endif
}

static void refused_rules(const side_t *side)
{
#if UCP_API_MINOR >= 22
    char                 memory[64] = {0};
    ucp_mem_h            memh;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address    = memory,
        .length     = sizeof(memory),
        .flags      = UCP_MEM_MAP_LOCK | UCP_MEM_MAP_NONBLOCK,
    };

    rule(side, "F3", "LOCK and NONBLOCK: %s", status_name(ucp_mem_map(side->context, &params, &memh)));
    params.field_mask           = UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER;
    params.exported_memh_buffer = memory;
    static const departure_t exported = {.name = "F3", .on_1_22 = "OK", .on_rucp = "UNSUPPORTED",
                                         .why  = "UCX makes a handle of nothing out of zeros"};
    rule_departs(side, &exported, status_name(ucp_mem_map(side->context, &params, &memh)));
#else
    (void)side;
#endif
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    side_t      *side;

    bed_open(bed, &params);
    side = bed->a != NULL ? bed->a : bed->b;
    memory_rules(bed);
    refused_rules(side);
    counter_rules(side);
    bed_close(bed);
    version_rules(side);
    parameter_rules(side);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
