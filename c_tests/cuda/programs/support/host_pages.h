/*
 * A program: a page of the host that was used is unmapped by system calls that no hook can see, and other memory gets
 * its address: managed memory, and memory of a device, of which the driver is asked. What makes no such page leaves the
 * others known. No function of libc is patched meanwhile. REMEMBERED: pages of the host are remembered, and managed
 * memory in their place is the processor's; else the driver is asked each time, and says what it is.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH (1UL << 20)
#define TRIES  64

#define ENTRY  16
#define ASKED  (!REMEMBERED) /* calls for a page that was asked for before */

/* The functions that hooks of memory patch, and the beginning of their code. */
static const char *const functions[] = {"munmap", "mmap", "mremap", "madvise", "shmat", "shmdt", "sbrk", "brk"};

#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static char code[FUNCTIONS][ENTRY];

static unsigned changed_functions(void)
{
    unsigned changed = 0;

    for (unsigned i = 0; i < FUNCTIONS; i++) {
        changed += memcmp(code[i], dlsym(RTLD_DEFAULT, functions[i]), ENTRY) != 0;
    }
    return changed;
}

static void remember_functions(void)
{
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        memcpy(code[i], dlsym(RTLD_DEFAULT, functions[i]), ENTRY);
    }
}

static char *map(void *at, int access, int flags)
{
    long mapped = syscall(SYS_mmap, at, LENGTH, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    return mapped == -1 ? NULL : (char *)mapped;
}

static char *host_pages(void *at)
{
    return map(at, PROT_READ | PROT_WRITE, at != NULL ? MAP_FIXED_NOREPLACE : 0);
}

/* What a message of 8 bytes was. */
typedef struct {
    ucs_memory_type_t  type;  /* of its memory, as the request has it */
    unsigned long long calls; /* of the driver, to ask for it */
    char               bytes[8];
} sent_t;

/* Sends 8 bytes of `memory` to itself. */
static sent_t send_of(bed_t *bed, ucp_ep_h to_self, void *memory)
{
    ucp_request_param_t keep   = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    ucp_request_param_t plain  = {.op_attr_mask = 0};
    ucp_request_attr_t  attr   = {.field_mask = UCP_REQUEST_ATTR_FIELD_MEM_TYPE, .mem_type = UCS_MEMORY_TYPE_LAST};
    unsigned long long  before = gpu_calls("cuPointerGetAttributes");
    sent_t              what   = {.calls = 0};
    ucs_status_ptr_t    sent   = ucp_tag_send_nbx(to_self, memory, sizeof(what.bytes), 1, &keep);

    what.calls = gpu_calls("cuPointerGetAttributes") - before;
    must(bed->a, UCS_PTR_IS_PTR(sent) ? ucp_request_query(sent, &attr) : UCS_ERR_NO_RESOURCE, "ucp_request_query");
    what.type = attr.mem_type;
    bed_wait(bed, sent);
    bed_wait(bed, ucp_tag_recv_nbx(bed->a->worker, what.bytes, sizeof(what.bytes), 1, -1, &plain));
    return what;
}

/* Managed memory at `address`, which is free; NULL if the driver takes another address each time. */
static area_t managed_at(bed_t *bed, const char *address)
{
    area_t kept[TRIES], found = {.memory = NULL};
    int    count = 0;

    while (found.memory == NULL && count < TRIES) {
        kept[count] = area_make(bed->a, MANAGED, LENGTH - 1);
        if (kept[count].memory == address) {
            found = kept[count];
            break;
        }
        count++;
    }
    while (count > 0) {
        area_free(&kept[--count]);
    }
    return found;
}

/* Managed memory takes the place of a page that is remembered. */
static void managed(bed_t *bed, ucp_ep_h to_self)
{
    char  *other_page = host_pages(NULL), *page = host_pages(NULL);
    sent_t first = send_of(bed, to_self, page), other = send_of(bed, to_self, other_page);
    sent_t again = send_of(bed, to_self, page + 100);

    want(bed->a, first.type == UCS_MEMORY_TYPE_HOST && first.calls == 1 && other.calls == 1 && again.calls == ASKED,
         "host: calls %llu and %llu, then %llu", first.calls, other.calls, again.calls);
    syscall(SYS_munmap, page, LENGTH);
    area_t area = managed_at(bed, page);
    want(bed->a, area.memory == page, "managed memory at the address of host memory");
    area_set(&area, 'm');
    first = send_of(bed, to_self, page);
    other = send_of(bed, to_self, other_page);
    want(bed->a, memcmp(first.bytes, "mmmmmmmm", 8) == 0 && other.calls == ASKED,
         "managed memory in place of a page: its bytes; calls for the other page %llu", other.calls);
    /* Either way gives its bytes: the ways differ in whether the driver is asked, and in its answer. */
    ucs_memory_type_t type = REMEMBERED ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA_MANAGED;
    want(bed->a, first.type == type && (first.calls == 0) == REMEMBERED,
         "managed memory in place of a page: type %d, calls %llu", (int)first.type, first.calls);
    area_free(&area);

    want(bed->a, host_pages(page) == page, "host memory at the address of managed memory");
    first = send_of(bed, to_self, page);
    want(bed->a, first.type == UCS_MEMORY_TYPE_HOST && first.calls <= 1, "host again: type %d, calls %llu",
         (int)first.type, first.calls);
    syscall(SYS_munmap, page, LENGTH);
    syscall(SYS_munmap, other_page, LENGTH);
}

/* Memory of a device takes the place of a page that is remembered: one that was mapped where the driver allocates. */
static void device(bed_t *bed, ucp_ep_h to_self)
{
    area_t area = area_make(bed->a, GPU0, LENGTH);
    char  *page = area.memory;

    area_free(&area);
    want(bed->a, map(page, PROT_READ | PROT_WRITE, MAP_FIXED) == page, "host memory where the driver allocates");
    sent_t host = send_of(bed, to_self, page), again = send_of(bed, to_self, page);
    want(bed->a, host.type == UCS_MEMORY_TYPE_HOST && again.calls == ASKED, "host: type %d, calls %llu", (int)host.type,
         again.calls);
    map(page, PROT_NONE, MAP_FIXED);
    area = area_make(bed->a, GPU0, LENGTH);
    want(bed->a, area.memory == page, "memory of a device at the address of host memory");
    area_set(&area, 'd');
    sent_t sent = send_of(bed, to_self, page);
    want(bed->a, sent.type == UCS_MEMORY_TYPE_CUDA && sent.calls > 0 && memcmp(sent.bytes, "dddddddd", 8) == 0,
         "memory of a device in place of a page that is known: type %d, calls %llu", (int)sent.type, sent.calls);
    area_free(&area);
}

static void script(bed_t *bed)
{
    static char  to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    remember_functions();
    gpu_open();
    bed_open(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->a != NULL) {
        ucp_address_t *own;
        size_t         length;

        must(bed->a, ucp_worker_get_address(bed->a->worker, &own, &length), "ucp_worker_get_address");
        ucp_ep_h to_self = bed_connect(bed->a, own);
        ucp_worker_release_address(bed->a->worker, own);
        managed(bed, to_self);
        device(bed, to_self);
        bed_disconnect(bed, to_self);
    }
    want(bed->a, changed_functions() == 0, "patched functions of libc: %u", changed_functions());
    want(bed->b, changed_functions() == 0, "patched functions of libc: %u", changed_functions());
    bed_sync(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
