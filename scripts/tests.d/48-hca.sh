# The software HCA, a libibverbs.so.1: real programs and Debian's UCX run on it, and so does the transport over ibverbs,
# with injected losses and delays. (sourced by scripts/test)
step 400 "software HCA" scripts/leaves-nothing c_tests/hca/run
step 600 "software HCA: differential, rc and ud" scripts/leaves-nothing "${libraries[@]}" c_tests/diff/run --hca
for mpi in openmpi mpich; do
    for tls in rc ud; do
        for program in matching datatypes collectives onesided; do
            step 240 "software HCA: $mpi, 4 ranks, $tls: $program" scripts/leaves-nothing env "UCX_TLS=$tls,self" \
                c_tests/hca/wired scripts/mpirun-on "$mpi" rucp 4 "build/mpi/$mpi/$program"
        done
        for program in "accumulate 40" "pscw 200"; do
            # shellcheck disable=SC2086 # a program and its argument
            step 120 "software HCA: $mpi, 4 ranks, $tls: ${program% *}" scripts/leaves-nothing env "UCX_TLS=$tls,self" \
                c_tests/hca/wired scripts/mpirun-on "$mpi" rucp 4 build/mpi/$mpi/$program
        done
    done
done
# Without UCX_ATOMIC_MODE the CPUs execute atomics where all ranks are on one host.
for tls in rc,self all; do
    step 240 "software HCA: openmpi, 4 ranks, $tls: onesided, atomics by the device" scripts/leaves-nothing env \
        "UCX_TLS=$tls" \
        UCX_ATOMIC_MODE=device c_tests/hca/wired scripts/mpirun-on openmpi rucp 4 build/mpi/openmpi/onesided
done
step 700 "software HCA: forged packets, dying peers, atomics, short queues" scripts/leaves-nothing "${libraries[@]}" \
    c_tests/verbs/run
