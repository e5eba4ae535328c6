/* Library, configuration and context: results that need no peer. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void library_facts(side_t *side)
{
    ucp_lib_attr_t attr = {.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL};
    unsigned       major, minor, release;

    ucs_status_t status = ucp_lib_query(&attr);
    rule(side, "2.2.2", "lib_query: %s, threads %d", status_name(status), attr.max_thread_level);
    memset(&attr, 0xa5, sizeof(attr));
    attr.field_mask = 0;
    status = ucp_lib_query(&attr);
    rule(side, "2.2.2", "lib_query of nothing: %s, untouched %d", status_name(status),
         data_is(&attr.max_thread_level, sizeof(attr.max_thread_level), 0xa5));
    ucp_get_version(&major, &minor, &release);
    rule(side, "2.2.2", "major %u, minor at least 13: %d", major, minor >= 13);
    char expected[64];
    snprintf(expected, sizeof(expected), "%u.%u.%u", major, minor, release);
    rule(side, "2.2.2", "version string agrees: %d", strcmp(expected, ucp_get_version_string()) == 0);
}

/* Whether the printed configuration holds `line`. */
static int config_holds(const ucp_config_t *config, const char *title, ucs_config_print_flags_t flags, const char *line)
{
    char  *text = NULL;
    size_t length;
    FILE  *stream = open_memstream(&text, &length);

    ucp_config_print(config, stream, title, flags);
    fclose(stream);
    int found = strstr(text, line) != NULL;
    free(text);
    return found;
}

static void config_facts(side_t *side)
{
    ucp_config_t *config = NULL;

    rule(side, "2.12.6", "config_read: %s", status_name(ucp_config_read(NULL, NULL, &config)));
    rule(side, "2.12.6", "TLS from the environment: %d",
         config_holds(config, NULL, UCS_CONFIG_PRINT_CONFIG, "UCX_TLS=self,sm\n"));
    rule(side, "2.12.6", "modify TLS: %s", status_name(ucp_config_modify(config, "TLS", "self")));
    rule(side, "2.12.6", "TLS modified: %d", config_holds(config, NULL, UCS_CONFIG_PRINT_CONFIG, "UCX_TLS=self\n"));
    rule(side, "2.12.6", "title only with a header: %d %d",
         config_holds(config, "our title", UCS_CONFIG_PRINT_HEADER, "our title"),
         config_holds(config, "our title", UCS_CONFIG_PRINT_CONFIG, "our title"));
    rule(side, "2.12.6", "modify RNDV_THRESH: %s", status_name(ucp_config_modify(config, "RNDV_THRESH", "4k")));
    rule(side, "2.12.6", "modify ZCOPY_THRESH: %s", status_name(ucp_config_modify(config, "ZCOPY_THRESH", "auto")));
    rule(side, "2.12.6", "size that is none refused: %d", ucp_config_modify(config, "RNDV_THRESH", "much") != UCS_OK);
    ucp_config_release(config);
}

/* Names and values that ucp_config_modify accepts and rejects, and their effect. */
static void modify_facts(side_t *side)
{
    static const struct {
        const char *name, *value, *line; /* line: printed afterwards; NULL: the value is rejected */
    } changes[] = {
        {"CM_USE_ALL_DEVICES", "NO", "UCX_CM_USE_ALL_DEVICES=n"},
        {"CM_USE_ALL_DEVICES", "try", NULL},
        {"RNDV_SCHEME", "GET_ZCOPY", "UCX_RNDV_SCHEME=get_zcopy"},
        {"RNDV_SCHEME", "get", NULL},
        {"ADDRESS_VERSION", "v3", NULL},
        {"ZCOPY_THRESH", "1kb", "UCX_ZCOPY_THRESH=1K"},
        {"ZCOPY_THRESH", " 3m", "UCX_ZCOPY_THRESH=3M"},
        {"ZCOPY_THRESH", "-1", "UCX_ZCOPY_THRESH=inf"},
        {"ZCOPY_THRESH", "1.5k", NULL},
        {"ZCOPY_THRESH", "", NULL},
        {"BCOPY_BW", "3GBps", "UCX_BCOPY_BW=3072.00MBps"},
        {"BCOPY_BW", "3", NULL},
        {"KEEPALIVE_INTERVAL", "2", "UCX_KEEPALIVE_INTERVAL=2000000.00us"},
        {"KEEPALIVE_NUM_EPS", "7", "UCX_KEEPALIVE_NUM_EPS=7"},
        {"KEEPALIVE_NUM_EPS", "many", NULL},
        {"MAX_RNDV_LANES", "3", "UCX_MAX_RNDV_RAILS=3"},
        {"NUM_EPS", "auto", "UCX_NUM_EPS=auto"},
        {"NET_DEVICES", "mlx5_0:1,eth0", "UCX_NET_DEVICES=mlx5_0:1,eth0\n"},
        {"SHM_DEVICES", "^memory", "UCX_SHM_DEVICES=^memory"},
    };
    /* Options of the process and of transports are not printed. */
    static const char *const others[][2] = {
        {"MEMTYPE_CACHE", "n"}, {"MEM_EVENTS", "n"},        {"LOG_LEVEL", "fatal"}, {"MM_SEG_SIZE", "9k"},
        {"TCP_MAX_POLL", "inf"}, {"TCP_TX_SEG_SIZE", "16k"}, {"TCP_KEEPIDLE", "3s"}, {"POSIX_FIFO_SIZE", "128"},
    };
    ucp_config_t *config;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        ucs_status_t status = ucp_config_modify(config, changes[i].name, changes[i].value);
        rule(side, "2.12.6", "modify %s=%s: %s, as printed %d", changes[i].name, changes[i].value, status_name(status),
             changes[i].line != NULL && config_holds(config, NULL, UCS_CONFIG_PRINT_CONFIG, changes[i].line));
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        rule(side, "2.12.6", "modify %s=%s: %s", others[i][0], others[i][1],
             status_name(ucp_config_modify(config, others[i][0], others[i][1])));
    }
    ucp_config_release(config);
}

/* UCX 1.13.1 accepts every unknown name, for transports that it may load later. */
static void modify_departures(side_t *side)
{
    static const char *const unknown[] = {"NO_SUCH", "UCX_TLS",  "tls", "TLS ",     "",
                                          "TCP_NO_SUCH", "NO_SUCH*", "T*",  "LOG_FILE", "STATS_DEST"};
    static const departure_t refused   = {.name = "2.12.6", .why = "1.13.1 keeps names that it does not know",
                                          .on_1_13 = "OK", .on_1_22 = "INVALID_PARAM", .on_rucp = "INVALID_PARAM"};
    static const departure_t late      = {.name = "2.12.6", .why = "UCX complains when the transport reads its options",
                                          .on_1_13 = "OK", .on_1_22 = "OK", .on_rucp = "INVALID_PARAM"};
    static const departure_t pattern   = {.name = "2.12.6", .why = "1.13.1 has no patterns",
                                          .on_1_22 = "OK 1 1", .on_rucp = "OK 1 1"};
    ucp_config_t            *config;
    char                     text[64];

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        rule_departs(side, &refused, status_name(ucp_config_modify(config, unknown[i], "self")));
    }
    rule_departs(side, &late, status_name(ucp_config_modify(config, "TCP_MAX_POLL", "many")));
    const char *status = status_name(ucp_config_modify(config, "RNDV_THRES*", "4k"));
    snprintf(text, sizeof(text), "%s %d %d", status,
             config_holds(config, NULL, UCS_CONFIG_PRINT_CONFIG, "UCX_RNDV_THRESH=intra:4K,inter:4K\n"),
             config_holds(config, NULL, UCS_CONFIG_PRINT_CONFIG, "UCX_RNDV_THRESH_FALLBACK=4K\n"));
    rule_departs(side, &pattern, text);
    ucp_config_release(config);
}

static void prefix_facts(side_t *side)
{
    ucp_config_t *config = NULL;

    setenv("BED_UCX_TLS", "self", 1);
    rule(side, "2.12.6", "config_read with a prefix: %s", status_name(ucp_config_read("BED", NULL, &config)));
    rule(side, "2.12.6", "prefix comes first: %d", config_holds(config, NULL, UCS_CONFIG_PRINT_CONFIG, "TLS=self\n"));
    ucp_config_release(config);
    unsetenv("BED_UCX_TLS");
    rule(side, "2.12.6", "file name ignored: %s", status_name(ucp_config_read(NULL, "/nonexistent", &config)));
    ucp_config_release(config);
}

static void name_facts(side_t *side, ucp_context_h context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_NAME};

    ucs_status_t status = ucp_context_query(context, &attr);
    rule(side, "2.12.1", "query name: %s, '%s'", status_name(status), attr.name);
}

static void query_facts(side_t *side, ucp_context_h context)
{
    ucp_context_attr_t attr;

    memset(&attr, 0xa5, sizeof(attr));
    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_THREAD_MODE | UCP_ATTR_FIELD_MEMORY_TYPES;
    ucs_status_t status = ucp_context_query(context, &attr);
    rule(side, "2.12.8", "query: %s, request size sane %d, threads %d, host memory %d", status_name(status),
         attr.request_size > 0 && attr.request_size <= 1024, attr.thread_mode, (int)(attr.memory_types & 1));
    rule(side, "2.12.8", "name untouched: %d", data_is(attr.name, sizeof(attr.name), 0xa5));
    memset(&attr, 0xa5, sizeof(attr));
    attr.field_mask = 0;
    status = ucp_context_query(context, &attr);
    rule(side, "2.12.8", "query of nothing: %s, untouched %d", status_name(status),
         data_is((char *)&attr + sizeof(attr.field_mask), sizeof(attr) - sizeof(attr.field_mask), 0xa5));
}

static ucp_context_h init_fact(side_t *side, const char *what, const ucp_params_t *params)
{
    ucp_context_h context = NULL;

    rule(side, "2.12.9", "init %s: %s", what, status_name(ucp_init(params, NULL, &context)));
    return context;
}

static void init_facts(side_t *side)
{
    ucp_params_t params = {
        .field_mask        = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_NAME |
                             UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_ESTIMATED_NUM_PPN |
                             UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features          = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 |
                             UCP_FEATURE_WAKEUP | UCP_FEATURE_STREAM | UCP_FEATURE_AM,
        .tag_sender_mask   = 0xffff,
        .mt_workers_shared = 1,
        .estimated_num_eps = 100000,
        .estimated_num_ppn = 64,
        .name              = "a context",
    };
    ucp_context_h context = init_fact(side, "all features", &params);
    query_facts(side, context);
    name_facts(side, context);
    ucp_cleanup(context);

    params.name = "a name that is longer than an entity name may be";
    context     = init_fact(side, "long name", &params);
    name_facts(side, context);
    ucp_cleanup(context);

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG;
    context           = init_fact(side, "tags only", &params);
    query_facts(side, context);
    ucp_cleanup(context);
    params.field_mask = 0;
    ucp_cleanup(init_fact(side, "no features", &params));
}

static void config_used_facts(side_t *side)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;
    ucp_config_t *config;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    ucp_config_modify(config, "TLS", "self");
    rule(side, "2.12.9", "init by configuration: %s", status_name(ucp_init(&params, config, &context)));
    ucp_cleanup(context);
    ucp_config_modify(config, "TLS", "no_such_transport");
    rule(side, "2.12.9", "init without a transport: %s", status_name(ucp_init(&params, config, &context)));
    ucp_config_release(config);
}

static void print_facts(side_t *side)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context = init_fact(side, "to print", &params);
    char         *text = NULL;
    size_t        length;
    FILE         *stream = open_memstream(&text, &length);

    ucp_context_print_info(context, stream);
    fclose(stream);
    fact(side, "print_info begins '%.1s', ends in a newline: %d", text, length > 0 && text[length - 1] == '\n');
    free(text);
    ucp_cleanup(context);
}

static void script(bed_t *bed)
{
    side_t *sides[] = {bed->a, bed->b};

    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            library_facts(sides[i]);
            config_facts(sides[i]);
            modify_facts(sides[i]);
            modify_departures(sides[i]);
            prefix_facts(sides[i]);
            init_facts(sides[i]);
            config_used_facts(sides[i]);
            print_facts(sides[i]);
        }
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
