/*
 * The operations' functions. Each builds a struct op and posts it, or in its utofu_prepare_ form writes it as a
 * descriptor.
 */
#include <string.h>

#include "post.h"

static int transfer(struct op *op, uint64_t edata)
{
    if (edata > MAX_EDATA)
        return UTOFU_ERR_INVALID_EDATA;
    op->edata = edata;
    return post_check(op);
}

static int put_or_get(struct op *op, enum kind kind, utofu_vcq_id_t to, utofu_stadd_t lcl, utofu_stadd_t rmt,
                      size_t length, uint64_t edata, unsigned long flags)
{
    if (length > MAX_LENGTH)
        return UTOFU_ERR_INVALID_SIZE;
    *op = (struct op){.mark = OP_MARK,
                      .kind = kind,
                      .length = length,
                      .blocks = 1,
                      .flags = flags,
                      .rmt_vcq_id = to,
                      .lcl_stadd = lcl,
                      .rmt_stadd = rmt};
    return transfer(op, edata);
}

static int strided(struct op *op, enum kind kind, utofu_vcq_id_t to, utofu_stadd_t lcl, utofu_stadd_t rmt,
                   size_t length, size_t stride, size_t blocks, uint64_t edata, unsigned long flags)
{
    int error = put_or_get(op, kind, to, lcl, rmt, length, edata, flags);

    if (error != UTOFU_SUCCESS)
        return error;
    if (blocks < 1 || blocks > MAX_BLOCKS)
        return UTOFU_ERR_INVALID_NUMBER;
    if (stride > MAX_LENGTH)
        return UTOFU_ERR_INVALID_SIZE;
    op->stride = stride;
    op->blocks = blocks;
    return UTOFU_SUCCESS;
}

static int piggyback(struct op *op, utofu_vcq_id_t to, const void *data, size_t most, utofu_stadd_t rmt, size_t length,
                     uint64_t edata, unsigned long flags)
{
    int error = put_or_get(op, PUT, to, 0, rmt, length, edata, flags);

    if (error != UTOFU_SUCCESS)
        return error;
    if (length > most)
        return UTOFU_ERR_INVALID_SIZE;
    if (data == NULL && length > 0)
        return UTOFU_ERR_INVALID_POINTER;
    op->piggyback = true;
    memcpy(op->data, data, length);
    return UTOFU_SUCCESS;
}

static int atomic_op(struct op *op, enum kind kind, uint8_t width, utofu_vcq_id_t to, enum utofu_armw_op armw,
                     uint64_t compare, uint64_t value, utofu_stadd_t rmt, uint64_t edata, unsigned long flags)
{
    if (kind == ARMW && (armw < UTOFU_ARMW_OP_SWAP || armw > UTOFU_ARMW_OP_OR))
        return UTOFU_ERR_INVALID_OP;
    /* The capability of each has its number; that of a compare-and-swap has 0. */
    if (wire != NULL && (wire->armw_ops >> (kind == CSWAP ? 0 : armw) & 1) == 0)
        return UTOFU_ERR_NOT_SUPPORTED;
    *op = (struct op){.mark = OP_MARK,
                      .kind = kind,
                      .width = width,
                      .armw = armw,
                      .flags = flags,
                      .rmt_vcq_id = to,
                      .rmt_stadd = rmt,
                      .value = value,
                      .compare = compare};
    return transfer(op, edata);
}

static int nop(struct op *op, unsigned long flags)
{
    *op = (struct op){.mark = OP_MARK, .kind = NOP, .flags = flags};
    return post_check(op);
}

static int gap_fits(size_t mtu, size_t gap)
{
    return mtu > MAX_MTU || gap > MAX_GAP ? UTOFU_ERR_INVALID_ARG : UTOFU_SUCCESS;
}

static int describe(utofu_vcq_hdl_t handle, const struct op *op, void *desc, size_t *size)
{
    if (vcq_of(handle) == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (desc == NULL || size == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    memcpy(desc, op, sizeof(*op));
    *size = sizeof(*op);
    return UTOFU_SUCCESS;
}

/* `build` fills `op` and returns a code. */
#define POST(build)                                                       \
    {                                                                     \
        struct op op;                                                     \
        int error = (build);                                              \
                                                                          \
        return error != UTOFU_SUCCESS ? error : post_ops(vcq_hdl, &op, 1, cbdata); \
    }
#define PREPARE(build)                                                    \
    {                                                                     \
        struct op op;                                                     \
        int error = (build);                                              \
                                                                          \
        return error != UTOFU_SUCCESS ? error : describe(vcq_hdl, &op, desc, desc_size); \
    }
/* Both forms; the arguments of the function, then what builds the operation. */
#define BOTH(name, build, ...)                                                              \
    int utofu_##name(__VA_ARGS__, void *cbdata) POST(build)                                 \
    int utofu_prepare_##name(__VA_ARGS__, void *desc, size_t *desc_size) PREPARE(build)

#define PLAIN(kind) put_or_get(&op, kind, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags)
#define STRIDED(kind) strided(&op, kind, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride, num_blocks, edata, flags)
#define GAPPED(build) (gap_fits(mtu, gap) != UTOFU_SUCCESS ? UTOFU_ERR_INVALID_ARG : (build))
#define CARRIED(data, most) piggyback(&op, rmt_vcq_id, data, most, rmt_stadd, length, edata, flags)

BOTH(put, PLAIN(PUT), UTOFU_BOTH_ENDS, UTOFU_TAIL)
BOTH(put_gap, GAPPED(PLAIN(PUT)), UTOFU_BOTH_ENDS, UTOFU_GAP)
BOTH(put_stride, STRIDED(PUT), UTOFU_STRIDED, UTOFU_TAIL)
BOTH(put_stride_gap, GAPPED(STRIDED(PUT)), UTOFU_STRIDED, UTOFU_GAP)
BOTH(get, PLAIN(GET), UTOFU_BOTH_ENDS, UTOFU_TAIL)
BOTH(get_gap, GAPPED(PLAIN(GET)), UTOFU_BOTH_ENDS, UTOFU_GAP)
BOTH(get_stride, STRIDED(GET), UTOFU_STRIDED, UTOFU_TAIL)
BOTH(get_stride_gap, GAPPED(STRIDED(GET)), UTOFU_STRIDED, UTOFU_GAP)
BOTH(put_piggyback, CARRIED(lcl_data, MAX_PIGGYBACK), UTOFU_TO, void *lcl_data, utofu_stadd_t rmt_stadd, size_t length,
     UTOFU_TAIL)
BOTH(put_piggyback8, CARRIED(&lcl_data, 8), UTOFU_TO, uint64_t lcl_data, utofu_stadd_t rmt_stadd, size_t length,
     UTOFU_TAIL)
BOTH(armw4, atomic_op(&op, ARMW, 4, rmt_vcq_id, armw_op, 0, op_value, rmt_stadd, edata, flags), UTOFU_TO,
     enum utofu_armw_op armw_op, uint32_t op_value, utofu_stadd_t rmt_stadd, UTOFU_TAIL)
BOTH(armw8, atomic_op(&op, ARMW, 8, rmt_vcq_id, armw_op, 0, op_value, rmt_stadd, edata, flags), UTOFU_TO,
     enum utofu_armw_op armw_op, uint64_t op_value, utofu_stadd_t rmt_stadd, UTOFU_TAIL)
BOTH(cswap4, atomic_op(&op, CSWAP, 4, rmt_vcq_id, 0, old_value, new_value, rmt_stadd, edata, flags), UTOFU_TO,
     uint32_t old_value, uint32_t new_value, utofu_stadd_t rmt_stadd, UTOFU_TAIL)
BOTH(cswap8, atomic_op(&op, CSWAP, 8, rmt_vcq_id, 0, old_value, new_value, rmt_stadd, edata, flags), UTOFU_TO,
     uint64_t old_value, uint64_t new_value, utofu_stadd_t rmt_stadd, UTOFU_TAIL)
BOTH(nop, nop(&op, flags), utofu_vcq_hdl_t vcq_hdl, unsigned long flags)

int utofu_post_toq(utofu_vcq_hdl_t handle, void *desc, size_t size, void *cbdata)
{
    const struct op *ops = desc;
    size_t number = size / sizeof(*ops);

    if (desc == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (number == 0 || size % sizeof(*ops) != 0)
        return UTOFU_ERR_INVALID_SIZE;
    for (size_t i = 0; i < number; i++)
        if (ops[i].mark != OP_MARK)
            return UTOFU_ERR_INVALID_DESC;
    return post_ops(handle, ops, number, cbdata);
}
