/*
 * A list whose copies by the kernel fail after an allocation of the peer was opened for its first piece: a status, and
 * the allocation is closed, as none stays open without a copy. By TCP nothing fails.
 * SETTINGS: UCX_CUDA_IPC_CACHE=n
 */
#define _GNU_SOURCE
#include "gpu.h"

#include "window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECES = 100, LENGTH = 64, TOTAL = PIECES * LENGTH };

/* Memory of B, and its key at A. */
typedef struct {
    ucp_mem_h  memh;
    uint64_t   remote;
    ucp_rkey_h rkey;
} far_t;

static far_t far_make(bed_t *bed, void *memory)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = memory, .length = TOTAL};
    far_t                far    = {.remote = (uint64_t)(uintptr_t)memory};
    char                 key[PACKED_KEY_MAX];

    if (bed->b != NULL) {
        must(bed->b, ucp_mem_map(bed->b->context, &params, &far.memh), "ucp_mem_map");
    }
    bed_transfer(bed, bed->b, &far.remote, sizeof(far.remote), &far.remote, sizeof(far.remote));
    window_carry_key(bed, far.memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &far.rkey), "ucp_ep_rkey_unpack");
    }
    return far;
}

static void far_free(bed_t *bed, far_t *far)
{
    if (bed->a != NULL) {
        ucp_rkey_destroy(far->rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, far->memh), "ucp_mem_unmap");
    }
}

/* The first piece is memory of devices at both sides, the others are the host's. */
static ucs_status_t put_list(bed_t *bed, const area_t near[2], const far_t far[2])
{
    void               *buffers[PIECES];
    size_t              lengths[PIECES];
    uint64_t            addrs[PIECES];
    ucp_rkey_h          rkeys[PIECES];
    ucp_dt_local_sgl_t  local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS,
                                  .buffers = buffers, .lengths = lengths};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                  .remote_addrs = addrs, .rkeys = rkeys};
    ucp_request_param_t param  = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &remote,
        .remote_count = PIECES,
    };

    for (int i = 0; i < PIECES; i++) {
        buffers[i] = near[i > 0].memory + i * LENGTH;
        lengths[i] = LENGTH;
        addrs[i]   = far[i > 0].remote + (uint64_t)i * LENGTH;
        rkeys[i]   = far[i > 0].rkey;
    }
    return bed_wait(bed, ucp_put_nbx(bed->a->ep, &local, PIECES, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param));
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_RMA};
    int          fails  = strstr(getenv("UCX_TLS"), "sm") != NULL;
    void        *host   = NULL;

    gpu_open();
    bed_open(bed, &params);
    area_t near[2] = {area_make(bed->a, GPU0, TOTAL), area_make(bed->a, HOST, TOTAL)};
    area_t exposed = area_make(bed->b, GPU0, TOTAL);
    if (bed->b != NULL) {
        host = mmap(NULL, TOTAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    far_t far[2] = {far_make(bed, exposed.memory), far_make(bed, host)};
    area_set(&near[0], 1);
    area_set(&near[1], 1);
    if (bed->b != NULL && fails) {
        mprotect(host, TOTAL, PROT_NONE);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t       status = put_list(bed, near, far);
        unsigned long long opened = gpu_calls("cuIpcOpenMemHandle_v2"), closed = gpu_calls("cuIpcCloseMemHandle");
        want(bed->a, (status == UCS_OK) == !fails, "the list: %s", status_name(status));
        want(bed->a, opened == 1 && closed == 1, "opened %llu, closed %llu", opened, closed);
    } else {
        want(bed->b, 1, "nothing to do here");
    }
    bed_sync(bed);
    far_free(bed, &far[0]);
    far_free(bed, &far[1]);
    if (bed->b != NULL) {
        munmap(host, TOTAL);
    }
    area_free(&near[0]);
    area_free(&near[1]);
    area_free(&exposed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
