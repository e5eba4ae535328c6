#include "rules.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rules imposed = {
    .inject = -1, .max_msg = -1, .cq_data = -1, .iov = -1, .rx_entries = -1, .av_most = -1,
    .error_code = 5 /* FI_EIO */, .damage_by = 0x40, .error_queues = -1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define RULE(name) {#name, offsetof(struct rules, name)}
static const struct {
    const char *name;
    size_t      offset;
} names[] = {
    RULE(no_sas),      RULE(no_multi_recv), RULE(no_rma),    RULE(no_atomic),    RULE(no_delivery), RULE(no_wait),
    RULE(no_fence),    RULE(inject),        RULE(max_msg),   RULE(cq_data),      RULE(iov),         RULE(rx_entries),
    RULE(mr_local),    RULE(mr_prov_key),   RULE(mr_endpoint), RULE(address8),   RULE(eagain_nth),  RULE(reorder_nth),
    RULE(error_nth),   RULE(reg_fail_nth),  RULE(error_code),  RULE(dies_after),
    RULE(av_most),     RULE(damage_nth),    RULE(damage_at), RULE(damage_by),    RULE(lose_nth),
    RULE(error_queues), RULE(error_after), RULE(fail_read_nth), RULE(dies_at_read),
    RULE(hide_read_nth), RULE(full_queues), RULE(busy_closes),
};

static void impose(const char *rule)
{
    const char *value = strchr(rule, '=');

    for (size_t i = 0; value != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i].name) == (size_t)(value - rule) && strncmp(names[i].name, rule, value - rule) == 0) {
            *(uint64_t *)((char *)&imposed + names[i].offset) = strtoull(value + 1, NULL, 0);
            return;
        }
    }
    rules_broken("SOFT_OFI_RULES: no rule \"%s\"", rule);
}

static void read_rules(void)
{
    const char *given = getenv("SOFT_OFI_RULES");
    char       *copy  = strdup(given != NULL ? given : ""), *rest = NULL;

    for (char *rule = strtok_r(copy, ",", &rest); rule != NULL; rule = strtok_r(NULL, ",", &rest)) {
        impose(rule);
    }
    free(copy);
    /* Messages that overtake each other are not in order. */
    imposed.no_sas |= imposed.reorder_nth != 0;
    /* How many receives are posted is known only if each ends with its message. */
    imposed.no_multi_recv |= imposed.rx_entries != (uint64_t)-1;
}

const struct rules *rules(void)
{
    pthread_once(&once, read_rules);
    return &imposed;
}

const char *rules_name(void)
{
    return getenv("SOFT_OFI_NAME");
}

const char *rules_over(void)
{
    return getenv("SOFT_OFI_OVER");
}

int rules_hits(uint64_t nth, _Atomic uint64_t *count)
{
    return nth != 0 && ++*count % nth == 0;
}

void rules_broken(const char *format, ...)
{
    char    text[512];
    va_list args;
    int     length = snprintf(text, sizeof(text), "restricted fabric (%d): ", getpid());

    va_start(args, format);
    vsnprintf(text + length, sizeof(text) - (size_t)length - 1, format, args);
    va_end(args);
    strcat(text, "\n");
    /* No signal: providers catch SIGABRT. */
    _exit(write(2, text, strlen(text)) < 0 ? 71 : 70);
}
