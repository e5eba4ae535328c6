"""Which devices carry which traffic."""
import os
import subprocess

from hosts import Hosts
from peers import COUNT, HERE, LIB, SIZE, WHEEL, Peer, carried, exchange, serve
from testing import check, test

# The differential programs that make sense between hosts; not `memory` (uses rkey_ptr) and `listener`
# (serves on the loopback address).
PROGRAMS = (
    "tag_match tag_probe tag_sizes am am_rndv am_datatype rma endpoint pairing datatype request reentry threads "
    "stream"
)


@test
def a_bridge_that_every_host_has_is_not_taken():
    with Hosts() as hosts:
        hosts.bridge("docker0", "172.17.0.1/16", "172.17.0.1/16")
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        check(carried(hosts, ["net0", "docker0"], exchange(hosts, "10.78.0.2")) == ["net0"], "not over net0")
        different(hosts)


def different(hosts):
    """Different addresses in one subnet, which the kernel takes to be on its own bridge."""
    hosts.b.ip("addr flush dev docker0")
    hosts.b.ip("addr add 172.17.0.2/16 dev docker0")
    check(carried(hosts, ["net0", "docker0"], exchange(hosts, "10.78.0.2")) == ["net0"], "not over net0")
    # Even if bridges are allowed: a device without reply is skipped.
    wanted = {"UCX_TCP_BRIDGE_ENABLE": "y"}
    check(carried(hosts, ["net0", "docker0"], exchange(hosts, "10.78.0.2", wanted)) == ["net0"], "not over net0")


@test
def a_device_that_is_down_is_not_taken():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"), up=False)
        hosts.veth("net1", ("10.79.0.1/24", "10.79.0.2/24"))
        hosts.veth("net2", ("10.80.0.1/24", "10.80.0.2/24"))
        hosts.a.ip("link set net0 up")
        devices = ["net0", "net1", "net2"]
        check(carried(hosts, devices, exchange(hosts, "10.79.0.2")) == ["net1"], "not over net1")
        # A client connects to its server at one address and may use another, better one for messages.
        only = {"UCX_NET_DEVICES": "net2"}
        check(carried(hosts, devices, exchange(hosts, "10.79.0.2", only)) == ["net2"], "not over net2, as asked")
        never = {"UCX_NET_DEVICES": "^net1"}
        check(carried(hosts, devices, exchange(hosts, "10.79.0.2", never)) == ["net2"], "not over net2, as asked")
        some = {"UCX_NET_DEVICES": "net[0-1]"}
        check(carried(hosts, devices, exchange(hosts, "10.80.0.2", some)) == ["net1"], "not over net1, as asked")


@test
def ipv6_alone():
    with Hosts() as hosts:
        hosts.veth("net0", ("fd78::1/64", "fd78::2/64"))
        check(carried(hosts, ["net0"], exchange(hosts, "fd78::2")) == ["net0"], "not over net0")


@test
def link_local_alone():
    with Hosts() as hosts:
        hosts.veth("net0", ("fe80::78:1/64", "fe80::78:2/64"))
        check(carried(hosts, ["net0"], exchange(hosts, "fe80::78:2%net0")) == ["net0"], "not over net0")


@test
def one_host_without_any_network():
    with Hosts() as hosts:
        server, port = serve(hosts.a, "127.0.0.1", {"UCX_TLS": "tcp"})
        client = Peer(hosts.a, "client", "127.0.0.1", port, COUNT, SIZE, env={"UCX_TLS": "tcp"})
        client.until(f"done {COUNT}")
        server.until(f"failed .* after {COUNT}")



def differential(names):
    def run():
        with Hosts() as hosts:
            hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
            env = os.environ | {"BED_HOSTS": f"{hosts.a.pid} {hosts.b.pid}", "RUCP_LIB": LIB, "UCX_WHEEL": WHEEL}
            done = subprocess.run([f"{HERE}/diff", *names], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=500)
            check(done.returncode == 0, "\n" + done.stdout[-6000:])
    return run


for name in PROGRAMS.split():
    run = differential([name])
    run.__name__ = f"program_{name}"
    test(run)
