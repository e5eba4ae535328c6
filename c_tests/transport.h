/*
 * What the transport that a test runs on can do: the capabilities of c_tests/conformance/transports.txt, which its
 * runner passes in TRANSPORT_LACKS. Without this variable they follow from UCX_TLS.
 */
#ifndef RUCP_TRANSPORT_H
#define RUCP_TRANSPORT_H

#include <stdlib.h>
#include <string.h>

/* The capabilities that the transports in UCX_TLS lack, by the first of them; everything else is shared memory. */
static inline const char *transport_lacks_by_name(void)
{
    static const char *const lacks[][2] = {
        {"tcp", "memory put get atomics rndv_get"},
        {"rc", "memory rndv_get refusal"},
        {"ud", "memory put get atomics rndv_get delivery refusal"},
        {"tofu", "memory wakeup room_event refusal"},
        {"ofi", "memory put get atomics rndv_get cancel"},
        {"shmtest", "memory wakeup room_event put get atomics rndv_get"},
    };
    const char *transports = getenv("UCX_TLS");

    for (size_t i = 0; transports != NULL && i < sizeof(lacks) / sizeof(lacks[0]); i++) {
        size_t length = strlen(lacks[i][0]);
        if (strncmp(transports, lacks[i][0], length) == 0 && strstr(transports, ",sm") == NULL) {
            return lacks[i][1];
        }
    }
    return "atomics room_event";
}

static inline int transport_has(const char *capability)
{
    const char *lacks  = getenv("TRANSPORT_LACKS");
    size_t      length = strlen(capability);

    if (lacks == NULL) {
        lacks = transport_lacks_by_name();
    }
    for (const char *at = lacks; (at = strstr(at, capability)) != NULL; at += length) {
        if ((at == lacks || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return 0;
        }
    }
    return 1;
}

#endif
