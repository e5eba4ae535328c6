# Programs that others wrote, with their own checks of the data, on rucp. (sourced by scripts/test)

# netpipe MPI PROGRAM: every size must be reported as intact.
netpipe() {
    local output
    output=$(PROVE=1 scripts/mpirun-on "$1" rucp 2 "$2" -u 1048576 -p 0 -i -n 20 -o build/netpipe.out 2>&1)
    local status=$?
    echo "$output"
    [ "$status" -eq 0 ] && [ "$(grep -c 'Integrity check passed' <<< "$output")" -ge 30 ] && ! grep -qi 'check failed' <<< "$output"
}

# hpcc_small P Q: on a grid of P times Q ranks; solves, transposes, updates at random; each of its parts checks its own
# result. With more than four ranks its random access keeps four receives posted, looks at them in the order of their
# index and stops at the last "finished": an update in another one is dropped now and then, on any MPI. It allows 1 %.
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
