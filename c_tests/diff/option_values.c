/* Options with invalid values: which call rejects them, and which calls succeed. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct option_value {
    const char *tls, *name, *value;
} option_value_t;

/* The statuses of ucp_init and of ucp_worker_create with a configuration, as "OK OK". */
static const char *made_with(const ucp_config_t *config)
{
    static char         text[64];
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h       context;
    ucp_worker_h        worker;

    ucs_status_t status = ucp_init(&params, config, &context);
    if (status != UCS_OK) {
        return status_name(status);
    }
    status = ucp_worker_create(context, &worker_params, &worker);
    snprintf(text, sizeof(text), "OK %s", status_name(status));
    if (status == UCS_OK) {
        ucp_worker_destroy(worker);
    }
    ucp_cleanup(context);
    return text;
}

static const char *made_by_call(const side_t *side, const option_value_t *option)
{
    static char   text[128];
    ucp_config_t *config;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    must(side, ucp_config_modify(config, "TLS", option->tls), "ucp_config_modify TLS");
    const char *modified = status_name(ucp_config_modify(config, option->name, option->value));
    snprintf(text, sizeof(text), "modify %s, made %s", modified, made_with(config));
    ucp_config_release(config);
    return text;
}

static void call_facts(side_t *side)
{
    static const option_value_t options[] = {
        {"", "NUM_EPS", "1"},
        {"self", "KEEPALIVE_NUM_EPS", "0"},
        {"self", "KEEPALIVE_INTERVAL", "-1"},
        {"self", "SEG_SIZE", "8kBytes"},
        {"self", "ALLOC_PRIO", ""},
        {"self", "ALLOC_PRIO", "mmap,bogus"},
        {"self", "ALLOC_PRIO", "huge,md:any,heap"},
        {"self", "RNDV_FRAG_SIZE", "bogus"},
        {"self", "RNDV_FRAG_SIZE", "host:x"},
        {"self", "RNDV_FRAG_SIZE", "HOST:1k,cuda:inf"},
        {"self", "RNDV_FRAG_ALLOC_COUNT", "bogus:1"},
        {"self", "RNDV_FRAG_ALLOC_COUNT", "host:0"},
        {"self", "RX_MPOOL_SIZES", ""},
        {"self", "RX_MPOOL_SIZES", "64,63"},
        {"self", "RX_MPOOL_SIZES", "64,2K"},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const option_value_t *option = &options[i];
        rule(side, "2.12.6", "%s with %s=%s: %s", option->tls, option->name, option->value,
             made_by_call(side, option));
    }
}

/* Of a transport, in the environment (ucp_config_modify of 1.13.1 accepts most of them): ucp_worker_create() fails,
 * if the worker would use the transport. */
static void environment_facts(side_t *side)
{
    static const option_value_t options[] = {
        {"self,posix", "UCX_POSIX_FIFO_SIZE", "3"},
        {"self,sysv", "UCX_POSIX_FIFO_SIZE", "3"},
        {"self,sysv", "UCX_MM_FIFO_SIZE", "1"},
        {"self,sm", "UCX_MM_FIFO_SIZE", "2"},
        {"self,sm", "UCX_MM_FIFO_RELEASE_FACTOR", "1"},
        {"self,sm", "UCX_MM_FIFO_ELEM_SIZE", "3"},
        {"self,sm", "UCX_POSIX_FIFO_SIZE", "bogus"},
        {"self", "UCX_POSIX_FIFO_SIZE", "bogus"},
        {"tcp", "UCX_TCP_PORT_RANGE", "5-2"},
        {"self", "UCX_TCP_PORT_RANGE", "5-2"},
        {"tcp", "UCX_TCP_PORT_RANGE", "5-"},
        {"tcp", "UCX_TCP_TX_SEG_SIZE", "0"},
        {"tcp", "UCX_TCP_RX_SEG_SIZE", "0"},
        {"tcp", "UCX_TCP_NODELAY", "bogus"},
        {"self,sm", "UCX_TCP_NODELAY", "bogus"},
        {"self", "UCX_CM_REUSEADDR", "bogus"},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const option_value_t *option = &options[i];
        ucp_config_t         *config;
        setenv(option->name, option->value, 1);
        must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
        must(side, ucp_config_modify(config, "TLS", option->tls), "ucp_config_modify TLS");
        rule(side, "2.12.6", "%s with %s=%s: made %s", option->tls, option->name, option->value,
             made_with(config));
        ucp_config_release(config);
        unsetenv(option->name);
    }
}

/* Values accepted by one of the releases of UCX are accepted: scripts were written for it. */
static void departures(side_t *side)
{
    static const departure_t zero  = {.name = "2.12.6", .on_1_13 = "modify OK, made OK OK",
                                      .on_1_22 = "modify OK, made INVALID_PARAM", .on_rucp = "modify OK, made OK OK",
                                      .why = "1.13.1 takes it as often as can be, and so does rucp"};
    static const departure_t split = {.name = "2.12.6", .on_1_13 = "modify OK, made OK OK",
                                      .on_1_22 = "modify OK, made INVALID_PARAM",
                                      .on_rucp = "modify OK, made INVALID_PARAM",
                                      .why = "1.13.1 does not know it: no script for 1.13.1 sets it"};

    rule_departs(side, &zero, made_by_call(side, &(option_value_t){"self", "KEEPALIVE_INTERVAL", "0"}));
    rule_departs(side, &split, made_by_call(side, &(option_value_t){"self", "MIN_RNDV_CHUNK_SIZE", "0"}));
}

/* The output of `probe`, a line at a time: the level and the text up to the words that differ between libraries. */
static void probed_lines(side_t *side, const char *shown, const char *absent, const char *command)
{
    static const char *ends[] = {", please", " (asked", "The TLs", "UCX_TLS is"};
    FILE              *output = popen(command, "r");
    char               line[1000];

    while (output != NULL && fgets(line, sizeof(line), output) != NULL) {
        char *text = strstr(line, "UCX  ");
        for (int i = 0; text != NULL && i < 4; i++) {
            char *end = strstr(text, ends[i]);
            if (end != NULL) {
                *end = '\0';
            }
        }
        line[strcspn(line, "\n")] = '\0';
        char *name = text == NULL ? NULL : strstr(text, absent);
        if (name != NULL) {
            rule(side, "2.12.10", "%s: %.*sabsent%s", shown, (int)(name - text), text, name + strlen(absent));
        } else {
            rule(side, "2.12.10", "%s: %s", shown, text != NULL ? text : line);
        }
    }
    if (output != NULL) {
        pclose(output);
    }
}

/*
 * Programs test by ucp_init() which transports there are. Absent, unknown ones and those without a device are one line
 * of warning for each call; when none is left that is one line of error more.
 */
static void probe_facts(side_t *side)
{
    /* one that both libraries know by name or not at all, and neither has here */
    const char *absent = getenv("SOFT_HCA_WIRE") == NULL ? "rc" : "tofu";
    static const char *const lists[] = {"foo", "foo,bar", "foo,self", "foo,self,bar", "%s,self", "%s", "%s,foo,self",
                                        ""};
    char                     command[300], transports[100], shown[100];

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        snprintf(transports, sizeof(transports), lists[i], absent);
        snprintf(shown, sizeof(shown), lists[i], "absent");
        snprintf(command, sizeof(command), "UCX_TLS='%s' UCX_LOG_LEVEL=warn /proc/%d/exe probe 2>&1", transports,
                 (int)getpid());
        probed_lines(side, shown, absent, command);
    }
}

static int probe(void)
{
    printf("%s\n", made_with(NULL));
    return 0;
}

static void script(bed_t *bed)
{
    side_t *sides[] = {bed->a, bed->b};

    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            call_facts(sides[i]);
            environment_facts(sides[i]);
            departures(sides[i]);
            probe_facts(sides[i]);
        }
    }
}

int main(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "probe") == 0 ? probe() : bed_main(argc, argv, script);
}
