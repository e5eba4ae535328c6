/*
 * Scatter-gather lists whose pieces are in host memory and in memory of both devices, at either side, one piece or
 * several blocks each, with and without memory handles. UCX 1.22 takes lists of one type of memory only, and has no
 * protocol for them on these transports.
 */
#include "gpu.h"
#include "lists.h"

#include "window.h"

#include <stdlib.h>

#define PIECES 6
#define BLOCKS 3

static const place_t near_places[PIECES] = {GPU0, HOST, GPU1, MANAGED, GPU0, GPU1};
static const place_t far_places[PIECES]  = {GPU1, GPU0, HOST, GPU0, MANAGED, HOST};

/* A's piece: BLOCKS blocks with gaps of the same length; B's: the blocks side by side, with bytes around them. */
typedef struct {
    area_t     near, far;
    ucp_mem_h  near_memh, far_memh;
    uint64_t   remote;
    ucp_rkey_h rkey;
} piece_t;

static ucp_mem_h map(const side_t *side, const area_t *area)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = area->memory, .length = area->length};
    ucp_mem_h            memh   = NULL;

    if (side != NULL) {
        must(side, ucp_mem_map(side->context, &params, &memh), "ucp_mem_map");
    }
    return memh;
}

static void unmap(const side_t *side, ucp_mem_h memh)
{
    if (side != NULL) {
        must(side, ucp_mem_unmap(side->context, memh), "ucp_mem_unmap");
    }
}

static void piece_make(bed_t *bed, piece_t *piece, int i, size_t block)
{
    char key[PACKED_KEY_MAX];

    piece->near      = area_make(bed->a, near_places[i], 2 * BLOCKS * block);
    piece->far       = area_make(bed->b, far_places[i], (BLOCKS + 2) * block);
    piece->near_memh = map(bed->a, &piece->near);
    piece->far_memh  = map(bed->b, &piece->far);
    piece->remote    = (uint64_t)(uintptr_t)piece->far.memory + block;
    bed_transfer(bed, bed->b, &piece->remote, sizeof(piece->remote), &piece->remote, sizeof(piece->remote));
    window_carry_key(bed, piece->far_memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &piece->rkey), "ucp_ep_rkey_unpack");
    }
}

static void piece_free(bed_t *bed, piece_t *piece)
{
    if (bed->a != NULL) {
        ucp_rkey_destroy(piece->rkey);
    }
    unmap(bed->a, piece->near_memh);
    unmap(bed->b, piece->far_memh);
    area_free(&piece->near);
    area_free(&piece->far);
}

static int near_is(const piece_t *piece, size_t block, unsigned seed)
{
    int good = 1;

    for (size_t i = 0; i < BLOCKS; i++) {
        good = good && area_check(&piece->near, 2 * i * block, block, i * block, seed)[0] == 'g' &&
               area_is(&piece->near, (2 * i + 1) * block, block, 0x5a);
    }
    return good;
}

static int far_is(const piece_t *piece, size_t block, unsigned seed)
{
    return area_check(&piece->far, block, BLOCKS * block, 0, seed)[0] == 'g' &&
           area_is(&piece->far, 0, block, 0x5a) && area_is(&piece->far, (BLOCKS + 1) * block, block, 0x5a);
}

/* The bytes of the packed piece, in its blocks. */
static void near_fill(const piece_t *piece, size_t block, unsigned seed)
{
    char *bytes = data_make(BLOCKS * block, seed);

    for (size_t i = 0; i < BLOCKS && piece->near.memory != NULL; i++) {
        area_write(&piece->near, 2 * i * block, bytes + i * block, block);
    }
    free(bytes);
}

static ucs_status_t access_all(bed_t *bed, piece_t *pieces, size_t block, int handles, list_access_t access)
{
    void      *buffers[PIECES];
    size_t     lengths[PIECES], counts[PIECES], strides[PIECES];
    ucp_mem_h  memhs[PIECES];
    uint64_t   addrs[PIECES];
    ucp_rkey_h rkeys[PIECES];
    list_t     list = {.count = PIECES, .buffers = buffers, .lengths = lengths, .memhs = handles ? memhs : NULL,
                       .counts = counts, .strides = strides, .addrs = addrs, .rkeys = rkeys};

    for (int i = 0; i < PIECES; i++) {
        buffers[i] = pieces[i].near.memory;
        lengths[i] = block;
        counts[i]  = BLOCKS;
        strides[i] = 2 * block;
        memhs[i]   = pieces[i].near_memh;
        addrs[i]   = pieces[i].remote;
        rkeys[i]   = pieces[i].rkey;
    }
    return list_access(bed, &list, access);
}

static void case_of(bed_t *bed, size_t block, int handles)
{
    piece_t      pieces[PIECES];
    ucs_status_t status;
    int          good;

    for (int i = 0; i < PIECES; i++) {
        piece_make(bed, &pieces[i], i, block);
        area_set(&pieces[i].near, 0x5a);
        area_set(&pieces[i].far, 0x5a);
        near_fill(&pieces[i], block, (unsigned)i + 1);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        status = access_all(bed, pieces, block, handles, LIST_PUT);
        want(bed->a, status == UCS_OK, "put, blocks of %zu, handles %d: %s", block, handles, status_name(status));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        good = 1;
        for (int i = 0; i < PIECES; i++) {
            good = good && far_is(&pieces[i], block, (unsigned)i + 1);
        }
        want(bed->b, good, "put, blocks of %zu, handles %d: good %d", block, handles, good);
    }
    for (int i = 0; i < PIECES; i++) {
        area_set(&pieces[i].near, 0x5a);
        area_fill(&pieces[i].far, block, BLOCKS * block, (unsigned)i + 50);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        status = access_all(bed, pieces, block, handles, LIST_GET);
        good   = 1;
        for (int i = 0; i < PIECES; i++) {
            good = good && near_is(&pieces[i], block, (unsigned)i + 50);
        }
        want(bed->a, status == UCS_OK && good, "get, blocks of %zu, handles %d: %s, good %d", block, handles,
             status_name(status), good);
    }
    bed_sync(bed);
    for (int i = 0; i < PIECES; i++) {
        piece_free(bed, &pieces[i]);
    }
}

static void script(bed_t *bed)
{
    static const size_t blocks[] = {8, 5000, 300000};
    bed_params_t        params   = {.features = UCP_FEATURE_RMA};

    gpu_open();
    bed_open(bed, &params);
    for (int i = 0; i < 3; i++) {
        case_of(bed, blocks[i], 0);
        case_of(bed, blocks[i], 1);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
