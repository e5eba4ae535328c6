/* Posting: the interface of the transmit order queue (post.c) for the operations' functions (operation.c). */
#ifndef SOFT_TOFU_POST_H
#define SOFT_TOFU_POST_H

#include "tofu.h"

/* Checks every operation: UTOFU_SUCCESS or an INVALID code. */
int post_check(struct op *op);
/* Posts all or, with UTOFU_ERR_BUSY, none. */
int post_ops(utofu_vcq_hdl_t handle, const struct op *ops, size_t number, void *cbdata);

#endif
