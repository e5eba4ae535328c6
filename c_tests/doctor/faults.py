"""Faults of one process: variables, limits, shared memory, system calls, interfaces, RDMA devices."""
import os
import shutil

from stage import LO, RDMA, YAMA, build, limit, refuse, shell


class Case:
    """A fault and the findings that name it."""

    def __init__(self, name, *expected, variables=None, prefix=(), before=None, arguments=()):
        self.name = name
        self.expected = expected
        self.variables = variables
        self.prefix = prefix
        self.before = before
        self.arguments = arguments

    def run(self, bench):
        return bench.run(self.prefix, self.arguments, self.variables, self.before)


def variables(bench):
    def one(name, *expected, **settings):
        return Case(name, *expected, variables=settings)

    return [
        one("a healthy machine"),
        one("all of shared memory and TCP, named", UCX_TLS="self,sm,tcp", UCX_NET_DEVICES=bench.device),
        one("misspelt variable", "option-unknown", UCX_TSL="tcp"),
        one("wrong value", "option-invalid", UCX_RNDV_THRESH="zz"),
        one("value without sense", "option-invalid", UCX_KEEPALIVE_NUM_EPS="0"),
        one("unknown transport", "transport-unknown", UCX_TLS="sm,self,tcp,tpc"),
        one("transport without a device", "transport-absent", UCX_TLS="rc,sm,self"),
        one("no transport left", "transport-absent", "no-transport", UCX_TLS="rc"),
        one("unknown device", "device-unknown", "no-network", UCX_NET_DEVICES="eth9"),
        one("unknown device of shared memory", "device-unknown", "shm-excluded", UCX_SHM_DEVICES="ram"),
        one("shared memory excluded", "shm-excluded", UCX_TLS="tcp,self"),
        one("cma excluded", "cma-excluded", UCX_TLS="^cma"),
        one("networks excluded", "network-excluded", UCX_TLS="sm,self"),
        one("verbose log", "log-verbose", UCX_LOG_LEVEL="trace", UCX_LOG_FILE="/dev/null"),
        one("rendezvous by messages", "rndv-by-messages", UCX_RNDV_SCHEME="am"),
        one("no memory events", "mem-events-off", UCX_MEM_EVENTS="n"),
    ]


def limits(bench):
    taken = str(bench.taken_port)
    return [
        Case("no port left", "no-worker", variables={"UCX_TCP_PORT_RANGE": f"{taken}-{taken}"}),
        Case("few descriptors", "nofile-low", before=limit("RLIMIT_NOFILE", 64)),
        Case("limited address space", "address-space-limited", before=limit("RLIMIT_AS", 2 << 30)),
        Case("limited files", "file-size-limited", before=limit("RLIMIT_FSIZE", 16 << 20)),
        Case("one processor", "one-processor", "pair-one-processor", prefix=["taskset", "-c", "0"]),
    ]


def memory(bench):
    small = "mount -t tmpfs -o size=1m tmpfs /dev/shm;"
    full = small + "head -c 1048576 /dev/zero > /dev/shm/file;"
    named = {"UCX_POSIX_USE_PROC_LINK": "n"}
    # A program whose file its user cannot read is protected from processes of this user.
    unreadable = os.path.join(bench.folder, "unreadable")
    os.makedirs(unreadable, exist_ok=True)
    shutil.copy(bench.doctor, unreadable)
    os.chmod(os.path.join(unreadable, "rucp_doctor"), 0o711)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return [
        Case("small /dev/shm", "shm-full", prefix=shell("-m", small)),
        Case("full /dev/shm", "shm-full", prefix=shell("-m", full)),
        Case("full /dev/shm with inboxes in it", "shm-full", "pair-shm-unused", prefix=shell("-m", full),
             variables=named),
        Case("/dev/shm for reading", "shm-unwritable", prefix=shell("-m", "mount -t tmpfs -o ro tmpfs /dev/shm")),
        Case("no System V segments", "sysv-refused", "ipc-namespace",
             prefix=shell("-i", "echo 4096 > /proc/sys/kernel/shmmax")),
        Case("no memory files", "memfd-refused", "pair-shm-unused",
             before=lambda: refuse("memfd_create")),
        Case("cma refused by a filter", "cma-seccomp",
             before=lambda: refuse("process_vm_readv", "process_vm_writev")),
        Case("cma refused for no known reason", "cma-refused", variables={"LD_PRELOAD": no_copies(bench)}),
        Case("cma refused by Yama", "ptrace-scope",
             prefix=shell("-m", YAMA + "set -- setpriv --bounding-set=-sys_ptrace \"$@\""),
             before=lambda: refuse("process_vm_readv", "process_vm_writev")),
        Case("protected program", "not-dumpable", "cma-protected",
             prefix=[*user, "sh", "-c", f"exec {unreadable}/rucp_doctor --json"]),
    ]


def no_copies(bench):
    """A library in front of libc, as a sandbox may have it, which refuses copies between processes."""
    source = """
    #include <errno.h>
    #include <sys/uio.h>
    ssize_t process_vm_readv(pid_t p, const struct iovec *l, unsigned long n, const struct iovec *r, unsigned long m,
                             unsigned long f) { errno = EPERM; return -1; }
    ssize_t process_vm_writev(pid_t p, const struct iovec *l, unsigned long n, const struct iovec *r, unsigned long m,
                              unsigned long f) { errno = EPERM; return -1; }
    """
    return build(bench, "no_copies.so", source, "-D_GNU_SOURCE", "-shared", "-fPIC")


def namespaces():
    return [
        Case("user namespace", "user-namespace", prefix=["unshare", "-U", "-r"]),
        Case("PID namespace", "pid-namespace", prefix=["unshare", "-p", "-f", "--mount-proc"]),
        Case("IPC namespace", "ipc-namespace", prefix=["unshare", "-i"]),
        Case("/proc of another PID namespace", "proc-foreign", "pid-namespace", prefix=["unshare", "-p", "-f"]),
    ]


def interfaces():
    # The other end of the pair is up; its own addresses do not matter.
    link = LO + "ip link add d0 type veth peer name d1; ip link set d0 addrgenmode none; ip link set d1 up;"
    address = "ip address add 192.0.2.77/24 dev d0;"
    alone = LO + "ip link add d0 type veth peer name d1; ip link set d0 up;"
    drops = LO + "ip link add d0 type ifb; ip link set d0 up;"
    bridge = LO + "ip link add d0 type bridge; ip link set d0 up;"
    named = {"UCX_NET_DEVICES": "d0"}
    return [
        # As Docker's bridge without containers: the library does not use it, and nothing is wrong with it.
        Case("bridge without ports", "loopback-only", prefix=shell("-n", bridge + address)),
        Case("no network", "no-network", prefix=["unshare", "-n"]),
        Case("loopback only", "loopback-only", prefix=shell("-n", LO)),
        Case("interface down", "interface-down", "loopback-only", prefix=shell("-n", link + address)),
        Case("interface without carrier", "interface-no-carrier", "loopback-only", prefix=shell("-n", alone + address)),
        Case("interface without address", "interface-no-address", "device-unknown", "no-network",
             prefix=shell("-n", link + "ip link set d0 up"), variables=named),
        Case("interface that drops packets", "interface-drops", prefix=shell("-n", drops + address)),
        Case("netlink refused", "netlink-refused", "no-network", before=lambda: refuse("netlink")),
    ]


def rdma(bench):
    foreign = "chown 1 /dev/infiniband/uverbs0; chmod 600 /dev/infiniband/uverbs0;"
    no_override = "set -- setpriv --bounding-set=-dac_override \"$@\";"
    library = "mount --bind /dev/null $(readlink -f /usr/lib/*/libibverbs.so.1);"
    # Root may lock any amount.
    lock = ["setpriv", "--bounding-set=-ipc_lock"]
    little = limit("RLIMIT_MEMLOCK", 64 << 10)

    def one(name, *expected, script="", settings=None):
        return Case(name, *expected, prefix=shell("-m", RDMA + script), variables=settings)

    return [
        one("RDMA device without rights", "rdma-no-rights", script=foreign + no_override),
        one("RDMA device without a file", "rdma-no-device-file", script="rm /dev/infiniband/uverbs0"),
        one("RDMA port down", "rdma-port-down",
            script="echo '1: DOWN' > /sys/class/infiniband/mlx5_0/ports/1/state"),
        one("RDMA device without libibverbs", "rdma-no-library", script=library),
        one("RDMA device that libibverbs does not open", "rdma-unusable"),
        one("RDMA excluded by UCX_TLS", "rdma-excluded", settings={"UCX_TLS": "tcp,sm,self"}),
        one("RDMA excluded by UCX_NET_DEVICES", "rdma-excluded", settings={"UCX_NET_DEVICES": bench.device}),
        Case("RDMA with little locked memory", "memlock-low", "rdma-unusable", prefix=[*shell("-m", RDMA), *lock],
             before=little),
        Case("the software HCA with little locked memory", "memlock-low", prefix=["c_tests/hca/wired", *lock],
             before=little),
        Case("the software HCA", prefix=["c_tests/hca/wired"]),
    ]


def fabric():
    cxi = "mount -t tmpfs tmpfs /sys/class; mkdir -p /sys/class/cxi/cxi0;"
    library = "mount --bind /dev/null $(readlink -f /usr/lib/*/libfabric.so.1);"
    tcp = {"UCX_TLS": "tcp,sm,self"}
    return [
        # Debian's libfabric has no provider for them.
        Case("Slingshot that libfabric does not offer", "fabric-unusable", prefix=shell("-m", cxi)),
        Case("Slingshot without libfabric", "fabric-no-library", prefix=shell("-m", cxi + library)),
        Case("Slingshot excluded", "fabric-excluded", prefix=shell("-m", cxi), variables=tcp),
    ]


def cases(bench):
    return variables(bench) + limits(bench) + memory(bench) + namespaces() + interfaces() + rdma(bench) + fabric()
