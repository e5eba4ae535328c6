#include "finish.h"

#include <time.h>

ucs_status_t finish_with(ucs_status_ptr_t request, int seconds, void (*progress)(void *arg), void *arg)
{
    time_t       end = time(NULL) + seconds;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && time(NULL) < end) {
        progress(arg);
    }
    ucp_request_free(request);
    return status;
}

static void progress_worker(void *worker)
{
    ucp_worker_progress(worker);
}

ucs_status_t finish_on(ucp_worker_h worker, ucs_status_ptr_t request, int seconds)
{
    return finish_with(request, seconds, progress_worker, worker);
}
