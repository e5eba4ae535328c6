//! Another process, whose memory is accessed while it calls nothing.
#define _GNU_SOURCE
#include "target.h"
#include "pair.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/** Fills what the other process needs to know; the worker and the memory live as long as this process. */
static void open_memory(struct target *target, size_t bytes)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t single = {.field_mask = 0};
    ucp_mem_map_params_t region = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = calloc(1, bytes),
                                   .length = bytes};
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    ucp_mem_h memory;
    void *key;

    check(ucp_init(&params, NULL, &context), "ucp_init");
    check(ucp_worker_create(context, &single, &worker), "ucp_worker_create");
    check(ucp_worker_get_address(worker, &address, &target->address_length), "ucp_worker_get_address");
    check(ucp_mem_map(context, &region, &memory), "ucp_mem_map");
    check(ucp_rkey_pack(context, memory, &key, &target->key_length), "ucp_rkey_pack");
    if (target->address_length > sizeof(target->address) || target->key_length > sizeof(target->key)) {
        die("an address of %zu bytes, a key of %zu", target->address_length, target->key_length);
    }
    memcpy(target->address, address, target->address_length);
    memcpy(target->key, key, target->key_length);
    target->remote = (uint64_t)(uintptr_t)region.address;
}

void start_target(struct target *target, size_t bytes)
{
    int ends[2];

    if (pipe(ends) != 0 || (target->process = fork()) < 0) {
        die("no process");
    }
    if (target->process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_memory(target, bytes);
        if (write(ends[1], target, sizeof(*target)) != sizeof(*target)) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    struct target theirs;
    size_t got = 0;

    close(ends[1]);
    for (ssize_t more = 1; more > 0 && got < sizeof(theirs); got += more > 0 ? (size_t)more : 0) {
        more = read(ends[0], (char *)&theirs + got, sizeof(theirs) - got);
    }
    close(ends[0]);
    if (got != sizeof(theirs)) {
        die("the other process has ended");
    }
    theirs.process = target->process;
    *target = theirs;
}

int is_accessible(const struct target *target)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)target->remote, 1};

    return process_vm_readv(target->process, &here, 1, &there, 1, 0) == 1;
}

void end_target(struct target *target)
{
    kill(target->process, SIGKILL);
    waitpid(target->process, NULL, 0);
}
