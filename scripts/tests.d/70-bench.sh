# The benchmark itself: its quick form on all three libraries; its output is complete. Speed is not checked. (sourced by
# scripts/test)

bench_quick() {
    local workloads=limits,tag,am,stream,first,rma,targets,targets/slow_copy,atomics,threads/tag/shared,threads/am/own
    workloads+=,threads/put,senders/tag/8
    workloads+=,senders/am/64,gups,lists,lists/tcp,instructions,startup,endpoints/100,clients/sm,clients/tcp
    workloads+=,processes/16,processes/loaded/16,scale/1000,scale/real/100
    workloads+=,growth/regions/1000,growth/peers/100
    workloads+=,oversubscribed/mpich/4,oversubscribed/openmpi/4,oversubscribed/openmpi/4/yield
    workloads+=,oversubscribed/mpich/4/load,oversubscribed/openmpi/4/load,oversubscribed/openmpi/4/yield/load
    workloads+=,openmpi/latency,openmpi/mt_mr,openmpi/init,mpich/allreduce,mpich/init
    rm -rf build/bench-test &&
        scripts/bench --quick --out build/bench-test &&
        c_tests/bench/check.py results build/bench-test 1.13,1.22,rucp "$workloads"
}

# Regressions are marked, the status reports them, and nothing else is marked: instructions repeat exactly.
bench_baseline() {
    local output status=0 test=build/bench-test
    c_tests/bench/check.py slower $test/results.json $test/better-then.json "instructions: put 8 B" &&
        output=$(scripts/bench --quick --only instructions --libraries 1.13,rucp --baseline $test/better-then.json \
            --out $test/again) || status=$?
    echo "$output"
    [ "$status" -eq 3 ] && [ "$(grep -c REGRESSION <<< "$output")" -eq 1 ] && grep -q \
        '^instructions: put 8 B .*REGRESSION' <<< "$output" &&
        grep -q '1 regressions' $test/again/index.html && c_tests/bench/check.py same $test/results.json \
            $test/again/results.json
}

# All ways within a host, in the quick form; only Debian's MPIs, which are always there.
bench_peers() {
    local ways=openmpi/own,openmpi/system,openmpi/1.22,openmpi/rucp,openmpi/rucp-heap
    ways+=,mpich/system,mpich/1.22,mpich/rucp,mpich/rucp-heap
    rm -rf build/peers-test &&
        scripts/bench --quick --only peers/openmpi,peers/mpich --out build/peers-test &&
        c_tests/bench/check.py peers build/peers-test $ways
}

# The standard error of two MPICH ranks that must fail, by way of a file: Hydra drops what is still in its pipes when a
# rank aborts (1 of 20 runs).
errors_of_ranks() { # OPTION... of mpirun
    local errors=build/bench-test/no_ucp.txt
    mkdir -p "${errors%/*}" && : > "$errors" || return
    EXPECT_LIBUCP=none timeout 60 mpirun.mpich -n 2 "$@" \
        bash -c 'exec "$0" quick 2>> "$1"' build/bench/mpich/peers "$errors" && return 1
    cat "$errors"
}

# A message by UCX where none may carry messages, and a run in which UCX could send, end the run.
no_ucp_holds() {
    local output
    output=$(errors_of_ranks) && [[ $output == *"no_ucp.so is not preloaded"* ]] || { echo "$output"; return 1; }
    output=$(errors_of_ranks -genv LD_PRELOAD "$PWD/build/bench/no_ucp.so") &&
        [[ $output == *"was called where no UCX may carry messages"* ]] || { echo "$output"; return 1; }
}

# An operation above its recorded count is named.
counts_fail() {
    local output status=0 test=build/bench-test/counts
    mkdir -p $test || return
    sed 's/^\(put 8 B  .*\) [0-9.]*$/\1 60.0/' scripts/measure/counts/shm.txt > $test/shm.txt || return
    output=$(scripts/instruction-counts --only shm --runs 2 --counts $test) || status=$?
    echo "$output"
    [[ $output == *"not held"* ]] && return
    [ "$status" -eq 1 ] && [ "$(grep -c ' instructions, more than ' <<< "$output")" -eq 1 ] &&
        grep -q '^shm: put 8 B: .*more than 60.0$' <<< "$output"
}

# A tree like OSU's for an MPI, of the programs of c_tests and of those that osu-patches adds, compiled against a
# replacement of OSU's header.
osu_like_tree() { # MPI DIRECTORY
    local mpi=$1 tree=$2 own=$top/build/bench/$1
    mkdir -p "$tree"/c/mpi/{pt2pt/standard,one-sided,collective/blocking,startup} "$tree/added"
    ln -sf "$own/latency" "$tree/c/mpi/pt2pt/standard/osu_latency"
    ln -sf "$own/bw" "$tree/c/mpi/pt2pt/standard/osu_bw"
    ln -sf "$own/put_latency" "$tree/c/mpi/one-sided/osu_put_latency"
    ln -sf "$own/allreduce" "$tree/c/mpi/collective/blocking/osu_allreduce"
    ln -sf "$own/init" "$tree/c/mpi/startup/osu_init"
    # Only the files that the patches add whole: the files that they change are OSU's.
    awk '/^\+\+\+ b\// { file = "" ; split($2, part, "/"); n = split($2, part, "/"); name = part[n] }
         /^@@ -0,0 / { file = dir "/" name } /^@@ -[1-9]/ { file = "" }
         file != "" && /^\+/ && !/^\+\+\+ b\// { print substr($0, 2) > file }' dir="$tree/added" osu-patches/*.patch
    cat > "$tree/added/osu_util_mpi.h" <<'HEADER'
#include <assert.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include "osu_util_libucp.h"
#define MPI_CHECK(call) do { if ((call) != MPI_SUCCESS) exit(EXIT_FAILURE); } while (0)
#define OMB_ERROR_EXIT(text) do { fprintf(stderr, "%s\n", text); exit(EXIT_FAILURE); } while (0)
HEADER
    for program in pt2pt/standard/osu_mt_mr pt2pt/standard/osu_match_depth one-sided/osu_gups; do
        "mpicc.$mpi" -std=gnu11 -O2 -Wall -Wextra -Werror -Wno-stringop-overflow -pthread -I "$tree/added" \
            -o "$tree/c/mpi/$program" "$tree/added/${program##*/}.c" -ldl || return
    done
}

osu_tree() { # MPI
    local tree=build/osu-test/$1
    rm -rf "$tree" && osu_like_tree "$1" "$tree" &&
        scripts/osu --dir "$tree" --quick --libraries 1.13,rucp --out "$tree/results" &&
        c_tests/bench/check.py results "$tree/results" 1.13,rucp \
            "$(printf "$1/osu_%s\n" latency bw mt_mr match_depth put_latency gups allreduce init | paste -sd ,)"
}

export -f bench_quick bench_baseline bench_peers errors_of_ranks no_ucp_holds counts_fail osu_like_tree osu_tree
# What is counted and not timed, beside the storm of 60-kill.sh.
step 200 "scale: peers that are not used cost nothing" c_tests/bench/scale_counts
step 60 "simulate: small jobs with known answers" c_tests/bench/wireup_test.py
step 400 "instructions: no operation takes more than is recorded" scripts/instruction-counts
step 60 "instructions: one that takes more is named" bash -c counts_fail
step 60 "osu-patches: added lines only" c_tests/bench/check.py patches osu-patches/*.patch
await_steps
step 1500 "bench: quick, three libraries" bash -c bench_quick
step 300 "bench: a regression is marked" bash -c bench_baseline
step 200 "bench: all ways within a host, quick" bash -c bench_peers
step 150 "bench: no UCX carries messages where none may" bash -c no_ucp_holds
for mpi in openmpi mpich; do
    step 300 "osu: a tree of the same form, $mpi" bash -c "osu_tree $mpi"
done
