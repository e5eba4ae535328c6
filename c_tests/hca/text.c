/* Names and conversions of constants: functions of the library that need no device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hca.h"

int mtu_bytes(enum ibv_mtu mtu)
{
    return 128 << mtu;
}

#define LOOK_UP(table, index) \
    ((unsigned)(index) < sizeof(table) / sizeof(table[0]) && table[index] != NULL ? table[index] : "unknown")

/* The constant's own name serves as its description. */
#define NAME(constant) [constant] = #constant

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const names[] = {
        NAME(IBV_WC_SUCCESS), NAME(IBV_WC_LOC_LEN_ERR), NAME(IBV_WC_LOC_QP_OP_ERR), NAME(IBV_WC_LOC_EEC_OP_ERR),
        NAME(IBV_WC_LOC_PROT_ERR), NAME(IBV_WC_WR_FLUSH_ERR), NAME(IBV_WC_MW_BIND_ERR), NAME(IBV_WC_BAD_RESP_ERR),
        NAME(IBV_WC_LOC_ACCESS_ERR), NAME(IBV_WC_REM_INV_REQ_ERR), NAME(IBV_WC_REM_ACCESS_ERR),
        NAME(IBV_WC_REM_OP_ERR), NAME(IBV_WC_RETRY_EXC_ERR), NAME(IBV_WC_RNR_RETRY_EXC_ERR),
        NAME(IBV_WC_LOC_RDD_VIOL_ERR), NAME(IBV_WC_REM_INV_RD_REQ_ERR), NAME(IBV_WC_REM_ABORT_ERR),
        NAME(IBV_WC_INV_EECN_ERR), NAME(IBV_WC_INV_EEC_STATE_ERR), NAME(IBV_WC_FATAL_ERR),
        NAME(IBV_WC_RESP_TIMEOUT_ERR), NAME(IBV_WC_GENERAL_ERR), NAME(IBV_WC_TM_ERR), NAME(IBV_WC_TM_RNDV_INCOMPLETE),
    };

    return LOOK_UP(names, status);
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
    static const char *const names[] = {
        NAME(IBV_NODE_CA), NAME(IBV_NODE_SWITCH), NAME(IBV_NODE_ROUTER), NAME(IBV_NODE_RNIC), NAME(IBV_NODE_USNIC),
        NAME(IBV_NODE_USNIC_UDP), NAME(IBV_NODE_UNSPECIFIED),
    };

    return LOOK_UP(names, type);
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    static const char *const names[] = {
        NAME(IBV_PORT_NOP), NAME(IBV_PORT_DOWN), NAME(IBV_PORT_INIT), NAME(IBV_PORT_ARMED), NAME(IBV_PORT_ACTIVE),
        NAME(IBV_PORT_ACTIVE_DEFER),
    };

    return LOOK_UP(names, state);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
    static const char *const names[] = {
        NAME(IBV_EVENT_CQ_ERR), NAME(IBV_EVENT_QP_FATAL), NAME(IBV_EVENT_QP_REQ_ERR), NAME(IBV_EVENT_QP_ACCESS_ERR),
        NAME(IBV_EVENT_COMM_EST), NAME(IBV_EVENT_SQ_DRAINED), NAME(IBV_EVENT_PATH_MIG), NAME(IBV_EVENT_PATH_MIG_ERR),
        NAME(IBV_EVENT_DEVICE_FATAL), NAME(IBV_EVENT_PORT_ACTIVE), NAME(IBV_EVENT_PORT_ERR),
        NAME(IBV_EVENT_LID_CHANGE), NAME(IBV_EVENT_PKEY_CHANGE), NAME(IBV_EVENT_SM_CHANGE), NAME(IBV_EVENT_SRQ_ERR),
        NAME(IBV_EVENT_SRQ_LIMIT_REACHED), NAME(IBV_EVENT_QP_LAST_WQE_REACHED), NAME(IBV_EVENT_CLIENT_REREGISTER),
        NAME(IBV_EVENT_GID_CHANGE), NAME(IBV_EVENT_WQ_FATAL),
    };

    return LOOK_UP(names, event);
}

static const struct {
    enum ibv_rate rate;
    int mult, mbps;
} rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},      {IBV_RATE_5_GBPS, 2, 5000},        {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},      {IBV_RATE_30_GBPS, 12, 30000},     {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},     {IBV_RATE_80_GBPS, 32, 80000},     {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, 5, 14062},      {IBV_RATE_56_GBPS, 22, 56250},     {IBV_RATE_112_GBPS, 45, 112500},
    {IBV_RATE_168_GBPS, 67, 168750},   {IBV_RATE_25_GBPS, 10, 25781},     {IBV_RATE_100_GBPS, 41, 103125},
    {IBV_RATE_200_GBPS, 82, 206250},   {IBV_RATE_300_GBPS, 123, 309375},  {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},     {IBV_RATE_400_GBPS, 160, 425000},  {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000},  {IBV_RATE_1200_GBPS, 480, 1275000},
};

#define RATE_BY(key, value, field, otherwise)                        \
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)    \
        if (rates[i].key == (value))                                 \
            return rates[i].field;                                   \
    return otherwise

int ibv_rate_to_mult(enum ibv_rate rate)
{
    RATE_BY(rate, rate, mult, -1);
}

enum ibv_rate mult_to_ibv_rate(int mult)
{
    RATE_BY(mult, mult, rate, IBV_RATE_MAX);
}

int ibv_rate_to_mbps(enum ibv_rate rate)
{
    RATE_BY(rate, rate, mbps, -1);
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
    RATE_BY(mbps, mbps, rate, IBV_RATE_MAX);
}

/* Nothing is pinned, so a fork does no harm. */
int ibv_fork_init(void)
{
    return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}

/*
 * Called by the programs of ibverbs-utils, without a public prototype. Returns the length without a final newline, or
 * -1.
 */
int ibv_read_sysfs_file(const char *directory, const char *file, char *into, size_t size);
int ibv_read_sysfs_file(const char *directory, const char *file, char *into, size_t size)
{
    char path[512];
    int     fd  = snprintf(path, sizeof(path), "%s/%s", directory, file) < (int)sizeof(path)
                      ? open(path, O_RDONLY | O_CLOEXEC)
                      : -1;
    ssize_t got = fd < 0 || size == 0 ? -1 : read(fd, into, size - 1);

    if (fd >= 0)
        close(fd);
    if (got < 0)
        return -1;
    got -= got > 0 && into[got - 1] == '\n';
    into[got] = '\0';
    return (int)got;
}

/* The mount point of sysfs: see SOFT_HCA_SYSFS in README.md. */
const char *ibv_get_sysfs_path(void);
const char *ibv_get_sysfs_path(void)
{
    const char *path = getenv("SOFT_HCA_SYSFS");

    return path == NULL ? "/sys" : path;
}
