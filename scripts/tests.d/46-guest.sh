# Kernel features that this machine may lack, in a virtual machine with Debian's kernel: rucp over `tc netem`. (sourced
# by scripts/test) A guest keeps one core busy: two run at a time, and 47-rxe.sh awaits them.
guest_status() {
    local output
    output=$(scripts/guest --timeout 100 bash -c 'echo from the guest >&2; exit 7')
    [ $? -eq 7 ] && [ "$output" = "from the guest" ]
}

# The tests need no Python but Debian's; others are slow to start there.
guest_hosts() {
    env "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        scripts/guest --timeout 590 c_tests/hosts/run --only "$1"
}

export top
export -f guest_status guest_hosts
if command -v qemu-system-x86_64 > /dev/null || [ "$(id -u)" -eq 0 ] || sudo -n true 2> /dev/null; then
    step 600 "guest: QEMU and a kernel" scripts/setup guest
    step 120 "guest: runs a command" scripts/leaves-nothing bash -c guest_status
    start_step 600 "guest: links that lose and break (netem)" scripts/leaves-nothing bash -c "guest_hosts 'netem_[ad]*'"
    start_step 600 "guest: MPICH over netem" scripts/leaves-nothing bash -c "guest_hosts 'netem_mpich_*'"
else
    skip "guest" "no qemu, and no right to install it"
fi
