/* The wire file: making and mapping it, its locks, its tables and its arena of pages. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../soft/lock.h"
#include "../soft/wire_file.h"
#include "wire.h"

#define WIRE_MAGIC (0x3130616368746673ULL + sizeof(struct wire)) /* another layout is another version of the wire */

struct wire *wire;

void wire_lock(pthread_mutex_t *lock)
{
    /* The queues advance their heads last, so a killed holder leaves entries either absent or complete. */
    if (soft_lock(lock))
        __atomic_add_fetch(&wire->faults.locks_recovered, 1, __ATOMIC_RELAXED);
}

/* The file is locked. */
static void attach_wire(int fd)
{
    const char *faults = getenv("SOFT_HCA_FAULTS");
    size_t size = sizeof(struct wire) + (size_t)WIRE_PAGES * WIRE_PAGE;
    bool made = false;
    struct wire *map;

    if (wire != NULL || ftruncate(fd, size) != 0)
        return;
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED)
        return;
    /* fork: the child has no HCA of its own before it opens one, and must not dump half a gigabyte of holes */
    madvise(map, size, MADV_DONTDUMP);
    if (map->magic != WIRE_MAGIC) {
        soft_lock_make(&map->table_lock);
        soft_lock_make(&map->atomic_lock);
        map->magic = WIRE_MAGIC;
        made = true;
    }
    __atomic_store_n(&wire, map, __ATOMIC_RELEASE);
    if (made && faults != NULL && fault_set(faults) != 0)
        fprintf(stderr, "soft HCA: SOFT_HCA_FAULTS=%s is not understood\n", faults);
}

int wire_open(void)
{
    int error = wire != NULL ? 0 : soft_wire_file_open("SOFT_HCA_WIRE", attach_wire);

    return error != 0 ? error : wire == NULL ? ENODEV : 0;
}

uint32_t wire_tag(void)
{
    return __atomic_add_fetch(&wire->next_tag, 1, __ATOMIC_RELAXED);
}

uint32_t wire_pd(void)
{
    return __atomic_add_fetch(&wire->next_pd, 1, __ATOMIC_RELAXED);
}

/* ---- tables ---- */

struct table {
    char *slots;
    uint32_t count, stride;
    uint32_t id_bits;
};

#define TABLE(name, bits) \
    (struct table) { (char *)wire->name, sizeof(wire->name) / sizeof(wire->name[0]), sizeof(wire->name[0]), bits }

static struct wire_slot *slot_at(const struct table *table, uint32_t index)
{
    return (struct wire_slot *)(table->slots + (size_t)index * table->stride);
}

/* table_lock held. Takes the slots round-robin by generation, so that an old key or QP number is not reused soon. */
static struct wire_slot *slot_take(const struct table *table, uint32_t hca)
{
    struct wire_slot *best = NULL;
    uint32_t best_index = 0, limit = 1u << table->id_bits;

    for (uint32_t i = 1; i < table->count; i++) { /* not 0: ids 0 and QPs 0 and 1 are special */
        struct wire_slot *slot = slot_at(table, i);

        if (slot->id != 0)
            continue;
        if (best == NULL || slot->generation < best->generation)
            best = slot, best_index = i;
        if (best->generation == 0)
            break;
    }
    if (best == NULL)
        return NULL;
    if (!best->lock_made) {
        soft_lock_make(&best->lock);
        best->lock_made = true;
    }
    best->generation = (best->generation + 1) % (limit / table->count);
    if (best->generation == 0)
        best->generation = 1;
    memset(best + 1, 0, table->stride - sizeof(*best));
    best->hca = hca;
    best->self = NULL;
    /*
     * An HCA owns itself. Other processes see the object from here on: it is zeroed, so a QP is in RESET and a key is
     * invalid.
     */
    __atomic_store_n(&best->id, best->generation * table->count + best_index, __ATOMIC_RELEASE);
    if (hca == 0)
        best->hca = best->id;
    return best;
}

static void *slot_new(const struct table *table, uint32_t hca)
{
    struct wire_slot *slot;

    wire_lock(&wire->table_lock);
    slot = slot_take(table, hca);
    wire_unlock(&wire->table_lock);
    return slot;
}

static void *slot_find(const struct table *table, uint32_t id)
{
    struct wire_slot *slot = slot_at(table, id % table->count);

    return id != 0 && __atomic_load_n(&slot->id, __ATOMIC_ACQUIRE) == id ? slot : NULL;
}

static void *slot_lock(const struct table *table, uint32_t id)
{
    struct wire_slot *slot = slot_find(table, id);

    if (slot == NULL)
        return NULL;
    wire_lock(&slot->lock);
    if (slot->id == id)
        return slot;
    wire_unlock(&slot->lock);
    return NULL;
}

struct wire_qp *wire_new_qp(uint32_t hca) { return slot_new(&TABLE(qps, 24), hca); }
struct wire_cq *wire_new_cq(uint32_t hca) { return slot_new(&TABLE(cqs, 31), hca); }
struct wire_srq *wire_new_srq(uint32_t hca) { return slot_new(&TABLE(srqs, 24), hca); }
struct wire_mr *wire_new_mr(uint32_t hca) { return slot_new(&TABLE(mrs, 31), hca); }
struct wire_hca *wire_hca(uint32_t id) { return slot_find(&TABLE(hcas, 31), id); }
struct wire_qp *wire_qp_lock(uint32_t id) { return slot_lock(&TABLE(qps, 24), id); }
struct wire_cq *wire_cq_lock(uint32_t id) { return slot_lock(&TABLE(cqs, 31), id); }
struct wire_srq *wire_srq_lock(uint32_t id) { return slot_lock(&TABLE(srqs, 24), id); }
struct wire_mr *wire_mr_lock(uint32_t id) { return slot_lock(&TABLE(mrs, 31), id); }

void wire_free(struct wire_slot *slot)
{
    wire_lock(&slot->lock);
    __atomic_store_n(&slot->id, 0, __ATOMIC_RELEASE);
    wire_unlock(&slot->lock);
}

static void free_owned(const struct table *table, uint32_t hca)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct wire_slot *slot = slot_at(table, i);

        if (slot->id != 0 && slot->hca == hca)
            wire_free(slot);
    }
}

void wire_free_hca(uint32_t hca)
{
    uint16_t owner = hca % WIRE_HCAS + 1;
    struct wire_hca *self = wire_hca(hca);

    free_owned(&TABLE(qps, 24), hca);
    free_owned(&TABLE(cqs, 31), hca);
    free_owned(&TABLE(srqs, 24), hca);
    free_owned(&TABLE(mrs, 31), hca);
    for (uint32_t p = 0; p < WIRE_PAGES; p++)
        if (wire->page_owner[p] == owner)
            __atomic_store_n(&wire->page_owner[p], 0, __ATOMIC_RELEASE);
    if (self != NULL)
        wire_free(&self->slot);
}

struct wire_hca *wire_new_hca(void)
{
    struct wire_hca *hca;

    wire_lock(&wire->table_lock);
    /* First releases the objects of killed processes. */
    for (uint32_t i = 0; i < WIRE_HCAS; i++) {
        struct wire_hca *other = &wire->hcas[i];

        if (other->slot.id != 0 && other->pid != 0 && peer_born(other->pid) != other->born)
            wire_free_hca(other->slot.id);
    }
    hca = (struct wire_hca *)slot_take(&TABLE(hcas, 31), 0);
    if (hca != NULL) {
        hca->born = peer_born(getpid());
        hca->pid = getpid();
    }
    wire_unlock(&wire->table_lock);
    return hca;
}

/* ---- arena ---- */

int wire_pages(uint32_t hca, size_t bytes, uint32_t *page, uint32_t *pages)
{
    uint32_t need = (bytes + WIRE_PAGE - 1) / WIRE_PAGE, run = 0;

    *page = *pages = 0;
    if (need == 0)
        return 0;
    wire_lock(&wire->table_lock);
    for (uint32_t p = 0; p < WIRE_PAGES; p++) {
        run = wire->page_owner[p] == 0 ? run + 1 : 0;
        if (run < need)
            continue;
        *page = p + 1 - need;
        *pages = need;
        for (uint32_t i = *page; i <= p; i++)
            wire->page_owner[i] = hca % WIRE_HCAS + 1;
        break;
    }
    wire_unlock(&wire->table_lock);
    return *pages == 0 ? ENOMEM : 0;
}

void wire_pages_free(uint32_t page, uint32_t pages)
{
    for (uint32_t i = page; i < page + pages; i++)
        __atomic_store_n(&wire->page_owner[i], 0, __ATOMIC_RELEASE);
}
