# The software libcuda, for machines without a GPU; UCX 1.22's own CUDA module runs on it. (sourced by scripts/test)
step 40 "software libcuda" scripts/leaves-nothing c_tests/cuda/run
step 400 "software libcuda: memory of GPUs, beside UCX" scripts/leaves-nothing "${libraries[@]}" \
    c_tests/cuda/programs/run

# The script for machines with a GPU, on the software driver: its figures mean nothing.
cuda_figures() {
    rm -rf build/cuda-test &&
        scripts/cuda --soft --quick --no-programs --largest 65536 --out build/cuda-test &&
        c_tests/bench/check.py results build/cuda-test 1.22,rucp \
            "$(printf "gpu0_gpu%s\n" {0,1}/{copies,one_process,two_processes} | paste -sd ,)" &&
        [ "$(grep -c ', between two processes$' build/cuda-test/table.txt)" = 12 ]
}

export -f cuda_figures
step 200 "memory of GPUs: figures, on the software driver" scripts/leaves-nothing bash -c cuda_figures
