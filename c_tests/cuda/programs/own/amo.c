/*
 * Atomic operations on words in all kinds of memory, with operand and result in all kinds of memory. UCX 1.22
 * crashes at the owner of a device's word.
 */
#include "gpu.h"

#include "window.h"

#include <string.h>

static const char *const op_names[] = {"add", "and", "or", "xor", "swap", "cswap"};
static const ucp_atomic_op_t ops[]  = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND,  UCP_ATOMIC_OP_OR,
                                       UCP_ATOMIC_OP_XOR, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP};

static uint64_t result_of(int op, uint64_t old, uint64_t value, uint64_t swap)
{
    switch (op) {
    case 0: return old + value;
    case 1: return old & value;
    case 2: return old | value;
    case 3: return old ^ value;
    case 4: return value;
    default: return old == value ? swap : old;
    }
}

static void word(bed_t *bed, const area_t *exposed, uint64_t remote, ucp_rkey_h rkey, place_t at, size_t size)
{
    const uint64_t mask = size == 4 ? 0xffffffff : ~0ull;

    for (int op = 0; op < 6; op++) {
        for (int fetch = op >= 4; fetch < 2; fetch++) {
            uint64_t old   = 0x1122334455667788ull & mask, value = op == 5 ? old : 0x0f0f0f0f12345678ull & mask;
            uint64_t swap  = 0xa5a5a5a5deadbeefull & mask, found = 0;
            area_t   operand = area_make(bed->a, at, 16), reply = area_make(bed->a, at, 16);

            if (exposed->memory != NULL) {
                area_set(exposed, 0x5a);
                area_write(exposed, 8, &old, size);
            }
            bed_sync(bed);
            if (bed->a != NULL) {
                ucp_request_param_t param = {
                    .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | (fetch ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0),
                    .datatype     = ucp_dt_make_contig(size),
                    .reply_buffer = reply.memory,
                };
                ucp_request_param_t none = {.op_attr_mask = 0};
                area_write(&operand, 0, &value, size);
                area_set(&reply, 0);
                if (op == 5) { /* the reply buffer holds what is written */
                    area_write(&reply, 0, &swap, size);
                }
                ucs_status_t status =
                    bed_wait(bed, ucp_atomic_op_nbx(bed->a->ep, ops[op], operand.memory, 1, remote + 8, rkey, &param));
                ucs_status_t flushed = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
                area_read(&reply, 0, &found, size);
                want(bed->a, status == UCS_OK && flushed == UCS_OK && (!fetch || found == old),
                     "%s %zu, operand in %s, word in %s, fetch %d: %s, flush %s, fetched %#llx", op_names[op], size,
                     place_names[at], place_names[exposed->place], fetch, status_name(status), status_name(flushed),
                     (unsigned long long)found);
            }
            bed_sync(bed);
            if (bed->b != NULL) {
                area_read(exposed, 8, &found, size);
                uint64_t expected = result_of(op, old, value, swap) & mask;
                want(bed->b, found == expected && area_is(exposed, 0, 8, 0x5a) && area_is(exposed, 8 + size, 8, 0x5a),
                     "%s %zu, operand in %s, word in %s, fetch %d: %#llx, expected %#llx", op_names[op], size,
                     place_names[at], place_names[exposed->place], fetch, (unsigned long long)found,
                     (unsigned long long)expected);
            }
            bed_sync(bed);
            area_free(&operand);
            area_free(&reply);
        }
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64};
    char         key[PACKED_KEY_MAX];

    gpu_open();
    bed_open(bed, &params);
    for (int place = HOST; place < PLACES; place++) {
        area_t               exposed = area_make(bed->b, (place_t)place, 64);
        uint64_t             remote  = (uint64_t)(uintptr_t)exposed.memory;
        ucp_rkey_h           rkey    = NULL;
        ucp_mem_h            memh    = NULL;
        ucp_mem_map_params_t map     = {
            .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
            .address    = exposed.memory,
            .length     = 64,
        };

        exposed.place = (place_t)place;
        if (bed->b != NULL) {
            must(bed->b, ucp_mem_map(bed->b->context, &map, &memh), "ucp_mem_map");
        }
        bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
        window_carry_key(bed, memh, key);
        if (bed->a != NULL) {
            must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        }
        for (int at = HOST; at < PLACES; at++) {
            word(bed, &exposed, remote, rkey, (place_t)at, 4);
            word(bed, &exposed, remote, rkey, (place_t)at, 8);
        }
        if (bed->a != NULL) {
            ucp_rkey_destroy(rkey);
        }
        bed_sync(bed);
        if (bed->b != NULL) {
            must(bed->b, ucp_mem_unmap(bed->b->context, memh), "ucp_mem_unmap");
        }
        area_free(&exposed);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
