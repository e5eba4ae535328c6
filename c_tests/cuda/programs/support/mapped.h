/* Memory of cuMemMap and of pools, on either of two devices; the device's primary context is current. */
#ifndef MAPPED_H
#define MAPPED_H

#include "../../driver.h"

/* Ends the process with a line where a call of the driver fails. */
void good(CUresult result, const char *what);
#define GOOD(call) good(call, #call)

/* `shareable`: it can be exported as a descriptor. */
CUdeviceptr mapped_make(int device, size_t length, int shareable);
void        mapped_free(CUdeviceptr address);
/* Other memory at the same addresses, which stay reserved. */
void mapped_exchange(CUdeviceptr address, int device, int shareable);
/* Of a pool of the device that is made once, or of the device's own pool, which is not shareable; for cuMemFree. */
CUdeviceptr pooled_make(int device, size_t length, int shareable);
/* Ends the pools that were made. */
void pools_end(void);

#endif
