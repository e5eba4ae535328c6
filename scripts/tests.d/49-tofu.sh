# A libtofucom.so of our own: nothing here has a Tofu interconnect. (sourced by scripts/test)
step 200 "software Tofu" scripts/leaves-nothing c_tests/tofu/run
