# SPDX-License-Identifier: Apache-2.0
#
# CMake remembers what of an MPI it did not find, and what it found of one that is gone. Included before
# find_package(MPI), this forgets both, so that an MPI that was installed since is found by configuring again. What
# exists, and what a user has just said, stays.
get_cmake_property(reshard_entries CACHE_VARIABLES)
# Those of FindMPI alone: a project may have options of its own that begin like them.
list(FILTER reshard_entries INCLUDE REGEX
     "^MPI(EXEC_EXECUTABLE|_.+_LIBRARY|_(RUN_)?RESULT_CXX_.+|_CXX_(COMPILER|HEADER_DIR|LIB_NAMES|LINK_FLAGS|COMPILE_OPTIONS|COMPILE_DEFINITIONS|COMPILER_INCLUDE_DIRS|ADDITIONAL_INCLUDE_DIRS))$")
set(reshard_words "")  # such as names of libraries, which belong to paths
set(reshard_mpi_is_gone FALSE)
foreach(entry IN LISTS reshard_entries)
    set(first "$CACHE{${entry}}")
    if(NOT first)
        unset(${entry} CACHE)
        continue()
    endif()
    list(GET first 0 first)
    if(NOT IS_ABSOLUTE "${first}")
        list(APPEND reshard_words ${entry})
    elseif(NOT EXISTS "${first}")
        unset(${entry} CACHE)
        set(reshard_mpi_is_gone TRUE)
    endif()
endforeach()
if(reshard_mpi_is_gone)
    foreach(entry IN LISTS reshard_words)
        unset(${entry} CACHE)
    endforeach()
endif()
