"""UCXX between two processes, in host memory: tags, objects, several buffers at once, active messages, streams.
Endpoints by a listener and by a worker's address; a peer that is killed.

Started by c_tests/clients/run, once for each progress mode (UCXPY_PROGRESS_MODE). The server sends back everything it
receives; the client compares.
"""
import asyncio
import multiprocessing
import os
import re
import signal

import numpy as np
import ucxx
from ucxx._lib.arr import Array

SIZES = [1, 8, 1000, 8192, 100_000, 5 << 20]
LIMIT = 40  # seconds for one step


def pattern(size):
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


def prove():
    """Prints the progress mode, and fails if it is not the requested one."""
    ucxx.init()  # in the event loop: it gets notifications
    with open("/proc/self/maps") as maps:
        mapped = {os.path.realpath(path) for path in re.findall(r"(/\S*/libucp\S*)", maps.read())}
    expected = os.environ.get("EXPECT_LIBUCP")
    assert expected is None or os.path.realpath(expected) in mapped, f"{expected} is not among {mapped}"
    version = ".".join(map(str, ucxx.get_ucx_version()))
    print(f"# UCX {version}, progress by {os.environ['UCXPY_PROGRESS_MODE']}", flush=True)


async def stream(ep, operation, buffer):
    await getattr(ep._ep, operation)(Array(buffer)).wait()


async def echo(ep):
    for size in SIZES:
        buffer = np.empty(size, np.uint8)
        await ep.recv(buffer)
        await ep.send(buffer)
        await ep.am_send(await ep.am_recv())
        await stream(ep, "stream_recv", buffer)
        await stream(ep, "stream_send", buffer)
    await ep.send_obj(await ep.recv_obj())
    await ep.send_multi(await ep.recv_multi())


async def talk(ep):
    for size in SIZES:
        sent, got = pattern(size), np.zeros(size, np.uint8)
        await ep.send(sent)
        await ep.recv(got)
        assert np.array_equal(sent, got), f"tag, {size} bytes"
        await ep.am_send(sent)
        got = await ep.am_recv()
        assert np.array_equal(sent, np.frombuffer(got, np.uint8)), f"active message, {size} bytes"
        got = np.zeros(size, np.uint8)
        await asyncio.gather(stream(ep, "stream_send", sent), stream(ep, "stream_recv", got))
        assert np.array_equal(sent, got), f"stream, {size} bytes"
    await ep.send_obj(b"an object")
    assert bytes(await ep.recv_obj()) == b"an object"
    several = [pattern(size) for size in SIZES[1:]]
    await ep.send_multi(several)
    back = await ep.recv_multi()
    assert all(np.array_equal(a, np.frombuffer(b, np.uint8)) for a, b in zip(several, back, strict=True))


async def serve(link):
    async def on_client(ep):
        await echo(ep)
        link.send("served")
        await hold.wait()

    hold = asyncio.Event()
    listener = ucxx.create_listener(on_client)
    link.send((listener.port, bytes(ucxx.get_worker_address())))
    # The other end of an endpoint by address: made here from the client's address, sent over the pipe.
    address = await asyncio.get_running_loop().run_in_executor(None, link.recv)
    ep = await ucxx.create_endpoint_from_worker_address(ucxx.get_ucx_address_from_buffer(address))
    for size in SIZES:
        buffer = np.empty(size, np.uint8)
        await ep.recv(buffer, tag=7, force_tag=True)
        await ep.send(buffer, tag=8, force_tag=True)
    await hold.wait()  # until killed


async def call(link, server):
    prove()
    port, address = link.recv()
    ep = await ucxx.create_endpoint("127.0.0.1", port)
    await talk(ep)
    assert link.recv() == "served"
    print("ok  by listener", flush=True)
    link.send(bytes(ucxx.get_worker_address()))
    by_address = await ucxx.create_endpoint_from_worker_address(ucxx.get_ucx_address_from_buffer(address))
    for size in SIZES:
        sent, got = pattern(size), np.zeros(size, np.uint8)
        await asyncio.gather(by_address.send(sent, tag=7, force_tag=True), by_address.recv(got, tag=8, force_tag=True))
        assert np.array_equal(sent, got), f"by address, {size} bytes"
    print("ok  by address", flush=True)
    waiting = asyncio.ensure_future(ep.recv(np.empty(8, np.uint8)))
    await asyncio.sleep(0)
    os.kill(server.pid, signal.SIGKILL)
    server.join()
    try:
        await waiting
        raise AssertionError("received from a process that was killed")
    except ucxx.exceptions.UCXError as error:
        print(f"# {type(error).__name__}")
    while ep.alive or by_address.alive:
        await asyncio.sleep(0)
        if not os.environ["UCXPY_PROGRESS_MODE"].startswith("thread"):
            ucxx.progress()
    print("ok  killed peer", flush=True)


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, LIMIT))
    ucxx.stop_notifier_thread()


def server_main(link):
    run(serve(link))


def main():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=server_main, args=(there,), daemon=True)
    server.start()
    there.close()
    run(call(here, server))


if __name__ == "__main__":
    main()
