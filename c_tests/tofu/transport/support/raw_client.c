/* Resources of the raw client: one queue, and memory that any peer may write to. */
#define _GNU_SOURCE
#include "raw_client.h"

#include "utofu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEMORY = 128 << 10, CELL = MEMORY / 2, SECONDS = 10, TOFU_SECTION = 7, LOCATOR = 26 };

static utofu_vcq_hdl_t vcq;
static utofu_vcq_id_t  own;
static utofu_stadd_t   memory_at;
/* The first half is for sending, peers write to the second: a listener's memory, a control word. */
static uint8_t memory[MEMORY] __attribute__((aligned(4096)));

static void must(int fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "raw_client: %s\n", what);
        exit(3);
    }
}

void raw_open(void)
{
    utofu_tni_id_t *tnis;
    size_t          count;

    must(utofu_get_onesided_tnis(&tnis, &count) == 0 && count > 0, "no TNI");
    must(utofu_create_vcq(tnis[count - 1], 0, &vcq) == 0, "no VCQ");
    must(utofu_query_vcq_id(vcq, &own) == 0, "no id");
    must(utofu_reg_mem(vcq, memory, sizeof(memory), 0, &memory_at) == 0, "no registration");
    free(tnis);
}

void raw_close(void)
{
    must(utofu_free_vcq(vcq) == 0, "the VCQ stays");
}

/*
 * Waits for the completion of the posted operation, whose notice has this type; returns its code. Other notices are
 * dropped.
 */
static int ended(uint8_t type, struct utofu_mrq_notice *notice)
{
    time_t end = time(NULL) + SECONDS;
    void  *word;

    while (time(NULL) < end) {
        int code = utofu_poll_tcq(vcq, 0, &word); /* makes room for posts, too */
        if (code != UTOFU_SUCCESS && code != UTOFU_ERR_NOT_FOUND) {
            return code;
        }
        code = utofu_poll_mrq(vcq, 0, notice);
        if (code != UTOFU_ERR_NOT_FOUND && notice->notice_type == type) {
            return code;
        }
    }
    must(0, "an operation does not end");
    return UTOFU_ERR_NOT_COMPLETED;
}

static unsigned long flags_of(int notice)
{
    unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

    return notice ? flags | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : flags;
}

int raw_put(const target_t *to, uint64_t stadd, const void *data, size_t length, int notice)
{
    struct utofu_mrq_notice end;

    memcpy(memory, data, length);
    int code = utofu_put(vcq, to->vcq, memory_at, stadd, length, 0, flags_of(notice), NULL);
    return code != UTOFU_SUCCESS ? code : ended(UTOFU_MRQ_TYPE_LCL_PUT, &end);
}

int raw_get(const target_t *from, uint64_t stadd, void *data, size_t length, int notice)
{
    struct utofu_mrq_notice end;
    int code = utofu_get(vcq, from->vcq, memory_at, stadd, length, 0, flags_of(notice), NULL);

    code = code != UTOFU_SUCCESS ? code : ended(UTOFU_MRQ_TYPE_LCL_GET, &end);
    memcpy(data, memory, length);
    return code;
}

uint64_t raw_add(const target_t *to, uint64_t stadd, uint64_t value, int notice)
{
    struct utofu_mrq_notice end;

    must(utofu_armw8(vcq, to->vcq, UTOFU_ARMW_OP_ADD, value, stadd, 1, flags_of(notice), NULL) == 0, "no atomic");
    must(ended(UTOFU_MRQ_TYPE_LCL_ARMW, &end) == 0, "an atomic that fails");
    return end.rmt_value;
}

target_t find(const uint8_t *address, size_t length, uint64_t uid)
{
    uint8_t ticket_queue[TICKET_QUEUE_BYTES];

    for (size_t i = 0; i + 2 + LOCATOR <= length; i++) {
        target_t found = {.uid = uid};
        if (address[i] != TOFU_SECTION || address[i + 1] != LOCATOR) {
            continue;
        }
        memcpy(&found.secret, address + i + 2, 3 * sizeof(uint64_t)); /* and the words behind it */
        if (raw_get(&found, found.ticket_queue, ticket_queue, TICKET_QUEUE_BYTES, 0) == UTOFU_SUCCESS) {
            return found;
        }
    }
    must(0, "the address names no listener");
    return (target_t){0};
}

uint32_t take_ticket(const target_t *to)
{
    return (uint32_t)raw_add(to, to->ticket_queue, 1, 0);
}

ring_request_t ring_request_to(const target_t *to, uint64_t from, uint32_t ticket)
{
    ring_request_t request = {
        .from         = from,
        .to           = to->uid,
        .secret       = to->secret,
        .back         = 1,
        .vcq          = own,
        .ticket_queue = memory_at + MEMORY / 2,
        .ctrl_word    = memory_at + CELL + TICKET_QUEUE_BYTES,
        .proof        = (uint32_t)from ^ 0x5555,
        .ticket       = ticket,
        .packet       = 16384,
    };

    memcpy(&request.magic, "rucp-tf2", sizeof(request.magic));
    return request;
}

void send_ring_request(const target_t *to, const ring_request_t *request)
{
    raw_put(to, to->ticket_queue + slot_at(request->ticket), request, sizeof(*request), 1);
}

grant_t connect_raw(const target_t *to, uint64_t from)
{
    ring_request_t    request   = ring_request_to(to, from, take_ticket(to));
    time_t            end       = time(NULL) + SECONDS;
    volatile grant_t *ctrl_word = (volatile grant_t *)(memory + CELL + TICKET_QUEUE_BYTES + GRANT_AT);
    grant_t           grant;

    memset((void *)ctrl_word, 0, sizeof(grant));
    send_ring_request(to, &request);
    while (ctrl_word->proof != request.proof) {
        must(time(NULL) < end, "no ring is granted");
        sched_yield();
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    memcpy(&grant, (const void *)ctrl_word, sizeof(grant));
    must(grant.size != 0, "no ring is given");
    return grant;
}

uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16 | *seed << 16;
}

void randomize(void *data, size_t length, uint32_t *seed)
{
    for (size_t i = 0; i < length; i++) {
        ((uint8_t *)data)[i] = (uint8_t)next_random(seed);
    }
}
