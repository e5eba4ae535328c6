# Pairs of programs that connect over the RoCE devices of a guest, and verdicts on them. (sourced, in the guest)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 started=$SECONDS

# Prints the verdict on the last program, whose output is in $work/log.
verdict() { # NAME STATUS
    if [ "$2" = 0 ]; then
        echo "PASS $1 ($((SECONDS - started)) s)"
        passed=$((passed + 1))
    else
        echo "FAIL $1"
        sed 's/^/    /' "$work/log" | tail -n 20
        failed=$((failed + 1))
    fi
    started=$SECONDS
}

check() { # NAME COMMAND...
    "${@:2}" > "$work/log" 2>&1
    verdict "$1" $?
}

summary() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# Whether there is a listener on a TCP port. Reads the table: a connection would be taken for the client's.
listening() { # PORT
    awk -v "port=:$(printf %04X "$1")$" '$2 ~ port && $4 == "0A" { found = 1 } END { exit !found }' /proc/net/tcp \
        /proc/net/tcp6
}

until_listening() { # PORT
    local i
    for ((i = 0; i < 300; i++)); do
        if listening "$1"; then return; fi
        sleep 0.05
    done
    return 1
}

# Starts a server and, once it listens on PORT, its client; both must end with 0, and the client's output match
# EXPECTED. The commands are for a shell. A SERVER_NODE is the machine that has the server, if it is another.
SERVER_NODE=
pair() { # NAME EXPECTED PORT SERVER CLIENT
    local server status=0 there=(bash -c)
    [ -z "$SERVER_NODE" ] || there=("$GUEST_RSH" "$SERVER_NODE")
    "${there[@]}" "timeout -k 5 60 $4" > "$work/server" 2>&1 &
    server=$!
    "${there[@]}" ". $here/pair.sh; until_listening $3"
    timeout -k 5 60 bash -c "$5" > "$work/client" 2>&1 || status=$?
    wait "$server" || status=$?
    cat "$work/server" "$work/client" > "$work/log"
    grep -q "$2" "$work/client" || status=1
    verdict "$1" "$status"
}

counter() { # DEVICE NAME
    cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"
}
