/* This process on the wire: its number, its node, and the cleanup after dead processes. */
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../soft/lock.h"
#include "tofu.h"

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t self; /* number + 1 */
static uint32_t node;

uint32_t process_self(void)
{
    return atomic_load_explicit(&self, memory_order_relaxed) - 1;
}

uint32_t process_node(void)
{
    return node;
}

/*
 * A child has none of its parent's VCQs: memory that it registered is its parent's. A thread that the child does not
 * have may have held a lock.
 */
static void in_child(void)
{
    attach_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    area_in_child();
    late_in_child();
    atomic_store_explicit(&self, 0, memory_order_relaxed);
    for (int i = 0; i < NODE_VCQS; i++)
        atomic_store_explicit(&vcqs[i].live, 0, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static uint32_t choose_node(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    uint64_t per_node = setup_number("SOFT_TOFU_PPN", 1);
    const char *given = getenv("SOFT_TOFU_NODE");

    if (given != NULL && *given != '\0')
        return setup_number("SOFT_TOFU_NODE", 0) % wire->nodes;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        if (getenv(ranks[i]) != NULL)
            return setup_number(ranks[i], 0) / (per_node == 0 ? 1 : per_node) % wire->nodes;
    return 0;
}

static void free_all_of(uint32_t process)
{
    for (uint32_t n = 0; n < wire->nodes; n++)
        for (uint32_t cq = 0; atomic_load_explicit(&wire_node(n)->made, memory_order_relaxed) != 0 && cq < NODE_CQS;
             cq++) {
            if (atomic_load_explicit(&wire_node(n)->cqs[cq].ever, memory_order_relaxed) == 0)
                continue;
            for (uint32_t i = cq * WIRE_CMPS; i < (cq + 1) * WIRE_CMPS; i++)
                if (atomic_load_explicit(&wire_vcq(n, i)->owner, memory_order_relaxed) == process + 1)
                    vcq_drop_shared(n, i);
        }
}

void process_reclaim(void)
{
    for (uint32_t p = 0; p < WIRE_PROCESSES; p++)
        if (atomic_load_explicit(&wire->processes[p].pid, memory_order_relaxed) != 0 && !peer_alive(p)) {
            free_all_of(p);
            atomic_store_explicit(&wire->processes[p].pid, 0, memory_order_relaxed);
        }
}

static int take_number(void)
{
    for (uint32_t i = 0; i < WIRE_PROCESSES; i++) {
        /*
         * Numbers are taken in turn: claims of a dead process in an MRQ are long skipped before its number is used
         * again.
         */
        uint32_t p = (wire->births + i) % WIRE_PROCESSES;

        if (atomic_load_explicit(&wire->processes[p].pid, memory_order_relaxed) != 0)
            continue;
        if (wire->processes[p].born == 0)
            soft_lock_make(&wire->processes[p].life);
        wire->processes[p].born = ++wire->births;
        if (!peer_live(p))
            return UTOFU_ERR_OUT_OF_RESOURCE;
        atomic_store_explicit(&wire->processes[p].pid, getpid(), memory_order_relaxed);
        /* Release: partner of the acquire in process_attach. */
        atomic_store_explicit(&self, p + 1, memory_order_release);
        return UTOFU_SUCCESS;
    }
    return UTOFU_ERR_OUT_OF_RESOURCE;
}

int process_attach(void)
{
    int result = UTOFU_SUCCESS;

    /* Acquire: partner of the release in take_number; the node is chosen. */
    if (atomic_load_explicit(&self, memory_order_acquire) != 0)
        return UTOFU_SUCCESS;
    if (wire_open() != 0)
        return UTOFU_ERR_NOT_AVAILABLE;
    pthread_mutex_lock(&attach_lock);
    if (atomic_load_explicit(&self, memory_order_relaxed) == 0) {
        prctl(
            PR_SET_PTRACER,
            PR_SET_PTRACER_ANY); /* for writes by other processes; fails without Yama, which needs none */
        wire_lock(&wire->lock);
        process_reclaim();
        node = choose_node();
        wire_make_node(node);
        result = take_number();
        wire_unlock(&wire->lock);
    }
    pthread_mutex_unlock(&attach_lock);
    return result;
}
