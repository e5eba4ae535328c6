/* Names of libucs that clients of libucp use: log handlers, the cache of memory types, thread modes. */
#define _GNU_SOURCE
#include "bed.h"

#include <ucs/debug/log_def.h>
#include <ucs/memory/memtype_cache.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Programs are linked to libucp alone: symbols that UCX has in libucs are resolved at run time. */
#define LOOK_UP(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(RTLD_DEFAULT, #name)

static char              said[4096];
static ucs_log_func_rc_t answer;

static ucs_log_func_rc_t handled(const char *name, const char *file, const char *function, ucs_log_level_t level,
                                 const ucs_log_component_config_t *component, const char *message, va_list ap)
{
    char   text[512];
    size_t at = strlen(said);

    vsnprintf(text, sizeof(text), message, ap);
    snprintf(said + at, sizeof(said) - at, " %s(%s %d %s %s %s)", name, component->name, (int)level, basename(file),
             function, text);
    return answer;
}

static ucs_log_func_rc_t first(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                               const ucs_log_component_config_t *component, const char *message, va_list ap)
{
    return line > 0 ? handled("first", file, function, level, component, message, ap) : UCS_LOG_FUNC_RC_CONTINUE;
}

static ucs_log_func_rc_t second(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                const ucs_log_component_config_t *component, const char *message, va_list ap)
{
    return line > 0 ? handled("second", file, function, level, component, message, ap) : UCS_LOG_FUNC_RC_CONTINUE;
}

/* The lines that handlers have got since the last call. */
static const char *what_came(void)
{
    static char text[sizeof(said)];
    strcpy(text, said);
    said[0] = 0;
    return text;
}

/* The level is raised, so that a rejected option is a log line of the library's own. */
static const char *own_lines(const side_t *side)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_config_t *config;
    ucp_context_h context;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    must(side, ucp_config_modify(config, "LOG_LEVEL", "error"), "ucp_config_modify LOG_LEVEL");
    must(side, ucp_config_modify(config, "TLS", "nosuch"), "ucp_config_modify TLS");
    ucs_status_t status = ucp_init(&params, config, &context);
    must(side, ucp_config_modify(config, "LOG_LEVEL", "fatal"), "ucp_config_modify LOG_LEVEL");
    must(side, ucp_config_modify(config, "TLS", "self"), "ucp_config_modify TLS");
    must(side, ucp_init(&params, config, &context), "ucp_init");
    ucp_cleanup(context);
    ucp_config_release(config);
    const char *came = what_came();
    if (status != UCS_ERR_NO_DEVICE) {
        return status_name(status);
    }
    /* The text and the source files are each library's own. */
    return strstr(came, " second(UCX 1 ") == came && strstr(came, "nosuch") && strstr(came, "no usable") &&
                   !strstr(came, "first") ? "one error, by the handler pushed last" : came;
}

static void log_facts(const side_t *side)
{
    ucs_log_component_config_t mine = {.log_level = UCS_LOG_LEVEL_INFO, .name = "MINE", .file_filter = "*"};
    LOOK_UP(ucs_log_push_handler);
    LOOK_UP(ucs_log_pop_handler);
    LOOK_UP(ucs_log_num_handlers);
    LOOK_UP(ucs_log_dispatch);
#define LINE(level, ...) p_ucs_log_dispatch("a/b.c", 7, "main", level, &mine, __VA_ARGS__)

    rule(side, "H1", "at the start %u handler", p_ucs_log_num_handlers());
    p_ucs_log_push_handler(first);
    p_ucs_log_push_handler(second);
    answer = UCS_LOG_FUNC_RC_STOP;
    LINE(UCS_LOG_LEVEL_WARN, "%d %s %g %ld 100%%", 5, "text", 2.5, -7L);
    rule(side, "H1", "the last one stops it:%s", what_came());
    rule(side, "H1", "a line of the library's: %s", own_lines(side));
    answer = UCS_LOG_FUNC_RC_CONTINUE;
    LINE(UCS_LOG_LEVEL_DEBUG, "%d %s %g %d %d %d %d %s", 5, "text", 2.5, 1, 2, 3, 4, "end");
    rule(side, "H1", "each goes on, the arguments from the start, above the component's level:%s", what_came());
    p_ucs_log_pop_handler();
    answer = UCS_LOG_FUNC_RC_STOP;
    LINE(UCS_LOG_LEVEL_WARN, "no arguments");
    rule(side, "H1", "one is left:%s, %u handlers", what_came(), p_ucs_log_num_handlers());
    p_ucs_log_pop_handler();
    for (int i = 0; i < 100; i++) {
        p_ucs_log_push_handler(first);
    }
    rule(side, "H1", "100 more: %u handlers", p_ucs_log_num_handlers());
    for (int i = 0; i < 31; i++) {
        p_ucs_log_pop_handler();
    }
    mine.log_level = UCS_LOG_LEVEL_FATAL;
    LINE(UCS_LOG_LEVEL_WARN, "not printed either");
    rule(side, "H1", "without:%s %u handler", what_came(), p_ucs_log_num_handlers());
}

/* Room for the structure of a later release than that of the headers. */
typedef union {
    ucs_memory_info_t of;
    char              room[64];
} info_t;

static char *base;

static void found(const side_t *side, size_t offset, size_t size)
{
    info_t info;
    LOOK_UP(ucs_memtype_cache_lookup);

    memset(&info, 0x77, sizeof(info));
    ucs_status_t status = p_ucs_memtype_cache_lookup(base + offset, size, &info.of);
    if (status != UCS_OK) {
        rule(side, "H2", "%zu and %zu bytes: %s", offset, size, status_name(status));
    } else if (info.of.base_address == NULL) {
        /* The number of UCS_MEMORY_TYPE_UNKNOWN changed from one release to the next. */
        rule(side, "H2", "%zu and %zu bytes: OK, %s, device %d, %zd bytes", offset, size,
             info.of.type > 4 ? "unknown" : "known", info.of.sys_dev, (ssize_t)info.of.alloc_length);
    } else {
        rule(side, "H2", "%zu and %zu bytes: OK, type %d, device %d, %zu and %zu bytes", offset, size, info.of.type,
             info.of.sys_dev, (size_t)((char *)info.of.base_address - base), info.of.alloc_length);
    }
}

static void update(size_t offset, size_t size, ucs_memory_type_t type, ucs_sys_device_t device)
{
    LOOK_UP(ucs_memtype_cache_update);
#if UCP_API_VERSION < UCP_VERSION(1, 22)
    p_ucs_memtype_cache_update(base + offset, size, type, device);
#else
    p_ucs_memtype_cache_update(base + offset, size, type, device, 0);
#endif
}

static void memory_facts(const side_t *side)
{
    LOOK_UP(ucs_memtype_cache_remove);

    if (posix_memalign((void **)&base, 65536, 65536) != 0) {
        abort();
    }
    found(side, 0, 1);
    update(4096, 4096, UCS_MEMORY_TYPE_CUDA, 3);
    found(side, 4095, 10);
    found(side, 4096, 4096);
    found(side, 8000, 500);
    found(side, 8192, 1);
    update(5000, 100, UCS_MEMORY_TYPE_ROCM, 4);
    found(side, 5000, 100);
    found(side, 4096, 10);
    found(side, 5104, 5);
    p_ucs_memtype_cache_remove(base + 6000, 100);
    found(side, 6000, 100);
    found(side, 6200, 10);
    update(20000, 0, UCS_MEMORY_TYPE_CUDA, 3);
    found(side, 20000, 1);
    p_ucs_memtype_cache_remove(base, 65536);
    found(side, 4096, 1);
    free(base);
}

static void name_facts(const side_t *side)
{
    const char **names = dlsym(RTLD_DEFAULT, "ucs_thread_mode_names");
    for (int mode = UCS_THREAD_MODE_SINGLE; mode < UCS_THREAD_MODE_LAST; mode++) {
        rule(side, "H3", "mode %d: %s", mode, names[mode]);
    }
    rule(side, "H3", "no device %d, any type %d", UCS_SYS_DEVICE_ID_UNKNOWN,
         UCS_MEMORY_TYPE_UNKNOWN == UCS_MEMORY_TYPE_LAST);
}

static void script(bed_t *bed)
{
    side_t *sides[] = {bed->a, bed->b};

    bed_open(bed, &(bed_params_t){.features = UCP_FEATURE_TAG});
    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            log_facts(sides[i]);
            memory_facts(sides[i]);
            name_facts(sides[i]);
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
