/* Unreliable datagrams: a packet is built, injected faults decide about it, and it arrives whole or not at all. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "hca.h"

enum { HELD_NS = 2 * 1000 * 1000 }; /* a packet delayed for reordering is sent after this time if no other follows */

static bool is_ipv4(const union ibv_gid *gid)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static void ipv4_header(uint8_t *header, const union ibv_gid *source, const union ibv_gid *to, uint32_t length)
{
    uint32_t sum = 0;
    uint16_t total = htons(length + 20 + 8 + 12 + 8 + 4); /* IP, UDP, BTH, DETH, ICRC */

    memset(header, 0, 20);
    header[0] = 0x45;
    memcpy(header + 2, &total, 2);
    header[6] = 0x40; /* do not fragment */
    header[8] = 64;
    header[9] = 17; /* UDP */
    memcpy(header + 12, source->raw + 12, 4);
    memcpy(header + 16, to->raw + 12, 4);
    for (int i = 0; i < 20; i += 2)
        sum += header[i] << 8 | header[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16));
    header[10] = sum >> 8;
    header[11] = sum;
}

/* The 40 bytes in front of the payload. Without a GRH they are not written, as by hardware: false. */
static bool grh_make(uint8_t *grh, const struct soft_packet *packet, const struct wire_hca *own)
{
    const struct ibv_global_route *route = &packet->path.grh;
    const union ibv_gid *source = &own->gids[route->sgid_index % WIRE_GIDS];
    uint32_t flow = 6u << 28 | (uint32_t)route->traffic_class << 20 | (route->flow_label & 0xfffff);
    struct ibv_grh v6 = {.version_tclass_flow = htobe32(flow),
                         .paylen = htobe16(packet->length + 24),
                         .next_hdr = own->ethernet && route->sgid_index % 2 ? 17 : 27,
                         .hop_limit = route->hop_limit,
                         .sgid = *source,
                         .dgid = route->dgid};

    if (!packet->path.is_global)
        return false;
    if (own->ethernet && route->sgid_index % 2 && is_ipv4(source)) { /* RoCE v2 over IPv4 */
        memset(grh, 0, 20);
        ipv4_header(grh + 20, source, &route->dgid, packet->length);
    } else
        memcpy(grh, &v6, GRH);
    return true;
}

/* The peer's QP is locked. True: it arrived, if only as an error. */
static bool arrive(struct wire_qp *peer, const struct wire_hca *to, const struct wire_hca *own,
                   struct soft_packet *packet)
{
    union {
        struct wire_recv recv;
        char room[sizeof(struct wire_recv) + WIRE_MAX_SGE * sizeof(struct ibv_sge)];
    } one;
    struct ibv_wc wc = {.opcode = IBV_WC_RECV,
                        .byte_len = packet->length + GRH,
                        .qp_num = peer->slot.id,
                        .src_qp = packet->source_qpn,
                        .slid = own->lid,
                        .sl = packet->path.sl};
    struct iovec iov[WIRE_MAX_SGE], from[2];
    uint8_t grh[GRH] = {0};
    uint64_t room = 0;

    if (peer->type != IBV_QPT_UD ||
        (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS && peer->state != IBV_QPS_SQD) ||
        peer->qkey != packet->qkey || !path_reaches(&packet->path, to) || !port_up(to) || !port_up(own) ||
        !peer_alive(to) || !rq_take(peer, &one.recv))
        return false;
    wc.wr_id = one.recv.wr_id;
    for (uint32_t i = 0; i < one.recv.num_sge; i++)
        room += one.recv.sge[i].length;
    if (grh_make(grh, packet, own))
        wc.wc_flags |= IBV_WC_GRH;
    if (packet->with_imm) {
        wc.wc_flags |= IBV_WC_WITH_IMM;
        wc.imm_data = packet->imm;
    }
    from[0] = (struct iovec){grh, GRH};
    from[1] = (struct iovec){packet->payload, packet->length};
    if (room < packet->length + GRH)
        wc.status = IBV_WC_LOC_LEN_ERR;
    else if (mr_local(peer->slot.hca, peer->pd, one.recv.sge, one.recv.num_sge, IBV_ACCESS_LOCAL_WRITE, iov) != KEY_OK
             || !peer_write(to, from, 2, iov, one.recv.num_sge, packet->length + GRH))
        wc.status = IBV_WC_LOC_PROT_ERR;
    cq_push(peer->recv_cq, &wc, packet->solicited, NULL, 0);
    if (wc.status != IBV_WC_SUCCESS)
        qp_fail(peer);
    return true;
}

static void packet_deliver(struct soft_qp *qp, struct soft_packet *packet)
{
    struct wire_hca *own = soft_context(qp->qp.qp_base.context)->hca, *to;
    struct wire_qp *peer = wire_qp_lock(packet->qpn);
    bool arrived = false;

    if (peer != NULL) {
        to = wire_hca(peer->slot.hca);
        arrived = to != NULL && arrive(peer, to, own, packet);
        wire_unlock(&peer->slot.lock);
    }
    if (!arrived)
        __atomic_add_fetch(&wire->faults.ud_lost, 1, __ATOMIC_RELAXED);
}

void ud_release_held(struct soft_qp *qp)
{
    struct soft_packet *held = qp->held;

    qp->held = NULL;
    if (held != NULL)
        packet_deliver(qp, held);
    free(held);
}

struct outcome ud_send(struct soft_qp *qp, struct soft_wqe *wqe)
{
    struct wire_hca *own = soft_context(qp->qp.qp_base.context)->hca;
    struct soft_packet packet = {.path = wqe->path,
                                 .source_qpn = qp->qp.qp_base.qp_num,
                                 .qpn = wqe->wr.wr.ud.remote_qpn,
                                 .qkey = wqe->wr.wr.ud.remote_qkey,
                                 .length = wqe->length,
                                 .solicited = wqe->wr.send_flags & IBV_SEND_SOLICITED,
                                 .with_imm = wqe->wr.opcode == IBV_WR_SEND_WITH_IMM,
                                 .imm = wqe->wr.imm_data};
    struct iovec from[WIRE_MAX_SGE], into = {packet.payload, wqe->length};
    struct fault_ud fault;

    if (wqe->length > (uint32_t)mtu_bytes(device_mtu(own->ethernet)))
        return (struct outcome){.kind = FAILED, .status = IBV_WC_LOC_LEN_ERR};
    if (packet.qkey & 0x80000000) /* a controlled key: the sending QP's own is used */
        packet.qkey = qp->attr.qkey;
    if (wqe->wr.send_flags & IBV_SEND_INLINE)
        memcpy(packet.payload, wqe->inlined, wqe->length);
    else if (mr_local(own->slot.id, qp->qp.qp_base.pd->handle, wqe->sge, wqe->wr.num_sge, 0, from) != KEY_OK
             || !peer_read(own, &into, 1, from, wqe->wr.num_sge, wqe->length))
        return (struct outcome){.kind = FAILED, .status = IBV_WC_LOC_PROT_ERR};
    fault = fault_ud_next();
    if (fault.reorder && qp->held == NULL) {
        qp->held = malloc(sizeof(packet));
        if (qp->held != NULL) {
            *qp->held = packet;
            qp->held_due = now_ns() + HELD_NS;
            return (struct outcome){.kind = SENT};
        }
    }
    if (!fault.drop)
        packet_deliver(qp, &packet);
    if (fault.duplicate)
        packet_deliver(qp, &packet);
    ud_release_held(qp);
    return (struct outcome){.kind = SENT};
}
