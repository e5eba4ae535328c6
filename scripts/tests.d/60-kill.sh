# A rank that is killed in the middle of traffic, and jobs that end well, leave nothing behind. (sourced by
# scripts/test)

# killed MPI RANKS: the job must have reached the kill, must report failure, and must leave nothing (status 99).
killed() {
    local output status
    output=$(scripts/leaves-nothing scripts/mpirun-on "$1" rucp "$2" "build/mpi/$1/kill" 2>&1)
    status=$?
    echo "$output"
    echo "status $status"
    grep -q '^killing rank 1' <<< "$output" && [ "$status" -ne 0 ] && [ "$status" -ne 99 ] && ! grep -q '^FAILED' <<< \
        "$output"
}

export -f killed
for mpi in openmpi mpich; do
    for ranks in 2 8; do
        step 120 "$mpi, $ranks ranks: killed, leaves nothing" bash -c "killed $mpi $ranks"
    done
    step 120 "$mpi, 2 ranks: ends, leaves nothing" scripts/leaves-nothing scripts/mpirun-on "$mpi" rucp 2 \
        "build/mpi/$mpi/onesided"
done
# Hours of it: scripts/storm 7200. It keeps one core busy, beside the counts of 70-bench.sh.
start_step 300 "storm: kills, stops and restarts under traffic" scripts/leaves-nothing scripts/storm 80 1
