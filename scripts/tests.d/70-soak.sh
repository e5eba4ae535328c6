# Mixed traffic, and the C tests under the sanitizers; hours of it: scripts/soak 7200, scripts/sanitize KIND --long. (sourced)
step 300 "soak" scripts/leaves-nothing scripts/soak 28
for kind in address thread; do
    if [ -n "$(find "$(rustc --print sysroot)" -name "librustc-*_rt.${kind:0:1}*san.a")" ]; then
        step 900 "sanitizer: $kind" scripts/sanitize $kind
    else
        skip "sanitizer: $kind" "this Rust toolchain comes without its runtime"
    fi
done
