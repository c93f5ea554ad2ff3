# SPDX-License-Identifier: Apache-2.0
# Installs BUILD into an empty PREFIX: what an earlier run left there must not help this one. With HEADERS, SOURCE is
# configured into BUILD first, as a user would who wants headers and has nothing else: nothing is compiled.
cmake_policy(SET CMP0009 NEW)  # links are not followed
if(HEADERS)
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

# Staged, as packages are, and used from there: a prefix may be moved. A trace of the other kind of install, which
# find_package would find as well, goes.
file(REMOVE_RECURSE ${PREFIX})
get_filename_component(stage ${PREFIX} DIRECTORY)
get_filename_component(name ${PREFIX} NAME)
set(home ${LIB})
set(other share)
if(HEADERS)
    set(home share)
    set(other ${LIB})
endif()
file(WRITE ${PREFIX}/${other}/cmake/reshard/reshardConfig.cmake "")
file(WRITE ${PREFIX}/include/reshard/memory/detail/gone.hpp "")
file(WRITE ${PREFIX}/include/reshard/gone.cuh "")
file(WRITE ${PREFIX}/${home}/cmake/reshard/reshard_gone_targets.cmake "")
file(WRITE ${PREFIX}/include/reshard_of_others.hpp "")
file(WRITE ${PREFIX}/mine/of_a_link.hpp "")
file(CREATE_LINK ${PREFIX}/mine ${PREFIX}/include/reshard/mine SYMBOLIC)
set(ENV{DESTDIR} ${stage})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix /${name} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
unset(ENV{DESTDIR})
foreach(file IN ITEMS ${home}/cmake/reshard/reshardConfig.cmake share/doc/reshard/LICENSE share/doc/reshard/docs/concepts.md
                      share/doc/reshard/tests/consumer/runtime/main.cpp)
    if(NOT EXISTS ${PREFIX}/${file})
        message(SEND_ERROR "${file} is not installed.")
    endif()
endforeach()
if(EXISTS ${PREFIX}/${other}/cmake/reshard)
    message(SEND_ERROR "${other}/cmake/reshard of another install stays, and may be found first.")
endif()

file(GLOB_RECURSE found ${PREFIX}/include/gone.* ${PREFIX}/*_gone_targets.cmake)
if(found)
    message(SEND_ERROR "Headers or parts of an older version stay: ${found}")
endif()
if(NOT EXISTS ${PREFIX}/include/reshard_of_others.hpp OR NOT EXISTS ${PREFIX}/mine/of_a_link.hpp)
    message(SEND_ERROR "A header is gone that is of another library.")
endif()

# What pages refer to is beside them.
file(GLOB_RECURSE pages ${PREFIX}/share/doc/reshard/*.md)
foreach(page IN LISTS pages)
    cmake_path(GET page PARENT_PATH folder)
    file(READ ${page} text)
    string(REPLACE "](" "link:" text "${text}")  # brackets would spoil the list
    string(REGEX MATCHALL "link:[A-Za-z0-9_./-]*[./][A-Za-z0-9_./-]*[)#]" links "${text}")
    foreach(link IN LISTS links)
        string(REGEX REPLACE "link:(.*)." "\\1" link ${link})
        if(NOT EXISTS ${folder}/${link})
            message(SEND_ERROR "${page} refers to ${link}, which is not installed.")
        endif()
    endforeach()
endforeach()

# What is installed names no folder of who built it.
file(GLOB_RECURSE texts ${PREFIX}/*.cmake ${PREFIX}/*.pc)
foreach(file IN LISTS texts)
    file(READ ${file} text)
    foreach(folder IN ITEMS ${SOURCE} ${BUILD} ${PREFIX} /${name}/)
        string(FIND "${text}" ${folder} found)
        if(NOT found EQUAL -1)
            message(SEND_ERROR "${file} would not be true elsewhere: it names ${folder}.")
        endif()
    endforeach()
endforeach()
if(EXISTS ${PREFIX}/bin/reshard)
    file(STRINGS ${PREFIX}/bin/reshard found REGEX "tools/reshard/.*py")
    if(found)
        message(SEND_ERROR "The command starts what lies in the source folder: ${found}")
    endif()
endif()

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
    set(ENV{PKG_CONFIG_LIBDIR} ${PREFIX}/${home}/pkgconfig)
    execute_process(COMMAND ${PKG_CONFIG} --cflags --libs reshard OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    file(WRITE ${BUILD}/pkg_config.cpp "#include <reshard/core/error.hpp>
int main(int words, char**) { if (words > 1) reshard::errors::raise(reshard::ErrorCode::user, \"a word\"); }\n")
    execute_process(COMMAND ${COMPILER} -std=c++20 ${BUILD}/pkg_config.cpp ${flags} -o ${BUILD}/pkg_config
                    COMMAND_ERROR_IS_FATAL ANY)
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
if(HEADERS)
    file(GLOB_RECURSE headers RELATIVE ${SOURCE}/include ${SOURCE}/include/*.hpp ${SOURCE}/include/*.ipp ${SOURCE}/include/*.cuh)
    foreach(header IN LISTS headers)
        if(NOT EXISTS ${PREFIX}/include/${header})
            message(SEND_ERROR "${header} is not installed. Fix: CMakeLists.txt lists it in no target.")
        endif()
    endforeach()
endif()
