"""Long messages by two devices of libfabric, of which one fails."""
from hosts import Hosts
from peers import ENDLESS, OFI, play, sent
from testing import check, test

RAILS = OFI | {"UCX_NET_DEVICES": "net0,net1", "UCX_LOG_LEVEL": "debug"}
RAIL_ADDRESSES = ("net0", ("10.78.0.1/24", "10.78.0.2/24")), ("net1", ("10.79.0.1/24", "10.79.0.2/24"))


def rail_shares(hosts, env):
    """Megabytes that the devices of the client's host send for twenty messages of one, the fewest first."""
    before = [sent(hosts.a, device) for device in ("net0", "net1")]
    server, client = play(hosts, "10.78.0.2", 20, 1_000_000, env)
    client.until("done 20", 60)
    server.until("failed .* after 20")
    return sorted((sent(hosts.a, device) - was) / 1e6 for device, was in zip(("net0", "net1"), before))


@test
def ofi_long_messages_share_two_devices():
    with Hosts() as hosts:
        for device, addresses in RAIL_ADDRESSES:
            hosts.veth(device, addresses)
        few, many = rail_shares(hosts, RAILS)
        check(5 < few and 20 < few + many < 25, f"{few:.1f} and {many:.1f} MB were sent")
        # Rendezvous by writing goes by the lane.
        for alone in ({"UCX_MAX_RNDV_RAILS": "1"}, {"UCX_RNDV_SCHEME": "put_zcopy"}):
            few, many = rail_shares(hosts, RAILS | alone)
            check(few < 1 and 20 < many < 25, f"with {alone} {few:.1f} and {many:.1f} MB were sent")


def play_by_rail(hosts):
    """A client and a server that exchange long messages by two devices; returns them, and the device of the rail."""
    # Client and server connect by the device of the lane: libfabric's first.
    listing = hosts.a.run("fi_info", "-p", "tcp;ofi_rxm").stdout
    lane, rail = sorted(("net0", "net1"), key=lambda device: listing.index(f"domain: {device}"))
    server, client = play(hosts, dict(RAIL_ADDRESSES)[lane][1].split("/")[0], ENDLESS, 4_000_000, RAILS)
    client.until_logged(f"has a rail: tcp;ofi_rxm on {rail}")
    client.until_on()
    return server, client, rail


REREAD = "bytes that a device has not read are read another way"


def check_reread(client, server):
    said = client.errors + server.errors
    check(REREAD in said, f"no part was read again: {said[-1500:]}")


@test
def ofi_a_rail_that_fails_is_replaced_by_the_lane():
    """The kernel resets the rail's connections amid messages, each of which is checked: nothing is lost, because the
    lane reads what the rail has not."""
    with Hosts() as hosts:
        for device, addresses in RAIL_ADDRESSES:
            hosts.veth(device, addresses)
        server, client, rail = play_by_rail(hosts)
        for host in (hosts.a, hosts.b):
            host.ip(f"link set {rail} down")
        # A message waits for a part that a rail reads.
        client.until_still()
        for host, address in zip((hosts.a, hosts.b), dict(RAIL_ADDRESSES)[rail]):
            address = address.split("/")[0]
            done = host.run("ss", "-K", "src", address)
            check(done.returncode == 0 and address in done.stdout, done.stdout)
        before = client.count()
        client.until(r"at \d+$", 60, after=before + 3)
        client.until_ended()
        server.until("failed .*")
        check_reread(client, server)


@test
def ofi_a_rail_whose_link_is_cut_is_replaced_by_the_lane():
    """No packet arrives by the rail any more, amid messages, each of which is checked."""
    with Hosts() as hosts:
        wires = {device: hosts.tap(device, addresses) for device, addresses in RAIL_ADDRESSES}
        server, client, rail = play_by_rail(hosts)
        wires[rail].say("cut")
        before = client.count()
        client.until(r"at \d+$", 90, after=before + 3)
        client.until_ended()
        server.until("failed .*")
        check_reread(client, server)
