"""Two hosts for tests: namespaces with network, IPC, UTS and mounts of their own, and wires between them.

The namespaces have no names: they are those of a process that waits on a pipe, so that they end with the test, however
it ends. Needs root and iproute2.
"""
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time

TIMEOUT_SECONDS = 10
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 2, 0x1000

# The process of a host's namespaces: it ends when its standard input does, with the test.
IDLE = """
mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && mount -t sysfs sysfs /sys && hostname "$1" &&
ip link set lo up && echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad && echo ready && read -r forever
"""


class Host:
    """One host; `letter` is a or b."""

    def __init__(self, letter):
        self.letter = letter
        self.name = f"rucp-{letter}"
        command = ["unshare", "--net", "--ipc", "--uts", "--mount", "bash", "-c", IDLE, "bash", self.name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{self.name} cannot be made: namespaces need root")
        self.network = os.stat(f"/proc/{self.pid}/ns/net").st_ino

    def command(self, *words):
        """The command prefix that runs a command on this host."""
        return ["nsenter", "-t", str(self.pid), "--net", "--ipc", "--uts", "--mount", "--", *map(str, words)]

    def start(self, *words, env=None, **options):
        """Starts a command on this host."""
        return subprocess.Popen(self.command(*words), env=os.environ | (env or {}), **options)

    def run(self, *words, env=None, timeout=60, **options):
        """Runs a command on this host; its output is text."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
        return subprocess.run(self.command(*words), env=os.environ | (env or {}), timeout=timeout, **options)

    def ip(self, words):
        """One `ip` command, which has to succeed."""
        subprocess.run(self.command("ip", *words.split()), check=True)

    def wait_running(self, device):
        """Waits until the kernel reports that a device runs: some time after its carrier is there."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while "LOWER_UP" not in (flags := self.run("ip", "-o", "link", "show", device).stdout) or "state DOWN" in flags:
            if time.monotonic() > deadline:
                raise SystemExit(f"{device} of {self.name} does not run: {flags}")
            time.sleep(0.02)

    def processes(self):
        """The processes on this host except the host's own."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{pid}/ns/net").st_ino == self.network and int(pid) != self.pid:
                    yield int(pid)
            except OSError:
                pass  # ended meanwhile

    def close(self):
        """Ends all processes of the host, then the host. Returns whether all of them ended."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (left := list(self.processes())) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        return not left


class Hosts:
    """Host a and host b. Wires are made by `veth`, `tap` and `netem`; leaving the block removes everything."""

    def __init__(self):
        self.a, self.b = Host("a"), Host("b")
        self.wires = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for wire in self.wires:
            wire.close()
        clean = [self.a.close(), self.b.close()]
        if not all(clean):
            raise SystemExit("a process on a test host could not be ended")

    def veth(self, device, *addresses, up=True):
        """A wire between devices of the same name; `addresses` are pairs, a's and b's, with prefix."""
        command = f"link add {device} type veth peer name {device} netns {self.b.pid}"
        self.a.ip(command)
        self._configure(device, addresses, up)

    def tap(self, device, *addresses, **behaviour):
        """A wire whose packets a process of the test forwards: see wire.py."""
        wire = Wire(device, self, **behaviour)
        self.wires.append(wire)
        self._configure(device, addresses, True)
        return wire

    def netem(self, device, *addresses, **behaviour):
        """A wire between devices of the same name whose queues are the kernel's netem."""
        self.veth(device, *addresses)
        return Netem(device, self, **behaviour)

    def _configure(self, device, addresses, up):
        for of_a, of_b in addresses:
            for host, address in ((self.a, of_a), (self.b, of_b)):
                nodad = " nodad" if ":" in address else ""
                host.ip(f"addr add {address} dev {device}{nodad}")
        for host in (self.a, self.b):
            if up:
                host.ip(f"link set {device} up")
        for host in (self.a, self.b):
            if up:
                host.wait_running(device)

    def bridge(self, name, of_a, of_b):
        """On each host a bridge with a container's port and nothing else, as docker makes them."""
        for host, address in ((self.a, of_a), (self.b, of_b)):
            for line in (
                f"link add {name} type bridge",
                f"addr add {address} dev {name}",
                f"link set {name} up",
                "link add c0 type veth peer name c1",
                f"link set c0 master {name} up",
                "link set c1 up",
            ):
                host.ip(line)
            host.wait_running(name)

    def agent(self):
        """Environment for launchers that start their daemons with c_tests/hosts/agent: host name to process."""
        return {"RUCP_HOSTS": f"{self.a.name}={self.a.pid} {self.b.name}={self.b.pid}"}


class Wire:
    """A wire that delays, drops, stalls and cuts packets."""

    outages = ("stall", "cut")

    def __init__(self, device, hosts, **behaviour):
        ends = [open_tap(f"{device}{hosts.a.pid}{letter}"[-15:]) for letter in "ab"]
        for (_, name), host in zip(ends, (hosts.a, hosts.b)):
            subprocess.run(["ip", "link", "set", name, "netns", str(host.pid)], check=True)
            host.ip(f"link set {name} name {device}")
            host.ip(f"link set {device} mtu 9000")
        options = [f"--{name.replace('_', '-')}={value}" for name, value in behaviour.items()]
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py")
        command = [sys.executable, script, *(str(fd) for fd, _ in ends), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        pass_fds=[fd for fd, _ in ends])
        for fd, _ in ends:
            os.close(fd)
        self.say("carry")

    def say(self, order):
        """Orders `carry`, `stall`, `cut`, `delay SECONDS` or `loss PROBABILITY`; returns when it is in effect."""
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        self.process.wait(TIMEOUT_SECONDS)
        self.process.stdout.close()


class Netem:
    """A veth that handles packets as `tc netem` can, each direction separately; with the interface of Wire."""

    outages = ("down", "cut")
    # Longer than a congestion window: packets are lost only by netem's choice.
    LIMIT = "limit 4096"

    def __init__(self, device, hosts, delay=0.0, jitter=0.0, loss=0.0, duplicate=0.0, reorder=0.0, offload=True):
        """Without offload netem drops packets of 1500 bytes, not up to 64 KB at once; but it takes longer."""
        self.device, self.ends = device, (hosts.a, hosts.b)
        self.behaviour = f"{self.LIMIT} delay {delay * 1000}ms {jitter * 1000}ms"
        for name, probability in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder)):
            self.behaviour += f" {name} {probability * 100}%" if probability else ""
        for host in self.ends if not offload else ():
            host.ip(f"link set {device} gso_max_segs 1")
        self.say("carry")

    def say(self, order):
        """`carry`, `cut` (packets are lost) or `down` (host a cannot send either)."""
        for host in self.ends:
            self._queue(host, f"{self.LIMIT} loss 100%" if order == "cut" else self.behaviour)
        if order != "cut":
            self.ends[0].ip(f"link set {self.device} {'down' if order == 'down' else 'up'}")
        if order == "carry":
            for host in self.ends:
                host.wait_running(self.device)

    def _queue(self, host, behaviour):
        done = host.run("tc", "qdisc", "replace", "dev", self.device, "root", "netem", *behaviour.split())
        if done.returncode != 0:
            raise OSError(f"no netem in this kernel (scripts/guest runs the tests in one that has it): {done.stdout}")

    def lost(self):
        """How many packets each direction has lost."""
        command = ("tc", "-s", "-j", "qdisc", "show", "dev", self.device)
        return [sum(queue["drops"] for queue in json.loads(host.run(*command).stdout)) for host in self.ends]


def open_tap(name):
    """A new tap device; it exists as long as the descriptor."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd, name
