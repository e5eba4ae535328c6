/* Symbols of libucs that Mercury and libfabric's provider for UCX resolve; the handler gets the library's log lines. */

#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/type/thread_mode.h>
#include "client.h"

static char lines[1024];

static ucs_log_func_rc_t handle(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                const ucs_log_component_config_t *component, const char *message, va_list ap) {
    size_t at = strlen(lines);
    if (file != NULL && line > 0 && function != NULL && level == UCS_LOG_LEVEL_ERROR &&
        strcmp(component->name, "UCX") == 0) {
        vsnprintf(lines + at, sizeof(lines) - at, message, ap);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

/* Creating a context without transports fails, with a log line that names them. */
static int refused(void) {
    ucp_params_t params;
    ucp_config_t *config = NULL;
    ucp_context_h context;
    int failures = 0;

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    check(ucp_config_read(NULL, NULL, &config), "config_read", &failures);
    check(ucp_config_modify(config, "TLS", "nosuch%s"), "config_modify", &failures);
    ucs_log_push_handler(handle);
    failures += ucp_init(&params, config, &context) != UCS_ERR_NO_DEVICE;
    ucs_log_pop_handler();
    failures += ucs_log_num_handlers() != 1;
    ucp_config_release(config);
    if (strstr(lines, "nosuch%s") == NULL) {
        fprintf(stderr, "the handler got '%s'\n", lines);
        ++failures;
    }
    return failures;
}

/* As in libfabric, with four arguments and with five. */
static int stated(void) {
    static char memory[4096];
    ucs_memory_info_t info;
    int failures = 0;

    ucs_memory_info_set_host(&info);
    failures += info.sys_dev != UCS_SYS_DEVICE_ID_UNKNOWN || info.type != UCS_MEMORY_TYPE_HOST;
    failures += ucs_memtype_cache_lookup(memory, sizeof(memory), &info) != UCS_ERR_NO_ELEM;
    ucs_memtype_cache_update(memory, sizeof(memory), UCS_MEMORY_TYPE_UNKNOWN, UCS_SYS_DEVICE_ID_UNKNOWN);
    failures += ucs_memtype_cache_lookup(memory, sizeof(memory), &info) != UCS_OK;
    failures += info.type != UCS_MEMORY_TYPE_UNKNOWN || info.mem_flags != 0;
    ucs_memtype_cache_update(memory, sizeof(memory), UCS_MEMORY_TYPE_CUDA, 1, UCS_MEM_FLAG_REGISTRABLE);
    failures += ucs_memtype_cache_lookup(memory, sizeof(memory), &info) != UCS_OK;
    failures += info.type != UCS_MEMORY_TYPE_CUDA || info.sys_dev != 1 || info.mem_flags != UCS_MEM_FLAG_REGISTRABLE;
    ucs_memtype_cache_remove(memory, sizeof(memory));
    failures += ucs_memtype_cache_lookup(memory, sizeof(memory), &info) != UCS_ERR_NO_ELEM;
    return failures;
}

int main(void) {
    int failures = refused() + stated() + client("names");
    failures += strcmp(ucs_thread_mode_names[UCS_THREAD_MODE_MULTI], "multi") != 0;
    return failures == 0 ? 0 : 1;
}
