# SPDX-License-Identifier: Apache-2.0
#
# reshard_add_program_on_double(name sources...): .cu files compiled by nvcc and run without a GPU. The doubles stand in
# for the CUDA runtime and for NCCL: no libnccl, no libcudart. See kernels_on_host.hpp.
find_package(doctest REQUIRED)
find_package(Threads REQUIRED)
include(${PROJECT_SOURCE_DIR}/cmake/compile_quickly.cmake)
function(reshard_add_program_on_double name)
    set(tests ${PROJECT_SOURCE_DIR}/tests)
    add_executable(${name} ${ARGN} ${tests}/support/kernels_on_host.cpp ${tests}/support/fake_nccl.cpp
                           ${tests}/support/fake_cuda_runtime.cpp)
    if(TARGET reshard_test_main)
        target_link_libraries(${name} PRIVATE reshard_test_main)
    else()
        target_sources(${name} PRIVATE ${tests}/main.cpp ${tests}/support/allocations.cpp)
    endif()
    # Its host is the device: one architecture says as much as three.
    set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY None CUDA_ARCHITECTURES 90-virtual)
    target_compile_features(${name} PRIVATE cxx_std_20)
    reshard_compile_quickly(${name})
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -diag-suppress=2810,20013,20015>)
    target_link_libraries(${name} PRIVATE reshard::reshard reshard::threads doctest::doctest Threads::Threads)
    target_include_directories(${name} PRIVATE ${tests})
    target_include_directories(${name} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
endfunction()
