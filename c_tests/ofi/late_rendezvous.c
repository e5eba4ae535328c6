/*
 * A long message whose data arrive late, behind messages that were sent after it. The provider fetches the data itself
 * (the rendezvous of ofi_rxm), and gets them when the sender progresses: until then the messages behind it fill the
 * receive buffers. No message may be written over another one.
 *
 * The receiver has room for four of the longest packets (UCX_OFI_RX_QUEUE_LEN=4), and every message is sent whole
 * (UCX_RNDV_THRESH=inf).
 */
#define _GNU_SOURCE
#include "two_workers.h"

#include <string.h>

enum {
    LONG   = 20000, /* more than ofi_rxm sends without a rendezvous, and less than rucp divides */
    SHORT  = 28,    /* the provider copies it (inject_size): the sender waits for no completion */
    BEFORE = 1500,  /* with the long message more than the receive buffers hold */
    BEHIND = 2000,  /* as much again */
    ALL    = 1 + BEFORE + BEHIND,
    ROUNDS = 10,
    ALONE  = 1000 /* turns of one worker, until it finds nothing to do */
};

static uint8_t          out[LONG + ALL * SHORT], in[LONG + ALL * SHORT];
static ucs_status_ptr_t sends[ALL], receives[ALL];

/* Where a message lies among all of them. */
static size_t place_of(int message)
{
    return message == 0 ? 0 : LONG + (size_t)message * SHORT;
}

static size_t length_of(int message)
{
    return message == 0 ? LONG : SHORT;
}

static void progress_alone(int i)
{
    for (int turn = 0; turn < ALONE; turn++) {
        ucp_worker_progress(ends[i].worker);
    }
}

static void send_some(int from, int until)
{
    for (int i = from; i < until; i++) {
        sends[i] = ucp_tag_send_nbx(ends[0].ep, out + place_of(i), length_of(i), (ucp_tag_t)i, &plain);
    }
}

static int is_any_pending(void)
{
    for (int i = 0; i < ALL; i++) {
        if (is_pending(sends[i]) || is_pending(receives[i])) {
            return 1;
        }
    }
    return 0;
}

static void one_round(int round)
{
    for (int i = 0; i < ALL; i++) {
        memset(out + place_of(i), 1 + (round * ALL + i) % 255, length_of(i));
        memset(in + place_of(i), 0, length_of(i));
        receives[i] =
            ucp_tag_recv_nbx(ends[1].worker, in + place_of(i), length_of(i), (ucp_tag_t)i, UINT64_MAX, &plain);
    }
    send_some(0, 1 + BEFORE);
    progress_alone(1); /* it asks for the long message's data, and has received those behind it */
    send_some(1 + BEFORE, ALL);
    progress_alone(0); /* the data are sent, behind the other messages */
    for (time_t limit = time(NULL) + SECONDS; is_any_pending() && time(NULL) < limit;) {
        progress();
    }
    unsigned failed = 0, wrong = 0;
    for (int i = 0; i < ALL; i++) {
        failed += end_of(ends[0].worker, sends[i]) != UCS_OK || end_of(ends[1].worker, receives[i]) != UCS_OK;
        wrong += memcmp(in + place_of(i), out + place_of(i), length_of(i)) != 0;
    }
    WANT_TRUE(failed == 0);
    WANT_TRUE(wrong == 0);
}

static void late_data(void)
{
    begin("", UCP_FEATURE_TAG);
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        one_round(round);
    }
    WANT_TRUE(!ends[0].failed && !ends[1].failed);
    end();
}

static const case_t cases[] = {
    {"late_rendezvous: data behind other messages", late_data},
};

CHECK_MAIN(cases)
