//! Uses a genuine UCT and a preloaded libucp in one process, in turns.
//!
//! usage: both                 compiled with LINKED, and linked to the genuine libuct
//!        both LIBUCT [deep]   opens the genuine libuct by its path; deep: with RTLD_DEEPBIND
//!
//! Each round sends one active message over UCT's transport "self", and one tagged message over UCP from a worker to
//! itself. Prints the files of the functions that it called, one line each, and "ok".
#define _GNU_SOURCE

#include "../check.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

enum { ROUNDS = 1000, MESSAGE = 3 };

void check_report(const char *failure)
{
    fprintf(stderr, "FAILED: %s\n", failure);
    exit(1);
}

/** The functions of UCT, from the library that is linked to or from the one that is opened. */
static struct {
    __typeof__(&uct_query_components)        query_components;
    __typeof__(&uct_release_component_list)  release_component_list;
    __typeof__(&uct_component_query)         component_query;
    __typeof__(&uct_md_config_read)          md_config_read;
    __typeof__(&uct_config_release)          config_release;
    __typeof__(&uct_md_open)                 md_open;
    __typeof__(&uct_md_close)                md_close;
    __typeof__(&uct_md_query_tl_resources)   md_query_tl_resources;
    __typeof__(&uct_release_tl_resource_list) release_tl_resource_list;
    __typeof__(&uct_md_iface_config_read)    md_iface_config_read;
    __typeof__(&uct_iface_open)              iface_open;
    __typeof__(&uct_iface_set_am_handler)    iface_set_am_handler;
    __typeof__(&uct_iface_query)             iface_query;
    __typeof__(&uct_iface_get_address)       iface_get_address;
    __typeof__(&uct_iface_get_device_address) iface_get_device_address;
    __typeof__(&uct_iface_close)             iface_close;
    __typeof__(&uct_ep_create)               ep_create;
    __typeof__(&uct_ep_destroy)              ep_destroy;
    __typeof__(&uct_worker_create)           worker_create;
    __typeof__(&uct_worker_destroy)          worker_destroy;
    __typeof__(&ucs_async_context_create)    async_context_create;
    __typeof__(&ucs_async_context_destroy)   async_context_destroy;
} uct;

static void *opened;

static void find_functions(void)
{
#ifdef LINKED
#define FUNCTION(field, name) uct.field = name
#else
#define FUNCTION(field, name) CHECK((uct.field = dlsym(opened, #name)) != NULL, "%s", dlerror())
#endif
#define FIND(name) FUNCTION(name, uct_##name)
    FIND(query_components);
    FIND(release_component_list);
    FIND(component_query);
    FIND(md_config_read);
    FIND(config_release);
    FIND(md_open);
    FIND(md_close);
    FIND(md_query_tl_resources);
    FIND(release_tl_resource_list);
    FIND(md_iface_config_read);
    FIND(iface_open);
    FIND(iface_set_am_handler);
    FIND(iface_query);
    FIND(iface_get_address);
    FIND(iface_get_device_address);
    FIND(iface_close);
    FIND(ep_create);
    FIND(ep_destroy);
    FIND(worker_create);
    FIND(worker_destroy);
    FUNCTION(async_context_create, ucs_async_context_create);
    FUNCTION(async_context_destroy, ucs_async_context_destroy);
#undef FIND
#undef FUNCTION
}

/** Prints the file that holds a function. */
static void report(const char *name, void *function)
{
    Dl_info info;

    CHECK(dladdr(function, &info) != 0, "%s is in no file", name);
    printf("%s %s\n", name, info.dli_fname);
}

static unsigned long received;

static ucs_status_t on_message(void *argument, void *data, size_t length, unsigned flags)
{
    uint64_t words[2];

    (void)argument, (void)flags;
    CHECK(length == sizeof(words), "%zu bytes", length);
    memcpy(words, data, sizeof(words));
    CHECK(words[0] == received && words[1] == ~words[0], "message %lu has other bytes", received);
    received++;
    return UCS_OK;
}

/** UCT's transport "self": what is sent on its endpoint arrives at its own interface. */
struct self {
    ucs_async_context_t *async;
    uct_worker_h         worker;
    uct_md_h             md;
    uct_iface_h          iface;
    uct_ep_h             ep;
};

/** Opens the memory domain of the transport "self", if this component has one. */
static int open_md(struct self *self, uct_component_h component)
{
    uct_component_attr_t    attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    uct_tl_resource_desc_t *resources;
    uct_md_config_t        *config;
    unsigned                count;
    int                     found = 0;

    CHECK(uct.component_query(component, &attr) == UCS_OK);
    attr.md_resources = calloc(attr.md_resource_count + 1, sizeof(*attr.md_resources));
    attr.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    CHECK(uct.component_query(component, &attr) == UCS_OK);
    for (unsigned i = 0; !found && i < attr.md_resource_count; i++) {
        CHECK(uct.md_config_read(component, NULL, NULL, &config) == UCS_OK);
        if (uct.md_open(component, attr.md_resources[i].md_name, config, &self->md) == UCS_OK) {
            CHECK(uct.md_query_tl_resources(self->md, &resources, &count) == UCS_OK);
            for (unsigned tl = 0; tl < count; tl++) {
                found |= strcmp(resources[tl].tl_name, "self") == 0;
            }
            uct.release_tl_resource_list(resources);
            if (!found) {
                uct.md_close(self->md);
            }
        }
        uct.config_release(config);
    }
    free(attr.md_resources);
    return found;
}

static void open_iface(struct self *self)
{
    uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
                                 .open_mode  = UCT_IFACE_OPEN_MODE_DEVICE};
    uct_ep_params_t    ep     = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                           UCT_EP_PARAM_FIELD_IFACE_ADDR};
    uct_iface_config_t *config;
    uct_iface_attr_t    attr;

    params.mode.device.tl_name  = "self";
    params.mode.device.dev_name = "memory";
    CHECK(uct.md_iface_config_read(self->md, "self", NULL, NULL, &config) == UCS_OK);
    if (uct.iface_open(self->md, self->worker, &params, config, &self->iface) != UCS_OK) {
        params.mode.device.dev_name = "memory0";
        CHECK(uct.iface_open(self->md, self->worker, &params, config, &self->iface) == UCS_OK);
    }
    uct.config_release(config);
    CHECK(uct.iface_set_am_handler(self->iface, MESSAGE, on_message, NULL, 0) == UCS_OK);
    CHECK(uct.iface_query(self->iface, &attr) == UCS_OK);
    ep.iface      = self->iface;
    ep.iface_addr = calloc(1, attr.iface_addr_len + 1);
    ep.dev_addr   = calloc(1, attr.device_addr_len + 1);
    CHECK(uct.iface_get_address(self->iface, (uct_iface_addr_t *)ep.iface_addr) == UCS_OK);
    CHECK(uct.iface_get_device_address(self->iface, (uct_device_addr_t *)ep.dev_addr) == UCS_OK);
    CHECK(uct.ep_create(&ep, &self->ep) == UCS_OK);
    free((void *)ep.iface_addr);
    free((void *)ep.dev_addr);
}

static void open_self(struct self *self)
{
    uct_component_h *components;
    unsigned         count;
    int              found = 0;

    CHECK(uct.async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &self->async) == UCS_OK);
    CHECK(uct.worker_create(self->async, UCS_THREAD_MODE_SINGLE, &self->worker) == UCS_OK);
    CHECK(uct.query_components(&components, &count) == UCS_OK);
    for (unsigned i = 0; !found && i < count; i++) {
        found = open_md(self, components[i]);
    }
    uct.release_component_list(components);
    CHECK(found, "none of %u components has the transport self", count);
    open_iface(self);
}

static void close_self(struct self *self)
{
    uct.ep_destroy(self->ep);
    uct.iface_close(self->iface);
    uct.md_close(self->md);
    uct.worker_destroy(self->worker);
    uct.async_context_destroy(self->async);
}

/** A worker of UCP that sends to itself. */
struct loop {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
};

static void open_loop(struct loop *loop)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker = {.field_mask = 0};
    ucp_ep_params_t     ep     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t      *address;
    size_t              length;

    CHECK(ucp_init(&params, NULL, &loop->context) == UCS_OK);
    CHECK(ucp_worker_create(loop->context, &worker, &loop->worker) == UCS_OK);
    CHECK(ucp_worker_get_address(loop->worker, &address, &length) == UCS_OK);
    ep.address = address;
    CHECK(ucp_ep_create(loop->worker, &ep, &loop->ep) == UCS_OK);
    ucp_worker_release_address(loop->worker, address);
}

/** Waits for a request of UCP, for a bounded number of calls. */
static void wait_for(struct loop *loop, ucs_status_ptr_t request)
{
    for (long calls = 0; UCS_PTR_IS_PTR(request); calls++) {
        if (ucp_request_check_status(request) != UCS_INPROGRESS) {
            CHECK(ucp_request_check_status(request) == UCS_OK);
            ucp_request_free(request);
            return;
        }
        CHECK(calls < 100000000, "a request does not complete");
        ucp_worker_progress(loop->worker);
    }
    CHECK(UCS_PTR_STATUS(request) == UCS_OK);
}

static void send_to_self(struct loop *loop, uint64_t value)
{
    ucp_request_param_t plain = {.op_attr_mask = 0};
    uint64_t            got   = 0;
    ucs_status_ptr_t    receive;

    receive = ucp_tag_recv_nbx(loop->worker, &got, sizeof(got), value, ~UINT64_C(0), &plain);
    wait_for(loop, ucp_tag_send_nbx(loop->ep, &value, sizeof(value), value, &plain));
    wait_for(loop, receive);
    CHECK(got == value, "UCP's message %lu has other bytes", (unsigned long)value);
}

int main(int argc, char **argv)
{
    ucp_request_param_t plain = {.op_attr_mask = 0};
    struct self         self;
    struct loop         loop;

    if (argc > 1) {
        opened = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
        CHECK(opened != NULL, "%s", dlerror());
    }
    find_functions();
    open_self(&self);
    open_loop(&loop);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t payload = ~round;

        CHECK(uct_ep_am_short(self.ep, MESSAGE, round, &payload, sizeof(payload)) == UCS_OK);
        CHECK(received == round + 1, "UCT has received %lu messages", received);
        send_to_self(&loop, round);
    }
    report("ucp_tag_send_nbx", ucp_tag_send_nbx);
    report("ep_am_short", self.iface->ops.ep_am_short);
    wait_for(&loop, ucp_ep_close_nbx(loop.ep, &plain));
    ucp_worker_destroy(loop.worker);
    ucp_cleanup(loop.context);
    close_self(&self);
    printf("ok\n");
    return 0;
}
