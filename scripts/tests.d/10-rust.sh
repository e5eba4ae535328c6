# The Rust side: format, lints, unit, property and loom tests, the order of the layers, checks of the hot path. (sourced
# by scripts/test)
step 60  "cargo fmt" cargo fmt --check
if cargo clippy --version > /dev/null 2>&1; then
    step 600 "cargo clippy" cargo clippy --release --workspace --locked --all-targets -- -D warnings
else
    skip "cargo clippy" "Debian's toolchain comes without it"
fi
step 900 "cargo test" cargo test --locked --no-fail-fast
step 1200 "tools: rucp_info and rucp_top" cargo test --profile tools --locked -p rucp-tools
step 900 "loom" scripts/loom
step 60  "layers" scripts/check-layers
# The site itself, by mdBook: scripts/docs.
step 60  "documents: links, words, pictures" scripts/docs --check
step 600 "documentation of the source, without a warning" env RUSTDOCFLAGS="-D warnings" cargo doc --no-deps \
    --locked --lib --document-private-items
step 60  "words: none that is retired, no line of more than 120 columns" scripts/check-words
step 60  "NOTICE has the licences of what is linked" scripts/notice --check
step 60  "types of libibverbs and librdmacm are Debian's" scripts/gen-verbs --check
step 60  "hot path: no allocation, lock or system call" scripts/check-hot-path
# Every parser of bytes from other processes, for a quarter of a minute each; hours: scripts/fuzz 7200.
if [ -n "$(find "$(rustc --print sysroot)" -name "librustc-*_rt.asan.a")" ]; then
    step 1200 "fuzzing" env FUZZ_SEED=1 scripts/fuzz 15
else
    step 300 "fuzz targets build" cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
fi
