/* Memory of GPUs by the driver: each call makes the context current that it needs, and takes it away again. */
#define _GNU_SOURCE
#include "gpu.h"

#include "mapped.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const place_names[] = {"host",   "gpu 0",  "gpu 1",  "managed",         "mapped 0",
                                   "mapped 1", "pool 0", "pool 1", "unshared mapped", "unshared pool"};

static CUcontext primary[2];

void good(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: error %d of the driver\n", what, result);
        _exit(7);
    }
}

void gpu_open(void)
{
    int devices;

    GOOD(cuInit(0));
    GOOD(cuDeviceGetCount(&devices));
    for (int i = 0; i < 2; i++) {
        GOOD(cuDevicePrimaryCtxRetain(&primary[i], i % devices));
    }
    gpu_thread();
}

void gpu_thread(void)
{
    if (!on_rucp()) {
        GOOD(cuCtxSetCurrent(primary[0]));
    }
}

static void enter(place_t place)
{
    GOOD(cuCtxPushCurrent_v2(primary[place == GPU1 || place == MAPPED1 || place == POOL1]));
}

static void leave(void)
{
    CUcontext context;

    GOOD(cuCtxPopCurrent_v2(&context));
}

area_t area_make(const side_t *side, place_t place, size_t length)
{
    area_t      area    = {.place = place, .length = length};
    CUdeviceptr address = 0;

    if (side == NULL) {
        return area;
    }
    if (place == HOST) {
        area.memory = malloc(length + 1);
        return area;
    }
    enter(place);
    switch (place) {
    case MANAGED: GOOD(cuMemAllocManaged(&address, length + 1, CU_MEM_ATTACH_GLOBAL)); break;
    case MAPPED0:
    case MAPPED1: address = mapped_make(place - MAPPED0, length + 1, 1); break;
    case POOL0:
    case POOL1: address = pooled_make(place - POOL0, length + 1, 1); break;
    case UNSHARED_MAPPED: address = mapped_make(0, length + 1, 0); break;
    case UNSHARED_POOL: address = pooled_make(0, length + 1, 0); break;
    default: GOOD(cuMemAlloc_v2(&address, length + 1));
    }
    leave();
    area.memory = (char *)(uintptr_t)address;
    return area;
}

void area_free(area_t *area)
{
    if (area->memory == NULL) {
        return;
    }
    if (area->place == HOST) {
        free(area->memory);
    } else {
        CUdeviceptr address = (CUdeviceptr)(uintptr_t)area->memory;
        enter(area->place);
        if (area->place == MAPPED0 || area->place == MAPPED1 || area->place == UNSHARED_MAPPED) {
            mapped_free(address);
        } else {
            GOOD(cuMemFree_v2(address));
        }
        leave();
    }
    area->memory = NULL;
}

void area_read(const area_t *area, size_t offset, void *out, size_t length)
{
    if (area->place == HOST) {
        memcpy(out, area->memory + offset, length);
        return;
    }
    enter(area->place);
    GOOD(cuMemcpyDtoH_v2(out, (CUdeviceptr)(uintptr_t)(area->memory + offset), length));
    leave();
}

void area_write(const area_t *area, size_t offset, const void *bytes, size_t length)
{
    if (area->place == HOST) {
        memcpy(area->memory + offset, bytes, length);
        return;
    }
    enter(area->place);
    GOOD(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)(area->memory + offset), bytes, length));
    leave();
}

void area_fill(const area_t *area, size_t offset, size_t length, unsigned seed)
{
    if (area->memory != NULL) {
        void *bytes = data_make(length, seed);
        area_write(area, offset, bytes, length);
        free(bytes);
    }
}

void area_set(const area_t *area, uint8_t value)
{
    if (area->memory != NULL) {
        void *bytes = malloc(area->length);
        memset(bytes, value, area->length);
        area_write(area, 0, bytes, area->length);
        free(bytes);
    }
}

static char *bytes_of(const area_t *area, size_t offset, size_t length)
{
    char *bytes = malloc(length + 1);

    area_read(area, offset, bytes, length);
    return bytes;
}

const char *area_check(const area_t *area, size_t offset, size_t length, size_t index, unsigned seed)
{
    if (area->memory == NULL) {
        return "elsewhere";
    }
    char       *bytes = bytes_of(area, offset, length);
    const char *found = data_check_at(bytes, index, length, seed);
    free(bytes);
    return found;
}

int area_is(const area_t *area, size_t offset, size_t length, uint8_t value)
{
    if (area->memory == NULL) {
        return 0;
    }
    char *bytes = bytes_of(area, offset, length);
    int   is    = data_is(bytes, length, value);
    free(bytes);
    return is;
}

ucs_memory_type_t area_type(place_t place)
{
    return place == HOST      ? UCS_MEMORY_TYPE_HOST :
           place == MANAGED   ? UCS_MEMORY_TYPE_CUDA_MANAGED :
                                UCS_MEMORY_TYPE_CUDA;
}

unsigned long long gpu_calls(const char *entry)
{
    return soft_cuda_count(entry);
}

unsigned long long gpu_copies(void)
{
    return gpu_calls("cuMemcpyAsync") + gpu_calls("cuMemcpyBatchAsync");
}

unsigned long long gpu_all_calls(void)
{
    static const char *const entries[] = {
        "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2", "cuCtxGetDevice", "cuCtxGetId", "cuPointerGetAttribute", "cuPointerGetAttributes",
        "cuPointerSetAttribute", "cuMemGetAddressRange_v2", "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemFree_v2",
        "cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemcpy", "cuMemcpyAsync", "cuMemcpyBatchAsync",
        "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuStreamCreate",
        "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamQuery", "cuLaunchHostFunc", "cuEventCreate",
        "cuEventRecord", "cuEventElapsedTime", "cuEventQuery", "cuEventSynchronize", "cuEventDestroy_v2",
        "cuMemGetHandleForAddressRange", "cuDeviceGetP2PAttribute", "cuDeviceCanAccessPeer", "cuIpcGetMemHandle",
        "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle",
    };
    unsigned long long calls = 0;

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        calls += soft_cuda_count(entries[i]);
    }
    return calls;
}

void gpu_fault(const char *assignments)
{
    if (soft_cuda_fault(assignments) != 0) {
        fprintf(stderr, "no such fault: %s\n", assignments);
        _exit(7);
    }
}

void want(const side_t *side, int fine, const char *format, ...)
{
    char    text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fact(side, "%s %s", fine ? "ok " : "BAD", text);
}

static long log_at;

void logged_again(void)
{
    log_at = 0;
}

unsigned logged(const char *text)
{
    char        path[512], line[4096];
    unsigned    found = 0;

    snprintf(path, sizeof(path), "%s.%d", getenv("LOG"), (int)getpid());
    FILE *log = fopen(path, "r");
    if (log == NULL) {
        return 0;
    }
    fseek(log, log_at, SEEK_SET);
    while (fgets(line, sizeof(line), log) != NULL) {
        found += strstr(line, text) != NULL;
    }
    log_at = ftell(log);
    fclose(log);
    return found;
}

unsigned printed(const char *text)
{
    logged_again();
    return logged(text);
}
