/* Facts: the lines that a side prints, in shared memory, so that they survive a crash of the process. */
#define _GNU_SOURCE
#include "bed.h"
#include "../../transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FACTS_SIZE (1u << 20)

struct facts {
    size_t length;
    char   text[];
};

facts_t *facts_create(void)
{
    void *memory = mmap(NULL, FACTS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return memory;
}

void facts_print(const facts_t *facts, char side)
{
    printf("== %c\n", side);
    fwrite(facts->text, 1, facts->length, stdout);
}

static void add(facts_t *facts, const char *format, va_list arguments)
{
    size_t room    = FACTS_SIZE - sizeof(*facts) - facts->length - 1;
    int    written = vsnprintf(facts->text + facts->length, room, format, arguments);

    if (written > 0 && (size_t)written < room) {
        facts->text[facts->length + (size_t)written] = '\n';
        facts->length += (size_t)written + 1;
    }
}

void fact(const side_t *side, const char *format, ...)
{
    va_list arguments;

    if (side == NULL) {
        return;
    }
    va_start(arguments, format);
    add(side->facts, format, arguments);
    va_end(arguments);
}

void rule(const side_t *side, const char *name, const char *format, ...)
{
    char    named[512];
    va_list arguments;

    if (side == NULL) {
        return;
    }
    snprintf(named, sizeof(named), "[%s] %s", name, format);
    va_start(arguments, format);
    add(side->facts, named, arguments);
    va_end(arguments);
}

static unsigned library_minor(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    return minor;
}

int on_rucp(void)
{
    return library_minor() >= 23;
}

int on_ucx_1_13(void)
{
    return library_minor() == 13;
}

int over_sockets(void)
{
    return getenv("BED_USERS") != NULL || !transport_has("memory");
}

void rule_departs(const side_t *side, const departure_t *departure, const char *actual)
{
    const char *expected = on_rucp()     ? departure->on_rucp :
                           on_ucx_1_13() ? departure->on_1_13 :
                                           departure->on_1_22;

    if (expected == NULL || strcmp(expected, actual) == 0) {
        rule(side, departure->name, "each library its own answer: %s", departure->why);
    } else {
        rule(side, departure->name, "%s, and not %s", actual, expected);
    }
}

void must(const side_t *side, ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fact(side, "CANNOT GO ON: %s: %s", what, status_name(status));
        _exit(4);
    }
}

const char *status_name(ucs_status_t status)
{
    static const struct {
        ucs_status_t status;
        const char  *name;
    } names[] = {
        {UCS_OK, "OK"},
        {UCS_INPROGRESS, "INPROGRESS"},
        {UCS_ERR_NO_MESSAGE, "NO_MESSAGE"},
        {UCS_ERR_NO_RESOURCE, "NO_RESOURCE"},
        {UCS_ERR_IO_ERROR, "IO_ERROR"},
        {UCS_ERR_NO_MEMORY, "NO_MEMORY"},
        {UCS_ERR_INVALID_PARAM, "INVALID_PARAM"},
        {UCS_ERR_UNREACHABLE, "UNREACHABLE"},
        {UCS_ERR_INVALID_ADDR, "INVALID_ADDR"},
        {UCS_ERR_NOT_IMPLEMENTED, "NOT_IMPLEMENTED"},
        {UCS_ERR_MESSAGE_TRUNCATED, "MESSAGE_TRUNCATED"},
        {UCS_ERR_NO_PROGRESS, "NO_PROGRESS"},
        {UCS_ERR_BUFFER_TOO_SMALL, "BUFFER_TOO_SMALL"},
        {UCS_ERR_NO_ELEM, "NO_ELEM"},
        {UCS_ERR_NO_DEVICE, "NO_DEVICE"},
        {UCS_ERR_BUSY, "BUSY"},
        {UCS_ERR_CANCELED, "CANCELED"},
        {UCS_ERR_ALREADY_EXISTS, "ALREADY_EXISTS"},
        {UCS_ERR_OUT_OF_RANGE, "OUT_OF_RANGE"},
        {UCS_ERR_TIMED_OUT, "TIMED_OUT"},
        {UCS_ERR_EXCEEDS_LIMIT, "EXCEEDS_LIMIT"},
        {UCS_ERR_UNSUPPORTED, "UNSUPPORTED"},
        {UCS_ERR_REJECTED, "REJECTED"},
        {UCS_ERR_NOT_CONNECTED, "NOT_CONNECTED"},
        {UCS_ERR_CONNECTION_RESET, "CONNECTION_RESET"},
        {UCS_ERR_ENDPOINT_TIMEOUT, "ENDPOINT_TIMEOUT"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].status == status) {
            return names[i].name;
        }
    }
    return "a status without a name";
}

const char *ptr_status_name(ucs_status_ptr_t ptr)
{
    return UCS_PTR_IS_PTR(ptr) ? "request" : status_name(UCS_PTR_STATUS(ptr));
}
