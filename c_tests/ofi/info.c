/* What the provider says of itself, less what the rules take away. */
#include "fabric.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAL(name) ((__typeof__(&(name)))real_symbol(#name))

/* Descriptions that were shown, with those of the provider. They live as long as the process. */
struct pair {
    struct pair    *next;
    struct fi_info *real;
    char           *domain, *fabric;
    uint32_t        protocol;
};
static struct pair    *pairs;
static pthread_mutex_t pairs_lock = PTHREAD_MUTEX_INITIALIZER;

static int has_name(const struct fi_info *info, const char *name)
{
    return name != NULL && info->fabric_attr != NULL && info->fabric_attr->prov_name != NULL &&
           strcmp(info->fabric_attr->prov_name, name) == 0;
}

static void rename_string(char **string, const char *name)
{
    free(*string);
    *string = strdup(name);
}

void shorten_address(void *to, const void *socket_address)
{
    const struct sockaddr_in *in = socket_address;

    memset(to, 0, SHORT_ADDRESS);
    memcpy(to, &in->sin_addr, 4);
    memcpy((char *)to + 4, &in->sin_port, 2);
}

static void forget_pair(const char *domain, const char *fabric, uint32_t protocol)
{
    for (struct pair **at = &pairs; *at != NULL; at = &(*at)->next) {
        struct pair *pair = *at;
        if (strcmp(pair->domain, domain) == 0 && strcmp(pair->fabric, fabric) == 0 && pair->protocol == protocol) {
            *at = pair->next;
            REAL(fi_freeinfo)(pair->real);
            free(pair->domain);
            free(pair->fabric);
            free(pair);
            return;
        }
    }
}

static void remember_pair(const struct fi_info *shown, struct fi_info *real)
{
    struct pair *pair = calloc(1, sizeof(*pair));

    pthread_mutex_lock(&pairs_lock);
    forget_pair(shown->domain_attr->name, shown->fabric_attr->name, shown->ep_attr->protocol);
    *pair = (struct pair){.next     = pairs,
                          .real     = real,
                          .domain   = strdup(shown->domain_attr->name),
                          .fabric   = strdup(shown->fabric_attr->name),
                          .protocol = shown->ep_attr->protocol};
    pairs = pair;
    pthread_mutex_unlock(&pairs_lock);
}

static size_t smaller(size_t a, uint64_t bound)
{
    return a < bound ? a : (size_t)bound;
}

static void take_caps(struct fi_info *info, uint64_t caps)
{
    info->caps &= ~caps;
    info->tx_attr->caps &= ~caps;
    info->rx_attr->caps &= ~caps;
}

static void mask(struct fi_info *info, int number)
{
    const struct rules *rule = rules();

    if (rule->no_sas) {
        info->tx_attr->msg_order &= ~(uint64_t)FI_ORDER_SAS;
        info->rx_attr->msg_order &= ~(uint64_t)FI_ORDER_SAS;
    }
    if (rule->reorder_nth) {
        info->tx_attr->msg_order = info->rx_attr->msg_order = 0;
    }
    take_caps(info, (rule->no_multi_recv ? FI_MULTI_RECV : 0) | (rule->no_atomic ? FI_ATOMIC : 0) |
                        (rule->no_rma ? FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE : 0) |
                        (rule->no_fence ? FI_FENCE : 0));
    info->tx_attr->inject_size       = smaller(info->tx_attr->inject_size, rule->inject);
    info->tx_attr->iov_limit         = smaller(info->tx_attr->iov_limit, rule->iov);
    info->rx_attr->iov_limit         = smaller(info->rx_attr->iov_limit, rule->iov);
    info->rx_attr->size              = smaller(info->rx_attr->size, rule->rx_entries);
    info->ep_attr->max_msg_size      = smaller(info->ep_attr->max_msg_size, rule->max_msg);
    info->domain_attr->cq_data_size  = smaller(info->domain_attr->cq_data_size, rule->cq_data);
    info->domain_attr->mr_mode |= (rule->mr_local ? FI_MR_LOCAL : 0) | (rule->mr_prov_key ? FI_MR_PROV_KEY : 0) |
                                  (rule->mr_endpoint ? FI_MR_ENDPOINT : 0);
    if (rule->address8) {
        info->addr_format = FI_FORMAT_UNSPEC;
        if (info->src_addr != NULL) {
            shorten_address(info->src_addr, info->src_addr);
            info->src_addrlen = SHORT_ADDRESS;
        }
    }
    if (rules_name() != NULL) {
        char domain[64];
        snprintf(domain, sizeof(domain), "%s%d", rules_name(), number);
        rename_string(&info->fabric_attr->prov_name, rules_name());
        rename_string(&info->domain_attr->name, domain);
    }
}

/* Whether the provider does what the rules leave of it. */
static int fulfils(const struct fi_info *hints)
{
    const struct rules *rule   = rules();
    int                 needed = rule->mr_local ? FI_MR_LOCAL : 0;

    needed |= (rule->mr_prov_key ? FI_MR_PROV_KEY : 0) | (rule->mr_endpoint ? FI_MR_ENDPOINT : 0);
    if (hints == NULL) {
        return 1;
    }
    if (hints->domain_attr != NULL && (hints->domain_attr->mr_mode & needed) != needed) {
        return 0;
    }
    if ((rule->no_atomic && hints->caps & FI_ATOMIC) || (rule->no_rma && hints->caps & FI_RMA) ||
        (rule->no_multi_recv && hints->caps & FI_MULTI_RECV) || (rule->no_fence && hints->caps & FI_FENCE)) {
        return 0;
    }
    if (hints->tx_attr == NULL) {
        return 1;
    }
    return !(rule->no_sas && hints->tx_attr->msg_order & FI_ORDER_SAS) &&
           !(rule->no_delivery && hints->tx_attr->op_flags & FI_DELIVERY_COMPLETE) &&
           (hints->tx_attr->inject_size == 0 || hints->tx_attr->inject_size <= rule->inject);
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **infos)
{
    struct fi_info *wanted = hints == NULL ? NULL : REAL(fi_dupinfo)(hints);
    struct fi_info *found = NULL, **at = &found;
    int             error, number = 0;

    *infos = NULL;
    if (!fulfils(hints)) {
        return -FI_ENODATA;
    }
    if (wanted != NULL && has_name(wanted, rules_name())) {
        rename_string(&wanted->fabric_attr->prov_name, rules_over());
        if (wanted->domain_attr != NULL) {
            free(wanted->domain_attr->name);
            wanted->domain_attr->name = NULL;
        }
    }
    error = REAL(fi_getinfo)(version, node, service, flags, wanted, &found);
    if (wanted != NULL) {
        REAL(fi_freeinfo)(wanted);
    }
    if (error != 0) {
        return error;
    }
    while (*at != NULL) {
        struct fi_info *info = *at, *next = info->next;
        const char     *over = rules_over();
        if ((over != NULL && !has_name(info, over)) || (rules()->address8 && info->addr_format != FI_SOCKADDR_IN)) {
            *at        = next;
            info->next = NULL;
            REAL(fi_freeinfo)(info);
            continue;
        }
        info->next           = NULL;
        struct fi_info *real = REAL(fi_dupinfo)(info);
        info->next           = next;
        mask(info, number++);
        remember_pair(info, real);
        at = &info->next;
    }
    *infos = found;
    return found == NULL ? -FI_ENODATA : 0;
}

struct fi_info *real_info(const struct fi_info *shown)
{
    struct fi_info *info = NULL;

    pthread_mutex_lock(&pairs_lock);
    for (struct pair *pair = pairs; pair != NULL; pair = pair->next) {
        if (strcmp(pair->domain, shown->domain_attr->name) == 0 &&
            strcmp(pair->fabric, shown->fabric_attr->name) == 0 && pair->protocol == shown->ep_attr->protocol) {
            info = REAL(fi_dupinfo)(pair->real);
            break;
        }
    }
    pthread_mutex_unlock(&pairs_lock);
    if (info == NULL) {
        rules_broken("a description that fi_getinfo has not returned: %s", shown->domain_attr->name);
    }
    info->caps &= shown->caps | info->domain_attr->caps;
    info->mode                  = shown->mode;
    info->tx_attr->op_flags     = shown->tx_attr->op_flags;
    info->rx_attr->op_flags     = shown->rx_attr->op_flags;
    info->domain_attr->threading = shown->domain_attr->threading;
    info->domain_attr->av_type   = shown->domain_attr->av_type;
    return info;
}
