# Two hosts made of namespaces, with rucp between them over TCP. (sourced by scripts/test)
if unshare --net --ipc --uts --mount true 2> /dev/null; then
    hosts() { env "RUCP_LIB=$top/build/prefix/lib" "UCX_WHEEL=$top/build/ucx-1.22" c_tests/hosts/run --only "$1"; }
    export top
    export -f hosts
    step 300 "hosts: devices, clients and servers" bash -c "hosts 'a_device*' && hosts 'a_bridge*' && hosts 'ipv6*' &&
        hosts 'link_local*' && hosts 'one_host*' && hosts 'connect_without*' && hosts 'garbage*'"
    step 100 "hosts: two providers of libfabric" bash -c "hosts 'libfabric*'"
    step 400 "hosts: differential programs" bash -c "hosts 'program_*'"
    step 300 "hosts: Open MPI" bash -c "hosts 'openmpi_*'"
    step 300 "hosts: MPICH" bash -c "hosts 'mpich_*'"
    step 300 "hosts: links that stall and break, peers that stop and die" bash -c "hosts 'a_killed*' &&
        hosts 'a_stopped*' && hosts 'a_link*' && hosts 'a_cut*' && hosts 'a_message*' && hosts 'delay*'"
else
    skip "hosts" "no right to make network namespaces"
fi
