/* The headers included in a C++ program. */

#include "usage.h"

static_assert(sizeof(ucs_status_t) == 1, "a status is one byte");

const char *nothing() {
    size_t length = 0;
    ucp_tag_recv_info_t info{};
    ucs_status_t status = static_cast<ucs_status_t>(-3);
    ucp_worker_params_t params{};
    params.thread_mode = UCS_THREAD_MODE_MULTI;
    const bool failed = status == UCS_ERR_IO_ERROR && params.thread_mode != UCS_THREAD_MODE_SINGLE;
    return failed ? parameters(&length, &info) : nullptr;
}
