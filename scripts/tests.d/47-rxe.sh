# RoCE without hardware: the kernel's software devices in a virtual machine, what the transport over ibverbs is to be tested
# on. Genuine programs and Debian's UCX show that they work. (sourced by scripts/test)
rxe_devices() { # KIND OPTIONS OF scripts/guest...
    env PATH=/usr/sbin:/usr/bin:/sbin:/bin scripts/guest --timeout 590 "${@:2}" c_tests/rxe/devices "$1"
}

export -f rxe_devices
if command -v qemu-system-x86_64 > /dev/null || [ "$(id -u)" -eq 0 ] || sudo -n true 2> /dev/null; then
    step 600 "rxe: QEMU, a kernel, programs for RoCE" scripts/setup guest
    step 600 "rxe: devices" scripts/leaves-nothing bash -c "rxe_devices lone --rxe 2"
    step 600 "rxe: wires that lose, are cut, go down" scripts/leaves-nothing bash -c "rxe_devices wires --rxe 4 --wires"
    step 600 "rxe: two machines" scripts/leaves-nothing bash -c "rxe_devices nodes --rxe 1 --nodes 2"
else
    skip "rxe" "no qemu, and no right to install it"
fi
