"""UCXX between two processes with memory of two GPUs: tags, active messages out of it, streams.

Started by c_tests/clients/run on the software driver. The memory is passed by `__cuda_array_interface__`; NVIDIA's
runtime, which RMM and CuPy need, is not used. The server sends back everything it receives; the client compares.
"""
import asyncio
import multiprocessing

import numpy as np
import ucxx
from soft_gpu import Driver, GpuBuffer
from ucxx_host import SIZES, pattern, prove, stream

LIMIT = 60  # seconds


async def echo(ep, driver):
    for size in SIZES:
        buffer = GpuBuffer(driver, size)
        await ep.recv(buffer)
        await ep.send(buffer)
        await stream(ep, "stream_recv", buffer)
        await stream(ep, "stream_send", buffer)


async def talk(ep, driver):
    for size in SIZES:
        sent, got = GpuBuffer(driver, size), GpuBuffer(driver, size)
        expected = pattern(size)
        sent.write(expected)
        got.write(np.zeros(size, np.uint8))
        await ep.send(sent)
        await ep.recv(got)
        assert np.array_equal(got.read(), expected), f"tag, {size} bytes"
        got.write(np.zeros(size, np.uint8))
        await asyncio.gather(stream(ep, "stream_send", sent), stream(ep, "stream_recv", got))
        assert np.array_equal(got.read(), expected), f"stream, {size} bytes"
        print(f"ok  memory of GPUs, {size} bytes", flush=True)


async def serve(link):
    driver = Driver(1)

    async def on_client(ep):
        await echo(ep, driver)
        done.set()

    done = asyncio.Event()
    prove()
    listener = ucxx.create_listener(on_client)
    link.send(listener.port)
    await asyncio.wait_for(done.wait(), LIMIT)
    await asyncio.get_running_loop().run_in_executor(None, link.recv)  # the client has it all


async def connect(link):
    driver = Driver(0)
    prove()
    ep = await ucxx.create_endpoint(ucxx.get_address(), link.recv())
    await asyncio.wait_for(talk(ep, driver), LIMIT)
    link.send("done")


def run(side, link):
    asyncio.run(side(link))


def main():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    processes = [context.Process(target=run, args=(serve, here)), context.Process(target=run, args=(connect, there))]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * LIMIT)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0, 0], f"exit codes {codes}"


if __name__ == "__main__":
    main()
