# SPDX-License-Identifier: Apache-2.0
# Installs BUILD into an empty PREFIX: what an earlier run left there must not help this one. With SOURCE, that is
# configured into BUILD first, as a user would who wants headers and has nothing else: nothing is compiled.
if(SOURCE)
    # configure(RESULT OUTPUT OPTION...): without the packages that components need.
    function(configure result output)
        set(packages nlohmann_json xxHash ISAL MPI CUDAToolkit)
        list(TRANSFORM packages REPLACE "(.+)" "-DCMAKE_DISABLE_FIND_PACKAGE_\\1=ON")
        execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
                                ${packages} ${ARGN}
                        OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE code)
        string(REGEX REPLACE "[ \n]+" " " out "${out}")
        set(${result} ${code} PARENT_SCOPE)
        set(${output} "${out}" PARENT_SCOPE)
    endfunction()

    configure(result output -DRESHARD_COMPILED=ON -DBUILD_SHARED_LIBS=ON)
    if(NOT result OR NOT output MATCHES "Fix: -DBUILD_SHARED_LIBS=OFF")
        message(SEND_ERROR "Shared libraries are not refused: ${output}")
    endif()
    foreach(compiled IN ITEMS ON OFF)  # the umbrella needs none of these
        configure(result output -DRESHARD_COMPILED=${compiled} -DBUILD_SHARED_LIBS=OFF)
        if(result OR NOT output MATCHES "not found: nlohmann_json .* MPI .*libopenmpi-dev.*install it")
            message(FATAL_ERROR "Packages that are missing stop all, or are not named: ${output}")
        endif()
    endforeach()
endif()
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
if(NOT_IN AND EXISTS ${PREFIX}/bin/reshard)
    file(STRINGS ${PREFIX}/bin/reshard found REGEX "${NOT_IN}/tools/.*py")
    if(found)
        message(SEND_ERROR "The command starts what lies in the source folder: ${found}")
    endif()
endif()
# What the command starts comes with it, and not without.
foreach(script mch_dcp.py dcp_folder.py dcp_error.py)
    if(EXISTS ${PREFIX}/bin/reshard AND NOT EXISTS ${PREFIX}/libexec/reshard/${script})
        message(SEND_ERROR "${script} is not installed, but the command is.")
    elseif(EXISTS ${PREFIX}/libexec/reshard/${script} AND NOT EXISTS ${PREFIX}/bin/reshard)
        message(SEND_ERROR "${script} is installed, but the command is not.")
    endif()
endforeach()
# A header that no target lists would be missed by those who include it, not here. Nor is any left out for what was
# found where it was installed.
if(SOURCE)
    file(GLOB_RECURSE headers RELATIVE ${SOURCE}/include ${SOURCE}/include/*.hpp ${SOURCE}/include/*.ipp ${SOURCE}/include/*.cuh)
    foreach(header IN LISTS headers)
        if(NOT EXISTS ${PREFIX}/include/${header})
            message(SEND_ERROR "${header} is not installed. Fix: CMakeLists.txt lists it in no target.")
        endif()
    endforeach()
endif()
