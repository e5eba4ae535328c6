/*
 * Data that the process cannot read: the operation ends with a status, and so do those behind it.
 */
#define _GNU_SOURCE
#include "exposed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE = 1 << 20, PAGE = 1 << 16 };

static void expose(party_t *self)
{
    register_memory(self);
    WANT_TRUE(wait_notified(self));
}

static int is_failure(ucs_status_t status)
{
    return status != UCS_OK && status != UCS_INPROGRESS;
}

/* The first bytes can be read. */
static void put_of_unreadable_memory(void)
{
    party_t        self;
    ucp_rkey_h     rkey = open_memory(&self, SIZE, expose);
    unsigned char *data = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t       value;

    memset(data, 7, SIZE);
    WANT_TRUE(mprotect(data + PAGE, PAGE, PROT_NONE) == 0);
    ucs_status_ptr_t bad    = put(&self, data, 3 * PAGE, 0, rkey);
    ucs_status_ptr_t behind = get(&self, &value, sizeof(value), 0, rkey);
    WANT_TRUE(is_failure(finish(&self, bad)));
    ucs_status_t status = finish(&self, behind);
    /* By the kernel's copy only the put has failed. */
    WANT_TRUE(status == UCS_OK || is_loss_or_canceled(status));
    WANT_TRUE(self.failures == (status != UCS_OK));
    if (status == UCS_OK) {
        close_memory(&self, rkey);
    } else {
        ucp_rkey_destroy(rkey);
        kill_other(&self);
        check_after_failure(&self);
    }
    munmap(data, SIZE);
}

static const case_t cases[] = {
    {"unreadable: a put", put_of_unreadable_memory},
};

CHECK_MAIN(cases)
