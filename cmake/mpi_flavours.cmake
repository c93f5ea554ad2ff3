# SPDX-License-Identifier: Apache-2.0
#
# Both MPIs of a machine from one build tree. Debian installs Open MPI and MPICH side by side, with suffixed programs;
# elsewhere there is one, without. Sets reshard_mpi_flavours (of: openmpi, mpich) and, for each of them,
#   the target reshard_mpi_FLAVOUR        what its compiler wrapper adds, without its C++ bindings
#   the variable reshard_mpirun_FLAVOUR   the launcher and its options; "-n N PROGRAM" follows
set(reshard_mpi_flavours "")
include(${CMAKE_CURRENT_LIST_DIR}/launcher.cmake)

function(reshard_add_mpi_flavour flavour wrapper launcher)
    execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE line OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
        return()
    endif()
    separate_arguments(words UNIX_COMMAND "${line}")
    list(POP_FRONT words)  # the compiler: this build has its own
    if(NOT TARGET reshard_mpi_${flavour})  # tests and benchmarks both include this file
        add_library(reshard_mpi_${flavour} INTERFACE)
        foreach(word IN LISTS words)
            if(word MATCHES "^-I(.+)$")
                target_include_directories(reshard_mpi_${flavour} SYSTEM INTERFACE ${CMAKE_MATCH_1})
            elseif(word MATCHES "^-L(.+)$")
                target_link_directories(reshard_mpi_${flavour} INTERFACE ${CMAKE_MATCH_1})
            elseif(word MATCHES "^-l(mpi_cxx|mpichcxx|mpicxx)$")
                continue()
            elseif(word MATCHES "^-l(.+)$")
                target_link_libraries(reshard_mpi_${flavour} INTERFACE ${CMAKE_MATCH_1})
            elseif(word MATCHES "^-Wl,")
                target_link_options(reshard_mpi_${flavour} INTERFACE ${word})
            endif()
        endforeach()
        set(folders ${words})
        list(FILTER folders INCLUDE REGEX "^-I")
        list(TRANSFORM folders REPLACE "^-I" "")
        if(TARGET reshard_mpi_library AND "${folders}" STREQUAL "${MPI_CXX_INCLUDE_DIRS}")  # reshard::mpi is of this MPI
            target_link_libraries(reshard_mpi_${flavour} INTERFACE reshard_mpi_library)
        elseif(RESHARD_COMPILED)  # each MPI has a binary interface of its own
            add_library(reshard_mpi_${flavour}_library STATIC ${PROJECT_SOURCE_DIR}/src/mpi.cpp)
            target_include_directories(reshard_mpi_${flavour}_library SYSTEM
                PRIVATE $<TARGET_PROPERTY:reshard_mpi_${flavour},INTERFACE_SYSTEM_INCLUDE_DIRECTORIES>)
            target_link_libraries(reshard_mpi_${flavour}_library PUBLIC reshard::reshard PRIVATE reshard_developer)
            target_compile_definitions(reshard_mpi_${flavour}_library PUBLIC RESHARD_COMPILED_MPI PRIVATE RESHARD_SOURCE)
            target_link_libraries(reshard_mpi_${flavour} INTERFACE reshard_mpi_${flavour}_library)
        endif()
    endif()
    reshard_launcher_command(command ${launcher})
    set(reshard_mpirun_${flavour} ${command} PARENT_SCOPE)
    set(reshard_mpi_flavours ${reshard_mpi_flavours} ${flavour} PARENT_SCOPE)
endfunction()

foreach(flavour IN ITEMS openmpi mpich)
    find_program(RESHARD_MPICXX_${flavour} mpicxx.${flavour})
    find_program(RESHARD_MPIRUN_${flavour} mpirun.${flavour})
    if(RESHARD_MPICXX_${flavour} AND RESHARD_MPIRUN_${flavour})
        reshard_add_mpi_flavour(${flavour} ${RESHARD_MPICXX_${flavour}} ${RESHARD_MPIRUN_${flavour}})
    endif()
endforeach()
if(NOT reshard_mpi_flavours)
    find_program(RESHARD_MPICXX NAMES mpicxx mpic++)
    find_program(RESHARD_MPIRUN NAMES mpirun mpiexec)
    if(RESHARD_MPICXX AND RESHARD_MPIRUN)
        execute_process(COMMAND ${RESHARD_MPIRUN} --version OUTPUT_VARIABLE version ERROR_QUIET)
        set(flavour mpich)
        if(version MATCHES "Open MPI|OpenRTE")
            set(flavour openmpi)
        endif()
        reshard_add_mpi_flavour(${flavour} ${RESHARD_MPICXX} ${RESHARD_MPIRUN})
    endif()
endif()
