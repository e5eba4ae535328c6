# The software Tofu, a libtofucom.so for machines without a Tofu interconnect. Real programs run on it, with puts that
# overtake each other, short queues and little memory. (sourced by scripts/test)
step 200 "software Tofu" scripts/leaves-nothing c_tests/tofu/run
step 400 "software Tofu: differential" scripts/leaves-nothing "${libraries[@]}" c_tests/diff/run --tofu
step 200 "software Tofu: conformance" scripts/leaves-nothing "${libraries[@]}" c_tests/conformance/run --tofu
step 240 "software Tofu: dying peers, refused operations, attacks, 48 workers" scripts/leaves-nothing \
    "${libraries[@]}" c_tests/tofu/transport/run
by_tofu() { scripts/leaves-nothing env UCX_TLS=tofu,self c_tests/tofu/wired "$@"; }
export -f by_tofu
for mpi in openmpi mpich; do
    for ranks in 2 8; do
        for program in matching datatypes collectives onesided; do
            step 240 "software Tofu: $mpi, $ranks ranks: $program" bash -c 'by_tofu "$@"' - \
                scripts/mpirun-on "$mpi" rucp "$ranks" "build/mpi/$mpi/$program"
        done
    done
    for program in "accumulate 40" "pscw 200"; do
        # shellcheck disable=SC2086 # a program and its argument
        step 120 "software Tofu: $mpi, 4 ranks: ${program% *}" bash -c 'by_tofu "$@"' - \
            scripts/mpirun-on "$mpi" rucp 4 build/mpi/$mpi/$program
    done
done
# Long messages, puts and gets by three interfaces, parts of which arrive late.
several=(env UCX_TOFU_VCQS_PER_WORKER=3 UCX_MAX_RMA_RAILS=3 UCX_MAX_RNDV_RAILS=3 SOFT_TOFU_FAULTS=reorder_nth=2)
for mpi in openmpi mpich; do
    for program in matching datatypes onesided; do
        step 240 "software Tofu: $mpi, 2 ranks, 3 interfaces: $program" bash -c 'by_tofu "$@"' - \
            "${several[@]}" scripts/mpirun-on "$mpi" rucp 2 "build/mpi/$mpi/$program"
    done
done
for program in collectives onesided; do
    step 240 "software Tofu: mpich, 16 ranks: $program" bash -c 'by_tofu "$@"' - scripts/mpirun-on mpich rucp 16 \
        "build/mpi/mpich/$program"
done
for ranks in 2 8 16; do
    step 240 "software Tofu: openmpi, $ranks ranks: pingpong" bash -c 'by_tofu "$@"' - \
        scripts/mpirun-on openmpi rucp "$ranks" build/mpi/openmpi/pingpong --quick
done
step 60 "software Tofu: OpenSHMEM checks build" make -s -C c_tests/oshmem
for program in putget atomics collectives; do
    step 100 "software Tofu: OpenSHMEM, 4 PEs: $program" bash -c 'by_tofu "$@"' - scripts/oshrun-on rucp 4 mmap \
        "build/oshmem/$program"
done
step 60 "software Tofu: beside programs that call it themselves" scripts/leaves-nothing scripts/tofu-rates --quick
step 60 "software Tofu: 8 bytes are put with 60 instructions at most" scripts/tofu-instructions --most "put 8 B=60"
