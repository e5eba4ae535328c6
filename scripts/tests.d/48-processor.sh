# Another processor, emulated: the library is built for it, and a few programs run on it. (sourced by scripts/test)
name="arm64, emulated: differential programs, Tofu, MPI"
if [[ $name =~ $pattern ]]; then
    if timeout 400 scripts/setup arm64 < /dev/null > "$logs/setup-arm64.log" 2>&1; then
        start_step 900 "$name" scripts/processor --short arm64
    else
        skip "$name" "Debian's packages for it cannot be fetched: $(tail -n 1 "$logs/setup-arm64.log")"
    fi
fi
