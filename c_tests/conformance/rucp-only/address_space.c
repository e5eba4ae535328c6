/*
 * Limited address space (ulimit -v, batch systems): a worker fits into 60 MB of it; where shared memory cannot be
 * created or mapped, two processes use the next transport.
 */
#define _GNU_SOURCE
#include "check.h"
#include "../../pattern.h"
#include "finish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT = 20 /* seconds */, MESSAGES = 200, LONG = 64 << 10 };

/* When a process limits its address space: before ucp_init(), worker, endpoint or first message; or not. */
enum stage { INIT, WORKER, ENDPOINT, MESSAGE, NEVER };

/* Which end sends the first message; the other one sends nothing before it has received that. */
enum turn { TOGETHER, FIRST, SECOND };

struct cramped {
    enum stage  stage;
    size_t      room; /* bytes beyond those mapped at that stage; for INIT the total */
    const char *transport; /* transport that is used then */
    enum turn   turn;
};

struct end {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    int           link;
};

static size_t mapped(void)
{
    FILE  *file  = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    WANT_TRUE(file != NULL && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_at(const struct cramped *c, enum stage stage)
{
    struct rlimit limit;

    if (c->stage == stage) {
        limit.rlim_cur = limit.rlim_max = stage == INIT ? c->room : mapped() + c->room;
        WANT_TRUE(mapped() <= limit.rlim_cur && setrlimit(RLIMIT_AS, &limit) == 0);
    }
}

static void open_end(struct end *end, const struct cramped *c)
{
    ucp_params_t        params  = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker  = {.field_mask = 0};
    ucp_ep_params_t     ep      = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    char                theirs[1024];
    ucp_address_t      *ours;
    size_t              length;

    limit_at(c, INIT);
    WANT(UCS_OK, ucp_init(&params, NULL, &end->context));
    limit_at(c, WORKER);
    WANT(UCS_OK, ucp_worker_create(end->context, &worker, &end->worker));
    if (check_failed()) {
        return;
    }
    WANT(UCS_OK, ucp_worker_get_address(end->worker, &ours, &length));
    WANT_TRUE(send(end->link, ours, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(end->link, theirs, sizeof(theirs), 0) > 0);
    ucp_worker_release_address(end->worker, ours);
    limit_at(c, ENDPOINT);
    ep.address = (ucp_address_t *)theirs;
    WANT(UCS_OK, ucp_ep_create(end->worker, &ep, &end->ep));
    limit_at(c, MESSAGE);
}

static ucs_status_t finish(struct end *end, ucs_status_ptr_t request)
{
    return finish_on(end->worker, request, TIMEOUT);
}

/* Progresses until the other end has arrived here, too. */
static void meet(struct end *end)
{
    time_t stop = time(NULL) + TIMEOUT;
    char   byte = 0;

    WANT_TRUE(send(end->link, &byte, 1, MSG_NOSIGNAL) == 1);
    while (recv(end->link, &byte, 1, MSG_DONTWAIT) != 1 && time(NULL) < stop) {
        ucp_worker_progress(end->worker);
    }
    WANT_TRUE(time(NULL) < stop);
}

/* Messages in both directions, short and long ones in turn. */
static void exchange_messages(struct end *end)
{
    static unsigned char     out[LONG], in[LONG];
    static const ucp_request_param_t plain = {.op_attr_mask = 0};

    for (unsigned i = 0; i < MESSAGES && !check_failed(); i++) {
        size_t           size     = i % 2 ? LONG : 8;
        ucs_status_ptr_t received = ucp_tag_recv_nbx(end->worker, in, size, i, -1, &plain);

        fill(out, size, i);
        WANT(UCS_OK, finish(end, ucp_tag_send_nbx(end->ep, out, size, i, &plain)));
        WANT(UCS_OK, finish(end, received));
        WANT_TRUE(first_wrong(in, size, i) == size);
    }
}

static void send_first(struct end *end, enum turn turn)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    unsigned                         word  = FIRST;

    if (turn == FIRST) {
        WANT(UCS_OK, finish(end, ucp_tag_send_nbx(end->ep, &word, sizeof(word), MESSAGES, &plain)));
    } else if (turn == SECOND) {
        word = 0;
        WANT(UCS_OK, finish(end, ucp_tag_recv_nbx(end->worker, &word, sizeof(word), MESSAGES, -1, &plain)));
        WANT_TRUE(word == FIRST);
    }
}

/* Whether a lane of the endpoint uses a transport of this name. */
static int goes_by(struct end *end, const char *name)
{
    ucp_transport_entry_t entries[16];
    ucp_ep_attr_t         attr = {.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                                  .transports = {.entries     = entries,
                                                 .num_entries = 16,
                                                 .entry_size  = sizeof(entries[0])}};

    WANT(UCS_OK, ucp_ep_query(end->ep, &attr));
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        if (strcmp(entries[i].transport_name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static void play(int link, const struct cramped *c, const char *transport)
{
    struct end          end   = {.link = link};
    ucp_request_param_t plain = {.op_attr_mask = 0};

    open_end(&end, c);
    if (check_failed()) {
        return;
    }
    send_first(&end, c->turn);
    exchange_messages(&end);
    WANT_TRUE(goes_by(&end, transport));
    meet(&end);
    WANT(UCS_OK, finish(&end, ucp_ep_close_nbx(end.ep, &plain)));
    meet(&end);
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
}

/* Two processes, each with a limit of its own, and the expected transports. */
static void between(const struct cramped *one, const struct cramped *other)
{
    int   links[2], status = -1;
    pid_t child;

    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    if ((child = fork()) == 0) {
        play(links[1], one, one->transport);
        _exit(check_failed());
    }
    play(links[0], other, other->transport);
    WANT_TRUE(waitpid(child, &status, 0) == child && status == 0);
    close(links[0]);
    close(links[1]);
}

static void in_60_mb(void)
{
    static const struct cramped c = {INIT, 60 << 20, "posix", TOGETHER};

    between(&c, &c);
}

static void without_inbox(void)
{
    static const struct cramped one = {WORKER, 2 << 20, "tcp", TOGETHER}, other = {NEVER, 0, "tcp", TOGETHER};

    between(&one, &other);
}

static void without_mapping(void)
{
    static const struct cramped c = {ENDPOINT, 2 << 20, "tcp", TOGETHER};

    between(&c, &c);
}

/* One end maps the other's inbox, the other one cannot. */
static void one_way(void)
{
    static const struct cramped one = {ENDPOINT, 2 << 20, "tcp", TOGETHER}, other = {NEVER, 0, "posix", TOGETHER};

    between(&one, &other);
}

static void without_mapping_later(void)
{
    static const struct cramped c = {MESSAGE, 2 << 20, "tcp", TOGETHER};

    between(&c, &c);
}

static void one_way_later(void)
{
    static const struct cramped one = {MESSAGE, 2 << 20, "tcp", TOGETHER}, other = {NEVER, 0, "posix", TOGETHER};

    between(&one, &other);
}

/* The end that sends second finds that it cannot map when the connection of the other end is there. */
static void without_mapping_in_turn(void)
{
    static const struct cramped one   = {MESSAGE, 2 << 20, "tcp", FIRST};
    static const struct cramped other = {MESSAGE, 2 << 20, "tcp", SECOND};

    between(&one, &other);
}

/* --- many senders: the receiver's address space ends when some of them have sent --- */

enum { EARLY = 8, SENDERS = 40 /* more than there are rings then */, ROW = 20, ROOM = 1 << 20 };
/* Nothing has to be answered: the receiver has no address of the senders'. */
enum { MEDIUM = 2000 };

static unsigned char record[LONG];

static size_t record_size(unsigned number)
{
    return number % 4 == 3 ? MEDIUM : 8;
}

static unsigned record_seed(unsigned sender, unsigned number)
{
    return sender * ROW + number;
}

/* Sends when it is its turn, and says by which transport. */
static void be_sender(int link, unsigned sender)
{
    static const struct cramped      never = {NEVER, 0, NULL, TOGETHER};
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    struct end                       end   = {.link = link};
    char                             byte;

    open_end(&end, &never);
    WANT_TRUE(recv(link, &byte, 1, 0) == 1);
    for (unsigned i = 0; i < ROW && !check_failed(); i++) {
        fill(record, record_size(i), record_seed(sender, i));
        WANT(UCS_OK, finish(&end, ucp_tag_send_nbx(end.ep, record, record_size(i), sender, &plain)));
    }
    byte = (char)goes_by(&end, "tcp");
    WANT_TRUE(byte != goes_by(&end, "posix"));
    WANT_TRUE(send(link, &byte, 1, MSG_NOSIGNAL) == 1);
    WANT(UCS_OK, finish(&end, ucp_ep_close_nbx(end.ep, &plain)));
    meet(&end);
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
}

/* Everything of these senders comes, in order; how many of them have sent by TCP. */
static unsigned receive_from(struct end *end, const int *links, unsigned first, unsigned last)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    unsigned                         by_tcp = 0;
    char                             byte;

    for (unsigned sender = first; sender < last; sender++) {
        WANT_TRUE(send(links[sender], "t", 1, MSG_NOSIGNAL) == 1);
    }
    for (unsigned i = 0; i < ROW; i++) {
        for (unsigned sender = first; sender < last && !check_failed(); sender++) {
            size_t size = record_size(i);
            memset(record, 0, size);
            WANT(UCS_OK, finish(end, ucp_tag_recv_nbx(end->worker, record, size, sender, -1, &plain)));
            WANT_TRUE(first_wrong(record, size, record_seed(sender, i)) == size);
        }
    }
    for (unsigned sender = first; sender < last && !check_failed(); sender++) {
        time_t stop = time(NULL) + TIMEOUT;
        while (recv(links[sender], &byte, 1, MSG_DONTWAIT) != 1 && time(NULL) < stop) {
            ucp_worker_progress(end->worker);
        }
        WANT_TRUE(time(NULL) < stop);
        by_tcp += byte;
    }
    return by_tcp;
}

static void be_receiver(const int *links)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker = {.field_mask = 0};
    struct end          end    = {.link = -1};
    struct rlimit       limit;
    char                theirs[1024];
    ucp_address_t      *ours;
    size_t              length;

    WANT(UCS_OK, ucp_init(&params, NULL, &end.context));
    WANT(UCS_OK, ucp_worker_create(end.context, &worker, &end.worker));
    WANT(UCS_OK, ucp_worker_get_address(end.worker, &ours, &length));
    for (unsigned i = 0; i < SENDERS; i++) {
        WANT_TRUE(send(links[i], ours, length, MSG_NOSIGNAL) == (ssize_t)length);
        WANT_TRUE(recv(links[i], theirs, sizeof(theirs), 0) > 0);
    }
    ucp_worker_release_address(end.worker, ours);
    WANT_TRUE(receive_from(&end, links, 0, EARLY) == 0);
    limit.rlim_cur = limit.rlim_max = mapped() + ROOM;
    WANT_TRUE(setrlimit(RLIMIT_AS, &limit) == 0);
    WANT_TRUE(receive_from(&end, links, EARLY, SENDERS) > 0);
    for (unsigned i = 0; i < SENDERS && !check_failed(); i++) {
        end.link = links[i];
        meet(&end);
    }
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
}

static void further_senders(void)
{
    int   links[SENDERS], pair[2], status = -1;
    pid_t senders[SENDERS];

    for (unsigned i = 0; i < SENDERS; i++) {
        WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
        links[i] = pair[0];
        if ((senders[i] = fork()) == 0) {
            be_sender(pair[1], i);
            _exit(check_failed());
        }
        close(pair[1]);
    }
    be_receiver(links);
    for (unsigned i = 0; i < SENDERS; i++) {
        WANT_TRUE(waitpid(senders[i], &status, 0) == senders[i] && status == 0);
        close(links[i]);
    }
}

static const case_t cases[] = {
    {"address_space: a worker in 60 MB", in_60_mb},
    {"address_space: no room for an inbox", without_inbox},
    {"address_space: no room for the other's inbox", without_mapping},
    {"address_space: no room for the other's inbox at one end", one_way},
    {"address_space: no room for the other's inbox at the first message", without_mapping_later},
    {"address_space: no room for the other's inbox at the first message, at one end", one_way_later},
    {"address_space: no room for the other's inbox, which has connected", without_mapping_in_turn},
    {"address_space: no room for further senders", further_senders},
};

CHECK_MAIN(cases)
