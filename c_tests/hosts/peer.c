/*
 * A server and a client that play ping-pong over UCP and report progress on standard output, one line an event.
 *
 *   peer server ADDRESS            prints "port N", then "accepted", then the end of the client
 *   peer client ADDRESS PORT COUNT SIZE
 *                                  COUNT messages of SIZE bytes, each checked and sent back; prints "at N" every tenth;
 *                                  SIGTERM makes the message in flight the last
 *
 * Both end with "done N" or "failed STATUS after N". A client repeats a connection that failed if PEER_RETRY is set.
 * With PEER_FAILOVER the endpoints of both fail over.
 * With PEER_ASKED a server prints "requested" when a connection request has arrived, which it may accept later.
 * With PEER_LEAVE=N a server answers N messages of its first client, waits for the next connection request, prints
 * "left after N" and closes its endpoint by force: that message is received when the next client is served.
 * With PEER_BESIDE=SIZE a client has a second worker, which prints "beside open", sends one message of SIZE bytes after
 * the other, or none, and prints "beside failed STATUS"; it ends when both have failed. A server accepts it beside the
 * first.
 */
#define _GNU_SOURCE
#include "../pattern.h"

#include <ucp/api/ucp.h>

#include <arpa/inet.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * The lowest byte of a tag is the direction, the rest is the message's number: a reply that was in flight when a link
 * broke, and whose message was sent again, is not taken for the reply to the next one.
 */
#define TAG_THERE  1
#define TAG_BACK   2
#define TAG_BESIDE 3
#define TAG_WAY    0xff

#define MAX_BESIDE (1 << 20)

static ucp_context_h      context;
static ucp_worker_h       worker, beside; /* the second one of a client with PEER_BESIDE */
static ucp_conn_request_h requested;
static ucp_ep_h           ep_beside;
static size_t             size_beside; /* of its messages; 0: it sends none */
static int                accepts_beside;
static ucs_status_t       failure = UCS_OK, failure_beside = UCS_OK;

static volatile sig_atomic_t enough; /* set by SIGTERM */

static ucp_err_handling_mode_t err_mode(void)
{
    return getenv("PEER_FAILOVER") != NULL ? UCP_ERR_HANDLING_MODE_FAILOVER : UCP_ERR_HANDLING_MODE_PEER;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

static void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        say("cannot go on: %s: %s", what, ucs_status_string(status));
        exit(1);
    }
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep;
    failure = status;
}

static void on_failure_beside(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep;
    failure_beside = status;
    say("beside failed %d", status);
}

/* Accepts the connection that was requested. */
static ucp_ep_h accept_requested(ucp_err_handler_cb_t on_end)
{
    ucp_ep_params_t params = {
        .field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .conn_request = requested,
        .err_mode     = err_mode(),
        .err_handler  = {.cb = on_end},
    };
    ucp_ep_h ep;

    requested = NULL;
    must(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    return ep;
}

/* Whether a request has ended, and another one can follow. */
static int is_over(ucs_status_ptr_t *request)
{
    if (UCS_PTR_IS_PTR(*request)) {
        if (ucp_request_check_status(*request) == UCS_INPROGRESS) {
            return 0;
        }
        ucp_request_free(*request);
    }
    *request = NULL;
    return 1;
}

static void progress(void)
{
    static unsigned char       data[MAX_BESIDE];
    static ucs_status_ptr_t    sent, received;
    static ucp_request_param_t param;

    ucp_worker_progress(worker);
    if (accepts_beside) {
        if (requested != NULL) {
            accept_requested(on_failure_beside);
        }
        if (failure_beside == UCS_OK && is_over(&received)) {
            received = ucp_tag_recv_nbx(worker, data, sizeof(data), TAG_BESIDE, (ucp_tag_t)-1, &param);
        }
    }
    if (beside != NULL) {
        ucp_worker_progress(beside);
        if (size_beside > 0 && failure_beside == UCS_OK && is_over(&sent)) {
            sent = ucp_tag_send_nbx(ep_beside, data, size_beside, TAG_BESIDE, &param);
        }
    }
}

static void on_request(ucp_conn_request_h request, void *arg)
{
    (void)arg;
    requested = request;
    if (getenv("PEER_ASKED") != NULL) {
        say("asked");
    }
}

static struct sockaddr_storage address_of(const char *text, const char *port, socklen_t *length)
{
    struct addrinfo         hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found;
    struct sockaddr_storage address;

    if (getaddrinfo(text, port, &hints, &found) != 0) {
        say("cannot go on: no address: %s", text);
        exit(1);
    }
    memset(&address, 0, sizeof(address));
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    return address;
}

static void open_worker(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    must(ucp_init(&params, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
}

/* Waits for a request; a failed endpoint ends its requests. */
static ucs_status_t await(ucs_status_ptr_t result)
{
    if (!UCS_PTR_IS_PTR(result)) {
        return UCS_PTR_STATUS(result);
    }
    ucs_status_t status;
    while ((status = ucp_request_check_status(result)) == UCS_INPROGRESS) {
        progress();
        if (failure != UCS_OK) {
            ucp_request_cancel(worker, result); /* a receive is bound to no endpoint */
        }
    }
    ucp_request_free(result);
    return status;
}

static ucs_status_t send_to(ucp_ep_h ep, const void *data, size_t size, ucp_tag_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return await(ucp_tag_send_nbx(ep, data, size, tag, &param));
}

static ucs_status_t receive(void *data, size_t size, ucp_tag_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return await(ucp_tag_recv_nbx(worker, data, size, tag, (ucp_tag_t)-1, &param));
}

static void force_close(ucp_ep_h ep)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    await(ucp_ep_close_nbx(ep, &param));
}

static int end(unsigned done)
{
    if (failure != UCS_OK) {
        say("failed %d (%s) after %u", failure, ucs_status_string(failure), done);
        return 1;
    }
    say("done %u", done);
    return 0;
}

/*
 * Receives the next message of a client. It may have arrived already: when the connection survives the endpoint that it
 * was sent through, it arrives before a receive is posted. The flag is for that case: there would be no request to
 * query for its tag and length.
 */
static ucs_status_t receive_any(void *data, size_t size, ucp_tag_recv_info_t *info)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    ucs_status_ptr_t    r     = ucp_tag_recv_nbx(worker, data, size, TAG_THERE, TAG_WAY, &param);
    ucs_status_t        status;

    must(UCS_PTR_IS_ERR(r) ? UCS_PTR_RAW_STATUS(r) : UCS_OK, "ucp_tag_recv_nbx");
    while ((status = ucp_tag_recv_request_test(r, info)) == UCS_INPROGRESS) {
        progress();
        if (failure != UCS_OK) {
            ucp_request_cancel(worker, r);
        }
    }
    ucp_request_free(r);
    if (failure == UCS_OK) {
        must(status, "a receive");
    }
    return status;
}

/* Closes the endpoint of a client whose next message has arrived and was not received. */
static void leave(ucp_ep_h ep, unsigned done)
{
    ucp_tag_recv_info_t info;

    while (failure == UCS_OK && ucp_tag_probe_nb(worker, TAG_THERE, TAG_WAY, 0, &info) == NULL) {
        progress();
    }
    say("left after %u", done);
    force_close(ep);
}

/* Sends back each message until the client disconnects, or `most` messages. */
static void serve_one(unsigned most)
{
    static unsigned char data[8 << 20];
    ucp_ep_h             ep;
    unsigned             done = 0;

    failure = UCS_OK;
    ep      = accept_requested(on_failure);
    say("accepted");
    accepts_beside = getenv("PEER_BESIDE") != NULL;
    while (failure == UCS_OK) {
        ucp_tag_recv_info_t info;

        if (done == most) {
            leave(ep, done);
            return;
        }
        if (receive_any(data, sizeof(data), &info) != UCS_OK) {
            break;
        }
        ucp_tag_t number = info.sender_tag & ~(ucp_tag_t)TAG_WAY;
        if (send_to(ep, data, info.length, number | TAG_BACK) != UCS_OK) {
            break;
        }
        done++;
    }
    while (failure == UCS_OK) {
        progress(); /* a request may end before the handler runs */
    }
    end(done);
    force_close(ep);
}

static int server(const char *address)
{
    socklen_t               length;
    struct sockaddr_storage at     = address_of(address, "0", &length);
    ucp_listener_params_t   params = {
        .field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {.addr = (struct sockaddr *)&at, .addrlen = length},
        .conn_handler = {.cb = on_request},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_h      listener;
    const char         *leaves = getenv("PEER_LEAVE");
    unsigned            most   = leaves == NULL ? UINT_MAX : (unsigned)atoi(leaves);

    open_worker();
    must(ucp_listener_create(worker, &params, &listener), "ucp_listener_create");
    must(ucp_listener_query(listener, &attr), "ucp_listener_query");
    say("port %d", ntohs(((struct sockaddr_in *)&attr.sockaddr)->sin_port));
    while (listener != NULL) { /* until it is killed */
        while (requested == NULL) {
            progress();
        }
        serve_one(most);
        most = UINT_MAX;
    }
    return 0;
}

static void on_term(int number)
{
    (void)number;
    enough = 1;
}

static ucp_ep_h connect_to(ucp_worker_h from, ucp_err_handler_cb_t on_end, const char *address, const char *port)
{
    socklen_t               length;
    struct sockaddr_storage to     = address_of(address, port, &length);
    ucp_ep_params_t         params = {
        .field_mask  = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr    = {.addr = (struct sockaddr *)&to, .addrlen = length},
        .err_mode    = err_mode(),
        .err_handler = {.cb = on_end},
    };
    ucp_ep_h ep;

    failure = UCS_OK;
    must(ucp_ep_create(from, &params, &ep), "ucp_ep_create");
    return ep;
}

/* A second worker, with a connection to the server's. */
static void open_beside(const char *address, const char *port)
{
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_request_param_t param         = {.op_attr_mask = 0};

    must(ucp_worker_create(context, &worker_params, &beside), "ucp_worker_create");
    ucp_ep_h ep = connect_to(beside, on_failure_beside, address, port);
    must(send_to(ep, "", 1, TAG_BESIDE), "ucp_tag_send_nbx");
    must(await(ucp_ep_flush_nbx(ep, &param)), "ucp_ep_flush_nbx");
    say("beside open");
    size_beside = (size_t)atol(getenv("PEER_BESIDE"));
    ep_beside   = ep;
}

static int client(const char *address, const char *port, unsigned count, size_t size)
{
    unsigned char      *out = malloc(size + 1), *in = malloc(size + 1);
    ucp_request_param_t param = {.op_attr_mask = 0};
    unsigned            done  = 0;

    signal(SIGTERM, on_term);
    open_worker();
    ucp_ep_h ep = connect_to(worker, on_failure, address, port);
    if (getenv("PEER_BESIDE") != NULL) {
        must(await(ucp_ep_flush_nbx(ep, &param)), "ucp_ep_flush_nbx"); /* the server serves the first that connects */
        open_beside(address, port);
    }
    while (done < count && !enough) {
        ucp_tag_t number = (ucp_tag_t)done << 8;

        fill(out, size, done);
        ucs_status_t status = send_to(ep, out, size, number | TAG_THERE);
        if (status == UCS_OK) {
            status = receive(in, size, number | TAG_BACK);
        }
        if (status != UCS_OK || failure != UCS_OK) {
            while (failure == UCS_OK) {
                progress(); /* a request may end before the handler runs */
            }
            int result = end(done);
            while (beside != NULL && failure_beside == UCS_OK) {
                progress();
            }
            force_close(ep);
            if (getenv("PEER_RETRY") == NULL) {
                return result;
            }
            usleep(100000);
            ep = connect_to(worker, on_failure, address, port);
            continue;
        }
        if (first_wrong(in, size, done) != size) {
            say("message %u is not what was sent", done);
            return 2;
        }
        if (++done % 10 == 0) {
            say("at %u", done);
        }
    }
    ucs_status_t closed = await(ucp_ep_close_nbx(ep, &param));
    say("closed %s", ucs_status_string(closed));
    failure = UCS_OK;
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    free(out);
    free(in);
    return end(done);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "server") == 0) {
        return server(argv[2]);
    }
    if (argc == 6 && strcmp(argv[1], "client") == 0) {
        return client(argv[2], argv[3], (unsigned)atoi(argv[4]), (size_t)atol(argv[5]));
    }
    fprintf(stderr, "usage: peer server ADDRESS | peer client ADDRESS PORT COUNT SIZE\n");
    return 2;
}
