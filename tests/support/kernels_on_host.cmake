# SPDX-License-Identifier: Apache-2.0
#
# reshard_add_program_on_double(name sources...): .cu files compiled by nvcc and run without a GPU. The doubles stand in
# for the CUDA runtime and for NCCL: no libnccl, no libcudart. See kernels_on_host.hpp.
find_package(doctest REQUIRED)
find_package(Threads REQUIRED)
include(${PROJECT_SOURCE_DIR}/cmake/compile_quickly.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/fake_cuda_runtime.cmake)
reshard_add_fake_cuda_runtime("${CUDAToolkit_INCLUDE_DIRS}")
set(support ${PROJECT_SOURCE_DIR}/tests/support)
add_library(reshard_doubles OBJECT ${support}/kernels_on_host.cpp ${support}/fake_nccl.cpp)
target_compile_features(reshard_doubles PUBLIC cxx_std_20)
target_include_directories(reshard_doubles PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_include_directories(reshard_doubles SYSTEM PUBLIC ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(reshard_doubles PUBLIC reshard::reshard reshard::threads Threads::Threads)

# For doctest, unless there is another main() among the sources.
function(reshard_add_program_on_double name)
    cmake_parse_arguments(arg "MAIN" "" "" ${ARGN})
    add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
    if(arg_MAIN)
    elseif(TARGET reshard_test_main)
        target_link_libraries(${name} PRIVATE reshard_test_main)
    else()
        target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/main.cpp ${support}/allocations.cpp)
    endif()
    # Its host is the device: one architecture says as much as three.
    set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY None CUDA_ARCHITECTURES 90-virtual)
    target_compile_features(${name} PRIVATE cxx_std_20)
    reshard_compile_quickly(${name})
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -diag-suppress=2810,20013,20015>)
    target_link_libraries(${name} PRIVATE reshard_doubles reshard_fake_cuda_runtime doctest::doctest)
endfunction()
