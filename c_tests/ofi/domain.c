/* Domains, address vectors and registered memory. */
#include "fabric.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REGION = 0x72656769 };

struct domain_table {
    struct fi_ops_domain  ops;
    struct fi_ops_mr      mr;
    struct fi_ops_domain *real;
    struct fi_ops_mr     *real_mr;
};

/* --- address vectors --- */

struct av_table {
    struct fi_ops_av  ops;
    struct fi_ops_av *real;
    _Atomic uint64_t  inserted;
};

static int insert(struct fid_av *av, const void *addresses, size_t count, fi_addr_t *fi_addr, uint64_t flags,
                  void *context)
{
    struct av_table    *table = OUTER(av->ops, struct av_table, ops);
    struct sockaddr_in *long_addresses;
    int                 inserted;

    if ((table->inserted += count) > rules()->av_most) {
        rules_broken("fi_av_insert: %llu addresses, at most %llu are allowed (av_most)",
                     (unsigned long long)table->inserted, (unsigned long long)rules()->av_most);
    }
    if (!rules()->address8) {
        return table->real->insert(av, addresses, count, fi_addr, flags, context);
    }
    long_addresses = calloc(count, sizeof(*long_addresses));
    for (size_t i = 0; i < count; i++) {
        const char *address          = (const char *)addresses + i * SHORT_ADDRESS;
        long_addresses[i].sin_family = AF_INET;
        memcpy(&long_addresses[i].sin_addr, address, 4);
        memcpy(&long_addresses[i].sin_port, address + 4, 2);
    }
    inserted = table->real->insert(av, long_addresses, count, fi_addr, flags, context);
    free(long_addresses);
    return inserted;
}

static int remove_addresses(struct fid_av *av, fi_addr_t *addresses, size_t count, uint64_t flags)
{
    struct av_table *table = OUTER(av->ops, struct av_table, ops);

    table->inserted -= count;
    return table->real->remove(av, addresses, count, flags);
}

static int open_av(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
    struct domain_table *real  = OUTER(domain->ops, struct domain_table, ops);
    struct av_table     *table = calloc(1, sizeof(*table));
    int                  error = real->real->av_open(domain, attr, av, context);

    if (error != 0) {
        free(table);
        return error;
    }
    COPY_TABLE(table->ops, (*av)->ops);
    table->real       = (*av)->ops;
    table->ops.insert = insert;
    table->ops.remove = remove_addresses;
    (*av)->ops        = &table->ops;
    return 0;
}

/* --- regions --- */

/* Keys of the provider's choice look like nothing that a user would have chosen. */
static const uint64_t KEYS = 0x9e3779b97f4a7c15;

uint64_t key_shown(uint64_t real)
{
    return rules()->mr_prov_key ? real ^ KEYS : real;
}

uint64_t key_real(uint64_t shown)
{
    return rules()->mr_prov_key ? shown ^ KEYS : shown;
}

void *real_descriptor(void *shown, const void *buffer, size_t length, const char *call)
{
    struct region *region = shown;

    if (!rules()->mr_local) {
        return shown;
    }
    if (length == 0) {
        return NULL;
    }
    if (region == NULL || region->magic != REGION) {
        rules_broken("%s: the buffer is in no registered region (mr_local)", call);
    }
    const char *begin = region->memory.iov_base, *at = buffer;
    if (at < begin || at + length > begin + region->memory.iov_len) {
        rules_broken("%s: the buffer is not in the region of its descriptor", call);
    }
    if (rules()->mr_endpoint && !region->enabled) {
        rules_broken("%s: the region is not enabled (mr_endpoint)", call);
    }
    return region->real_descriptor;
}

static int close_region(struct fid *fid)
{
    struct region *region = OUTER(fid->ops, struct region, ops);
    int            error;

    region->mr->key      = region->real_key;
    region->mr->mem_desc = region->real_descriptor;
    fid->ops             = region->real_ops;
    error                = fid->ops->close(fid);
    if (error != 0) {
        fid->ops             = &region->ops;
        region->mr->key      = key_shown(region->real_key);
        region->mr->mem_desc = region;
        return error;
    }
    region->magic = 0;
    free(region);
    return 0;
}

static int bind_region(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct region *region = OUTER(fid->ops, struct region, ops);

    if (rules()->mr_endpoint && other->fclass == FI_CLASS_EP) {
        region->bound = 1;
        return 0;
    }
    return region->real_ops->bind(fid, other, flags);
}

static int control_region(struct fid *fid, int command, void *argument)
{
    struct region *region = OUTER(fid->ops, struct region, ops);

    if (rules()->mr_endpoint && command == FI_ENABLE) {
        if (!region->bound) {
            return -FI_EINVAL;
        }
        region->enabled = 1;
        return 0;
    }
    return region->real_ops->control(fid, command, argument);
}

static uint64_t chosen_key(uint64_t requested)
{
    static _Atomic uint64_t next;

    return rules()->mr_prov_key ? ++next : requested;
}

static int restrict_region(struct fid_mr *mr, const struct iovec *memory)
{
    struct region *region = calloc(1, sizeof(*region));

    COPY_TABLE(region->ops, mr->fid.ops);
    region->ops.close       = close_region;
    region->ops.bind        = bind_region;
    region->ops.control     = control_region;
    region->real_ops        = mr->fid.ops;
    region->mr              = mr;
    region->real_key        = mr->key;
    region->real_descriptor = mr->mem_desc;
    region->memory          = *memory;
    region->magic           = REGION;
    mr->fid.ops             = &region->ops;
    mr->key                 = key_shown(mr->key);
    if (rules()->mr_local) {
        mr->mem_desc = region;
    }
    return 0;
}

static int refuses_region(void)
{
    static _Atomic uint64_t count;

    return rules_hits(rules()->reg_fail_nth, &count);
}

static int reg(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset, uint64_t key,
               uint64_t flags, struct fid_mr **mr, void *context)
{
    struct domain_table *table  = OUTER(((struct fid_domain *)fid)->mr, struct domain_table, mr);
    struct iovec         memory = {(void *)buffer, length};
    int error = refuses_region() ? -FI_ENOMEM : table->real_mr->reg(fid, buffer, length, access, offset,
                                                                    chosen_key(key), flags, mr, context);

    return error != 0 ? error : restrict_region(*mr, &memory);
}

static int regv(struct fid *fid, const struct iovec *memory, size_t count, uint64_t access, uint64_t offset,
                uint64_t key, uint64_t flags, struct fid_mr **mr, void *context)
{
    return count != 1 ? -FI_EINVAL
                      : reg(fid, memory->iov_base, memory->iov_len, access, offset, key, flags, mr, context);
}

static int regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr)
{
    struct domain_table *table = OUTER(((struct fid_domain *)fid)->mr, struct domain_table, mr);
    struct fi_mr_attr    real  = *attr;
    int                  error;

    if (attr->iov_count != 1) {
        return -FI_EINVAL;
    }
    real.requested_key = chosen_key(attr->requested_key);
    error              = refuses_region() ? -FI_ENOMEM : table->real_mr->regattr(fid, &real, flags, mr);
    return error != 0 ? error : restrict_region(*mr, attr->mr_iov);
}

/* --- the domain --- */

static int open_endpoint(struct fid_domain *domain, struct fi_info *shown, struct fid_ep **ep, void *context)
{
    struct domain_table *table = OUTER(domain->ops, struct domain_table, ops);
    struct fi_info      *info  = real_info(shown);
    int                  error = table->real->endpoint(domain, info, ep, context);

    if (error == 0) {
        restrict_endpoint(*ep, info);
    }
    fi_freeinfo(info);
    return error;
}

static int open_queue(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
    struct domain_table *table = OUTER(domain->ops, struct domain_table, ops);
    int                  error;

    if (rules()->no_wait && attr->wait_obj != FI_WAIT_NONE) {
        return -FI_ENOSYS;
    }
    error = table->real->cq_open(domain, attr, cq, context);
    if (error == 0) {
        restrict_queue(*cq, attr->format);
    }
    return error;
}

static int query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
                        uint64_t flags)
{
    struct domain_table *table = OUTER(domain->ops, struct domain_table, ops);

    return rules()->no_atomic ? -FI_EOPNOTSUPP : table->real->query_atomic(domain, type, op, attr, flags);
}

void restrict_domain(struct fid_domain *domain)
{
    struct domain_table *table = calloc(1, sizeof(*table));

    COPY_TABLE(table->ops, domain->ops);
    COPY_TABLE(table->mr, domain->mr);
    table->real             = domain->ops;
    table->real_mr          = domain->mr;
    table->ops.av_open      = open_av;
    table->ops.endpoint     = open_endpoint;
    table->ops.endpoint2    = NULL;
    table->ops.cq_open      = open_queue;
    table->ops.query_atomic = query_atomic;
    table->mr.reg           = reg;
    table->mr.regv          = regv;
    table->mr.regattr       = regattr;
    domain->ops             = &table->ops;
    domain->mr              = &table->mr;
}
