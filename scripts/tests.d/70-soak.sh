# Mixed traffic, and the C tests under a sanitizer. Hours of it: scripts/soak 7200, scripts/sanitize KIND --long.
# (sourced)
step 300 "soak" scripts/leaves-nothing scripts/soak 60
for kind in address:asan thread:tsan; do
    if [ -n "$(find "$(rustc --print sysroot)" -name "librustc-*_rt.${kind#*:}.a")" ]; then
        step 900 "sanitizer: ${kind%:*}" scripts/sanitize "${kind%:*}"
    else
        skip "sanitizer: ${kind%:*}" "this Rust toolchain comes without its runtime"
    fi
done
