# Mixed traffic, and the C tests under a sanitizer. Hours of it: scripts/soak 7200, scripts/sanitize KIND --long.
# (sourced)
step 300 "soak" scripts/leaves-nothing scripts/soak 60
# Both at a time: each builds the library and its programs, mostly on one core.
for kind in address:asan thread:tsan; do
    if [ -n "$(find "$(rustc --print sysroot)" -name "librustc-*_rt.${kind#*:}.a")" ]; then
        start_step 900 "sanitizer: ${kind%:*}" scripts/sanitize "${kind%:*}"
    else
        skip "sanitizer: ${kind%:*}" "this Rust toolchain comes without its runtime"
    fi
done
await_steps
