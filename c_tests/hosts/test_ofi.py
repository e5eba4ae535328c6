"""Messages over libfabric, peers that are killed or stopped, and links that stall or are cut."""
import signal
import time

from hosts import Hosts
from peers import ENDLESS, OFI, carried, exchange, introduce, play, start_ranks
from testing import at_once, check, test


@test
def ofi_messages_go_over_the_network_of_libfabric():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        check(carried(hosts, ["net0"], exchange(hosts, "10.78.0.2", OFI)) == ["net0"], "not over net0")


@test
def ofi_a_killed_peer_is_noticed():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        for is_server in (False, True):
            server, client = play(hosts, "10.78.0.2", ENDLESS, 1000, OFI)
            client.until("at 100$")
            (server if is_server else client).signal(signal.SIGKILL)
            (client if is_server else server).until(r"failed (-25|-80) ", 15)
            (client if is_server else server).signal(signal.SIGKILL)


@test
def ofi_a_peer_that_is_refused_fails():
    """No message was in flight when the process ended, and the provider connects again and again for the next one."""
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        for mode in ("unwatched", "watched"):
            ranks = start_ranks([hosts.a, hosts.b], OFI | {"UCX_LOG_LEVEL": "warn"}, mode)
            introduce(ranks)
            for rank in ranks:
                rank.until("done$", 60)
            ranks[1].signal(signal.SIGKILL)
            ranks[0].process.stdin.close()
            ranks[0].until(r"failed (-25|-80)$", 30)
            ranks[0].until_logged("10.78.0.2 refuses connections to its port ")
            check(ranks[0].process.wait(30) == 0, f"status {ranks[0].process.returncode}")


@test
def ofi_a_link_that_stalls_is_waited_for():
    with Hosts() as hosts:
        wire = hosts.tap("net0", ("10.78.0.1/24", "10.78.0.2/24"), delay=0.005)
        server, client = play(hosts, "10.78.0.2", ENDLESS, 20_000, OFI)
        client.until("at 100$")
        for outage in wire.outages:
            wire.say(outage)
            client.until_still()
            wire.say("carry")
            client.until_on()
        client.until_ended()


@test
def ofi_a_cut_link_is_noticed_and_a_restored_one_used_again():
    """The connection of client and server notices the cut: libfabric's provider waits as long as the kernel does."""
    with Hosts() as hosts:
        wire = hosts.tap("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        env = OFI | {"PEER_RETRY": "1", "UCX_TCP_USER_TIMEOUT": "2s", "UCX_TCP_KEEPIDLE": "1s",
                     "UCX_TCP_KEEPINTVL": "1s", "UCX_TCP_KEEPCNT": "2"}
        server, client = play(hosts, "10.78.0.2", ENDLESS, 2000, env)
        client.until("at 100$")
        wire.say("cut")
        client.until(r"failed ", 30)
        server.until(r"failed ", 30)
        wire.say("carry")
        seen = client.count()
        client.until(r"at \d+", 60, after=seen)
        server.until("accepted", 60, after=2)


@test
def ofi_a_peer_behind_a_cut_link_fails():
    """The connection of client and server is by another link: only libfabric's can notice the cut. Short messages, long
    ones that the receiver reads, and such that the provider of the receiver reads."""

    def fail(size, cut):
        with Hosts() as hosts:
            hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
            wire = hosts.tap("net1", ("10.79.0.1/24", "10.79.0.2/24"))
            server, client = play(hosts, "10.78.0.2", ENDLESS, size, OFI | {"UCX_NET_DEVICES": "net1"})
            client.until("at 50$", 60)
            wire.say(cut)
            for end in (client, server):
                end.until(r"failed (-25|-80) ", 60)

    at_once(fail, [(1000, "cut"), (4_000_000, "cut"), (20_000, "cut 3"), (20_000, "cut 5")])


@test
def ofi_each_worker_of_a_process_learns_of_a_cut_link():
    """Both have a connection to one endpoint of the server, and find each other's sockets."""

    def fail(size, beside, cut):
        with Hosts() as hosts:
            hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
            wire = hosts.tap("net1", ("10.79.0.1/24", "10.79.0.2/24"))
            env = OFI | {"UCX_NET_DEVICES": "net1", "PEER_BESIDE": str(beside)}
            server, client = play(hosts, "10.78.0.2", ENDLESS, size, env)
            client.until("beside open", 60)
            client.until("at 50$", 60)
            wire.say(cut)
            for end in (client, server):
                end.until(r"beside failed (-25|-80)", 60)
            client.until(r"failed (-25|-80) ", 60)

    at_once(fail, [(1000, 20_000, "cut"), (20_000, 1000, "cut 12"), (20_000, 0, "cut 3")])


@test
def ofi_a_stopped_server_is_waited_for():
    """The kernel of the server's host acknowledges, and its process does not read: its socket takes no more data."""
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        # The server's sockets have room for less than a message.
        done = hosts.b.run("sh", "-c", "echo 4096 65536 65536 > /proc/sys/net/ipv4/tcp_rmem")
        check(done.returncode == 0, done.stdout)
        env = OFI | {"UCX_KEEPALIVE_INTERVAL": "200ms", "UCX_RNDV_THRESH": "inf", "UCX_OFI_TX_WINDOW": "1024"}
        server, client = play(hosts, "10.78.0.2", ENDLESS, 8_000_000, env)
        client.until_on()
        server.signal(signal.SIGSTOP)
        time.sleep(6)  # longer than the time after which a silent host is unreachable
        client.until_still()
        server.signal(signal.SIGCONT)
        client.until_on()
        client.until_ended()


# By two devices of one provider.
