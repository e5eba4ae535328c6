//! Scatter-gather lists (UCP_DATATYPE_SGL): pieces of local memory, each with an address of the target's.
#ifndef BENCH_LISTS_H
#define BENCH_LISTS_H

#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

enum { PIECE_SPACE = 40 }; /* bytes from one piece to the next */

struct list;

/** Whether the library has such lists: UCX 1.13 has not. */
int has_lists(void);

/**
 * A list of so many pieces of `size` bytes, at most PIECE_SPACE: one after the other from `here` on, and in another
 * order from `there` on. Of the caller.
 */
struct list *make_list(size_t pieces, size_t size, char *here, uint64_t there, ucp_rkey_h rkey);

/** Moves every second piece to other memory, which another key is for. */
void alternate_keys(struct list *list, uint64_t there, ucp_rkey_h rkey);

void free_list(struct list *list);

ucs_status_ptr_t put_list(ucp_ep_h ep, const struct list *list);

ucs_status_ptr_t get_list(ucp_ep_h ep, const struct list *list);

#endif
