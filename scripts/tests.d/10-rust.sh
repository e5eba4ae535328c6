# The Rust side: format, lints, unit, property and loom tests, the order of the layers. (sourced by scripts/test)
step 60  "cargo fmt" cargo fmt --check
step 600 "cargo clippy" cargo clippy --release --locked --all-targets -- -D warnings
step 900 "cargo test" cargo test --release --locked
step 60  "layers" scripts/check-layers
