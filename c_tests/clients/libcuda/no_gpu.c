/*
 * A CUDA driver without devices, for clients that do not load without a driver though they use none.
 * c_tests/clients/run builds it as libcuda.so.1.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100, VERSION = 12090 };

typedef void (*function_t)(void);

static int fail(void)
{
    return NO_DEVICE;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

int cuGetErrorName(int error, const char **name)
{
    (void)error;
    *name = "CUDA_ERROR_NO_DEVICE";
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "no device";
    return SUCCESS;
}

int cuMemFree_v2(uint64_t memory)
{
    (void)memory;
    return NO_DEVICE;
}

int cuMemFreeHost(void *memory)
{
    (void)memory;
    return NO_DEVICE;
}

int cuGetProcAddress_v2(const char *symbol, function_t *function, int version, uint64_t flags, int *status);

int cuGetProcAddress(const char *symbol, function_t *function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

int cuGetProcAddress_v2(const char *symbol, function_t *function, int version, uint64_t flags, int *status)
{
    static const struct {
        const char *name;
        function_t  function;
    } known[] = {{"cuDriverGetVersion", (function_t)cuDriverGetVersion},
                 {"cuGetErrorName", (function_t)cuGetErrorName},
                 {"cuGetErrorString", (function_t)cuGetErrorString},
                 {"cuGetProcAddress", (function_t)cuGetProcAddress_v2}};

    (void)version, (void)flags;
    *function = (function_t)fail;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(symbol, known[i].name) == 0) {
            *function = known[i].function;
        }
    }
    if (status != NULL) {
        *status = SUCCESS;
    }
    return SUCCESS;
}
