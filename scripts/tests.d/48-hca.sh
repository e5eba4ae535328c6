# A libibverbs.so.1 of our own, which the transport over ibverbs is to be tested on: genuine programs and Debian's UCX run
# on it. (sourced by scripts/test)
step 400 "software HCA" scripts/leaves-nothing c_tests/hca/run
step 120 "software HCA: instructions of UCX 1.13.1" scripts/leaves-nothing scripts/verbs-instructions --libraries 1.13
