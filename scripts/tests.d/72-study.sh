# The benchmarks of the Fugaku study verify their data: threads that share workers and threads with their own. Speed is
# not checked. (sourced by scripts/test)

# In shared memory, and between network namespaces, where the target's threads take part in every put, get and atomic.
study_verifies() {
    local quick=(-T 0.002 -r 1 -s 4:65536:128)
    scripts/mpirun-on mpich rucp 2 build/study/mpich/study "${quick[@]}" -t 1,3 -w one,2,each &&
        scripts/mpirun-on openmpi 1.22 2 build/study/openmpi/study "${quick[@]}" -t 2 &&
        scripts/mpirun-on mpich rucp 2 build/study/mpich/study put get gups_atomic gups_put_get "${quick[@]}" -t 2 -u &&
        UCX_TLS=tcp,self scripts/mpirun-on openmpi rucp 2 build/study/openmpi/study pingpong_put get gups_atomic \
            gups_put_get "${quick[@]}" -t 2
}

# Between nodes of the software Tofu, with as many workers as a node of Fugaku has cores.
study_tofu() {
    local quick=(-T 0.002 -r 1 -s 4:16384:64)
    UCX_TLS=tofu,self c_tests/tofu/wired scripts/mpirun-on mpich rucp 2 build/study/mpich/study "${quick[@]}" -t 3 -w \
        one,2,each &&
        UCX_TLS=tofu,self c_tests/tofu/wired scripts/mpirun-on mpich rucp 2 build/study/mpich/study put gups_atomic \
            "${quick[@]}" -t 48 -w each
}

# Tables, files and plots; and those of output from another machine.
study_tables() {
    local out=build/study-test
    rm -rf $out && scripts/study --quick --only study/get/one --out $out/here &&
        c_tests/bench/check.py results $out/here 1.22,rucp mpich/study/get/one &&
        scripts/mpirun-on mpich rucp 2 build/study/mpich/study get -T 0.002 -r 1 -s 4:64:4 -t 1,2 > $out/printed &&
        scripts/study --read rucp=$out/printed --read rucp=$out/printed --out $out/read &&
        [ "$(grep -c '^study,get_rate/.*,M/s,more,rucp,.*,2,[[:space:]]*$' $out/read/results.csv)" -eq 12 ] && grep -q \
            '^ *64 ' $out/read/tables.txt
}

export -f study_verifies study_tofu study_tables
step 120 "study: data are verified, one worker and many" scripts/leaves-nothing bash -c study_verifies
step 120 "study: data are verified, on the software Tofu" scripts/leaves-nothing bash -c study_tofu
step 120 "study: tables and plots" bash -c study_tables
