# The same C programs on UCX 1.13.1, UCX 1.22 and rucp: their output must not differ. (sourced by scripts/test)
libraries=(env "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22")
# The portable code for every processor.
start_step 700 "without what is of this processor: build, unit tests" scripts/portable --build
step 900 "differential" "${libraries[@]}" c_tests/diff/run
await_steps
step 400 "without what is of this processor" "${libraries[@]}" scripts/portable --programs
# After the differential programs, whose references it takes.
step 400 "conformance of every transport" "${libraries[@]}" c_tests/conformance/transports
# The transport with the least, which only a library for tests has.
with_shmtest() { # COMMAND...: after the library of build/shmtest was built
    cargo build --profile tools --features shmtest --lib --locked --target-dir target/shmtest &&
        scripts/install "$top/build/shmtest" "$top/target/shmtest/tools/libucp.so" && "$@"
}
export -f with_shmtest
export top
step 700 "conformance of the transport with the least" env "RUCP_LIB=$top/build/shmtest/lib" \
    "UCX_WHEEL=$top/build/ucx-1.22" bash -c "with_shmtest c_tests/conformance/transports --only shmtest"
# Over libfabric, whose providers take a third of a second to load in each process.
step 700 "conformance of the transport over libfabric" "${libraries[@]}" c_tests/conformance/transports --only ofi_tcp \
    --only ofi_shm
step 20 "rules: each has a test" c_tests/diff/rules --ran
# Alone, because it inspects /dev/shm.
step 500 "conformance of shared memory" scripts/leaves-nothing "${libraries[@]}" c_tests/conformance/run
step 300 "misuse" "${libraries[@]}" c_tests/misuse/run
