# Staged hangs, which rucp_top --stuck names, and busy jobs, of which it says nothing. (sourced by scripts/test)
step 120 "rucp_top --stuck: staged hangs" scripts/leaves-nothing env "RUCP_LIB=$top/build/prefix/lib" \
    "UCX_WHEEL=$top/build/ucx-1.22" c_tests/stuck/run
