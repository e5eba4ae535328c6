#include "wait.h"

#include <time.h>

ucs_status_t wait_for(ucs_status_ptr_t request, void (*progress)(void), int seconds)
{
    time_t       end = time(NULL) + seconds;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && time(NULL) < end) {
        progress();
    }
    ucp_request_free(request);
    return status;
}
