"""Connections by libfabric that move to another device."""
import json
import os
import signal
import subprocess
import time

from hosts import Hosts
from peers import ENDLESS, LIB, PROGRAMS_BUILT, TOP, play, sent
from test_rails import RAILS, RAIL_ADDRESSES, check_reread
from testing import at_once, check, test


def play_with_failover(hosts, size, at_once=lambda first: None, **variables):
    """A client and a server whose messages go by two devices, and that connect by a third one; returns them, and the
    devices by which they go first and next. `at_once` is called with the first one when both processes were started.
    `variables`: of one of them, as for `play`."""
    hosts.veth("net2", ("10.80.0.1/24", "10.80.0.2/24"))
    listing = hosts.a.run("fi_info", "-p", "tcp;ofi_rxm").stdout
    first, other = sorted(("net0", "net1"), key=lambda device: listing.index(f"domain: {device}"))
    env = RAILS | {"UCX_LOG_LEVEL": "warn", "PEER_FAILOVER": "1"}
    server, client = play(hosts, "10.80.0.2", ENDLESS, size, env, **variables)
    at_once(first)
    client.until_on()
    return server, client, first, other


def reset_sockets(hosts, device):
    """Has the kernel reset the connections of a device. Returns whether there was one."""
    addresses = [address.split("/")[0] for address in dict(RAIL_ADDRESSES)[device]]
    done = [host.run("ss", "-K", "src", address) for host, address in zip((hosts.a, hosts.b), addresses)]
    return any(address in reset.stdout for address, reset in zip(addresses, done))


def fail_device(hosts, device):
    """Takes a device of both hosts down, and has the kernel reset its connections."""
    for host in (hosts.a, hosts.b):
        host.ip(f"link set {device} down")
    reset_sockets(hosts, device)


def until_moved(client, server, device):
    """Waits until an end has moved the connection to this device, and messages go on."""
    words = f"is reached by tcp;ofi_rxm on {device} (libfabric) from now on"
    deadline = time.monotonic() + 90
    while words not in client.errors + server.errors:
        check(time.monotonic() < deadline, f"'{words}' is not logged, but: {(client.errors + server.errors)[-1500:]}")
        client.until_on(deadline - time.monotonic())
    client.until_on()
    for end in (client, server):
        check(not any(line.startswith("failed") for line in end.lines), f"an endpoint has failed: {end.lines[-3:]}")


def check_timeline(path, moves):
    """The timeline in this file has the moves of connections from one device to another, in this order, and others."""
    with open(path) as file:
        text = file.read()
    # A process that ends without `ucp_cleanup` leaves the list open.
    events = json.loads(text if text.endswith("]\n") else f"{text}]")
    events = [event for event in events if event["name"] in ("failover", "failover of the peer")]
    os.remove(path)
    for event in events:
        check(event["cat"] == "wire" and event["ph"] == "i", f"{event}")
    found = [tuple(event["args"][end].removeprefix("tcp;ofi_rxm on ") for end in ("from", "to")) for event in events]
    rest = iter(found)
    check(all(move in rest for move in moves), f"{found}, and not {moves}")


@test
def ofi_an_open_connection_moves_to_the_other_device_and_back():
    """The kernel resets the connections of the device that carries messages, each of which is checked."""
    for size in (1000, 2_000_000):
        with Hosts() as hosts:
            for device, addresses in RAIL_ADDRESSES:
                hosts.veth(device, addresses)
            trace = f"{PROGRAMS_BUILT}/failover-{size}.json"
            server, client, first, other = play_with_failover(hosts, size, of_client={"UCX_TRACE_FILE": trace})
            for fails, carries in ((first, other), (other, first)):
                fail_device(hosts, fails)
                until_moved(client, server, carries)
                for host in (hosts.a, hosts.b):
                    host.ip(f"link set {fails} up")
            client.until_ended()
            server.until("failed .*")
            client.process.wait(30)
            check_timeline(trace, [(first, other), (other, first)])


@test
def ofi_a_connection_with_failover_is_made_by_the_rail():
    """By the restricted fabric each completion of the first device is an error. That of the client: its request arrives
    and is answered, but counts as failed, and the answer is lost. That of the server: the client's request is lost."""
    subprocess.run(["make", "-s", "-C", f"{TOP}/c_tests/ofi", f"OUT={TOP}/build/ofi"], check=True)
    fails = {"LD_LIBRARY_PATH": f"{LIB}:{TOP}/build/ofi", "SOFT_OFI_RULES": "error_queues=1,error_nth=1"}
    for of in ("of_client", "of_server"):
        with Hosts() as hosts:
            for device, addresses in RAIL_ADDRESSES:
                hosts.veth(device, addresses)
            before = {device: sent(hosts.a, device) for device, _ in RAIL_ADDRESSES}
            server, client, first, other = play_with_failover(hosts, 1000, **{of: fails})
            client.until_ended()
            server.until("failed .*")
            few, many = (sent(hosts.a, device) - before[device] for device in (first, other))
            check(few < many, f"{few} bytes were sent over {first}, {many} over {other}")


@test
def ofi_a_connection_with_failover_that_is_reset_at_once_is_made():
    """The kernel resets the first connection of the first device, mostly before the request to connect is answered."""
    for _ in range(3):
        with Hosts() as hosts:
            for device, addresses in RAIL_ADDRESSES:
                hosts.veth(device, addresses)

            def reset(device, hosts=hosts, deadline=time.monotonic() + 30):
                while not reset_sockets(hosts, device):
                    check(time.monotonic() < deadline, f"there is no connection by {device}")

            server, client, _, _ = play_with_failover(hosts, 1000, at_once=reset)
            client.until_ended()
            server.until("failed .*")


@test
def ofi_an_open_connection_moves_from_a_cut_link():
    """No packet arrives by the device that carries messages any more, each of which is checked. The provider reads each
    from its sender: after three packets more, or five, an end may wait for the other one with nothing in flight."""

    def move(cut):
        with Hosts() as hosts:
            wires = {device: hosts.tap(device, addresses) for device, addresses in RAIL_ADDRESSES}
            server, client, first, other = play_with_failover(hosts, 20_000)
            wires[first].say(cut)
            until_moved(client, server, other)
            client.until_ended()
            server.until("failed .*")

    at_once(move, [("cut",), ("cut 3",), ("cut 5",)])


@test
def ofi_reads_of_a_cut_link_with_failover_are_repeated():
    """No packet arrives by the device that carries messages any more, amid the read of a message, each of which is
    checked."""
    logs = {"UCX_LOG_LEVEL": "debug"}
    with Hosts() as hosts:
        wires = {device: hosts.tap(device, addresses) for device, addresses in RAIL_ADDRESSES}
        server, client, first, other = play_with_failover(hosts, 8_000_000, of_client=logs, of_server=logs)
        wires[first].say("cut 2000")  # of the five thousand and more of a message
        until_moved(client, server, other)
        client.until_ended()
        server.until("failed .*")
        check_reread(client, server)


@test
def ofi_a_killed_peer_with_failover_is_noticed():
    with Hosts() as hosts:
        for device, addresses in RAIL_ADDRESSES:
            hosts.veth(device, addresses)
        server, client, _, _ = play_with_failover(hosts, 1000)
        server.signal(signal.SIGKILL)
        client.until(r"failed (-25|-80) ", 60)
