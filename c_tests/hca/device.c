/* Devices: the list, their attributes and those of their port, opening and closing. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hca.h"

/* The path prefix where rucp reads sysfs (src/tl/ib/verbs.rs). */
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, query_device_ex) ==
                   13 * sizeof(void *),
               "query_device_ex");

#undef ibv_query_port

enum { DEVICES = 8 };
static struct soft_device devices[DEVICES];

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value == NULL || *value == '\0' ? otherwise : value;
}

static bool setting_ethernet(void)
{
    return strcasecmp(setting("SOFT_HCA_LINK", "ethernet"), "infiniband") != 0;
}

/* The host's address, which distinguishes the HCAs of one wire. Device d has the address + d. */
static uint32_t device_ip(int number)
{
    struct in_addr ip;

    if (inet_pton(AF_INET, setting("SOFT_HCA_IP", "10.77.0.1"), &ip) != 1)
        inet_pton(AF_INET, "10.77.0.1", &ip);
    return ntohl(ip.s_addr) + number;
}

static uint64_t device_guid(int number)
{
    return 0x0250c20000000000ULL | device_ip(number);
}

void device_address(int number, struct wire_hca *hca)
{
    uint64_t prefix = htobe64(0xfe80000000000000ULL), guid = htobe64(device_guid(number));
    uint32_t ip = htonl(device_ip(number));

    hca->number = number;
    hca->ethernet = setting_ethernet();
    hca->lid = hca->ethernet ? 0 : (device_ip(number) & 0x3fff) + 1;
    for (int i = 0; i < WIRE_GIDS; i++) {
        memcpy(hca->gids[i].raw, &prefix, 8);
        memcpy(hca->gids[i].raw + 8, &guid, 8);
        if (!hca->ethernet && i > 0)
            memset(&hca->gids[i], 0, sizeof(hca->gids[i]));
        if (hca->ethernet && i >= 2) { /* 0, 1: link-local of RoCE v1 and v2; 2, 3: IPv4 of v1 and v2 */
            memset(&hca->gids[i], 0, sizeof(hca->gids[i]));
            hca->gids[i].raw[10] = hca->gids[i].raw[11] = 0xff;
            memcpy(hca->gids[i].raw + 12, &ip, 4);
        }
    }
}

struct soft_device *device_by_number(int number)
{
    struct soft_device *soft = &devices[number];
    struct ibv_device *device = &soft->device;
    const char *sysfs = setting("SOFT_HCA_SYSFS", "/sys");

    soft->number = number;
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    snprintf(device->name, sizeof(device->name), "soft%d", number);
    snprintf(device->dev_name, sizeof(device->dev_name), "uverbs%d", number);
    snprintf(device->dev_path, sizeof(device->dev_path), "%.200s/class/infiniband_verbs/uverbs%d", sysfs, number);
    snprintf(device->ibdev_path, sizeof(device->ibdev_path), "%.200s/class/infiniband/soft%d", sysfs, number);
    return soft;
}

struct ibv_device **ibv_get_device_list(int *count)
{
    int n = atoi(setting("SOFT_HCA_DEVICES", "1"));
    struct ibv_device **list;

    if (n < 0 || n > DEVICES || wire_open() != 0)
        n = 0;
    list = calloc(n + 1, sizeof(*list));
    if (list == NULL)
        return NULL;
    for (int i = 0; i < n; i++)
        list[i] = &device_by_number(i)->device;
    if (count != NULL)
        *count = n;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    return htobe64(device_guid(((struct soft_device *)device)->number));
}

int ibv_get_device_index(struct ibv_device *device)
{
    return ((struct soft_device *)device)->number;
}

static void soft_set_ops(struct verbs_context *verbs)
{
    verbs->sz = sizeof(*verbs);
    verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs->query_port = soft_query_port;
    verbs->query_device_ex = soft_query_device_ex;
    verbs->create_cq_ex = soft_create_cq_ex;
    verbs->create_qp_ex = soft_create_qp_ex;
    verbs->context.ops.poll_cq = soft_poll_cq;
    verbs->context.ops.req_notify_cq = soft_req_notify_cq;
    verbs->context.ops.post_srq_recv = soft_post_srq_recv;
    verbs->context.ops.post_send = soft_post_send;
    verbs->context.ops.post_recv = soft_post_recv;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct soft_context *soft = calloc(1, sizeof(*soft));
    int ends[2];

    if (soft == NULL || wire_open() != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        free(soft);
        return NULL;
    }
    soft->device = (struct soft_device *)device;
    soft->hca = wire_new_hca();
    if (soft->hca == NULL) {
        close(ends[0]);
        close(ends[1]);
        free(soft);
        errno = ENOMEM;
        return NULL;
    }
    device_address(soft->device->number, soft->hca);
    soft->async_write = ends[1];
    soft->hca->async_fd = ends[1];
    soft->hca->async_tag = wire_tag();
    soft_set_ops(&soft->verbs);
    soft->verbs.context.device = device;
    soft->verbs.context.async_fd = ends[0];
    /* The command descriptor is the kernel's in the real library; here a program can only poll or close it. */
    soft->verbs.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    soft->verbs.context.num_comp_vectors = 1;
    pthread_mutex_init(&soft->verbs.context.mutex, NULL);
    return &soft->verbs.context;
}

int ibv_close_device(struct ibv_context *context)
{
    struct soft_context *soft = soft_context(context);

    wire_lock(&wire->table_lock);
    wire_free_hca(soft->hca->slot.id); /* as the kernel does with objects that the program has not destroyed */
    wire_unlock(&wire->table_lock);
    close(context->async_fd);
    close(context->cmd_fd);
    close(soft->async_write);
    pthread_mutex_destroy(&context->mutex);
    free(soft);
    return 0;
}

int soft_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                         struct ibv_device_attr_ex *attr, size_t size)
{
    int number = soft_context(context)->device->number;
    struct ibv_device_attr *orig = &attr->orig_attr;

    (void)input;
    memset(attr, 0, size);
    snprintf(orig->fw_ver, sizeof(orig->fw_ver), "1.0.0");
    orig->node_guid = orig->sys_image_guid = htobe64(device_guid(number));
    orig->max_mr_size = UINT64_MAX;
    orig->page_size_cap = 0xfffffffffffff000;
    orig->vendor_part_id = 1;
    orig->max_qp = WIRE_QPS - 1;
    orig->max_qp_wr = MAX_WR;
    orig->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_PORT_ACTIVE_EVENT;
    orig->max_sge = orig->max_sge_rd = WIRE_MAX_SGE;
    orig->max_cq = WIRE_CQS - 1;
    orig->max_cqe = MAX_CQE;
    orig->max_mr = WIRE_MRS - 1;
    orig->max_pd = 1 << 15;
    orig->max_qp_rd_atom = orig->max_qp_init_rd_atom = MAX_RD_ATOMIC;
    orig->max_res_rd_atom = MAX_RD_ATOMIC * WIRE_QPS;
    orig->atomic_cap = IBV_ATOMIC_HCA; /* not atomic with respect to the target's CPU */
    orig->max_ah = 1 << 20;
    orig->max_srq = WIRE_SRQS - 1;
    orig->max_srq_wr = MAX_WR;
    orig->max_srq_sge = WIRE_MAX_SGE;
    orig->max_pkeys = 1;
    orig->local_ca_ack_delay = 15;
    orig->phys_port_cnt = 1;
    if (mr_demand() != NO_DEMAND && vext_field_avail(struct ibv_device_attr_ex, odp_caps, size)) {
        attr->odp_caps.general_caps = IBV_ODP_SUPPORT | (mr_demand() == IMPLICIT ? IBV_ODP_SUPPORT_IMPLICIT : 0);
        attr->odp_caps.per_transport_caps.rc_odp_caps =
            IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    }
    if (vext_field_avail(struct ibv_device_attr_ex, phys_port_cnt_ex, size))
        attr->phys_port_cnt_ex = 1;
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    struct ibv_device_attr_ex full;

    soft_query_device_ex(context, NULL, &full, sizeof(full));
    *attr = full.orig_attr;
    return 0;
}

enum ibv_mtu device_mtu(bool ethernet)
{
    int bytes = atoi(setting("SOFT_HCA_MTU", ethernet ? "1024" : "4096"));

    for (int mtu = IBV_MTU_4096; mtu > IBV_MTU_256; mtu--)
        if (bytes >= mtu_bytes(mtu))
            return mtu;
    return IBV_MTU_256;
}

int soft_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
    struct wire_hca *hca = soft_context(context)->hca;
    bool down = fault_port_down(hca->number);
    struct ibv_port_attr full = {0};

    if (port != 1)
        return EINVAL;
    full.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    full.phys_state = down ? 3 : 5; /* disabled, link up */
    full.max_mtu = IBV_MTU_4096;
    full.active_mtu = device_mtu(hca->ethernet);
    full.gid_tbl_len = hca->ethernet ? WIRE_GIDS : 1;
    full.port_cap_flags = IBV_PORT_CM_SUP | (hca->ethernet ? IBV_PORT_IP_BASED_GIDS : 0);
    full.max_msg_sz = 1u << 30;
    full.pkey_tbl_len = 1;
    full.lid = hca->lid;
    full.sm_lid = hca->ethernet ? 0 : 1;
    full.max_vl_num = 1;
    full.active_width = 2;  /* 4x */
    full.active_speed = 32; /* EDR: 25 Gbit/s a lane */
    full.link_layer = hca->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    memset(attr, 0, size);
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

/* For programs compiled before port_attr grew: they have it up to and with link_layer. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return soft_query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, flags));
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    struct wire_hca *hca = soft_context(context)->hca;

    if (port != 1 || index < 0 || index >= (hca->ethernet ? WIRE_GIDS : 1)) {
        errno = EINVAL;
        return -1;
    }
    *gid = hca->gids[index];
    return 0;
}

static uint32_t gid_type(const struct wire_hca *hca, uint32_t index)
{
    return !hca->ethernet ? IBV_GID_TYPE_IB : index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size)
{
    struct ibv_gid_entry full = {.gid_index = index, .port_num = port};

    if (flags != 0 || ibv_query_gid(context, port, index, &full.gid) != 0)
        return EINVAL;
    full.gid_type = gid_type(soft_context(context)->hca, index);
    memset(entry, 0, size);
    memcpy(entry, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
                             size_t size)
{
    size_t count = soft_context(context)->hca->ethernet ? WIRE_GIDS : 1;

    if (flags != 0 || max < count)
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        _ibv_query_gid_ex(context, 1, i, (struct ibv_gid_entry *)((char *)entries + i * size), 0, size);
    return count;
}

/* Private to rdma-core's programs; its types are those of sysfs: 0 InfiniBand or RoCE v1, 1 RoCE v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
    (void)port;
    *type = gid_type(soft_context(context)->hca, index) == IBV_GID_TYPE_ROCE_V2;
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    (void)context;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(0xffff);
    return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    return port == 1 && pkey == htobe16(0xffff) ? 0 : -1;
}
