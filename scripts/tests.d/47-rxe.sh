# RoCE without hardware: the kernel's software devices in a virtual machine, what the transport over ibverbs is to be tested
# on. Genuine programs and Debian's UCX show that they work. (sourced by scripts/test)
rxe_devices() { # KIND OPTIONS OF scripts/guest...
    env PATH=/usr/sbin:/usr/bin:/sbin:/bin scripts/guest --timeout 590 "${@:2}" c_tests/rxe/devices "$1"
}

rxe_programs() {
    env "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22" c_tests/rxe/run --reference --only "$1"
}

export top
export -f rxe_devices rxe_programs
if command -v qemu-system-x86_64 > /dev/null || [ "$(id -u)" -eq 0 ] || sudo -n true 2> /dev/null; then
    step 600 "rxe: QEMU, a kernel, programs for RoCE" scripts/setup guest
    step 600 "rxe: devices" scripts/leaves-nothing bash -c "rxe_devices lone --rxe 2"
    step 600 "rxe: wires that lose, are cut, go down" scripts/leaves-nothing bash -c "rxe_devices wires --rxe 4 --wires"
    step 600 "rxe: two machines" scripts/leaves-nothing bash -c "rxe_devices nodes --rxe 1 --nodes 2"
    # What rucp will be compared with, once it has the transport: UCX 1.13.1, here with itself.
    step 600 "rxe: a differential program" scripts/leaves-nothing bash -c "rxe_programs rma"
    step 600 "rxe: an MPI program" scripts/leaves-nothing bash -c "rxe_programs mpich_pingpong_rc"
else
    skip "rxe" "no qemu, and no right to install it"
fi
