/* Prints the size of every public type, the offset and size of every field and the value of every constant. */

#include <stddef.h>
#include <stdio.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#include <ucs/memory/memtype_cache.h>
#if UCP_API_VERSION >= UCP_VERSION(1, 22)
#include <ucp/api/device/ucp_host.h>
#endif

#define TYPE(type) printf("size %s = %zu\n", #type, sizeof(type));
#define FIELD(type, field) \
    printf("field %s.%s = %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field));
#define VALUE(name) printf("value %s = %lld\n", #name, (long long)(name));

int main(void) {
#include "layout_1_13.h"
#if UCP_API_VERSION >= UCP_VERSION(1, 22)
#include "layout_1_22.h"
#endif
    /* Handles and untyped arguments have the size of a pointer or an integer. */
    printf("size handles = %zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(ucp_context_h), sizeof(ucp_worker_h),
           sizeof(ucp_ep_h), sizeof(ucp_mem_h), sizeof(ucp_rkey_h), sizeof(ucp_tag_message_h), sizeof(ucp_tag_t),
           sizeof(ucp_datatype_t));
    printf("value ucp_dt_make_contig(12) = %lld\n", (long long)ucp_dt_make_contig(12));
    printf("value ucp_dt_make_iov() = %lld\n", (long long)ucp_dt_make_iov());
    return 0;
}
