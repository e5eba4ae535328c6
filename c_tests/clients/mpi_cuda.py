"""mpi4py with memory of GPUs of the software driver: point-to-point messages of contiguous memory.

Run by c_tests/clients/run under mpirun on two ranks. Memory is passed by `__cuda_array_interface__`. The MPI need not
be built with CUDA: its UCX component passes the address of contiguous memory to UCP as it is.
"""
import numpy as np
from mpi4py import MPI
from soft_gpu import Driver, GpuBuffer

SIZES = [1, 8, 1000, 8192, 100_000, 5 << 20]


def pattern(size):
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


def main():
    world = MPI.COMM_WORLD
    rank, other = world.rank, 1 - world.rank
    driver = Driver(rank)
    for size in SIZES:
        buffer = GpuBuffer(driver, size)
        buffer.write(pattern(size) if rank == 0 else np.zeros(size, np.uint8))
        if rank == 0:
            world.Send([buffer, MPI.BYTE], other)
            buffer.write(np.zeros(size, np.uint8))
            world.Recv([buffer, MPI.BYTE], other)
            assert np.array_equal(buffer.read(), ~pattern(size)), f"{size} bytes at rank 0"
            print(f"ok  memory of GPUs, {size} bytes", flush=True)
        else:
            world.Recv([buffer, MPI.BYTE], other)
            got = buffer.read()
            assert np.array_equal(got, pattern(size)), f"{size} bytes at rank 1"
            buffer.write(~got)
            world.Send([buffer, MPI.BYTE], other)


main()
