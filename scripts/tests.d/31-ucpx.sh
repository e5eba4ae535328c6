# Functions beyond UCX, by every transport. (sourced by scripts/test)
step 200 "ucpx: put with signal, completion queues" scripts/leaves-nothing "${libraries[@]}" c_tests/ucpx/run
