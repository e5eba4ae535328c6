/* Queries of the interface: the machine and the capabilities. */
#include <stdlib.h>

#include "tofu.h"

int utofu_get_onesided_tnis(utofu_tni_id_t **ids, size_t *count)
{
    int error = process_attach();

    if (ids == NULL || count == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    *ids = NULL;
    *count = 0;
    if (error != UTOFU_SUCCESS)
        return error;
    *ids = malloc(wire->tnis * sizeof(**ids));
    if (*ids == NULL)
        return UTOFU_ERR_OUT_OF_MEMORY;
    for (uint32_t t = 0; t < wire->tnis; t++)
        (*ids)[t] = t;
    *count = wire->tnis;
    return UTOFU_SUCCESS;
}

int utofu_query_onesided_caps(utofu_tni_id_t tni, struct utofu_onesided_caps **caps)
{
    static struct utofu_onesided_caps all = {
        .num_cmp_ids = WIRE_CMPS,
        .num_reserved_stags = RESERVED_STAGS,
        .cache_line_size = LINE,
        .stag_address_alignment = 256,
        .max_toq_desc_size = sizeof(struct op),
        .max_putget_size = MAX_LENGTH,
        .max_piggyback_size = MAX_PIGGYBACK,
        .max_edata_size = 1, /* bytes */
        .max_mtu = MAX_MTU,
        .max_gap = MAX_GAP,
    };
    int error = process_attach();

    if (error != UTOFU_SUCCESS)
        return error;
    if (caps == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (tni >= wire->tnis)
        return UTOFU_ERR_INVALID_TNI_ID;
    all.armw_ops = wire->armw_ops;
    all.flags = wire->armw_ops != 0 ? UTOFU_ONESIDED_CAP_FLAG_ARMW : 0;
    *caps = &all;
    return UTOFU_SUCCESS;
}

int utofu_query_my_coords(uint8_t coords[])
{
    int error = process_attach();

    if (error != UTOFU_SUCCESS)
        return error;
    if (coords == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    torus_coords(process_node(), coords);
    return UTOFU_SUCCESS;
}

void utofu_query_tofu_version(int *major, int *minor)
{
    *major = 1;
    *minor = 0;
}

void utofu_query_utofu_version(int *major, int *minor)
{
    *major = 1;
    *minor = 0;
}
