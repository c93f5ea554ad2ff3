# SPDX-License-Identifier: Apache-2.0
#
# The double of the CUDA runtime, compiled once for all programs that link it: reshard_fake_cuda_runtime. FOLDERS: where
# cuda_runtime_api.h is.
function(reshard_add_fake_cuda_runtime folders)
    if(TARGET reshard_fake_cuda_runtime)
        return()
    endif()
    add_library(reshard_fake_cuda_runtime OBJECT ${PROJECT_SOURCE_DIR}/tests/support/fake_cuda_runtime.cpp)
    target_compile_features(reshard_fake_cuda_runtime PRIVATE cxx_std_20)
    target_include_directories(reshard_fake_cuda_runtime PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_include_directories(reshard_fake_cuda_runtime SYSTEM PRIVATE ${folders})
    if(TARGET reshard_developer)
        target_link_libraries(reshard_fake_cuda_runtime PRIVATE reshard_developer reshard_unoptimised)
    endif()
endfunction()
