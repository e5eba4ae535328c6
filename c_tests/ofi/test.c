/*
 * Test of the restricted fabric: two endpoints of one process exchange messages and write to each other under the rules
 * of the environment, and the description of the provider shows them. Or a rule is broken, which ends the program.
 *
 *   test [send_unregistered|inject_long|send_long|two_receives]
 */
#include "../check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES = 64, BYTES = 32, LONG = 1 << 16, SECONDS = 20 };

struct buffer {
    uint64_t       words[LONG / sizeof(uint64_t)];
    struct fid_mr *mr;
};

struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    fi_addr_t      other;
    struct buffer  out, in[MESSAGES];
    int            received, sent, failed;
    uint64_t       order[MESSAGES];
};

static struct fi_info    *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct side        sides[2];

void check_report(const char *failure)
{
    fprintf(stderr, "%s\n", failure);
    exit(1);
}

#define OK(call) check_call(#call, (call))
static void check_call(const char *call, long result)
{
    CHECK(result == 0, "%s: %s", call, fi_strerror((int)-result));
}

static uint64_t rule(const char *name)
{
    const char *rules = getenv("SOFT_OFI_RULES"), *at = rules == NULL ? NULL : strstr(rules, name);

    return at == NULL || at[strlen(name)] != '=' ? 0 : strtoull(at + strlen(name) + 1, NULL, 0);
}

static void find_provider(void)
{
    struct fi_info *hints = fi_allocinfo();
    const char     *name  = getenv("SOFT_OFI_NAME");

    hints->caps                   = FI_MSG | (rule("no_rma") ? 0 : FI_RMA);
    hints->ep_attr->type          = FI_EP_RDM;
    hints->domain_attr->mr_mode   = FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
    hints->fabric_attr->prov_name = strdup(name != NULL ? name : "tcp;ofi_rxm");
    OK(fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
    fi_freeinfo(hints);
    CHECK(name == NULL || strcmp(info->fabric_attr->prov_name, name) == 0);
    CHECK(!!(info->domain_attr->mr_mode & FI_MR_LOCAL) == !!rule("mr_local"));
    CHECK(!!(info->domain_attr->mr_mode & FI_MR_PROV_KEY) == !!rule("mr_prov_key"));
    CHECK(!!(info->domain_attr->mr_mode & FI_MR_ENDPOINT) == !!rule("mr_endpoint"));
    CHECK(!(info->tx_attr->msg_order & FI_ORDER_SAS) == (rule("no_sas") || rule("reorder_nth")));
    CHECK(!(info->caps & FI_MULTI_RECV) == (rule("no_multi_recv") || rule("rx_entries")));
    CHECK(rule("inject") == 0 || info->tx_attr->inject_size == rule("inject"));
    CHECK(rule("max_msg") == 0 || info->ep_attr->max_msg_size == rule("max_msg"));
    CHECK(rule("cq_data") == 0 || info->domain_attr->cq_data_size == rule("cq_data"));
    CHECK(rule("rx_entries") == 0 || info->rx_attr->size == rule("rx_entries"));
}

static void open_side(struct side *side)
{
    struct fi_cq_attr queue   = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr vector  = {.type = FI_AV_TABLE};
    int               waiting = fi_cq_open(domain, &queue, &side->cq, NULL);

    CHECK((waiting != 0) == !!rule("no_wait"), "FI_WAIT_FD: %d", waiting);
    if (waiting != 0) {
        queue.wait_obj = FI_WAIT_NONE;
        OK(fi_cq_open(domain, &queue, &side->cq, NULL));
    }
    OK(fi_av_open(domain, &vector, &side->av, NULL));
    OK(fi_endpoint(domain, info, &side->ep, NULL));
    OK(fi_ep_bind(side->ep, &side->av->fid, 0));
    OK(fi_ep_bind(side->ep, &side->cq->fid, FI_SEND | FI_RECV));
    OK(fi_enable(side->ep));
}

static int registers(struct buffer *buffer)
{
    static int count;
    uint64_t   nth = rule("reg_fail_nth");
    uint64_t   access = FI_SEND | FI_RECV | FI_REMOTE_WRITE | FI_WRITE, key = (uint64_t)(uintptr_t)buffer;
    int error = fi_mr_reg(domain, buffer->words, sizeof(buffer->words), access, 0, key, 0, &buffer->mr, NULL);

    CHECK((error != 0) == (nth != 0 && ++count % (int)nth == 0));
    return error == 0;
}

static void open_buffer(struct side *side, struct buffer *buffer)
{
    while (!registers(buffer)) {
    }
    if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        OK(fi_mr_bind(buffer->mr, &side->ep->fid, 0));
        OK(fi_mr_enable(buffer->mr));
    }
}

static void look(struct side *side)
{
    struct fi_cq_data_entry entry;
    struct fi_cq_err_entry  failed = {.err = 0};
    ssize_t                 got    = fi_cq_read(side->cq, &entry, 1);

    if (got == -FI_EAVAIL) {
        CHECK(fi_cq_readerr(side->cq, &failed, 0) == 1);
        CHECK(rule("error_nth") != 0 && failed.err == FI_EIO, "%s", fi_strerror(failed.err));
        CHECK(strstr(fi_cq_strerror(side->cq, failed.prov_errno, NULL, NULL, 0), "restricted fabric") != NULL);
        entry = (struct fi_cq_data_entry){.op_context = failed.op_context, .flags = failed.flags};
        side->failed++;
        got = 1;
    }
    if (got != 1) {
        CHECK(got == -FI_EAGAIN, "%s", fi_strerror((int)-got));
    } else if (entry.flags & FI_RECV) {
        side->order[side->received++] = ((struct buffer *)entry.op_context)->words[0];
    } else {
        side->sent++;
    }
}

static void look_at_both(void)
{
    look(&sides[0]);
    look(&sides[1]);
}

/* Repeats a post until it is taken. */
#define POST(call)                                                        \
    for (ssize_t result_; (result_ = (call)) != 0; look_at_both()) {      \
        CHECK(result_ == -FI_EAGAIN, #call ": %s", fi_strerror((int)-result_)); \
    }

static void post_receive(struct side *side, int i)
{
    POST(fi_recv(side->ep, side->in[i].words, BYTES, fi_mr_desc(side->in[i].mr), FI_ADDR_UNSPEC, &side->in[i]));
}

static void meet(struct side *side, struct side *other)
{
    char   name[64];
    size_t length = sizeof(name);

    OK(fi_getname(&other->ep->fid, name, &length));
    CHECK((length == 8) == !!rule("address8"));
    CHECK(fi_av_insert(side->av, name, 1, &side->other, 0, NULL) == 1);
}

/* Every message arrives once, in order if the rules leave the order. */
static void exchange(void)
{
    struct side *from = &sides[0], *to = &sides[1];
    time_t       end  = time(NULL) + SECONDS;
    int          posted = 0, disorder = 0, most = rule("rx_entries") ? (int)rule("rx_entries") : MESSAGES;
    int          seen[MESSAGES] = {0};

    for (int i = 0; i < MESSAGES; i++) {
        for (; posted < MESSAGES && posted < to->received + most; posted++) {
            post_receive(to, posted);
        }
        from->out.words[0] = (uint64_t)i;
        if (i % 2 == 0 && info->tx_attr->inject_size >= BYTES) {
            POST(fi_inject(from->ep, from->out.words, BYTES, from->other));
        } else {
            int before = from->sent;
            POST(fi_send(from->ep, from->out.words, BYTES, fi_mr_desc(from->out.mr), from->other, NULL));
            while (from->sent == before && time(NULL) < end) {
                look_at_both();
            }
        }
    }
    while (to->received < MESSAGES && time(NULL) < end) {
        for (; posted < MESSAGES && posted < to->received + most; posted++) {
            post_receive(to, posted);
        }
        look_at_both();
    }
    CHECK(to->received == MESSAGES, "%d messages", to->received);
    for (int i = 0; i < MESSAGES; i++) {
        CHECK(to->order[i] < MESSAGES && !seen[to->order[i]]++);
        disorder += to->order[i] != (uint64_t)i;
    }
    CHECK((disorder != 0) == (rule("reorder_nth") != 0), "%d not in their place", disorder);
    CHECK((sides[0].failed + sides[1].failed != 0) == (rule("error_nth") != 0));
}

static void write_to_other(void)
{
    struct side         *from = &sides[0], *to = &sides[1];
    volatile uint64_t   *there   = &to->in[0].words[9];
    uint64_t             address = 9 * sizeof(uint64_t);
    time_t               end     = time(NULL) + SECONDS;

    if (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) {
        address += (uint64_t)(uintptr_t)to->in[0].words;
    }

    CHECK((fi_mr_key(to->in[0].mr) == (uint64_t)(uintptr_t)&to->in[0]) == !rule("mr_prov_key"));
    from->out.words[0] = 0xfeed;
    POST(fi_write(from->ep, from->out.words, sizeof(uint64_t), fi_mr_desc(from->out.mr), from->other, address,
                  fi_mr_key(to->in[0].mr), NULL));
    while (*there != 0xfeed && time(NULL) < end) {
        look_at_both();
    }
    CHECK(*there == 0xfeed);
}

static void break_rule(const char *how)
{
    struct side *side = &sides[0];

    if (strcmp(how, "send_unregistered") == 0) {
        POST(fi_send(side->ep, side->out.words, BYTES, NULL, side->other, NULL));
    } else if (strcmp(how, "inject_long") == 0) {
        POST(fi_inject(side->ep, side->out.words, rule("inject") + 1, side->other));
    } else if (strcmp(how, "send_long") == 0) {
        POST(fi_send(side->ep, side->out.words, rule("max_msg") + 1, fi_mr_desc(side->out.mr), side->other, NULL));
    }
    CHECK(0, "the rule was not imposed");
}

int main(int argc, char **argv)
{
    find_provider();
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i]);
        open_buffer(&sides[i], &sides[i].out);
        for (int k = 0; k < MESSAGES; k++) {
            open_buffer(&sides[i], &sides[i].in[k]);
        }
    }
    meet(&sides[0], &sides[1]);
    meet(&sides[1], &sides[0]);
    if (argc > 1) {
        break_rule(argv[1]);
    }
    exchange();
    if (!rule("no_rma")) {
        write_to_other();
    }
    for (int i = 0; i < 2; i++) {
        OK(fi_close(&sides[i].ep->fid));
        for (int k = 0; k < MESSAGES; k++) {
            OK(fi_close(&sides[i].in[k].mr->fid));
        }
        OK(fi_close(&sides[i].out.mr->fid));
        OK(fi_close(&sides[i].cq->fid));
        OK(fi_close(&sides[i].av->fid));
    }
    OK(fi_close(&domain->fid));
    OK(fi_close(&fabric->fid));
    fi_freeinfo(info);
    return 0;
}
