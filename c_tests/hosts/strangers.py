#!/usr/bin/env python3
"""Connects to a listener and says what no client says; prints how many connections the server had to close.

usage: strangers.py ADDRESS PORT
"""
import os
import socket
import sys
import time

HELLO = b"rucp cs\x01"
SILENT = 300  # more than a listener keeps waiting at a time
PATIENCE_SECONDS = 15


def connect():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=PATIENCE_SECONDS)


def is_closed(s):
    """Whether the server closes, without having said anything but a refusal."""
    s.settimeout(PATIENCE_SECONDS)
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
             # An address longer than any, an address that is none, an error mode that there is not.
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
    # Half a message, and then nothing: goes in time.
    half = connect()
    half.sendall(HELLO + b"\0\0")
    # Nothing at all, more of them than there is room for.
    silent = [connect() for _ in range(SILENT)]
    began = time.monotonic()
    if not all(is_closed(s) for s in [half, *silent]):
        sys.exit("somebody who says nothing is kept for ever")
    if time.monotonic() - began > PATIENCE_SECONDS:
        sys.exit("somebody who says nothing is kept for long")
    # Gone before a word.
    for _ in range(20):
        connect().close()
    print(closed + SILENT + 1)


main()
