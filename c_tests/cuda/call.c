/* What each entry does first: it is counted, and refused without cuInit, after a fork, or without a good context. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft.h"

__thread bool call_within;

static struct call *_Atomic calls;
static _Atomic pid_t initialized; /* the process that called cuInit */

void call_initialized(void)
{
    atomic_store(&initialized, getpid());
}

CUresult call_enter(struct call *call, bool needs_init)
{
    pid_t process = atomic_load(&initialized);

    atomic_fetch_add_explicit(&call->count, 1, memory_order_relaxed);
    if (!atomic_flag_test_and_set(&call->listed)) {
        call->next = atomic_load(&calls);
        while (!atomic_compare_exchange_weak(&calls, &call->next, call)) {
        }
    }
    if (process != 0 ? process != getpid() : needs_init)
        return CUDA_ERROR_NOT_INITIALIZED; /* a child of fork cannot initialize the parent's library again */
    return call_within ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult call_wrong_context(struct call *call)
{
    if (settings.strict) {
        fprintf(stderr, "soft-cuda: %s: the current context is missing or wrong\n", call->name);
        abort();
    }
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult call_context(struct call *call, CUcontext current)
{
    if (current == NULL)
        return call_wrong_context(call);
    if (!context_alive(current))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (CUresult)atomic_load(&current->sticky);
}

unsigned long long soft_cuda_count(const char *entry)
{
    for (struct call *call = atomic_load(&calls); call != NULL; call = call->next)
        if (strcmp(call->name, entry) == 0)
            return atomic_load(&call->count);
    return 0;
}

/* A line "PID ENTRY COUNT" for each entry that was called, when the process ends. */
__attribute__((destructor)) static void write_counts(void)
{
    char line[128];
    int fd;

    if (settings.counts == NULL || (fd = open(settings.counts, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0)
        return;
    for (struct call *call = atomic_load(&calls); call != NULL; call = call->next) {
        int length = snprintf(line, sizeof(line), "%d %s %llu\n", (int)getpid(), call->name,
                              (unsigned long long)atomic_load(&call->count));

        if (write(fd, line, (size_t)length) != length)
            break;
    }
    close(fd);
}
