# The MPI checks on rucp by LD_PRELOAD, under both MPIs, with 2 and with 8 ranks on the cores of this machine.
# Each rank fails if another libucp than rucp is mapped (EXPECT_LIBUCP, see mpirun-on). (sourced by scripts/test)

# MPICH has no flag that forces UCX: it must have been built with nothing else.
only_ucx() { mpichversion | grep -qx "MPICH Device:[[:space:]]*ch4:ucx"; }
export -f only_ucx
step 20 "MPICH has no transport but UCX" bash -c only_ucx

for mpi in openmpi mpich; do
    for ranks in 2 8; do
        step 120 "$mpi, $ranks ranks: pingpong" scripts/mpirun-on "$mpi" rucp "$ranks" "build/mpi/$mpi/pingpong" --quick
        for program in matching datatypes collectives onesided accumulate; do
            step 180 "$mpi, $ranks ranks: $program" scripts/mpirun-on "$mpi" rucp "$ranks" "build/mpi/$mpi/$program"
        done
    done
    step 120 "$mpi, 4 ranks: pscw" scripts/mpirun-on "$mpi" rucp 4 "build/mpi/$mpi/pscw"
    step 120 "$mpi, 8 ranks: pscw" scripts/mpirun-on "$mpi" rucp 8 "build/mpi/$mpi/pscw" 200
    # Once more as a site would install it: all four names, found by LD_LIBRARY_PATH.
    step 120 "$mpi, 2 ranks, from the prefix: matching" scripts/mpirun-on "$mpi" prefix 2 "build/mpi/$mpi/matching"
done

# By the transport with the least, of the library that 30-differential.sh has built.
for mpi in openmpi mpich; do
    for program in matching collectives onesided; do
        step 240 "$mpi, 4 ranks, shmtest: $program" env UCX_TLS=shmtest,self scripts/mpirun-on "$mpi" \
            "$top/build/shmtest/lib/libucp.so.0" 4 "build/mpi/$mpi/$program"
    done
done

# Over libfabric, by a provider in software.
for mpi in openmpi mpich; do
    for program in matching collectives onesided; do
        step 240 "$mpi, 4 ranks, ofi: $program" env UCX_TLS=ofi,self FI_PROVIDER=tcp scripts/mpirun-on "$mpi" rucp 4 \
            "build/mpi/$mpi/$program"
    done
done

# As under a batch system that limits address space (h_vmem).
in_400_mb() { # MPI
    scripts/mpirun-on "$1" rucp 8 "$BASH" -c 'ulimit -v 400000; exec "$0"' "build/mpi/$1/collectives"
}
export -f in_400_mb
for mpi in openmpi mpich; do
    step 180 "$mpi, 8 ranks in 400 MB of address space each: collectives" bash -c "in_400_mb $mpi"
done

# Between network namespaces: traffic of ranks on one host goes through the network.
for mpi in openmpi mpich; do
    for program in matching datatypes collectives onesided; do
        step 240 "$mpi, 4 ranks, tcp: $program" env UCX_TLS=tcp scripts/mpirun-on "$mpi" rucp 4 \
            "build/mpi/$mpi/$program"
    done
    step 120 "$mpi, 4 ranks, tcp: accumulate" env UCX_TLS=tcp \
        scripts/mpirun-on "$mpi" rucp 4 "build/mpi/$mpi/accumulate" 40
    step 120 "$mpi, 4 ranks, tcp: pscw" env UCX_TLS=tcp scripts/mpirun-on "$mpi" rucp 4 "build/mpi/$mpi/pscw" 200
done
