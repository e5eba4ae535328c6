/* Protection domains, memory regions and their keys, address handles. lkey and rkey of a region are the same number. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hca.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct soft_pd *soft = calloc(1, sizeof(*soft));

    if (soft == NULL)
        return NULL;
    soft->pd.context = context;
    soft->pd.handle = wire_pd();
    return &soft->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    if (__atomic_load_n(&((struct soft_pd *)pd)->users, __ATOMIC_RELAXED) != 0)
        return EBUSY;
    free(pd);
    return 0;
}

/* Whether all of it is mapped. A real HCA pins the pages and fails where there are none. */
bool mr_mapped(const void *start, size_t length)
{
    uintptr_t page = (uintptr_t)start & ~(uintptr_t)4095, end = (uintptr_t)start + length;
    static __thread unsigned char in_core[4096];

    for (; page < end; page += sizeof(in_core) * 4096ULL) {
        size_t part = end - page < sizeof(in_core) * 4096ULL ? end - page : sizeof(in_core) * 4096ULL;

        if (mincore((void *)page, part, in_core) != 0)
            return false;
    }
    return true;
}

/* Emulates a low RLIMIT_MEMLOCK; a test may set it while it runs. */
static bool too_long(size_t length)
{
    const char *longest = getenv("SOFT_HCA_MR_LONGEST");

    return longest != NULL && length > strtoull(longest, NULL, 0);
}

/* The value of SOFT_HCA_ODP: memory that is not pinned, but looked up when it is accessed. */
enum demand mr_demand(void)
{
    const char *text = getenv("SOFT_HCA_ODP");

    if (text == NULL || strcmp(text, "n") == 0)
        return NO_DEMAND;
    return strcmp(text, "implicit") == 0 ? IMPLICIT : EXPLICIT;
}

/*
 * Whether this access allows it, with pages that are not mapped yet. The whole address space at once needs `implicit`.
 */
static bool on_demand(const void *addr, size_t length)
{
    bool whole = addr == NULL && length == SIZE_MAX;

    return mr_demand() == IMPLICIT || (mr_demand() == EXPLICIT && !whole);
}

/* A region of memory that is mapped at `addr`, with rights that were checked. */
struct soft_mr *mr_make(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
    struct soft_mr *soft = calloc(1, sizeof(*soft));

    if (soft != NULL)
        soft->shared = wire_new_mr(hca_id(pd->context));
    if (soft == NULL || soft->shared == NULL) {
        free(soft);
        errno = ENOMEM;
        return NULL;
    }
    wire_lock(&soft->shared->slot.lock);
    soft->shared->pd = pd->handle;
    soft->shared->access = access;
    soft->shared->iova = (access & IBV_ACCESS_ZERO_BASED) ? 0 : iova;
    soft->shared->start = (uintptr_t)addr;
    soft->shared->length = length;
    wire_unlock(&soft->shared->slot.lock);
    __atomic_fetch_add(&wire->faults.registered, 1, __ATOMIC_RELAXED);
    soft->mr.context = pd->context;
    soft->mr.pd = pd;
    soft->mr.addr = addr;
    soft->mr.length = length;
    soft->mr.handle = soft->mr.lkey = soft->mr.rkey = soft->shared->slot.id;
    __atomic_add_fetch(&((struct soft_pd *)pd)->users, 1, __ATOMIC_RELAXED);
    return soft;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
    struct soft_mr *soft;
    unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
                         | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;
    bool demanded = (access & IBV_ACCESS_ON_DEMAND) != 0;

    access &= ~IBV_ACCESS_OPTIONAL_RANGE; /* relaxed ordering and the like: a hint */
    if (demanded && !on_demand(addr, length)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    access &= ~IBV_ACCESS_ON_DEMAND;
    /* Remote writes need local ones, according to the specification. */
    if ((access & ~known) != 0
        || ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
        || (uintptr_t)addr + length < (uintptr_t)addr) {
        errno = EINVAL;
        return NULL;
    }
    if (!demanded && !mr_mapped(addr, length)) {
        errno = EFAULT;
        return NULL;
    }
    if (!demanded && too_long(length)) {
        errno = ENOMEM;
        return NULL;
    }
    soft = mr_make(pd, addr, length, iova, access);
    return soft == NULL ? NULL : &soft->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct soft_mr *soft = (struct soft_mr *)mr;

    wire_free(&soft->shared->slot); /* waits for remote accesses in flight */
    if (soft->mapped != NULL)
        munmap(soft->mapped, mr->length);
    __atomic_sub_fetch(&((struct soft_pd *)mr->pd)->users, 1, __ATOMIC_RELAXED);
    free(mr);
    return 0;
}

/* The region's lock is held. */
static bool mr_allows(const struct wire_mr *mr, uint32_t hca, uint32_t pd, uint64_t address, size_t length,
                      uint32_t access)
{
    return mr->slot.hca == hca && mr->pd == pd && (mr->access & access) == access && address >= mr->iova
           && address - mr->iova <= mr->length && length <= mr->length - (address - mr->iova);
}

enum key_result mr_local(uint32_t hca, uint32_t pd, const struct ibv_sge *sge, int count, uint32_t access,
                         struct iovec *iov)
{
    for (int i = 0; i < count; i++) {
        struct wire_mr *mr;
        bool good;

        iov[i] = (struct iovec){NULL, 0};
        if (sge[i].length == 0)
            continue;
        mr = wire_mr_lock(sge[i].lkey);
        if (mr == NULL)
            return KEY_BAD;
        good = mr_allows(mr, hca, pd, sge[i].addr, sge[i].length, access);
        if (good)
            iov[i] = (struct iovec){(void *)(uintptr_t)(sge[i].addr - mr->iova + mr->start), sge[i].length};
        mr_release(mr);
        if (!good)
            return KEY_BAD;
    }
    return KEY_OK;
}

struct wire_mr *mr_remote(uint32_t hca, uint32_t pd, uint32_t rkey, uint64_t address, size_t length, uint32_t access,
                          struct iovec *iov)
{
    struct wire_mr *mr = wire_mr_lock(rkey);

    if (mr != NULL && !mr_allows(mr, hca, pd, address, length, access)) {
        mr_release(mr);
        mr = NULL;
    }
    if (mr != NULL)
        *iov = (struct iovec){(void *)(uintptr_t)(address - mr->iova + mr->start), length};
    return mr;
}

void mr_release(struct wire_mr *mr)
{
    wire_unlock(&mr->slot.lock);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    bool ethernet = soft_context(pd->context)->hca->ethernet;
    struct soft_ah *soft;

    if (attr->port_num != 1 || (ethernet && !attr->is_global)
        || (attr->is_global && attr->grh.sgid_index >= (ethernet ? WIRE_GIDS : 1)) || (!ethernet && attr->dlid == 0)) {
        errno = EINVAL;
        return NULL;
    }
    soft = calloc(1, sizeof(*soft));
    if (soft == NULL)
        return NULL;
    soft->ah.context = pd->context;
    soft->ah.pd = pd;
    soft->attr = *attr;
    __atomic_add_fetch(&((struct soft_pd *)pd)->users, 1, __ATOMIC_RELAXED);
    return &soft->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    __atomic_sub_fetch(&((struct soft_pd *)ah->pd)->users, 1, __ATOMIC_RELAXED);
    free(ah);
    return 0;
}

/* The address to answer a UD message: the source and destination of its GRH swapped. */
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                        struct ibv_ah_attr *attr)
{
    struct wire_hca *hca = soft_context(context)->hca;
    union ibv_gid source, own;
    const uint8_t *ip = (const uint8_t *)grh + 20; /* an IPv4 header is in the last 20 of the 40 bytes */

    memset(attr, 0, sizeof(*attr));
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if (!(wc->wc_flags & IBV_WC_GRH))
        return 0;
    if ((grh->version_tclass_flow & htobe32(0xf0000000)) == htobe32(0x60000000)) {
        source = grh->sgid;
        own = grh->dgid;
    } else {
        memset(&source, 0, sizeof(source));
        memset(source.raw + 10, 0xff, 2);
        own = source;
        memcpy(source.raw + 12, ip + 12, 4);
        memcpy(own.raw + 12, ip + 16, 4);
    }
    attr->is_global = 1;
    attr->grh.dgid = source;
    attr->grh.hop_limit = 64;
    for (int i = 0; i < WIRE_GIDS; i++)
        if (memcmp(&own, &hca->gids[i], sizeof(own)) == 0)
            attr->grh.sgid_index = i; /* the last is RoCE v2's */
    return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
    struct ibv_ah_attr attr;

    ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr);
    return ibv_create_ah(pd, &attr);
}
