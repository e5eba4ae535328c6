# The restricted fabric, a libfabric for tests.
step 200 "restricted fabric" scripts/leaves-nothing c_tests/ofi/run
