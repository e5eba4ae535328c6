/* The part of NVML that programs ask for the devices' places: libnvidia-ml.so.1, from the public documentation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_NOT_FOUND = 6 };
enum { MAX_DEVICES = 16 };

typedef struct device *nvmlDevice_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

static char devices[MAX_DEVICES]; /* a handle is the address of one */

static unsigned count_of(void)
{
    const char *set = getenv("SOFT_CUDA_DEVICES");
    unsigned count  = set != NULL ? (unsigned)atoi(set) : 1;

    return count < MAX_DEVICES ? count : MAX_DEVICES;
}

int nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
    switch (result) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_INVALID_ARGUMENT: return "A supplied argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED: return "The requested operation is not available on target device";
    case NVML_ERROR_NOT_FOUND: return "A query to find an object was unsuccessful";
    default: return "Unknown error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = count_of();
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (index >= count_of())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)&devices[index];
    return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    unsigned bus = (unsigned)((char *)device - devices) + 1; /* as CU_DEVICE_ATTRIBUTE_PCI_BUS_ID */

    memset(pci, 0, sizeof(*pci));
    pci->bus = bus;
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", bus);
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", bus);
    return NVML_SUCCESS;
}

/* There is no NVLink and no fabric. */
#define ABSENT(entry, ...)                                 \
    int entry(__VA_ARGS__);                                \
    int entry(__VA_ARGS__)                                 \
    {                                                      \
        return NVML_ERROR_NOT_SUPPORTED;                   \
    }
ABSENT(nvmlDeviceGetFieldValues, void)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2, void)
ABSENT(nvmlDeviceGetGpuFabricInfo, void)
ABSENT(nvmlDeviceGetGpuFabricInfoV, void)
