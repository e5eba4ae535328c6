# The restricted fabric, a libfabric for tests; the transport over libfabric on it: a few cases under Slingshot's rules
# and under some others, providers that fail, ten thousand endpoints. (sourced by scripts/test)
step 200 "restricted fabric" scripts/leaves-nothing c_tests/ofi/run
step 200 "restricted fabric: conformance" scripts/leaves-nothing "${libraries[@]}" c_tests/ofi/conformance --short
step 200 "restricted fabric: failing providers, many endpoints" scripts/leaves-nothing "${libraries[@]}" \
    c_tests/ofi/transport
step 60 "libfabric: beside programs that call it themselves" scripts/leaves-nothing scripts/ofi-rates --quick \
    --providers tcp --largest 8
step 300 "ofi: MPI, OpenSHMEM, killed ranks" c_tests/ofi/clients
if declare -F hosts > /dev/null; then # of 45-hosts.sh
    step 400 "ofi: between hosts, links that stall and are cut" bash -c "hosts 'ofi_a*' && hosts 'ofi_each*' &&
        hosts 'ofi_me*' && hosts 'ofi_mpich_onesided'"
else
    skip "ofi: between hosts" "no right to make network namespaces"
fi
