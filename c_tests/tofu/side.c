/* One side of a test of the software Tofu. */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

void set_node(int node)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", node);
    setenv("SOFT_TOFU_NODE", text, 1);
}

bool memory_is_shared;

char *memory(size_t bytes)
{
    int kind = memory_is_shared ? MAP_SHARED : MAP_PRIVATE;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

struct side *side_open(int socket, unsigned long vcq_flags)
{
    struct side *side = calloc(1, sizeof(*side));

    side->socket = socket;
    GOOD(utofu_create_vcq(0, vcq_flags, &side->vcq));
    GOOD(utofu_query_vcq_id(side->vcq, &side->id));
    side->buffer = memory(BUFFER);
    GOOD(utofu_reg_mem(side->vcq, side->buffer, BUFFER, 0, &side->stadd));
    return side;
}

struct hello side_meet(struct side *side)
{
    struct hello own = {side->id, side->stadd}, other;

    EQUAL(write(side->socket, &own, sizeof(own)), sizeof(own));
    EQUAL(read(side->socket, &other, sizeof(other)), sizeof(other));
    return other;
}

void side_signal(struct side *side)
{
    EQUAL(write(side->socket, "", 1), 1);
}

void side_wait(struct side *side)
{
    char byte;

    EQUAL(read(side->socket, &byte, 1), 1);
}

uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

#define NEXT(call)                                                     \
    do {                                                               \
        uint64_t end = clock_ns() + 20000000000ULL;                    \
        int code;                                                      \
                                                                       \
        while ((code = (call)) == UTOFU_ERR_NOT_FOUND) {               \
            if (clock_ns() > end)                                      \
                break;                                                 \
            sched_yield();                                             \
        }                                                              \
        return code;                                                   \
    } while (0)

int mrq_next(utofu_vcq_hdl_t vcq, struct utofu_mrq_notice *notice)
{
    NEXT(utofu_poll_mrq(vcq, 0, notice));
}

int tcq_next(utofu_vcq_hdl_t vcq, void **cbdata)
{
    NEXT(utofu_poll_tcq(vcq, 0, cbdata));
}

struct utofu_mrq_notice expect_at(int line, const char *file, utofu_vcq_hdl_t vcq, int type, int code)
{
    struct utofu_mrq_notice notice = {.notice_type = 255};
    int came = mrq_next(vcq, &notice);

    if (came != code || notice.notice_type != type) {
        fprintf(stderr, "%s:%d: the notice has code %d and type %d, not %d and %d\n", file, line, came,
                notice.notice_type, code, type);
        exit(1);
    }
    return notice;
}

bool queues_empty(utofu_vcq_hdl_t vcq)
{
    struct utofu_mrq_notice notice;
    void *cbdata;

    return utofu_poll_mrq(vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND &&
           utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_ERR_NOT_FOUND;
}

void fault(const char *assignments)
{
    char command[512];

    snprintf(command, sizeof(command), "\"$TOFUCTL\" %s", assignments);
    EQUAL(system(command), 0);
}

uint64_t counter(const char *name)
{
    FILE *output = popen("\"$TOFUCTL\"", "r");
    unsigned long long value = 0;
    bool found = false;
    char line[128];

    while (fgets(line, sizeof(line), output) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '=') {
            sscanf(line + strlen(name) + 1, "%llu", &value);
            found = true;
        }
    CHECK(found && pclose(output) == 0);
    return value;
}
