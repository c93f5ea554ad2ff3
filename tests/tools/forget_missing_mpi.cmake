# SPDX-License-Identifier: Apache-2.0
#
# What cmake/forget_missing_mpi.cmake keeps of a cache, and what not. usage: cmake -P forget_missing_mpi.cmake
set(forget ${CMAKE_CURRENT_LIST_DIR}/../../cmake/forget_missing_mpi.cmake)
set(here ${CMAKE_CURRENT_LIST_FILE})

function(expect name value)
    if(NOT "$CACHE{${name}}" STREQUAL "${value}")
        message(SEND_ERROR "${name} is '$CACHE{${name}}', not '${value}'")
    endif()
endfunction()

# One that was not found, and what the user says now.
set(MPIEXEC_EXECUTABLE MPIEXEC_EXECUTABLE-NOTFOUND CACHE FILEPATH "")
set(MPI_RESULT_CXX_test_mpi_normal FALSE CACHE INTERNAL "")
set(MPI_CXX_COMPILER ${here} CACHE FILEPATH "")
set(MPI_CXX_LIB_NAMES "mine;yours" CACHE STRING "")
set(MPI_OF_MY_PROJECT OFF CACHE BOOL "")
include(${forget})
expect(MPIEXEC_EXECUTABLE "")
expect(MPI_RESULT_CXX_test_mpi_normal "")
expect(MPI_CXX_COMPILER ${here})
expect(MPI_CXX_LIB_NAMES "mine;yours")
expect(MPI_OF_MY_PROJECT OFF)

# One that was found and is gone: its words go with its paths.
set(MPI_CXX_COMPILER ${here}/gone CACHE FILEPATH "" FORCE)
set(MPI_CXX_HEADER_DIR "${here};${here}/gone" CACHE PATH "")
set(MPI_mine_LIBRARY ${here}/gone CACHE FILEPATH "")
include(${forget})
expect(MPI_CXX_COMPILER "")
expect(MPI_CXX_LIB_NAMES "")
expect(MPI_mine_LIBRARY "")
expect(MPI_CXX_HEADER_DIR "${here};${here}/gone")
expect(MPI_OF_MY_PROJECT OFF)
