#!/usr/bin/env python3
"""Tag matching from Python by ctypes alone: two processes send a message back and forth.

usage: tag_pingpong.py [LIBUCP]        default: the libucp.so.0 that the loader finds
"""
import ctypes
import os
import socket
import struct
import sys
import time

UCS_INPROGRESS = 1
UCP_API_VERSION = 1, 22
UCP_PARAM_FIELD_FEATURES, UCP_FEATURE_TAG = 1, 1
UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = 1
TAG, ALL_BITS = 7, 2**64 - 1
SIZE, ROUNDS = 1024, 1000


class Params(ctypes.Structure):
    """The fields of ucp_params_t that are used here; the library reads no other without its bit in the mask."""
    _fields_ = [("field_mask", ctypes.c_uint64), ("features", ctypes.c_uint64)]


class EpParams(ctypes.Structure):
    """The fields of ucp_ep_params_t that are used here."""
    _fields_ = [("field_mask", ctypes.c_uint64), ("address", ctypes.c_char_p)]


# ucp_worker_params_t and ucp_request_param_t with nothing in their masks.
PLAIN = (ctypes.c_uint64 * 64)()


def load(path):
    ucp = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    for name, *arguments in (
        ("ucp_tag_send_nbx", pointer, pointer, ctypes.c_size_t, ctypes.c_uint64, pointer),
        ("ucp_tag_recv_nbx", pointer, pointer, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint64, pointer),
        ("ucp_ep_close_nbx", pointer, pointer),
    ):
        getattr(ucp, name).argtypes = arguments
        getattr(ucp, name).restype = ctypes.c_ssize_t  # a request, 0, or a negative status
    # ucs_status_t has one byte.
    for name in ("ucp_init_version", "ucp_worker_create", "ucp_worker_get_address", "ucp_ep_create",
                 "ucp_request_check_status"):
        getattr(ucp, name).restype = ctypes.c_int8
    for name in (
        "ucp_worker_progress",
        "ucp_worker_destroy",
        "ucp_cleanup",
        "ucp_request_free",
        "ucp_request_check_status",
    ):
        getattr(ucp, name).argtypes = [pointer]
    return ucp


def made(function, *arguments):
    """Calls a function that returns a handle by its last argument."""
    handle = ctypes.c_void_p()
    status = function(*arguments, ctypes.byref(handle))
    if status != 0:
        sys.exit(f"{function.__name__}: status {status}")
    return handle


def wait_for(ucp, worker, request):
    """Progresses until an operation is complete."""
    if -100 <= request < 0:
        sys.exit(f"an operation failed: status {request}")
    if request == 0:
        return
    while (status := ucp.ucp_request_check_status(request)) == UCS_INPROGRESS:
        ucp.ucp_worker_progress(worker)
    ucp.ucp_request_free(request)
    if status != 0:
        sys.exit(f"a request failed: status {status}")


def connect(ucp, worker, link):
    """Exchanges worker addresses with the other process; returns an endpoint to it."""
    length = ctypes.c_size_t()
    address = ctypes.c_void_p()
    if ucp.ucp_worker_get_address(worker, ctypes.byref(address), ctypes.byref(length)) != 0:
        sys.exit("ucp_worker_get_address")
    link.sendall(struct.pack("@N", length.value) + ctypes.string_at(address, length.value))
    ucp.ucp_worker_release_address(worker, address)
    incoming = link.makefile("rb")
    (size,) = struct.unpack("@N", incoming.read(struct.calcsize("@N")))
    params = EpParams(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, incoming.read(size))
    # The structure's later fields are behind the declared ones.
    return made(ucp.ucp_ep_create, worker, ctypes.byref(params))


def main():
    link = socket.socketpair()
    # Before any context exists.
    child = os.fork()
    rank = int(child == 0)
    link = link[rank]
    ucp = load(sys.argv[1] if len(sys.argv) > 1 else "libucp.so.0")
    params = Params(UCP_PARAM_FIELD_FEATURES, UCP_FEATURE_TAG)
    context = made(ucp.ucp_init_version, *UCP_API_VERSION, ctypes.byref(params), None)
    worker = made(ucp.ucp_worker_create, context, PLAIN)
    ep = connect(ucp, worker, link)

    buffer = ctypes.create_string_buffer(b"p" * SIZE if rank == 0 else b"", SIZE)

    def send():
        wait_for(ucp, worker, ucp.ucp_tag_send_nbx(ep, buffer, SIZE, TAG, PLAIN))

    def receive():
        wait_for(ucp, worker, ucp.ucp_tag_recv_nbx(worker, buffer, SIZE, TAG, ALL_BITS, PLAIN))

    begin = time.monotonic()
    for _ in range(ROUNDS):
        for step in (send, receive) if rank == 0 else (receive, send):
            step()
    if rank == 0:
        took = (time.monotonic() - begin) / ROUNDS / 2
        print(f"{SIZE} bytes: {took * 1e6:.1f} us")
    assert buffer.raw == b"p" * SIZE

    wait_for(ucp, worker, ucp.ucp_ep_close_nbx(ep, PLAIN))
    # The other process may still need this worker's progress for its own close.
    link.sendall(b"d")
    link.setblocking(False)
    while True:
        try:
            link.recv(1)
            break
        except BlockingIOError:
            ucp.ucp_worker_progress(worker)
    ucp.ucp_worker_destroy(worker)
    ucp.ucp_cleanup(context)
    if rank == 0:
        _, status = os.waitpid(child, 0)
        sys.exit(status != 0)


main()
