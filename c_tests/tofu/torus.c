/* Coordinates, paths, and the ids of VCQs, which encode them. */
#include <stdlib.h>
#include <string.h>

#include "tofu.h"

/*
 * A VCQ id from its low end: 3 bits component, 4 CQ, 3 TNI, 2 c, 2 b, 2 a, 8 z, 8 y, 8 x, 8 path, and a mark, so that 0
 * is no id. A path is 0 (the default) or 1 + its three coordinates, 2 bits each.
 */
enum { PATH_AT = 40, PATHS = 1 + 64 };
#define MARK (0x50ULL << 48)
static const uint8_t axis_at[6] = {32, 24, 16, 14, 12, 10};

uint64_t torus_id(const uint8_t coords[6], uint16_t tni, uint16_t cq, uint16_t cmp)
{
    uint64_t id = MARK | cmp | (uint64_t)cq << 3 | (uint64_t)tni << 7;

    for (int i = 0; i < 6; i++)
        id |= (uint64_t)coords[i] << axis_at[i];
    return id;
}

static uint32_t axis_of(uint64_t id, int i)
{
    return id >> axis_at[i] & (i < 3 ? 0xff : 3);
}

bool torus_place(uint64_t id, uint32_t *node, uint32_t *index)
{
    uint32_t tni = id >> 7 & 7, cq = id >> 3 & 15, number = 0;

    for (int i = 0; i < 6; i++) {
        uint32_t at = axis_of(id, i);

        if (at >= wire->shape[i])
            return false;
        number += at * wire->strides[i];
    }
    *node = number;
    *index = (tni * WIRE_CQS + cq) * WIRE_CMPS + (id & 7);
    return tni < WIRE_TNIS && cq < WIRE_CQS && id >> 48 == MARK >> 48;
}

void torus_coords(uint32_t node, uint8_t coords[6])
{
    for (int i = 5; i >= 0; i--) {
        coords[i] = node % wire->shape[i];
        node /= wire->shape[i];
    }
}

uint32_t torus_hops(uint32_t one, uint32_t two)
{
    uint8_t from[6], to[6];
    uint32_t hops = 0;

    torus_coords(one, from);
    torus_coords(two, to);
    for (int i = 0; i < 6; i++) {
        uint32_t direct = abs(from[i] - to[i]), around = wire->shape[i] - direct;

        hops += direct < around ? direct : around;
    }
    return hops;
}

uint64_t torus_without_path(uint64_t id)
{
    return id & ~(0xffULL << PATH_AT);
}

uint8_t torus_path(uint64_t id, uint64_t flags)
{
    uint8_t given = flags >> 28;

    return given != 0 ? given : id >> PATH_AT;
}

static bool has_coords(const uint8_t *coords, const uint32_t *shape, int axes)
{
    for (int i = 0; i < axes; i++)
        if (coords[i] >= shape[i])
            return false;
    return true;
}

int utofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni, utofu_cq_id_t cq, utofu_cmp_id_t cmp,
                           utofu_vcq_id_t *id)
{
    int error = process_attach();

    if (error != UTOFU_SUCCESS)
        return error;
    if (coords == NULL || id == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (!has_coords(coords, wire->shape, 6))
        return UTOFU_ERR_INVALID_COORDS;
    if (tni >= wire->tnis)
        return UTOFU_ERR_INVALID_TNI_ID;
    if (cq >= wire->cqs)
        return UTOFU_ERR_INVALID_CQ_ID;
    if (cmp >= WIRE_CMPS)
        return UTOFU_ERR_INVALID_CMP_ID;
    *id = torus_id(coords, tni, cq, cmp);
    return UTOFU_SUCCESS;
}

int utofu_get_path_id(utofu_vcq_id_t id, uint8_t path[], utofu_path_id_t *path_id)
{
    uint32_t node, index;

    if (process_attach() != UTOFU_SUCCESS || !torus_place(id, &node, &index))
        return UTOFU_ERR_INVALID_VCQ_ID;
    if (path_id == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (path != NULL && !has_coords(path, wire->shape + 3, 3))
        return UTOFU_ERR_INVALID_PATH;
    *path_id = path == NULL ? 0 : 1 + (path[0] << 4 | path[1] << 2 | path[2]);
    return UTOFU_SUCCESS;
}

int utofu_get_path_coords(utofu_vcq_id_t id, utofu_path_id_t path_id, uint8_t path[])
{
    uint32_t node, index;

    if (process_attach() != UTOFU_SUCCESS || !torus_place(id, &node, &index))
        return UTOFU_ERR_INVALID_VCQ_ID;
    if (path == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (path_id >= PATHS)
        return UTOFU_ERR_INVALID_PATH_ID;
    for (int i = 0; i < 3; i++) /* the default path turns at the target's own coordinates */
        path[i] = path_id == 0 ? axis_of(id, 3 + i) : (path_id - 1) >> (4 - 2 * i) & 3;
    return UTOFU_SUCCESS;
}

int utofu_set_vcq_id_path(utofu_vcq_id_t *id, uint8_t path[])
{
    utofu_path_id_t path_id;
    int error;

    if (id == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    error = utofu_get_path_id(*id, path, &path_id);
    if (error == UTOFU_SUCCESS)
        *id = torus_without_path(*id) | (uint64_t)path_id << PATH_AT;
    return error;
}

int utofu_query_vcq_info(utofu_vcq_id_t id, uint8_t coords[], utofu_tni_id_t *tni, utofu_cq_id_t *cq, uint16_t *extra)
{
    uint32_t node, index;

    if (process_attach() != UTOFU_SUCCESS || !torus_place(id, &node, &index))
        return UTOFU_ERR_INVALID_VCQ_ID;
    if (coords == NULL || tni == NULL || cq == NULL || extra == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    torus_coords(node, coords);
    *tni = id >> 7 & 7;
    *cq = id >> 3 & 15;
    *extra = (id & 7) | torus_path(id, 0) << 8;
    return UTOFU_SUCCESS;
}
