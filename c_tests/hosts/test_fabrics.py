"""Ranks whose workers have several devices of libfabric."""
from hosts import Hosts
from peers import introduce, sent, start_ranks
from testing import check, test

FABRICS = {"UCX_TLS": "ofi,self", "UCX_OFI_PROVIDER": "shm,tcp", "UCX_NET_DEVICES": "shm,net0", "UCX_LOG_LEVEL": "warn"}


def job(places, env, before_connecting=lambda: None, first_says="", last_says=""):
    """Runs a rank on each of these hosts; all exchange. Returns the ranks, and the lanes from each to each other.
    `first_says`: the others know of the job when the first rank has logged this. `last_says`: the job ends when it has
    logged this."""
    count = len(places)
    ranks = start_ranks(places, env)
    introduce(ranks, before_connecting, first_says)
    lanes = {}
    for number, rank in enumerate(ranks):
        rank.until("done$", 60)
        for to in range(count):
            if to != number:
                lanes[number, to] = rank.until(rf"to {to} over (\S+)")[1]
    ranks[0].until_logged(last_says)
    for rank in ranks:
        rank.process.stdin.close()
    for rank in ranks:
        check(rank.process.wait(30) == 0, f"a rank ends with status {rank.process.returncode}: {rank.errors[-1500:]}")
    return ranks, lanes


def check_lanes(places, lanes, inside, between):
    for (number, to), lane in lanes.items():
        wanted = inside if places[number] is places[to] else between
        check(lane == wanted, f"{number} to {to} over {lane}, and not {wanted}")


def remove_shared_memory(*hosts):
    """Removes what libfabric's provider shm has in /dev/shm: no process can connect by it from now on."""
    for host in hosts:
        removed = host.run("sh", "-c", "rm -v /dev/shm/fi_shm* /dev/shm/*:*:*")
        check("removed" in removed.stdout, f"there is none: {host.run('ls', '-l', '/dev/shm').stdout}")


@test
def libfabric_by_memory_inside_and_by_tcp_between():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        places = [hosts.a, hosts.a, hosts.b, hosts.b]
        before = sent(hosts.a, "net0")
        ranks, lanes = job(places, FABRICS)
        check_lanes(places, lanes, "ofi/shm", "ofi/net0")
        # Each rank of host a sends a megabyte to each rank of host b, and none to the other one of host a.
        megabytes = (sent(hosts.a, "net0") - before) / 2**20
        check(4 < megabytes < 6, f"{megabytes:.1f} MiB were sent over net0")
        for rank in ranks:
            check(rank.errors == "", rank.errors)


@test
def libfabric_without_memory_goes_by_tcp():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        places = [hosts.a, hosts.a, hosts.b]
        said = "another way: it does not answer by shm on shm (libfabric)"
        _, lanes = job(places, FABRICS, lambda: remove_shared_memory(hosts.a), last_says=said)
        check_lanes(places, lanes, "ofi/net0", "ofi/net0")


@test
def libfabric_goes_by_tcp_at_once_if_memory_fails():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        places = [hosts.a, hosts.a, hosts.b]
        # Shorter than the time after which the next interface connects, too: the request fails before.
        ranks, lanes = job(places, FABRICS | {"UCX_OFI_TIMEOUT": "500ms"}, lambda: remove_shared_memory(hosts.a))
        check_lanes(places, lanes, "ofi/net0", "ofi/net0")
        said = "".join(rank.errors for rank in ranks)
        for words in ("is connected by tcp;ofi_rxm on net0: ",
                      ": shm on shm (libfabric) does not reach it: no answer in UCX_OFI_TIMEOUT"):
            check(words in said, said)


@test
def libfabric_without_memory_goes_by_sockets():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        places = [hosts.a, hosts.a, hosts.b]
        env = FABRICS | {"UCX_TLS": "ofi,tcp,self", "UCX_OFI_PROVIDER": "shm", "UCX_OFI_TIMEOUT": "500ms"}
        ranks, lanes = job(places, env, lambda: remove_shared_memory(hosts.a))
        check_lanes(places, lanes, "tcp/net0", "tcp/net0")
        said = "".join(rank.errors for rank in ranks)
        wanted = "is reached by tcp: shm on shm (libfabric) does not reach it: no answer in UCX_OFI_TIMEOUT"
        check(wanted in said, said)


@test
def libfabric_loses_nothing_that_a_late_peer_sends_by_memory():
    with Hosts() as hosts:
        hosts.veth("net0", ("10.78.0.1/24", "10.78.0.2/24"))
        env = FABRICS | {"UCX_TLS": "ofi,tcp,self", "UCX_OFI_PROVIDER": "shm", "UCX_OFI_TIMEOUT": "500ms"}
        # The second rank finds the request to connect that the first one has given up, and answers it. It sends by
        # memory, unless the socket of the first one comes before.
        for _ in range(3):
            _, lanes = job([hosts.a, hosts.a], env, first_says="is reached by tcp: ")
            check(lanes[0, 1] == "tcp/net0" and lanes[1, 0] in ("ofi/shm", "tcp/net0"), f"{lanes}")
