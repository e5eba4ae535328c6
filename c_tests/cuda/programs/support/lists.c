/* Puts and gets of scatter-gather lists: see lists.h. */
#include "lists.h"

ucs_status_ptr_t list_begin(bed_t *bed, const list_t *list, list_access_t access)
{
    ucp_dt_local_sgl_t  local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                                                (list->memhs != NULL ? UCP_DT_LOCAL_SGL_FIELD_MEMHS : 0) |
                                                (list->counts != NULL ? UCP_DT_LOCAL_SGL_FIELD_COUNTS |
                                                                            UCP_DT_LOCAL_SGL_FIELD_STRIDES
                                                                      : 0),
                                  .buffers = list->buffers, .lengths = list->lengths, .memhs = list->memhs,
                                  .counts = list->counts, .strides = list->strides};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                  .remote_addrs = list->addrs, .rkeys = list->rkeys};
    ucp_request_param_t param  = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT | list->op_attr,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &remote,
        .remote_count = list->count,
    };

    return access == LIST_PUT
        ? ucp_put_nbx(bed->a->ep, &local, list->count, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param)
        : ucp_get_nbx(bed->a->ep, &local, list->count, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param);
}

ucs_status_t list_access(bed_t *bed, const list_t *list, list_access_t access)
{
    ucp_request_param_t plain  = {.op_attr_mask = 0};
    ucs_status_t        status = bed_wait(bed, list_begin(bed, list, access));
    ucs_status_t        flush  = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &plain));

    return status != UCS_OK ? status : flush;
}
