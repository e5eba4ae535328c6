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
rxe() { # step|start_step NAME COMMAND...
    "$1" 600 "rxe: $2" scripts/leaves-nothing "${libraries[@]}" "${@:3}"
}

if command -v qemu-system-x86_64 > /dev/null || [ "$(id -u)" -eq 0 ] || sudo -n true 2> /dev/null; then
    step 600 "rxe: QEMU, a kernel, programs for RoCE" scripts/setup guest
    rxe start_step "wires that lose, stall, are cut, go down" bash -c "rxe_links wires --rxe 2 --wires"
    rxe start_step "rails" bash -c rxe_rails
    rxe start_step "programs, rc" c_tests/rxe/run --tls rc,self \
        --only "@(am_rndv|amo|compat_ompi|rma|rules_request|stream|tag_match|all_to_all)"
    rxe start_step "programs, ud" c_tests/rxe/run --tls ud,self \
        --only "@(am|endpoint|rma|tag_sizes|wakeup|all_to_all|waiting)"
    rxe start_step "programs, rc: failures, connections" c_tests/rxe/run --tls rc,self \
        --only "@(flush_after_close|killed|departed|meeting|listener*_rdmacm)"
    rxe start_step "programs, libfabric" c_tests/rxe/run --only "@(rma|endpoint|killed|hostile_messages)_ofi"
    rxe start_step "MPI, rc" c_tests/rxe/run --only "@(openmpi_@(onesided|matching)|mpich_@(pingpong|collectives))_rc"
    await_steps
    # A core for each.
    rxe step "two machines" bash -c "rxe_links nodes --rxe 2 --nodes 2"
else
    skip "rxe" "no qemu, and no right to install it"
fi
