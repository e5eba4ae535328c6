# Runs a program of the bed on a library, compares what two runs printed. (sourced, after libraries.sh)

failed=0 passed=0

# run_one LIBRARY BUILD NAME TOPOLOGY [VARIANT COMMAND...]: leaves the output and the list of mapped libraries next to
# each other. A variant runs under COMMAND, which changes the surroundings.
run_one() {
    local library=$1 build=$2 name=$3 topology=$4 directory=$work/$2-$1${5:+-$5}
    local out=$directory/$name.$topology
    [ $# -lt 5 ] && shift 4 || shift 5
    mkdir -p "$directory"
    rm -f "$out".maps.*
    on_library "$library" env BED_MAPS="$out.maps" UCX_TLS=self,sm UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=fatal \
        timeout -k 5 100 "$@" "$work/$build/$name" "$topology" > "$out" 2> "$out.stderr"
    echo "exit $?" >> "$out"
    library_proven "$library" "$out".maps.* || echo "NOT RUN ON $library" >> "$out"
}

# compare BUILD NAME TOPOLOGY REFERENCE RUN: one line of verdict, and the difference if there is one. REFERENCE and RUN
# are libraries, or library-variant.
compare() {
    local reference=$work/$1-$4/$2.$3 other=$work/$1-$5/$2.$3 what="$2 $3 (headers $1): $4 and $5"
    if ! grep -q '^exit 0$' "$reference" || grep -q 'NOT RUN ON' "$reference"; then
        echo "FAIL $what: the reference itself failed"
        tail -n 5 "$reference" "$reference.stderr"
    elif cmp -s "$reference" "$other"; then
        echo "PASS $what"
        passed=$((passed + 1))
        return
    else
        echo "FAIL $what"
        diff -u --label "$4" --label "$5" "$reference" "$other" | head -n 40
        head -n 20 "$other.stderr"
    fi
    failed=$((failed + 1))
}

verdict() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
