"""Servers, clients and ranks on hosts, which are processes of peer.c and ranks.c, and how tests have them exchange
messages."""
import os
import re
import signal
import subprocess
import threading
import time

from testing import Failed, check

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
LIB = os.path.abspath(os.environ.get("RUCP_LIB", f"{TOP}/build/prefix/lib"))
WHEEL = os.path.abspath(os.environ.get("UCX_WHEEL", f"{TOP}/build/ucx-1.22"))
PROGRAMS_BUILT = f"{TOP}/target/c_tests/hosts"
PEER = f"{PROGRAMS_BUILT}/peer"
RANKS = f"{PROGRAMS_BUILT}/ranks"
RUCP = {"LD_LIBRARY_PATH": LIB, "UCX_LOG_FILE": "stderr", "UCX_WARN_UNUSED_ENV_VARS": "n"}
ENDLESS = 1_000_000_000  # messages: until the client gets SIGTERM, or its peer ends

# Over libfabric, by its provider in software for networks. Without the last two, psm and psm2, which libfabric loads,
# replace the client's handler of SIGTERM by one that ends it.
OFI = {"UCX_TLS": "ofi,self", "UCX_OFI_PROVIDER": "tcp", "UCX_NET_DEVICES": "net0", "UCX_KEEPALIVE_INTERVAL": "1s",
       "IPATH_NO_BACKTRACE": "1", "HFI_NO_BACKTRACE": "1"}


def build_program(name):
    program, source = f"{PROGRAMS_BUILT}/{name}", f"{HERE}/{name}.c"
    if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(source):
        return
    os.makedirs(PROGRAMS_BUILT, exist_ok=True)
    subprocess.run(["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
                    "-isystem", f"{WHEEL}/include", "-o",
                    program, source, f"-L{WHEEL}/lib", "-lucp", "-lucs",
                    "-Wl,--allow-shlib-undefined"], check=True)


class Peer:
    """A server or a client (peer.c), or a rank (ranks.c), on a host; `until` waits for a line of its output."""

    def __init__(self, host, *words, program=PEER, env=None, **options):
        self.process = host.start(program, *words, env=RUCP | (env or {}), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, **options)
        self.lines, self.changed = [], threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        self.errors = ""
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.strip())
                self.changed.notify_all()

    def _read_errors(self):
        for line in self.process.stderr:
            with self.changed:
                self.errors += line
                self.changed.notify_all()

    def until(self, pattern, seconds=30.0, after=0):
        """The match of the first line, from number `after` on, that `pattern` matches."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while True:
                for line in self.lines[after:]:
                    if match := re.match(pattern, line):
                        return match
                left = deadline - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self.changed.wait(0.5)):
                    raise Failed(f"no line '{pattern}' in {seconds} s, but {self.lines[-5:]}; {self.errors[-1500:]}")
                self.changed.wait(min(left, 0.5))

    def until_logged(self, words, seconds=30.0):
        """Waits until the log has these words."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while words not in self.errors:
                left = deadline - time.monotonic()
                check(left > 0, f"'{words}' is not logged in {seconds} s, but: {self.errors[-1500:]}")
                self.changed.wait(left)

    def until_still(self, seconds=60.0):
        """Waits until there was no line for two seconds: the traffic that the lines report has stopped."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while self.changed.wait(2.0):
                check(time.monotonic() < deadline, f"goes on after {seconds} s: {self.lines[-3:]}")
        check(not any(re.match("done|failed", line) for line in self.lines), f"has ended: {self.lines[-3:]}")

    def until_on(self, seconds=60.0):
        """Waits until a client has made progress from now on."""
        self.until(r"at \d+$", seconds, after=self.count())

    def until_ended(self, seconds=60.0):
        """Ends a client whose every message was answered."""
        self.signal(signal.SIGTERM)
        self.until(r"done \d+$", seconds)

    def signal(self, number):
        self.process.send_signal(number)

    def count(self):
        return len(self.lines)


def serve(host, address, env=None):
    server = Peer(host, "server", address, env=env)
    return server, server.until(r"port (\d+)")[1]


def play(hosts, address, count, size, env=None, of_client=None, of_server=None):
    """A client on host a against a new server on host b; returns both. `of_client`, `of_server`: variables of one."""
    env = env or {}
    server, port = serve(hosts.b, address, env | (of_server or {}))
    return server, Peer(hosts.a, "client", address, port, count, size, env=env | (of_client or {}))


def sent(host, device):
    """Bytes that a device has sent."""
    return int(host.run("cat", f"/sys/class/net/{device}/statistics/tx_bytes").stdout)


SIZE, COUNT = 100_000, 20


def carried(hosts, devices, play_it):
    """Which of the devices carried the messages that `play_it` exchanges."""
    before = {d: sent(hosts.a, d) for d in devices}
    play_it()
    return [d for d in devices if sent(hosts.a, d) - before[d] > SIZE * COUNT]


def exchange(hosts, address, env=None):
    def run():
        server, client = play(hosts, address, COUNT, SIZE, env)
        client.until(f"done {COUNT}")
        server.until(f"failed .* after {COUNT}")  # the client disconnects
    return run


def start_ranks(places, env, *words):
    """Starts a rank on each of these hosts."""
    return [Peer(place, number, len(places), *words, program=RANKS, env=env, stdin=subprocess.PIPE)
            for number, place in enumerate(places)]


def introduce(ranks, before_connecting=lambda: None, first_says=""):
    """Has the ranks connect: the others know of the job when the first one has logged `first_says`."""
    addresses = [rank.until("address (.*)")[1] for rank in ranks]
    before_connecting()
    for rank in ranks:
        rank.process.stdin.write("\n".join(addresses) + "\n")
        rank.process.stdin.flush()
        if rank is ranks[0]:
            rank.until_logged(first_says)
