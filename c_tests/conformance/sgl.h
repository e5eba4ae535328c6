/* Puts and gets of scatter-gather lists. */
#ifndef SGL_H
#define SGL_H

#include <ucp/api/ucp.h>

#include <stdbool.h>

/* The arrays of a list, from its first piece on; `remote_lengths`: NULL where they are those of this side. */
typedef struct {
    void      **buffers;
    size_t     *lengths;
    uint64_t   *addrs;
    ucp_rkey_h *rkeys;
    size_t     *remote_lengths;
} sgl_t;

/* Begins to access so many pieces. */
static inline ucs_status_ptr_t sgl_begin(ucp_ep_h ep, bool puts, const sgl_t *sgl, size_t count)
{
    ucp_dt_local_sgl_t  local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS,
                                  .buffers = sgl->buffers, .lengths = sgl->lengths};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                  .remote_addrs = sgl->addrs, .rkeys = sgl->rkeys, .lengths = sgl->remote_lengths};
    ucp_request_param_t param  = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &remote, .remote_count = count,
    };
    uint64_t nowhere = UCP_REMOTE_ADDR_INVALID;

    remote.field_mask |= sgl->remote_lengths != NULL ? UCP_DT_REMOTE_SGL_FIELD_LENGTHS : 0;
    return puts ? ucp_put_nbx(ep, &local, count, nowhere, UCP_RKEY_INVALID, &param)
                : ucp_get_nbx(ep, &local, count, nowhere, UCP_RKEY_INVALID, &param);
}

#endif
