/* Posting: what the operations' functions (operation.c) need of the transmit order queue (post.c). */
#ifndef SOFT_TOFU_POST_H
#define SOFT_TOFU_POST_H

#include "tofu.h"

/* What every operation must fulfil: UTOFU_SUCCESS or an INVALID code. */
int post_check(struct op *op);
/* All or, with UTOFU_ERR_BUSY, none. */
int post_ops(utofu_vcq_hdl_t handle, const struct op *ops, size_t number, void *cbdata);

#endif
