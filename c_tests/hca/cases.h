/* The cases of test.c: each has an active side and a passive one; and their shared functions. */
#ifndef SOFT_HCA_CASES_H
#define SOFT_HCA_CASES_H

#include "side.h"

void pattern(char *at, size_t length, int seed);
bool has_pattern(const char *at, size_t length, int seed);
struct ibv_send_wr request(enum ibv_wr_opcode opcode, uint64_t wr_id);
struct ibv_send_wr rdma(enum ibv_wr_opcode opcode, const struct hello *peer, size_t offset);
struct ibv_send_wr atomic(enum ibv_wr_opcode opcode, const struct hello *peer, size_t offset, uint64_t add,
                          uint64_t swap);
struct ibv_qp *meet(struct side *side, struct hello *peer, const struct connection *connection);

void demand_active(int socket);
void dmabuf_active(int socket);
void events_active(int socket);
void events_passive(int socket);
void flush_active(int socket);
void forked_requests_active(int socket);
void forked_requests_passive(int socket);
void forked_threads_active(int socket);
void forked_threads_passive(int socket);
void keys_active(int socket);
void keys_passive(int socket);
void killed_active(int socket);
void killed_often_active(int socket);
void messages_active(int socket);
void messages_passive(int socket);
void nothing_passive(int socket);
void one_sided_active(int socket);
void ordered_error_active(int socket);
void passive_waits(int socket);
void port_down_active(int socket);
void refusals_active(int socket);
void rnr_active(int socket);
void rnr_passive(int socket);
void srq_active(int socket);
void srq_passive(int socket);
void threads_active(int socket);
void threads_passive(int socket);
void too_long_active(int socket);
void too_long_passive(int socket);
void ud_active(int socket);
void ud_passive(int socket);
void unsignalled_active(int socket);

#endif
