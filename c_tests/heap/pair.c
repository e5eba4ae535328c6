/*
 * Messages, puts and gets between the shared heaps of two processes: how many copies the kernel makes, and whether the
 * bytes are those of private memory. Preloaded librucp_heap.so; UCX_HEAP=shared. HEAP_OF names the sides (ab, a, b)
 * that use memory of malloc; the other one uses that of mmap.
 *
 * usage: pair fork
 */
#include "bed.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (3 << 20)
#define SHORTEST (64 << 10) /* allocations of the heap */

static unsigned kernel_copies;

typedef ssize_t copy_t(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long, unsigned long);

static ssize_t counted(const char *name, pid_t pid, const struct iovec *here, unsigned long n,
                       const struct iovec *there, unsigned long m, unsigned long flags)
{
    copy_t *next = (copy_t *)dlsym(RTLD_NEXT, name);

    kernel_copies++;
    return next(pid, here, n, there, m, flags);
}

/* In place of libc's. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n, const struct iovec *there,
                         unsigned long m, unsigned long flags)
{
    return counted("process_vm_readv", pid, here, n, there, m, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long n, const struct iovec *there,
                          unsigned long m, unsigned long flags)
{
    return counted("process_vm_writev", pid, here, n, there, m, flags);
}

static int has_heap(const side_t *side)
{
    return getenv("HEAP_OF") == NULL || strchr(getenv("HEAP_OF"), side->name == 'A' ? 'a' : 'b') != NULL;
}

/* In whole pages; of mmap where the side has no heap. */
static unsigned char *make(const side_t *side, size_t length)
{
    void *memory = NULL;

    if (side == NULL) {
        return NULL;
    }
    if (!has_heap(side)) {
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else if (posix_memalign(&memory, (size_t)sysconf(_SC_PAGESIZE), length) != 0) {
        abort();
    }
    if (memory == MAP_FAILED) {
        abort();
    }
    return memory;
}

static void unmake(const side_t *side, unsigned char *memory, size_t length)
{
    if (side != NULL && !has_heap(side)) {
        munmap(memory, length);
    } else {
        free(memory);
    }
}

static void message(bed_t *bed, unsigned char *source, unsigned char *target, size_t length, unsigned seed,
                    const char *what)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent = NULL, received = NULL;

    if (bed->a != NULL) {
        data_fill(source, length, seed);
        sent = ucp_tag_send_nbx(bed->a->ep, source, length, 1, &none);
    }
    if (bed->b != NULL) {
        memset(target, 0xEE, length);
        received = ucp_tag_recv_nbx(bed->b->worker, target, length, 1, -1, &none);
    }
    ucs_status_t s = bed_wait(bed, sent), r = bed_wait(bed, received);
    if (bed->b != NULL) {
        fact(bed->b, "%s, %zu: sent %s, received %s, %s", what, length, status_name(s), status_name(r),
             data_check(target, length, seed));
    }
    bed_sync(bed);
}

/* Whether the kernel has copied since the last call. */
static void copied(bed_t *bed, const char *what)
{
    side_t  *here = bed->a != NULL ? bed->a : bed->b;
    unsigned mine = kernel_copies, theirs = 0;

    bed_transfer(bed, bed->a, &mine, sizeof(mine), &theirs, sizeof(theirs));
    if (bed->b != NULL) {
        fact(here, "%s: copies by the kernel %s", what, mine + theirs == 0 ? "none" : "some");
    }
    kernel_copies = 0;
    bed_sync(bed);
}

static void messages(bed_t *bed)
{
    for (size_t length = SHORTEST; length <= 8 << 20; length = length * 3 - 1) {
        unsigned char *source = make(bed->a, length), *target = make(bed->b, length);
        for (unsigned i = 0; i < 20; i++) {
            message(bed, source, target, length, i, "message");
        }
        unmake(bed->a, source, length);
        unmake(bed->b, target, length);
    }
    copied(bed, "messages");
}

/* The same addresses, freed and allocated again, and pages that the system has taken back meanwhile. */
static void allocated_again(bed_t *bed)
{
    for (unsigned i = 0; i < 8; i++) {
        unsigned char *source = make(bed->a, 40 << 20), *target = make(bed->b, 40 << 20);
        message(bed, source, target, 40 << 20, i, "allocated again");
        unmake(bed->a, source, 40 << 20);
        unmake(bed->b, target, 40 << 20);
    }
    copied(bed, "allocated again");
}

/* Registered memory of malloc is accessed by loads and stores. */
static void puts_and_gets(bed_t *bed)
{
    ucp_request_param_t  none   = {.op_attr_mask = 0};
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .length     = LENGTH};
    unsigned char       *target = make(bed->b, LENGTH), *source = make(bed->a, LENGTH);
    ucp_mem_h            region = NULL;
    void                *packed;
    static char          key[4096];
    size_t               length = 0;
    uint64_t             address = (uintptr_t)target, remote = 0;

    if (bed->b != NULL) {
        memset(target, 0, LENGTH);
        params.address = target;
        must(bed->b, ucp_mem_map(bed->b->context, &params, &region), "ucp_mem_map");
        must(bed->b, ucp_rkey_pack(bed->b->context, region, &packed, &length), "ucp_rkey_pack");
    }
    bed_transfer(bed, bed->b, &address, sizeof(address), &remote, sizeof(remote));
    bed_transfer(bed, bed->b, packed, length, key, sizeof(key));
    if (bed->a != NULL) {
        ucp_rkey_h rkey;
        void      *local = NULL;
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        fact(bed->a, "ucp_rkey_ptr: %s", status_name(ucp_rkey_ptr(rkey, remote, &local)));
        data_fill(source, LENGTH, 3);
        ucs_status_t put = bed_wait(bed, ucp_put_nbx(bed->a->ep, source, LENGTH, remote, rkey, &none));
        must(bed->a, bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none)), "flush");
        memset(source, 0, LENGTH);
        ucs_status_t get = bed_wait(bed, ucp_get_nbx(bed->a->ep, source, LENGTH, remote, rkey, &none));
        fact(bed->a, "put %s, get %s, %s", status_name(put), status_name(get), data_check(source, LENGTH, 3));
        uint64_t            one   = 1;
        ucp_request_param_t eight = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
        for (int i = 0; i < 100; i++) {
            must(bed->a, bed_wait(bed, ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &one, 1, remote, rkey, &eight)),
                 "add");
        }
        must(bed->a, bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none)), "flush");
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        uint64_t *filled = data_make(8, 3), count;
        memcpy(&count, target, 8);
        fact(bed->b, "added %llu, the rest %s", (unsigned long long)(count - *filled),
             data_check_at(target + 8, 8, LENGTH - 8, 3));
        free(filled);
        must(bed->b, ucp_mem_unmap(bed->b->context, region), "ucp_mem_unmap");
    }
    copied(bed, "puts and gets");
    unmake(bed->a, source, LENGTH);
    unmake(bed->b, target, LENGTH);
}

/* What is mapped in the heap's place, and what reads as zero, arrives as the program sees it. */
static void replaced(bed_t *bed)
{
    unsigned char *source = make(bed->a, LENGTH), *target = make(bed->b, LENGTH);

    message(bed, source, target, LENGTH, 1, "before it is advised");
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent = NULL, received = NULL;
    if (bed->a != NULL) {
        madvise(source, LENGTH, MADV_DONTNEED);
        sent = ucp_tag_send_nbx(bed->a->ep, source, LENGTH, 1, &none);
    } else {
        received = ucp_tag_recv_nbx(bed->b->worker, target, LENGTH, 1, -1, &none);
    }
    bed_wait(bed, sent);
    bed_wait(bed, received);
    if (bed->b != NULL) {
        fact(bed->b, "advised: all zero %d", data_is(target, LENGTH, 0));
    }
    copied(bed, "advised");
    if (bed->a != NULL && mmap(source + (1 << 20), 1 << 20, PROT_READ | PROT_WRITE,
                               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
        abort();
    }
    message(bed, source, target, LENGTH, 2, "replaced at the source");
    if (bed->b != NULL && mmap(target + (1 << 20), 1 << 20, PROT_READ | PROT_WRITE,
                               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
        abort();
    }
    message(bed, source, target, LENGTH, 3, "replaced at both");
    kernel_copies = 0;
    unmake(bed->a, source, LENGTH);
    unmake(bed->b, target, LENGTH);
    bed_sync(bed);
}

/* A child of each side writes into its copy of the memory while messages travel. */
static void forked(bed_t *bed)
{
    unsigned char *source = make(bed->a, LENGTH), *target = make(bed->b, LENGTH);
    side_t        *here = bed->a != NULL ? bed->a : bed->b;
    int            pipes[2], status = 0;

    if (source != NULL) {
        memset(source, 1, LENGTH);
    } else {
        memset(target, 1, LENGTH);
    }
    if (pipe(pipes) != 0) {
        abort();
    }
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipes[1]);
        do {
            memset(source != NULL ? source : target, 0x55, LENGTH);
        } while (read(pipes[0], &byte, 1) != 0);
        _exit(0);
    }
    close(pipes[0]);
    for (unsigned i = 0; i < 10; i++) {
        message(bed, source, target, LENGTH, i, "beside a child");
    }
    close(pipes[1]);
    waitpid(child, &status, 0);
    fact(here, "the child: %d", status);
    copied(bed, "beside a child");
    unmake(bed->a, source, LENGTH);
    unmake(bed->b, target, LENGTH);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64};

    bed_open(bed, &params);
    messages(bed);
    allocated_again(bed);
    puts_and_gets(bed);
    forked(bed);
    replaced(bed);
    messages(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
