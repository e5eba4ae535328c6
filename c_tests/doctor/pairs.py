"""Faults between two processes: rucp_doctor --serve in one environment, --pair in another."""
import os
import re
import subprocess

from stage import LO, OTHER_HOST, ROOT, read, shell

# The software HCA: on another wire in each process.
WIRED = os.path.join(ROOT, "c_tests/hca/wired")
# Seconds for a whole exchange; one that fails takes its own time-out.
SECONDS = 90


class End:
    """One end's environment."""

    def __init__(self, prefix=(), variables=None, before=None):
        self.prefix = prefix
        self.variables = variables
        self.before = before

    def start(self, bench, arguments, host):
        return subprocess.Popen(
            bench.command([*host, *self.prefix], arguments), env={**bench.environment, **(self.variables or {})},
            preexec_fn=self.before, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Wire:
    """Two hosts, as the library sees them: network namespaces on one virtual cable, the second with another boot id."""

    def __init__(self):
        self.holders = []

    def __enter__(self):
        script = "echo ready; read line"
        for prefix in (shell("-n -m", LO), shell("-n -m", LO + OTHER_HOST)):
            holder = subprocess.Popen([*prefix, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.holders.append(holder)
            holder.stdout.readline()
        first, second = (holder.pid for holder in self.holders)
        self.inside(0, f"ip link add w0 type veth peer name w0 netns {second}; {self.up('192.0.2.1')}")
        self.inside(1, self.up("192.0.2.2"))
        return self

    def __exit__(self, *_):
        # The namespaces, and the cable, end with them.
        for holder in self.holders:
            holder.communicate()

    @staticmethod
    def up(address):
        return f"ip address add {address}/24 dev w0; ip link set w0 up"

    def enter(self, host):
        return ["nsenter", "-t", str(self.holders[host].pid), "-n", "-m"]

    def inside(self, host, script):
        subprocess.run([*self.enter(host), "sh", "-ec", script], check=True)


class PairCase:
    """Two ends. `there`: findings at the end that waits, if they are others. `hosts`: a script for the second of two
    hosts that are on one wire."""

    def __init__(self, name, *expected, serve=End(), pair=End(), there=None, hosts=None):
        self.name = name
        self.expected = expected
        self.there = expected if there is None else there
        self.serve = serve
        self.pair = pair
        self.hosts = hosts

    def run(self, bench):
        if self.hosts is None:
            return self.exchange(bench, [], [], "127.0.0.1")
        with Wire() as wire:
            wire.inside(1, self.hosts)
            return self.exchange(bench, wire.enter(0), wire.enter(1), "192.0.2.1")

    def exchange(self, bench, first, second, address):
        server = self.serve.start(bench, ["--serve", f"{address}:0"], first)
        client = None
        try:
            port = self.port(server)
            client = self.pair.start(bench, ["--pair", f"{address}:{port}"], second)
            answers = [client.communicate(timeout=SECONDS)]
            if client.returncode == 2:
                # It has not connected: the other end would wait for ever.
                server.kill()
            answers.append(server.communicate(timeout=SECONDS))
        finally:
            for process in filter(None, (client, server)):
                process.kill()
                process.wait()
        here, there = [read(*answer) for answer in answers]
        found = {finding["id"] for finding in there["findings"]}
        namespaces = {"ipc-namespace", "pid-namespace", "user-namespace"}
        if found - namespaces != set(self.there) - namespaces:
            here["trouble"] = f"the end that waits found {sorted(found)}"
        return client.returncode, here

    @staticmethod
    def port(server):
        for line in server.stderr:
            found = re.search(rb"waiting on .*:(\d+)$", line.strip())
            if found:
                return found[1].decode()
        raise RuntimeError(f"the doctor does not wait: {server.stdout.read()}")


def cases(_bench):
    def tls(value):
        return End(variables={"UCX_TLS": value})

    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    # An interface whose addresses lead nowhere, in front of the cable.
    lost = "ip link add d0 type ifb; ip address add 198.51.100.1/24 dev d0; ip link set d0 up"
    return [
        PairCase("a pair on one host"),
        PairCase("a pair with other settings", "pair-settings", pair=End(variables={"UCX_ZCOPY_THRESH": "4k"})),
        PairCase("a pair in two IPC namespaces", "pair-ipc-namespace", "ipc-namespace", pair=End(["unshare", "-i"])),
        PairCase("a pair in two PID namespaces", "pair-pid-namespace", "pid-namespace",
                 pair=End(["unshare", "-p", "-f", "--mount-proc"])),
        PairCase("a pair in two user namespaces", "pair-user-namespace", "user-namespace",
                 pair=End(["unshare", "-U", "-r"])),
        PairCase("a pair with other capabilities", "pair-capabilities",
                 pair=End(["setpriv", "--bounding-set=-sys_ptrace"])),
        PairCase("a pair of two users", "pair-user", pair=End(user)),
        PairCase("shared memory at one end only", "pair-shm-excluded", "pair-settings", "shm-excluded",
                 pair=tls("tcp,self"), there=["pair-shm-excluded", "pair-settings"]),
        PairCase("a pair on two hosts", hosts="true"),
        PairCase("two hosts, one with an adapter", "pair-adapter-at-one-end", hosts="true",
                 pair=End([WIRED])),
        PairCase("two hosts with different adapters", "pair-adapters-unused", "pair-settings", hosts="true",
                 serve=End(variables={"UCX_TLS": "ofi,tcp,sm,self", "FI_PROVIDER": "tcp"}),
                 pair=End([WIRED], {"UCX_TLS": "rc,tcp,sm,self"})),
        PairCase("two hosts without a network transport", "pair-unreachable", "network-excluded", hosts="true",
                 serve=tls("sm,self"), pair=tls("sm,self")),
        PairCase("two hosts, one without a network transport", "pair-unreachable", "pair-settings", hosts="true",
                 serve=tls("sm,self"), there=["pair-unreachable", "pair-settings", "network-excluded"]),
        PairCase("two hosts, one with an address that leads nowhere", "pair-no-exchange", "pair-settings",
                 "interface-drops", hosts=lost, pair=End(variables={"UCX_NET_DEVICES": "d0"}),
                 there=["pair-no-exchange", "pair-settings"]),
    ]
