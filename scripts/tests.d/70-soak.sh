# Mixed traffic, and the C tests under a sanitizer. Hours of it: scripts/soak 7200, scripts/sanitize KIND --long. (sourced)
step 300 "soak" scripts/leaves-nothing scripts/soak 28
if [ -n "$(find "$(rustc --print sysroot)" -name "librustc-*_rt.asan.a")" ]; then
    step 900 "sanitizer: address" scripts/sanitize address
else
    skip "sanitizer: address" "this Rust toolchain comes without its runtime"
fi
