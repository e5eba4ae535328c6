# The software libcuda, for machines without a GPU; UCX 1.22's own CUDA module runs on it. (sourced by scripts/test)
step 40 "software libcuda" scripts/leaves-nothing c_tests/cuda/run
step 60 "software libcuda: memory of GPUs, beside UCX" scripts/leaves-nothing "${libraries[@]}" \
    c_tests/cuda/programs/run
