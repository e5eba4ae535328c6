# Runs a program of the bed on a library, compares the output of two runs. (sourced, after libraries.sh)

failed=() passed=0
declare -A how # the arguments of run_one that made an output

# run_one LIBRARY BUILD NAME TOPOLOGY [VARIANT COMMAND...]: writes the output and the list of mapped libraries to
# two files. A variant runs under COMMAND, which changes its environment.
run_one() {
    local library=$1 build=$2 name=$3 topology=$4 directory=$work/$2-$1${5:+-$5}
    local out=$directory/$name.$topology
    how[$out]="$*"
    [ $# -lt 5 ] && shift 4 || shift 5
    mkdir -p "$directory"
    rm -f "$out".maps.*
    on_library "$library" env BED_MAPS="$out.maps" UCX_TLS=self,sm UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=fatal \
        timeout -k 5 100 "$@" "${run_under[@]}" "$work/$build/$name" "$topology" > "$out" 2> "$out.stderr"
    echo "exit $?" >> "$out"
    library_proven "$library" "$out".maps.* || echo "NOT RUN ON $library" >> "$out"
}

run_again() { # OUT
    local arguments
    read -ra arguments <<< "${how[$1]}"
    run_one "${arguments[@]}"
}

sound() { grep -q '^exit 0$' "$1" && ! grep -q 'NOT RUN ON' "$1"; }

# compare BUILD NAME TOPOLOGY REFERENCE RUN: one line of verdict, and the difference if there is one. REFERENCE and RUN
# are libraries, or library-variant. The answers of UCX vary on a loaded machine, and sometimes it
# crashes (1.13 in one run of four of listener_requests): where the two differ, runs of UCX are repeated, four times at
# most, or twelve while it crashes. Runs of rucp are not: its output must match one of them.
compare() {
    local reference=$work/$1-$4/$2.$3 other=$work/$1-$5/$2.$3 what="$2 $3 (headers $1): $4 and $5" again
    for again in {1..12}; do
        sound "$reference" && { cmp -s "$reference" "$other" || [ "$again" -gt 4 ]; } && break
        echo "AGAIN $what"
        cp "$reference" "$reference.$again"
        run_again "$reference"
        case $5 in ucx-*) run_again "$other" ;; esac
    done
    if sound "$reference" && cmp -s "$reference" "$other"; then
        echo "PASS $what"
        passed=$((passed + 1))
        return
    fi
    failed+=("$(
        echo "$what"
        if ! sound "$reference"; then
            echo "the reference itself failed"
            tail -n 5 "$reference" "$reference.stderr"
        else
            diff -u --label "$4" --label "$5" "$reference" "$other" | head -n 40
            head -n 20 "$other.stderr"
        fi
    )")
    echo "FAIL ${failed[-1]}"
}
