/* Descriptors of device memory for other devices. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"

enum { PAGE_BYTES = 4096, BYTES = 5 * PAGE_BYTES };

static CUresult export(CUdeviceptr at, size_t bytes, int *fd)
{
    return cuMemGetHandleForAddressRange(fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

/* The first byte of the memory of a descriptor. */
static char first_byte(int fd)
{
    off_t begin = lseek(fd, 0, SEEK_CUR);
    char *mapped = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, begin), byte;

    CHECK(begin >= 0 && mapped != MAP_FAILED);
    byte = mapped[0];
    munmap(mapped, PAGE_BYTES);
    return byte;
}

void dmabuf_active(int socket)
{
    CUdeviceptr device, managed;
    int supported = 0, whole = -1, part = -1;

    (void)socket;
    begin(0);
    GOOD(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    EQUAL(supported, 1);
    device = device_bytes(BYTES);
    GOOD(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    GOOD(cuMemsetD8_v2(device, 'a', BYTES));
    GOOD(cuMemsetD8_v2(device + 2 * PAGE_BYTES, 'b', PAGE_BYTES));
    EQUAL(export(device + 1, PAGE_BYTES, &part), CUDA_ERROR_INVALID_VALUE);
    EQUAL(export(device, BYTES + PAGE_BYTES, &part), CUDA_ERROR_INVALID_VALUE);
    EQUAL(export(managed, BYTES, &part), CUDA_ERROR_INVALID_VALUE);
    GOOD(export(device, BYTES, &whole));
    GOOD(export(device + 2 * PAGE_BYTES, PAGE_BYTES, &part));
    EQUAL(first_byte(whole), 'a');
    EQUAL(first_byte(part), 'b');
    /* A descriptor keeps the memory; what takes its place is other memory. */
    GOOD(cuMemFree_v2(device));
    EQUAL(device_bytes(BYTES), device);
    GOOD(cuMemsetD8_v2(device, 'c', BYTES));
    EQUAL(first_byte(whole), 'a');
    close(whole);
    close(part);
}

void no_dmabuf_active(int socket)
{
    int supported = 1, fd = -1;

    (void)socket;
    begin(0);
    GOOD(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    EQUAL(supported, 0);
    EQUAL(export(device_bytes(BYTES), BYTES, &fd), CUDA_ERROR_NOT_SUPPORTED);
}
