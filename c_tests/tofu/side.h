/*
 * One side of a test of the software Tofu: a process with a VCQ and registered memory, and the exchange between two
 * sides.
 */
#ifndef SOFT_TOFU_SIDE_H
#define SOFT_TOFU_SIDE_H

#include <stdbool.h>

#include "../soft/sides.h"
#include "utofu.h"

enum { BUFFER = 1 << 20 };

/* Short names of the flags. */
enum {
    TCQ = UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
    LOCAL = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
    REMOTE = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE,
    STRONG = UTOFU_ONESIDED_FLAG_STRONG_ORDER,
};

struct side {
    int socket; /* to the other side */
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t id;
    char *buffer; /* BUFFER bytes */
    utofu_stadd_t stadd;
};

/* Message from one side to the other. */
struct hello {
    utofu_vcq_id_t id;
    utofu_stadd_t stadd;
};

#define GOOD(call) EQUAL(call, UTOFU_SUCCESS)

void set_node(int node); /* of this process, before its first call */
extern bool memory_is_shared; /* so that other processes can map it */
char *memory(size_t bytes);
struct side *side_open(int socket, unsigned long vcq_flags);
struct hello side_meet(struct side *side); /* sends `hello` to the other side and returns the other's */
void side_signal(struct side *side);         /* sends a byte, on which the other side continues */
void side_wait(struct side *side);        /* waits for a byte */
/* The next notice of the MRQ or entry of the TCQ, for up to 40 s; the code of the poll, or NOT_FOUND. */
int mrq_next(utofu_vcq_hdl_t vcq, struct utofu_mrq_notice *notice);
int tcq_next(utofu_vcq_hdl_t vcq, void **cbdata);
/* The next notice must be of this type and this code. */
struct utofu_mrq_notice expect_at(int line, const char *file, utofu_vcq_hdl_t vcq, int type, int code);
#define expect(vcq, type, code) expect_at(__LINE__, __FILE__, vcq, type, code)
bool queues_empty(utofu_vcq_hdl_t vcq); /* both queues are empty */
void fault(const char *assignments); /* tofuctl */
uint64_t counter(const char *name);
uint64_t clock_ns(void);

#endif
