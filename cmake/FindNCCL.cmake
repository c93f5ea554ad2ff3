# SPDX-License-Identifier: Apache-2.0
#
# NCCL comes without a package file. Looks where the linker and the CUDA Toolkit look, and in NCCL_ROOT. Defines the
# target NCCL::NCCL, which brings CUDA::cudart along. Sets NCCL_FOUND, NCCL_VERSION.
include(FindPackageHandleStandardArgs)
if(NOT CUDAToolkit_FOUND)
    find_package(CUDAToolkit QUIET)
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
    set(NCCL_VERSION "")
    foreach(part IN ITEMS MAJOR MINOR PATCH)
        file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "^#define +NCCL_${part} +[0-9]+")
        string(REGEX MATCH "[0-9]+$" number "${line}")
        list(APPEND NCCL_VERSION ${number})
    endforeach()
    list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR CUDAToolkit_FOUND
                                  VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
    add_library(NCCL::NCCL UNKNOWN IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR}
                                                INTERFACE_LINK_LIBRARIES CUDA::cudart)
endif()
