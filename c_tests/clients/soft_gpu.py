"""Memory of a GPU by the driver API alone, which is what the software driver (c_tests/cuda) has."""
import ctypes

import numpy as np


class Driver:
    """The driver, with the primary context of a device current in this thread."""

    def __init__(self, device):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.enter()

    def enter(self):
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise OSError(f"{name}: error {result} of the driver")


class GpuBuffer:
    """Bytes of a device, which are read and written as arrays of numpy."""

    def __init__(self, driver, size):
        self.driver, self.size = driver, size
        address = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = address.value

    def write(self, array):
        """`array`: bytes, contiguous."""
        self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), ctypes.c_void_p(array.ctypes.data),
                         ctypes.c_size_t(array.nbytes))  # fmt: skip

    def read(self):
        array = np.empty(self.size, np.uint8)
        self.driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(self.address),
                         ctypes.c_size_t(self.size))  # fmt: skip
        return array

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3, "stream": None}
