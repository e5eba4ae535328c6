"""Peers that are killed or stopped, and links that lose packets, stall or are cut."""
import signal
import time

from hosts import Hosts
from peers import ENDLESS, Peer, play, serve
from testing import check, test, test_on_wires


@test
def a_killed_client_is_noticed_within_a_second():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        server, client = play(hosts, "10.78.0.2", ENDLESS, 1000)
        client.until("at 100$")
        client.signal(signal.SIGKILL)
        server.until(r"failed (-25|-80) ", 1.5)


@test
def a_killed_server_is_noticed_within_a_second():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        server, client = play(hosts, "10.78.0.2", ENDLESS, 1000)
        client.until("at 100$")
        server.signal(signal.SIGKILL)
        client.until(r"failed (-25|-80) ", 1.5)


@test
def a_stopped_server_is_waited_for():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        server, client = play(hosts, "10.78.0.2", ENDLESS, 20_000)
        client.until("at 100$")
        server.signal(signal.SIGSTOP)
        time.sleep(3)  # longer than the detection of a dead peer
        client.until_still()
        server.signal(signal.SIGCONT)
        client.until_on()
        client.until_ended()


@test
def delay_and_loss_lose_nothing():
    with Hosts() as hosts:
        hosts.tap("wan0", ("10.78.0.1/24", "10.78.0.2/24"), delay=0.005, loss=0.01)
        server, client = play(hosts, "10.78.0.2", 100, 50_000)
        client.until("done 100", 90)


@test
def netem_delay_loss_copies_and_disorder_lose_nothing():
    with Hosts() as hosts:
        wire = hosts.netem("wan0", ("10.78.0.1/24", "10.78.0.2/24"), delay=0.02, jitter=0.005, loss=0.07,
                           duplicate=0.02,
                           reorder=0.05, offload=False)
        server, port = serve(hosts.b, "10.78.0.2", {"UCX_TLS": "tcp"})
        for count, size in ((20, 100), (6, 20_000), (3, 200_000)):
            client = Peer(hosts.a, "client", "10.78.0.2", port, count, size, env={"UCX_TLS": "tcp"})
            client.until(f"done {count}", 90)
            server.until(f"failed .* after {count}$")  # the client disconnects
        check(all(wire.lost()), "netem has lost nothing")


@test_on_wires
def a_link_that_stalls_is_waited_for(lay):
    with Hosts() as hosts:
        wire = lay(hosts, "wan0", ("10.78.0.1/24", "10.78.0.2/24"), delay=0.005)
        server, client = play(hosts, "10.78.0.2", ENDLESS, 20_000)
        client.until("at 100$")
        for outage in wire.outages:
            wire.say(outage)
            client.until_still()
            wire.say("carry")
            client.until_on()
        client.until_ended()


@test_on_wires
def a_cut_link_is_noticed_and_a_restored_one_used_again(lay):
    with Hosts() as hosts:
        wire = lay(hosts, "wan0", ("10.78.0.1/24", "10.78.0.2/24"))
        env = {"PEER_RETRY": "1", "UCX_TCP_USER_TIMEOUT": "2s", "UCX_TCP_KEEPIDLE": "1s", "UCX_TCP_KEEPINTVL": "1s",
               "UCX_TCP_KEEPCNT": "2"}
        server, client = play(hosts, "10.78.0.2", ENDLESS, 2000, env)
        client.until("at 100$")
        wire.say("cut")
        client.until(r"failed ", 15)
        server.until(r"failed ", 15)
        wire.say("carry")
        seen = client.count()
        client.until(r"at \d+", 30, after=seen)
        server.until("accepted", 30, after=2)
