/* The headers included in a C program, with constructs of C only. */

#include "usage.h"

ucs_status_ptr_t nothing(void);

ucs_status_ptr_t nothing(void) {
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = sent, .user_data = NULL};
    ucs_status_ptr_t pointer = param.user_data;
    /* UCS_OK is an integer constant 0, hence a null pointer constant. */
    return pointer != UCS_OK ? pointer : UCS_OK;
}
