# The Rust side: format, lints, unit, property and loom tests, the order of the layers. (sourced by scripts/test)
step 60  "cargo fmt" cargo fmt --check
if cargo clippy --version > /dev/null 2>&1; then
    step 600 "cargo clippy" cargo clippy --release --locked --all-targets -- -D warnings
else
    skip "cargo clippy" "Debian's toolchain comes without it"
fi
step 900 "cargo test" cargo test --release --locked
step 60  "layers" scripts/check-layers
