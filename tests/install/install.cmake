# SPDX-License-Identifier: Apache-2.0
# Installs BUILD into an empty PREFIX: what an earlier run left there must not help this one. With SOURCE, that is
# configured into BUILD first, as a user would who wants headers: nothing is compiled.
if(SOURCE)
    execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
                            -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
                    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
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
