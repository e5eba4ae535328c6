"""MPI between two hosts."""
import os

from hosts import Hosts
from peers import HERE, LIB, OFI, PEER, TOP, sent
from testing import check, test

ROUGH = {"delay": 0.002, "jitter": 0.001, "loss": 0.02, "duplicate": 0.01, "reorder": 0.02}


def mpi_command(mpi, hosts, program, arguments, variables):
    names = f"{hosts.a.name},{hosts.b.name}"
    ours = f"{LIB}/libucp.so.0"
    if mpi == "openmpi":
        return ["mpirun.openmpi", "--host", names, "--np", "2", "--map-by", "node", "--bind-to", "none",
                "--mca", "plm_rsh_agent", f"{HERE}/agent", "--mca", "oob_tcp_if_include", "10.78.0.0/24",
                "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "pml_ucx_tls", "any",
                "--mca", "pml_ucx_devices", "any", "--mca", "btl_tcp_if_include", "10.78.0.0/24",
                "-x", f"LD_PRELOAD={ours}", "-x", f"EXPECT_LIBUCP={ours}", "-x", "UCX_LOG_LEVEL=warn",
                *(word for name, value in variables.items() for word in ("-x", f"{name}={value}")),
                program, *arguments]
    return ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", f"{HERE}/agent", "-hosts", names, "-iface", "net0",
            "-n", "2", "-ppn", "1", "-genv", "LD_PRELOAD", ours, "-genv", "EXPECT_LIBUCP", ours,
            *(word for variable in variables.items() for word in ("-genv", *variable)), program, *arguments]


def mpi_run(mpi, program, *arguments, netem=None, variables=None):
    """Between two hosts, with netem's behaviour if one is given, and with these variables of UCX."""
    def run():
        with Hosts() as hosts:
            addresses = "10.78.0.1/24", "10.78.0.2/24"
            wire = hosts.netem("net0", addresses, **netem) if netem else hosts.veth("net0", addresses)
            hosts.bridge("docker0", "172.17.0.1/16", "172.17.0.1/16")
            for host in (hosts.a, hosts.b):
                host.run("sh", "-c", f"mount --bind {table(hosts)} /etc/hosts", timeout=5)
            env = hosts.agent() | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            before = sent(hosts.a, "net0")
            command = mpi_command(mpi, hosts, f"{TOP}/build/mpi/{mpi}/{program}", arguments, variables or {})
            done = hosts.a.run(*command, env=env, timeout=170)
            check(done.returncode == 0, f"status {done.returncode}\n" + done.stdout[-5000:])
            check(sent(hosts.a, "net0") - before > 500_000, "the messages did not go over net0")
            check(netem is None or all(wire.lost()), "netem has lost nothing")
    run.__name__ = f"{'netem_' if netem else 'ofi_' if variables else ''}{mpi}_{program}"
    return run


def table(hosts):
    """A file with the names of the hosts, mounted over /etc/hosts."""
    path = f"{os.path.dirname(PEER)}/etc-hosts"
    with open(path, "w") as out:
        out.write(f"127.0.0.1 localhost\n10.78.0.1 {hosts.a.name}\n10.78.0.2 {hosts.b.name}\n")
    return path


for mpi in ("openmpi", "mpich"):
    test(mpi_run(mpi, "pingpong", "--quick"))
    for program in ("matching", "collectives", "onesided", "datatypes"):
        test(mpi_run(mpi, program))
        test(mpi_run(mpi, program, variables=OFI))


# Only one of them: they take long in a virtual machine.
test(mpi_run("mpich", "pingpong", "--quick", "--max", "1024", netem=ROUGH))
