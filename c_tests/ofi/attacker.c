#include "attacker.h"

#include "check.h"

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECTION = 8, RECEIVES = 16, SECONDS = 10 };

section_t victim;
uint64_t  victim_uid;
unsigned  attacker_arrived[KINDS];

static size_t             victim_length; /* of `victim`, as much of its name as it has included */
static struct fi_info    *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_cq     *queue;
static struct fid_av     *vector;
static struct fid_ep     *ep;
static struct fid_mr     *region;
static fi_addr_t          there;
static int                sending;
static uint8_t            own_name[NAME];
static size_t             own_name_length = sizeof(own_name);

/* The memory of all posts: what is sent, then the receives. */
static uint8_t memory[1 + RECEIVES][LONGEST];
/* Libfabric's own, and the length of what has arrived. */
static struct {
    struct fi_context2 context;
    size_t             length;
} posts[1 + RECEIVES];

long long now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000LL + at.tv_nsec / 1000000;
}

static void ok(const char *call, long result)
{
    check(__FILE__, __LINE__, call, result == 0, fi_strerror((int)-result));
    if (result != 0) {
        exit(1);
    }
}
#define OK(call) ok(#call, (call))

/* Whether the provider by which this program sends reads an address as a string, and a section has one. */
static int is_of_provider(const uint8_t *name)
{
    const char *asked = getenv("FI_PROVIDER");

    return (asked != NULL && strcmp(asked, "shm") == 0) == (memcmp(name, "fi_", 3) == 0);
}

/* Takes the worker's section of this program's provider from its address. */
static void find_victim(const uint8_t *address)
{
    uint32_t prefix;
    size_t   at = 12, head = offsetof(section_t, name);

    memcpy(&prefix, address, sizeof(prefix));
    memcpy(&victim_uid, address + 4, sizeof(victim_uid));
    size_t end = (prefix >> 12 & 0x3ff) - 4;
    while (at + 2 <= end && !(address[at] == SECTION && is_of_provider(address + at + 2 + head))) {
        at += 2 + (size_t)address[at + 1];
    }
    WANT_TRUE(at + 2 + head < end);
    victim_length = address[at + 1];
    memcpy(&victim, address + at + 2, victim_length);
}

static void post_receive(int i)
{
    ssize_t result;

    while ((result = fi_recv(ep, memory[i], LONGEST, region == NULL ? NULL : fi_mr_desc(region), FI_ADDR_UNSPEC,
                             &posts[i])) == -FI_EAGAIN) {
        fi_cq_read(queue, NULL, 0);
    }
    OK(result);
}

/* Whether the victim's name is one in the format of this description: that of a socket begins with its family and has
 * its length, that of libfabric's shm is a text, and any other is as long as the provider's own. */
static int fits(const struct fi_info *found)
{
    size_t   length = victim_length - offsetof(section_t, name);
    uint16_t family;

    memcpy(&family, victim.name, sizeof(family));
    switch (found->addr_format) {
    case FI_SOCKADDR_IN:
        return length == sizeof(struct sockaddr_in) && family == AF_INET;
    case FI_SOCKADDR_IN6:
        return length == sizeof(struct sockaddr_in6) && family == AF_INET6;
    case FI_ADDR_STR:
        return length != 0 && strnlen((const char *)victim.name, length) >= length - 1;
    default:
        return found->src_addr == NULL || found->src_addrlen == length;
    }
}

/* The provider's first description that fits the victim's name: an endpoint reads no other. */
static void find_provider(void)
{
    struct fi_info *hints = fi_allocinfo(), *found;
    const char     *name = getenv("SOFT_OFI_NAME"), *asked = getenv("FI_PROVIDER");

    hints->caps                   = FI_MSG;
    hints->mode                   = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type          = FI_EP_RDM;
    hints->domain_attr->mr_mode   = FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
    /* FI_PROVIDER=tcp allows that of rxm, or tcp's own, by the version of libfabric: the worker takes the first too. */
    if (asked == NULL || strcmp(asked, "tcp") != 0 || name != NULL) {
        hints->fabric_attr->prov_name = strdup(name != NULL ? name : asked != NULL ? asked : "tcp;ofi_rxm");
    }
    OK(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &found));
    for (const struct fi_info *at = found; at != NULL && info == NULL; at = at->next) {
        if (fits(at)) {
            info = fi_dupinfo(at);
        }
    }
    WANT_TRUE(info != NULL);
    if (info == NULL) {
        exit(1);
    }
    fi_freeinfo(found);
    fi_freeinfo(hints);
}

void attacker_open(const void *address)
{
    struct fi_cq_attr attr   = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr av     = {.type = FI_AV_UNSPEC};

    find_victim(address);
    find_provider();
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    OK(fi_cq_open(domain, &attr, &queue, NULL));
    OK(fi_av_open(domain, &av, &vector, NULL));
    OK(fi_endpoint(domain, info, &ep, NULL));
    OK(fi_ep_bind(ep, &vector->fid, 0));
    OK(fi_ep_bind(ep, &queue->fid, FI_SEND | FI_RECV));
    OK(fi_enable(ep));
    if (info->domain_attr->mr_mode & FI_MR_LOCAL) {
        OK(fi_mr_reg(domain, memory, sizeof(memory), FI_SEND | FI_RECV, 0, 1, 0, &region, NULL));
        if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
            OK(fi_mr_bind(region, &ep->fid, 0));
            OK(fi_mr_enable(region));
        }
    }
    for (int i = 1; i <= RECEIVES; i++) {
        post_receive(i);
    }
    OK(fi_getname(&ep->fid, own_name, &own_name_length));
    WANT_TRUE(fi_av_insert(vector, victim.name, 1, &there, 0, NULL) == 1);
}

void attacker_close(void)
{
    OK(fi_close(&ep->fid));
    if (region != NULL) {
        OK(fi_close(&region->fid));
    }
    OK(fi_close(&vector->fid));
    OK(fi_close(&queue->fid));
    OK(fi_close(&domain->fid));
    OK(fi_close(&fabric->fid));
    fi_freeinfo(info);
}

hello_t attacker_hello(uint64_t from)
{
    hello_t hello = {.header     = {.kind = HELLO},
                     .version    = VERSION,
                     .from       = from,
                     .to         = victim_uid,
                     .secret     = victim.secret,
                     .connection = 7,
                     .key        = 4711,
                     .session    = 4711,
                     .section    = {.fabric = victim.fabric, .secret = 1}};

    memcpy(&hello.magic, "rucpofi", 8);
    memcpy(hello.section.name, own_name, sizeof(own_name));
    return hello;
}

size_t attacker_hello_length(void)
{
    return offsetof(hello_t, section.name) + own_name_length;
}

size_t attacker_hello_failover(uint64_t from, uint8_t *packet)
{
    hello_t  hello  = attacker_hello(from);
    uint16_t length = (uint16_t)(attacker_hello_length() - offsetof(hello_t, section));
    size_t   at     = offsetof(hello_t, section);

    hello.flags = FAILS_OVER;
    memcpy(packet, &hello, at);
    /* The sender's interface, and all interfaces of its worker. */
    for (int i = 0; i < 2; i++) {
        memcpy(packet + at, &length, sizeof(length));
        memcpy(packet + at + sizeof(length), &hello.section, length);
        at += sizeof(length) + length;
    }
    return at;
}

void attacker_move(uint64_t from, uint64_t session, uint32_t generation, uint32_t next)
{
    hello_t hello = attacker_hello(from);
    move_t  move  = {.header     = {.kind = MOVE},
                     .magic      = hello.magic,
                     .version    = VERSION,
                     .from       = from,
                     .to         = victim_uid,
                     .secret     = victim.secret,
                     .connection = 8,
                     .key        = 4712,
                     .session    = session,
                     .generation = generation,
                     .next       = next,
                     .section    = hello.section};

    attacker_send(&move, offsetof(move_t, section.name) + own_name_length);
}

/* Handles a completion; returns the number of the receive that has completed, or 0. */
static int look(void)
{
    struct fi_cq_msg_entry entry;
    struct fi_cq_err_entry failed = {.err = 0};
    ssize_t                got    = fi_cq_read(queue, &entry, 1);

    if (got == -FI_EAVAIL) {
        /* The worker's end has refused a message that was too long, or has closed. */
        fi_cq_readerr(queue, &failed, 0);
        entry = (struct fi_cq_msg_entry){.op_context = failed.op_context};
        got   = 1;
    }
    if (got != 1) {
        return 0;
    }
    for (int i = 1; i <= RECEIVES; i++) {
        if (entry.op_context == &posts[i]) {
            const header_t *header = (const header_t *)memory[i];

            posts[i].length = entry.len;
            if (entry.len >= sizeof(*header) && header->kind < KINDS) {
                attacker_arrived[header->kind]++;
            }
            return i;
        }
    }
    sending = 0;
    return 0;
}

void attacker_send(const void *packet, size_t length)
{
    long long limit = now() + SECONDS * 1000;
    ssize_t   result;
    int       arrived;

    memcpy(memory[0], packet, length);
    sending = 1;
    while ((result = fi_send(ep, memory[0], length, region == NULL ? NULL : fi_mr_desc(region), there, &posts[0])) ==
           -FI_EAGAIN) {
        fi_cq_read(queue, NULL, 0);
    }
    OK(result);
    while (sending && now() < limit) {
        if ((arrived = look()) != 0) {
            post_receive(arrived);
        }
    }
    WANT_TRUE(!sending);
}

int attacker_may_send_too_much(void)
{
    return strcmp(info->fabric_attr->prov_name, "shm") != 0;
}

size_t attacker_receive(void *packet, size_t room, int milliseconds)
{
    long long limit = now() + milliseconds;
    int       arrived;

    while ((arrived = look()) == 0) {
        if (now() > limit) {
            return 0;
        }
    }
    size_t length = posts[arrived].length < room ? posts[arrived].length : room;
    memcpy(packet, memory[arrived], length);
    post_receive(arrived);
    return length;
}
