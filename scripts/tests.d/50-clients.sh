# Third-party programs, with their own checks of the data, on rucp. (sourced by scripts/test)

# netpipe MPI PROGRAM: every size must be reported as intact.
netpipe() {
    local output
    output=$(PROVE=1 scripts/mpirun-on "$1" rucp 2 "$2" -u 1048576 -p 0 -i -n 20 -o build/netpipe.out 2>&1)
    local status=$?
    echo "$output"
    [ "$status" -eq 0 ] && [ "$(grep -c 'Integrity check passed' <<< "$output")" -ge 30 ] && ! grep -qi 'check failed' \
        <<< "$output"
}

# hpcc_small P Q: on a grid of P times Q ranks; solves, transposes, updates at random; each of its parts checks its own
# result. With more than four ranks its random access keeps four receives posted, tests them in the order of their
# index and stops at the last "finished": an update in another one is sometimes dropped, on any MPI. It allows 1 %.
hpcc_small() {
    local directory
    directory=$(mktemp -d)
    sed "s/^P /$1 /; s/^Q /$2 /" c_tests/mpi/hpcc/hpccinf.txt > "$directory/hpccinf.txt"
    (cd "$directory" && PROVE=1 "$top/scripts/mpirun-on" openmpi rucp $(($1 * $2)) hpcc) || return
    cat "$directory/hpccoutf.txt"
    grep -q '^Success=1' "$directory/hpccoutf.txt" && grep -q '^PTRANS_residual=0$' "$directory/hpccoutf.txt" &&
        ! grep -qE 'FAILED|\(failed\)' "$directory/hpccoutf.txt" &&
        { [ $(($1 * $2)) -gt 4 ] || grep -q '^MPIRandomAccess_Errors=0$' "$directory/hpccoutf.txt"; }
    local status=$?
    rm -r "$directory"
    return "$status"
}

export top
export -f netpipe hpcc_small
step 120 "NetPIPE, Open MPI" bash -c 'netpipe openmpi NPopenmpi'
step 120 "NetPIPE, MPICH" bash -c 'netpipe mpich NPmpich2'
step 120 "hpcc, 2 ranks" bash -c 'hpcc_small 1 2'
step 240 "hpcc, 8 ranks" bash -c 'hpcc_small 2 4'

# ucx_perftest of both UCX releases, in all its UCP tests.
for release in 1.13 1.22; do
    step 400 "ucx_perftest $release" c_tests/perftest/run --quick --programs $release
done

# OpenSHMEM, its symmetric heap from each of its sources.
step 60 "OpenSHMEM checks build" make -s -C c_tests/oshmem
for pes in 2 4; do
    for heap in ucx mmap sysv; do
        for program in putget atomics collectives; do
            step 100 "OpenSHMEM, $pes PEs, heap from $heap: $program" scripts/oshrun-on rucp $pes $heap \
                "build/oshmem/$program"
        done
    done
done

await_steps # their installation
# The MPIs of PyPI. MPICH 5.0.2 hangs in `matching` on any UCX (mprobe from several sources with its ucx netmod).
for program in matching datatypes collectives onesided; do
    step 180 "openmpi-5, 2 ranks: $program" scripts/mpirun-on openmpi-5 rucp 2 "build/clients/openmpi-5/$program"
    [ $program = matching ] || step 180 "mpich-5, 2 ranks: $program" scripts/mpirun-on mpich-5 rucp 2 \
        "build/clients/mpich-5/$program"
done
for mpi in openmpi-5 mpich-5; do
    step 120 "$mpi, 2 ranks: accumulate" scripts/mpirun-on $mpi rucp 2 "build/clients/$mpi/accumulate"
    step 120 "$mpi, 4 ranks: pscw" scripts/mpirun-on $mpi rucp 4 "build/clients/$mpi/pscw"
    step 120 "$mpi, 8 ranks: pscw" scripts/mpirun-on $mpi rucp 8 "build/clients/$mpi/pscw" 200
done

# Programs that repeat calls of clients whose sources are not here.
step 300 "programs in the manner of clients" env "RUCP_LIB=$top/build/prefix/lib" c_tests/clients/programs

# NIXL and UCXX of PyPI, in host memory and with memory of GPUs, as mpi4py. UCXX's own tests where its source is.
step 180 "NIXL" c_tests/clients/run nixl
step 180 "UCXX" c_tests/clients/run ucxx
for client in nixl ucxx openmpi mpich; do
    step 120 "$client, memory of GPUs on the software driver" c_tests/clients/run $client-cuda
done
[ -z "${UCXX_SOURCE:-}" ] || step 3000 "UCXX, its own tests" c_tests/clients/run ucxx-tests

# Bindings of the headers: the Rust crates ucx1-sys and async-ucx with the latter's own four tests, and Python's cffi.
step 600 "async-ucx, its own tests" c_tests/clients/run async-ucx
step 120 "cffi" c_tests/clients/run cffi

# mpi4py's own tests: all of them once, under the other MPIs those with most communication; scripts/mpi4py-tests --long
# runs everything.
step 900 "mpi4py, mpich, 2 ranks" scripts/mpi4py-tests --mpis mpich --ranks 2
step 900 "mpi4py, mpich, 4 ranks" scripts/mpi4py-tests --mpis mpich --ranks 4
step 600 "mpi4py, openmpi, 1 rank" scripts/mpi4py-tests --mpis openmpi --ranks 1
for mpi in openmpi-5 mpich-5; do
    step 600 "mpi4py, $mpi, 2 ranks" scripts/mpi4py-tests --mpis $mpi --ranks 2
done
