//! Preloaded where no UCX may carry messages: each function of UCP that sends, writes or reads ends the process.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#define FORBIDDEN(name)                                                                                                \
    void name(void);                                                                                                   \
    void name(void)                                                                                                    \
    {                                                                                                                  \
        fprintf(stderr, "FAILED: %s was called where no UCX may carry messages\n", #name);                             \
        abort();                                                                                                       \
    }

FORBIDDEN(ucp_tag_send_nb)
FORBIDDEN(ucp_tag_send_nbr)
FORBIDDEN(ucp_tag_send_nbx)
FORBIDDEN(ucp_tag_send_sync_nb)
FORBIDDEN(ucp_tag_send_sync_nbx)
FORBIDDEN(ucp_am_send_nb)
FORBIDDEN(ucp_am_send_nbx)
FORBIDDEN(ucp_stream_send_nb)
FORBIDDEN(ucp_stream_send_nbx)
FORBIDDEN(ucp_put)
FORBIDDEN(ucp_put_nb)
FORBIDDEN(ucp_put_nbi)
FORBIDDEN(ucp_put_nbx)
FORBIDDEN(ucp_get)
FORBIDDEN(ucp_get_nb)
FORBIDDEN(ucp_get_nbi)
FORBIDDEN(ucp_get_nbx)
FORBIDDEN(ucp_atomic_post)
FORBIDDEN(ucp_atomic_fetch_nb)
FORBIDDEN(ucp_atomic_op_nbx)
