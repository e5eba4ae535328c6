"""Ways to stage a fault for a process: limits, filters of system calls, namespaces, mounts."""
import ctypes
import json
import os
import platform
import resource
import shlex
import struct
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Numbers of system calls: asm/unistd.h.
CALLS = {
    "x86_64": {"process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "socket": 41},
    "aarch64": {"process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279, "socket": 198},
}[platform.machine()]
AF_NETLINK = 16
EPERM = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class FilterProgram(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def refuse(*calls):
    """Installs a seccomp filter in the calling process: these system calls fail with EPERM; of `netlink`, socket."""
    load, equal, answer = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    allow, fail = 0x7FFF0000, 0x00050000 | EPERM
    steps = [(load, 0, 0, 0)]
    for call in calls:
        if call == "netlink":
            # Argument 0 is behind number, architecture and instruction pointer.
            steps += [(equal, 0, 4, CALLS["socket"]), (load, 0, 0, 16), (equal, 0, 1, AF_NETLINK),
                      (answer, 0, 0, fail), (load, 0, 0, 0)]
        else:
            steps += [(equal, 0, 1, CALLS[call]), (answer, 0, 0, fail)]
    steps.append((answer, 0, 0, allow))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = FilterProgram(len(steps), ctypes.cast(ctypes.create_string_buffer(code), ctypes.c_void_p))
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    if LIBC.prctl(no_new_privileges, 1, 0, 0, 0) or LIBC.prctl(set_seccomp, mode_filter, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


def limit(name, value):
    """A function that sets a limit of the process that calls it."""
    return lambda: resource.setrlimit(getattr(resource, name), (value, value))


def shell(namespaces, script):
    """A command prefix: runs a script in namespaces of its own (options of unshare), then the command."""
    return ["unshare", *shlex.split(namespaces), "sh", "-c", f"set -e; {script}\nexec \"$@\"", "sh"]


def build(bench, name, source, *options, compiler="cc"):
    """Compiles a program or a library."""
    path = os.path.join(bench.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run([compiler, "-x", "c", "-", "-x", "none", "-o", path, *options], input=source.encode(), check=True)
    return path


def read(stdout, stderr):
    """The report on standard output, or in its place what went wrong."""
    try:
        return json.loads(stdout)
    except ValueError:
        return {"findings": [], "trouble": (stdout + stderr).decode(errors="replace")}


# A network namespace with a working loopback.
LO = "ip link set lo up;"
# A private /dev, and a /sys/class with one RDMA device whose port is active and whose file all may open.
RDMA = """
mount -t tmpfs tmpfs /media
mkdir /media/dev
mount --rbind /dev /media/dev
mount -t tmpfs -o mode=755 tmpfs /dev
mkdir /dev/shm /dev/infiniband
for name in null zero urandom; do touch /dev/$name; mount --bind /media/dev/$name /dev/$name; done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /sys/class
mkdir -p /sys/class/infiniband/mlx5_0/ports/1 /sys/class/infiniband_verbs/uverbs0
echo '4: ACTIVE' > /sys/class/infiniband/mlx5_0/ports/1/state
echo mlx5_0 > /sys/class/infiniband_verbs/uverbs0/ibdev
touch /dev/infiniband/uverbs0
chmod 666 /dev/infiniband/uverbs0
"""
# A private /proc/sys/kernel with Yama's restriction of ptrace: the kernel of the tests need not have Yama.
YAMA = """
mount -t tmpfs -o mode=755 tmpfs /media
mkdir /media/random /media/yama
cp /proc/sys/kernel/random/boot_id /media/random/
cp /proc/sys/kernel/hostname /proc/sys/kernel/shm* /media/
echo 2 > /media/yama/ptrace_scope
mount --bind /media /proc/sys/kernel
"""
# Another boot id: to the library, another host.
OTHER_HOST = """
mount -t tmpfs -o mode=755 tmpfs /media
echo 00000000-1111-2222-3333-444444444444 > /media/boot_id
mount --bind /media/boot_id /proc/sys/kernel/random/boot_id
"""
