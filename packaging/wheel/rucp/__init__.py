"""rucp: the library libucp.so.0, and commands that run programs on it (`python -m rucp --help`)."""

from pathlib import Path


def library() -> Path:
    """The absolute path of this package's libucp.so.0."""
    return Path(__file__).resolve().parent / "lib" / "libucp.so.0"


def heap_library() -> Path:
    """The absolute path of this package's librucp_heap.so."""
    return library().with_name("librucp_heap.so")
