#!/usr/bin/env python3
"""Connects to a listener and sends bytes that no client sends; prints how many connections the server had to close.

usage: garbage.py ADDRESS PORT
"""
import os
import socket
import sys
import time

HELLO = b"rucp cs\x01"
SILENT = 300  # more than the backlog of a listener
TIMEOUT_SECONDS = 15


def connect():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=TIMEOUT_SECONDS)


def is_closed(s):
    """Whether the server closes, without having sent anything but a rejection."""
    s.settimeout(TIMEOUT_SECONDS)
    try:
        while s.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def main():
    closed = 0
    noise = [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, os.urandom(10_000), b"\xff", HELLO + b"\xff" * 100,
             # An address longer than any, an invalid address, an unknown error mode.
             HELLO + b"\0\0\0\0\xff\xff\0\0" + bytes(8), HELLO + b"\0\0\0\0\x40\0\0\0" + bytes(8) + os.urandom(64),
             HELLO + b"\0\0\0\0\x40\0\x09\0" + bytes(8)]
    for bytes_ in noise:
        s = connect()
        try:
            s.sendall(bytes_)
        except OSError:
            pass
        if not is_closed(s):
            sys.exit(f"{bytes_[:20]!r} is not answered by closing")
        s.close()
        closed += 1
    # Half a message, and then nothing: closed by a timeout.
    half = connect()
    half.sendall(HELLO + b"\0\0")
    # Connections that send nothing, more of them than the backlog.
    silent = [connect() for _ in range(SILENT)]
    began = time.monotonic()
    if not all(is_closed(s) for s in [half, *silent]):
        sys.exit("a silent connection is kept for ever")
    if time.monotonic() - began > TIMEOUT_SECONDS:
        sys.exit("a silent connection is kept too long")
    # Closed before anything is sent.
    for _ in range(20):
        connect().close()
    print(closed + SILENT + 1)


main()
