# The Rust side: format, lints, unit, property and loom tests, the order of the layers, checks of the hot path. (sourced
# by scripts/test)
step 60  "cargo fmt" cargo fmt --check
# Builds and what keeps one core busy run beside each other, each in a target directory or profile of its own.
if cargo clippy --version > /dev/null 2>&1; then
    start_step 900 "cargo clippy" cargo clippy --release --workspace --locked --all-targets -- -D warnings
else
    skip "cargo clippy" "Debian's toolchain comes without it"
fi
start_step 1200 "loom" scripts/loom
start_step 900 "cargo test: build" cargo test --locked --no-run
start_step 1200 "tools: rucp_info, rucp_top, rucp_doctor, rucp_trace" cargo test --profile tools --locked -p rucp-tools
# Every parser of bytes from other processes, for some seconds each; hours: scripts/fuzz 7200.
if [ -n "$(find "$(rustc --print sysroot)" -name "librustc-*_rt.asan.a")" ]; then
    start_step 1200 "fuzzing" env FUZZ_SEED=1 scripts/fuzz 10
else
    start_step 300 "fuzz targets build" cargo check --quiet --locked --manifest-path fuzz/Cargo.toml \
        --target-dir target/fuzz
fi
start_step 900 "release build: the same bytes at another place" scripts/check-reproducible
await_steps
step 900 "cargo test" cargo test --locked --no-fail-fast
step 900 "cargo test of the transport with the least" cargo test --locked --features shmtest --lib shmtest
step 60  "layers" scripts/check-layers
step 60  "circles of imports" scripts/check-circles
# The site itself, by mdBook: scripts/docs.
step 60  "documents: links, words, pictures" scripts/docs --check
step 600 "documentation of the source, without a warning" env RUSTDOCFLAGS="-D warnings" cargo doc --no-deps \
    --locked --lib --document-private-items
step 60  "words, line lengths, type names, doc comments" scripts/check-words
step 60  "NOTICE has the licences of what is linked" scripts/notice --check
step 60  "types of libibverbs and librdmacm are Debian's" scripts/gen-verbs --check
step 60  "types of libfabric are Debian's" scripts/gen-libfabric --check
step 60  "hot path: no allocation, lock or system call" scripts/check-hot-path
step 60  "release build: no path of the machine" bash -c '
    scripts/check-paths && scripts/check-paths "${CARGO_TARGET_DIR:-target}/release/librucp_heap.so"'
