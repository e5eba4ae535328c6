/*
 * Scatter-gather lists of contiguous pieces in mapped memory: pieces of each short length, with several keys and
 * handles, arrive where they belong and nowhere else; of a list with a wrong piece nothing is written.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 300, PLACE = 200, LONGEST = 150, NEAR = PIECES * PLACE, GUARD = 0x5a };

/* Which of the optional arrays a list has. */
typedef struct {
    bool lengths, handles;
} arrays_t;

static struct {
    fixture_t  fixture;
    ucp_rkey_h keys[2];
    ucp_mem_h  halves[2]; /* of `near`: the second one begins within a piece's place */
    char      *near;
    void      *buffers[PIECES];
    size_t     lengths[PIECES], theirs[PIECES];
    ucp_mem_h  handles[PIECES];
    uint64_t   addrs[PIECES];
    ucp_rkey_h rkeys[PIECES];
} list;

static ucp_mem_h map(char *memory, size_t length)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = memory, .length = length};
    ucp_mem_h            memh   = NULL;

    must(ucp_mem_map(list.fixture.context, &params, &memh), "ucp_mem_map");
    return memh;
}

/* Piece i lies at the i-th place here, and at the last but i-th there. */
static void fill_list(void)
{
    for (size_t i = 0; i < PIECES; i++) {
        list.buffers[i] = list.near + i * PLACE;
        list.lengths[i] = list.theirs[i] = i % (LONGEST + 1);
        list.handles[i] = list.halves[i >= PIECES / 2];
        list.addrs[i]   = list.fixture.remote + (PIECES - 1 - i) * PLACE + i % 16;
        list.rkeys[i]   = list.keys[i / 3 % 2];
    }
}

static void open_list(void)
{
    list.fixture = fixture_open(UCP_FEATURE_RMA);
    list.near    = malloc(NEAR);
    list.keys[0] = list.fixture.rkey;
    must(ucp_ep_rkey_unpack(list.fixture.ep, list.fixture.packed, &list.keys[1]), "ucp_ep_rkey_unpack");
    list.halves[0] = map(list.near, NEAR / 2);
    list.halves[1] = map(list.near + NEAR / 2, NEAR / 2);
    fill_list();
}

static void close_list(void)
{
    ucp_rkey_destroy(list.keys[1]);
    for (int i = 0; i < 2; i++) {
        WANT(UCS_OK, ucp_mem_unmap(list.fixture.context, list.halves[i]));
    }
    fixture_close(&list.fixture);
    free(list.near);
}

static ucs_status_t transfer(bool puts, arrays_t arrays)
{
    ucp_dt_local_sgl_t  local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                                                (arrays.handles ? UCP_DT_LOCAL_SGL_FIELD_MEMHS : 0),
                                  .buffers = list.buffers, .lengths = list.lengths, .memhs = list.handles};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS |
                                                (arrays.lengths ? UCP_DT_REMOTE_SGL_FIELD_LENGTHS : 0),
                                  .remote_addrs = list.addrs, .rkeys = list.rkeys, .lengths = list.theirs};
    ucp_request_param_t param  = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &remote, .remote_count = PIECES,
    };
    ucp_ep_h ep      = list.fixture.ep;
    uint64_t nowhere = UCP_REMOTE_ADDR_INVALID;

    return fixture_wait(&list.fixture,
                        puts ? ucp_put_nbx(ep, &local, PIECES, nowhere, UCP_RKEY_INVALID, &param)
                             : ucp_get_nbx(ep, &local, PIECES, nowhere, UCP_RKEY_INVALID, &param));
}

static char byte_of(size_t piece, size_t at)
{
    return (char)(piece * 31 + at * 7 + 1);
}

/* Whether all bytes there, or here, are those of the pieces, and the others are the guard. */
static bool is_transferred(bool there)
{
    char *wanted = malloc(FIXTURE_MEMORY);
    char *start  = there ? (char *)list.fixture.memory : list.near;
    size_t size  = there ? FIXTURE_MEMORY : NEAR;

    memset(wanted, GUARD, FIXTURE_MEMORY);
    for (size_t i = 0; i < PIECES; i++) {
        size_t at = there ? list.addrs[i] - list.fixture.remote : i * PLACE;

        for (size_t k = 0; k < list.lengths[i]; k++) {
            wanted[at + k] = byte_of(i, k);
        }
    }
    bool is_equal = memcmp(start, wanted, size) == 0;
    free(wanted);
    return is_equal;
}

static void fill(void)
{
    memset(list.near, GUARD, NEAR);
    memset(list.fixture.memory, GUARD, FIXTURE_MEMORY);
    for (size_t i = 0; i < PIECES; i++) {
        for (size_t k = 0; k < list.lengths[i]; k++) {
            list.near[i * PLACE + k] = byte_of(i, k);
        }
    }
}

static const arrays_t all_arrays[] = {{false, false}, {true, false}, {false, true}, {true, true}};
enum { ARRAYS = sizeof(all_arrays) / sizeof(*all_arrays) };

static void pieces_arrive(void)
{
    open_list();
    for (int i = 0; i < ARRAYS; i++) {
        fill();
        WANT(UCS_OK, transfer(true, all_arrays[i]));
        WANT_TRUE(is_transferred(true));
        memset(list.near, GUARD, NEAR);
        WANT(UCS_OK, transfer(false, all_arrays[i]));
        WANT_TRUE(is_transferred(false));
    }
    close_list();
}

/* A put with the list as it is now is refused, and writes nothing. */
static void want_refused(arrays_t arrays)
{
    WANT(UCS_ERR_INVALID_PARAM, transfer(true, arrays));
    for (size_t i = 0; i < FIXTURE_MEMORY; i++) {
        if (list.fixture.memory[i] != GUARD) {
            WANT_TRUE(!"a byte was written");
            break;
        }
    }
    fill_list();
}

/* The wrong piece is the last one, behind others that could be copied. */
static void nothing_is_written(void)
{
    enum { LAST = PIECES - 1 };
    uint64_t end;

    open_list();
    fill();
    end = list.fixture.remote + FIXTURE_MEMORY;
    for (int i = 0; i < ARRAYS; i++) {
        arrays_t arrays = all_arrays[i];

        list.addrs[LAST] = end - list.lengths[LAST] + 1;
        want_refused(arrays);
        list.addrs[LAST] = list.fixture.remote - 1;
        want_refused(arrays);
        list.addrs[LAST] = UINT64_MAX - 1;
        want_refused(arrays);
        list.rkeys[LAST] = NULL;
        want_refused(arrays);
        list.lengths[LAST] = list.theirs[LAST] = SIZE_MAX;
        list.buffers[LAST] = list.near;
        want_refused(arrays);
        if (arrays.lengths) {
            list.theirs[LAST]++;
            want_refused(arrays);
        }
        if (arrays.handles) {
            list.handles[LAST] = list.halves[0];
            want_refused(arrays);
            list.handles[LAST] = NULL;
            want_refused(arrays);
            list.handles[LAST] = (ucp_mem_h)&list;
            want_refused(arrays);
        }
        list.buffers[LAST] = NULL;
        want_refused(arrays);
    }
    close_list();
}

/* Keys and buffers of empty pieces are not looked at. */
static void empty_pieces_need_nothing(void)
{
    open_list();
    for (size_t i = 0; i < PIECES; i += 2) {
        list.lengths[i] = list.theirs[i] = 0;
        list.buffers[i] = NULL;
        list.rkeys[i]   = NULL;
    }
    fill();
    WANT(UCS_OK, transfer(true, all_arrays[1]));
    WANT_TRUE(is_transferred(true));
    close_list();
}

/* Pieces that overlap what they are copied to: memory of the process itself. */
static void overlapping_pieces(void)
{
    open_list();
    for (size_t length = 0; length <= LONGEST; length++) {
        for (size_t i = 0; i < PIECES; i++) {
            list.lengths[i] = list.theirs[i] = i == 0 ? length : 0;
        }
        for (int shift = -3; shift <= 3; shift++) {
            char *from = (char *)list.fixture.memory + 1000, wanted[LONGEST];

            for (size_t k = 0; k < length; k++) {
                wanted[k] = from[k] = byte_of(length, k);
            }
            list.buffers[0] = from;
            list.addrs[0]   = list.fixture.remote + 1000 + (uint64_t)(int64_t)shift;
            WANT(UCS_OK, transfer(true, all_arrays[0]));
            WANT_TRUE(memcmp(from + shift, wanted, length) == 0);
        }
    }
    close_list();
}

static const case_t cases[] = {
    {"lists: pieces arrive", pieces_arrive},
    {"lists: nothing is written of a list with a wrong piece", nothing_is_written},
    {"lists: empty pieces need nothing", empty_pieces_need_nothing},
    {"lists: pieces that overlap", overlapping_pieces},
};

CHECK_MAIN(cases)
