/* Injected faults. */
#include <errno.h>
#include <string.h>

#include "../soft/assignments.h"
#include "soft.h"

static const char *const names[FAULTS] = {
    [FAULT_LATE_US] = "late_us",   [FAULT_LATE_NTH] = "late_nth",   [FAULT_FAIL_NTH] = "fail_nth",
    [FAULT_FAIL_CODE] = "fail_code", [FAULT_ALLOC_NTH] = "alloc_nth", [FAULT_IPC_REFUSED] = "ipc_refused",
    [FAULT_EXPORT_REFUSED] = "export_refused", [FAULT_OPEN_US] = "open_us",
    [FAULT_POOL_UNCHECKED] = "pool_unchecked",
};
static _Atomic uint64_t values[FAULTS], times[FAULTS];

static int set_one(const char *name, size_t length, uint64_t value)
{
    for (int i = 0; i < FAULTS; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) {
            atomic_store(&times[i], 0);
            atomic_store(&values[i], value);
            return 0;
        }
    return EINVAL;
}

int soft_cuda_fault(const char *assignments)
{
    return soft_assignments(assignments, set_one);
}

uint64_t fault_value(enum fault fault)
{
    return atomic_load(&values[fault]);
}

bool fault_counts_down(enum fault fault)
{
    uint64_t n = fault_value(fault);

    return n != 0 && atomic_fetch_add(&times[fault], 1) + 1 == n;
}

bool fault_every(enum fault fault)
{
    uint64_t n = fault_value(fault);

    return n == 0 || (atomic_fetch_add(&times[fault], 1) + 1) % n == 0;
}
