# Runs commands in parallel, as many as BESIDE says (3) at a time: most of these commands wait for timeouts. (sourced)
#
# Sets `passed` and `failed`, as verdict.sh has them, and leaves no files in `work`.

declare -A beside_running=() # process id of a command: its name

# beside NAME COMMAND...: starts the command as soon as there is room for it.
beside() {
    [ ${#beside_running[@]} -lt "${BESIDE:-3}" ] || beside_wait_one
    local out=$work/beside.$BASHPID.${#beside_running[@]}.$RANDOM name=$1
    shift
    "$@" > "$out" 2>&1 &
    beside_running[$!]=$out:$name
}

# Waits for one of the commands. Prints its output in one piece.
beside_wait_one() {
    local pid status=0 out name tail
    wait -n -p pid "${!beside_running[@]}" || status=$?
    out=${beside_running[$pid]%%:*} name=${beside_running[$pid]#*:}
    unset "beside_running[$pid]"
    echo "== $name"
    cat "$out"
    tail=$(grep -v '^PASS' "$out" | tail -n 11)
    rm -f "$out"
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed+=("$name"$'\n'"$tail")
    fi
}

# Waits for all of them.
beside_all() {
    while [ ${#beside_running[@]} -gt 0 ]; do beside_wait_one; done
}
