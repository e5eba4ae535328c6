# The shared heap: librucp_heap.so and what libucp does with it. (sourced by scripts/test)
step 300 "shared heap: alone and between two processes" env "RUCP_LIB=$top/build/prefix/lib" \
    "UCX_WHEEL=$top/build/ucx-1.22" scripts/leaves-nothing c_tests/heap/run
for mpi in openmpi mpich; do
    for program in matching datatypes collectives onesided accumulate; do
        step 120 "shared heap: $mpi, 4 ranks: $program" scripts/mpirun-on "$mpi" rucp-heap 4 "build/mpi/$mpi/$program"
    done
done
