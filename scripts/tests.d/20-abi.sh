# The interface that a client is built against: headers, exported symbols, layouts, the prefix. (sourced by
# scripts/test)
step 300 "headers are what cbindgen makes" scripts/gen-headers --check
step 300 "headers are in UCX's forms: tests of the generator" cargo test --quiet --locked --manifest-path \
    tools/gen-headers/Cargo.toml --target-dir target/gen-headers
step 300 "headers compile, C99 to C++23, gcc and clang" c_tests/abi/compile-headers
step 300 "abi: symbols, layouts, constants" c_tests/abi/run build/prefix/lib/libucp.so.0 /usr/include \
    build/ucx-1.22/include
step 120 "headers for generators of bindings: bindgen" c_tests/abi/bindings.py build/prefix/include \
    build/ucx-1.22/include
step 300 "consumers: pkg-config and CMake, C and C++" c_tests/consumer/run build/prefix
step 120 "two UCXs in one process: a genuine UCT beside this library" scripts/leaves-nothing c_tests/two_ucx/run \
    build/prefix/lib/libucp.so.0 /usr/include:/usr/lib/x86_64-linux-gnu:/usr/bin \
    build/ucx-1.22/include:build/ucx-1.22/lib:build/ucx-1.22/bin
step 120 "examples: built against the prefix, and run" scripts/leaves-nothing make -s -C examples check \
    PREFIX="$PWD/build/prefix" \
    OUT="$PWD/build/examples" CFLAGS="-O2 -Wall -Wextra -Werror"
if unshare --net --ipc --pid --mount --fork true 2> /dev/null; then
    step 300 "rucp_doctor: staged faults, each named" bash -c '
        cargo build --profile tools --locked --quiet -p rucp-tools && scripts/leaves-nothing c_tests/doctor/run \
            "${CARGO_TARGET_DIR:-target}/tools/rucp_doctor" build/prefix/lib/libucp.so.0'
else
    skip "rucp_doctor: staged faults" "no right to make namespaces"
fi
step 60  "options: those of UCX, with their defaults" c_tests/options/compare.py \
    build/ucx-1.22/lib:build/ucx-1.22/bin/ucx_info ucx_info
