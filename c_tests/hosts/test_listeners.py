"""Listeners, and programs that connect to them."""
import sys

from hosts import Hosts
from peers import HERE, Peer, play, serve
from testing import check, test


@test
def a_message_that_outlives_its_endpoint_is_received():
    """A race after a cut: a message of an ended endpoint has arrived when the next endpoint begins."""
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        server, client = play(hosts, "10.78.0.2", 100, 1000, {"PEER_RETRY": "1", "PEER_LEAVE": "50"})
        server.until("left after 50$")
        client.until("failed -25 .* after 50$")
        client.until("done 100$")
        server.until("failed .* after 51$")  # number 50 twice: the first one unanswered, and sent again


@test
def connect_without_listener():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        client = Peer(hosts.a, "client", "10.78.0.2", 9, 1, 1)
        client.until(r"failed -24 ", 5)
        # A network without a route.
        client = Peer(hosts.a, "client", "10.99.0.2", 9, 1, 1)
        client.until(r"failed -6 ", 5)


@test
def garbage_costs_a_socket_and_a_line():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        server, port = serve(hosts.b, "10.78.0.2", {"UCX_LOG_LEVEL": "diag"})
        done = hosts.a.run(sys.executable, f"{HERE}/garbage.py", "10.78.0.2", port, timeout=60)
        check(done.returncode == 0, done.stdout)
        client = Peer(hosts.a, "client", "10.78.0.2", port, 20, 1000)
        client.until("done 20", 20)
        closed = server.errors.count("closed: ")
        check(closed >= int(done.stdout),
              f"{done.stdout.strip()} rejected clients, but {closed} lines:\n{server.errors[-2000:]}")
        descriptors = hosts.b.run("sh", "-c", f"ls /proc/{server.process.pid}/fd | wc -l")
        check(int(descriptors.stdout) < 60, f"{descriptors.stdout.strip()} descriptors are still open")
