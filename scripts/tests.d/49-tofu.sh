# A libtofucom.so of our own: nothing here has a Tofu interconnect. Genuine programs run on it, with puts that overtake each other,
# short queues and little memory. (sourced by scripts/test)
step 200 "software Tofu" scripts/leaves-nothing c_tests/tofu/run
step 400 "software Tofu: differential" scripts/leaves-nothing "${libraries[@]}" c_tests/diff/run --tofu
step 120 "software Tofu: dying peers, refused operations" scripts/leaves-nothing "${libraries[@]}" c_tests/tofu/transport/run
by_tofu() { scripts/leaves-nothing env UCX_TLS=tofu,self c_tests/tofu/wired "$@"; }
export -f by_tofu
for mpi in openmpi mpich; do
    for ranks in 2 8; do
        for program in matching datatypes collectives onesided; do
            step 240 "software Tofu: $mpi, $ranks ranks: $program" bash -c 'by_tofu "$@"' - \
                scripts/mpirun-on "$mpi" rucp "$ranks" "build/mpi/$mpi/$program"
        done
    done
done
step 240 "software Tofu: mpich, 16 ranks: collectives" bash -c 'by_tofu "$@"' - scripts/mpirun-on mpich rucp 16 build/mpi/mpich/collectives
step 60 "software Tofu: OpenSHMEM checks build" make -s -C c_tests/oshmem
for program in putget atomics collectives; do
    step 100 "software Tofu: OpenSHMEM, 4 PEs: $program" bash -c 'by_tofu "$@"' - scripts/oshrun-on rucp 4 mmap "build/oshmem/$program"
done
