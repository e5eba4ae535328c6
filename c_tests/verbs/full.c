/*
 * A device with no queue pairs left (rc_most of the software HCA), at the active or at the passive end of a connection:
 * messages use UD if UCX_TLS has it, else the endpoint fails. Existing connections stay, and a queue pair that becomes
 * available is used. UCX_UD_TIMEOUT has to be one second. FULL_LOG names the file that the log goes to.
 */
#define _GNU_SOURCE
#include "apart.h"
#include "counters.h"

#include <stdio.h>
#include <stdlib.h>

static int has_datagrams(void)
{
    return strstr(getenv("UCX_TLS"), "ud") != NULL;
}

/* Limits the device to this many more RC queue pairs; -1: no limit. */
static void leave(long count)
{
    char command[256];

    snprintf(command, sizeof(command), "%s rc_most=%ld", getenv("HCACTL"),
             count < 0 ? 0 : counter("rc_queues") + count);
    WANT_TRUE(system(command) == 0);
}

static int is_logged(const char *words)
{
    char  line[1024];
    int   found = 0;
    FILE *log   = fopen(getenv("FULL_LOG"), "r");

    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        found |= strstr(line, words) != NULL;
    }
    if (log != NULL) {
        fclose(log);
    }
    return found;
}

static void reach(party_t *self)
{
    uint64_t value = 1;

    WANT(UCS_OK, finish(self, send_tag(self, &value, sizeof(value))));
    WANT_TRUE(wait_notified(self));
}

static void not_reached(party_t *self, ucs_status_t wanted)
{
    uint64_t value = 1;

    WANT(wanted, finish(self, send_tag(self, &value, sizeof(value))));
    for (int i = 0; i < 1000 && self->failures == 0; i++) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
    WANT(wanted, self->failure);
    WANT_TRUE(is_logged("no queue pair on soft0:1: Cannot allocate memory"));
    WANT_TRUE(is_logged("max_qp"));
    close_endpoint(self, UCP_EP_CLOSE_FLAG_FORCE);
    leave(-1);
    party_connect(self, self->theirs, UCP_ERR_HANDLING_MODE_PEER);
    reach(self);
    WANT_TRUE(self->failures == 1);
}

static void connect_with(long left, ucs_status_t wanted)
{
    party_t early, late;
    long    made;

    start_apart(&early, 0);
    party_connect(&early, early.theirs, UCP_ERR_HANDLING_MODE_PEER);
    reach(&early);
    leave(left);
    made = counter("rc_queues");
    start_apart(&late, 0);
    party_connect(&late, late.theirs, UCP_ERR_HANDLING_MODE_PEER);
    if (has_datagrams()) {
        reach(&late);
        WANT_TRUE(counter("rc_queues") == made + left && late.failures == 0);
    } else {
        not_reached(&late, wanted);
    }
    reach(&early);
    WANT_TRUE(early.failures == 0);
    close_endpoint(&early, UCP_EP_CLOSE_FLAG_FORCE);
    close_endpoint(&late, UCP_EP_CLOSE_FLAG_FORCE);
    kill_other(&early);
    kill_other(&late);
    close_worker(&early);
    close_worker(&late);
    leave(-1);
}

static void active_end(void)
{
    connect_with(0, UCS_ERR_UNREACHABLE);
}

/* The passive end has no queue pair to answer with, so the active end gets no reply. */
static void passive_end(void)
{
    connect_with(1, UCS_ERR_ENDPOINT_TIMEOUT);
}

static const case_t cases[] = {
    {"full: at the active end", active_end},
    {"full: at the passive end", passive_end},
};

CHECK_MAIN(cases)
