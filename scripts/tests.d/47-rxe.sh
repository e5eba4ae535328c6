# RoCE without hardware: rucp over the kernel's software devices in a virtual machine. (sourced by scripts/test)
# `c_tests/rxe/devices` tests, by hand, the devices without rucp; `c_tests/rxe/run` has all programs.
rxe_links() { # KIND OPTIONS OF scripts/guest...
    c_tests/rxe/links build && env PATH=/usr/sbin:/usr/bin:/sbin:/bin scripts/guest --timeout 590 "${@:2}" \
        c_tests/rxe/links "$1"
}

rxe_rails() {
    c_tests/rxe/rails build && env PATH=/usr/sbin:/usr/bin:/sbin:/bin scripts/guest --timeout 590 --rxe 2 \
        c_tests/rxe/rails
}

export -f rxe_links rxe_rails
rxe() { # NAME COMMAND...
    step 600 "rxe: $1" scripts/leaves-nothing "${libraries[@]}" "${@:2}"
}

if command -v qemu-system-x86_64 > /dev/null || [ "$(id -u)" -eq 0 ] || sudo -n true 2> /dev/null; then
    step 600 "rxe: QEMU, a kernel, programs for RoCE" scripts/setup guest
    rxe "wires that lose, stall, are cut, go down" bash -c "rxe_links wires --rxe 2 --wires"
    rxe "two machines" bash -c "rxe_links nodes --rxe 2 --nodes 2"
    rxe "rails" bash -c rxe_rails
    rxe "programs, rc" c_tests/rxe/run --tls rc,self \
        --only "@(am_rndv|amo|compat_ompi|rma|rules_request|stream|tag_match|all_to_all)"
    rxe "programs, ud" c_tests/rxe/run --tls ud,self \
        --only "@(am|endpoint|rma|tag_sizes|wakeup|all_to_all|waiting)"
    rxe "programs, rc: failures, connections" c_tests/rxe/run --tls rc,self \
        --only "@(flush_after_close|killed|meeting|listener*_rdmacm)"
    rxe "MPI, rc" c_tests/rxe/run --only "@(openmpi_@(onesided|matching)|mpich_@(pingpong|collectives))_rc"
else
    skip "rxe" "no qemu, and no right to install it"
fi
