# SPDX-License-Identifier: Apache-2.0
#
# reshard_compile_quickly(TARGET): device code that compiles for longer than it runs, in half the time. Benchmarks,
# the example and scripts/gpu-test optimise.
include(CheckCompilerFlag)
check_compiler_flag(CUDA --Ofast-compile=max RESHARD_NVCC_COMPILES_FAST)  # older ones do not know it
function(reshard_compile_quickly target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-O0>)
    if(RESHARD_NVCC_COMPILES_FAST)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>)
    endif()
endfunction()
