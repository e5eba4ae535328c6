# Staged hangs, which rucp_top --stuck names, and busy jobs, of which it says nothing; what jobs print. (sourced by
# scripts/test)
step 300 "rucp_top --stuck: staged hangs" env "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22" \
    bash -c '
    cargo build --profile tools --locked --quiet -p rucp-tools &&
        RUCP_TOP=${CARGO_TARGET_DIR:-$PWD/target}/tools/rucp_top scripts/leaves-nothing c_tests/stuck/run'
# With jobs of 1,000 processes: c_tests/silence/run 1000.
step 300 "silence: correct jobs, and one line for each failure" scripts/leaves-nothing env \
    "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22" c_tests/silence/run 256
# A case alone: c_tests/trace/run CASE.
step 120 "trace: timelines of jobs, killed and forked processes, failovers, full disks, links" env \
    "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22" bash -c '
    cargo build --profile tools --locked --quiet -p rucp-tools &&
        RUCP_TRACE=${CARGO_TARGET_DIR:-$PWD/target}/tools/rucp_trace scripts/leaves-nothing c_tests/trace/run'
