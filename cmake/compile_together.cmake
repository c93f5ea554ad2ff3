# SPDX-License-Identifier: Apache-2.0
#
# Test files cost mostly what they instantiate, and files of one folder instantiate the same. With
# RESHARD_TESTS_TOGETHER (presets asan, tsan and headers) all of a program are one translation unit: half the time.
#
# reshard_compile_together(TARGET FILE...): files of the current source folder. Each keeps its names to itself, since it
# is included in a namespace of its own; so all its #include lines, which must stand at the beginning of a line, come
# before, from a file of them that every such translation unit begins with. Files that specialise templates of the library
# cannot be in a namespace, and those that define a macro for what they include, or include what may not be there, share no
# includes: they are compiled alone.
function(reshard_compile_together target)
    if(NOT RESHARD_TESTS_TOGETHER)
        return()
    endif()
    get_target_property(others ${target} SOURCES)
    list(REMOVE_ITEM others ${ARGN})
    set_source_files_properties(${others} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set(includes "")
    foreach(file IN LISTS ARGN)
        cmake_path(ABSOLUTE_PATH file NORMALIZE)
        cmake_path(GET file PARENT_PATH folder)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(STRINGS ${file} specialisations REGEX "^template <>")
        file(STRINGS ${file} directives REGEX "^#(define|include) " LIMIT_COUNT 1)
        file(STRINGS ${file} conditions REGEX "^#if __has_include")
        if(specialisations OR conditions OR directives MATCHES "^#define")
            set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
            continue()
        endif()
        file(STRINGS ${file} lines REGEX "^#include ")
        foreach(line IN LISTS lines)
            if(line MATCHES "\"(.*)\"")
                set(beside ${folder}/${CMAKE_MATCH_1})
                if(EXISTS ${beside})  # else it is found from the tests' own folder
                    cmake_path(NORMAL_PATH beside)
                    set(line "#include \"${beside}\"")
                endif()
            endif()
            list(APPEND includes "${line}")
        endforeach()
    endforeach()
    list(REMOVE_DUPLICATES includes)
    list(JOIN includes "\n" includes)
    set(first ${CMAKE_CURRENT_BINARY_DIR}/together/${target}.hpp)
    file(CONFIGURE OUTPUT ${first} CONTENT "#pragma once\n${includes}\n" @ONLY)
    set_target_properties(${target} PROPERTIES
        UNITY_BUILD ON
        UNITY_BUILD_BATCH_SIZE 0
        UNITY_BUILD_UNIQUE_ID RESHARD_TEST_FILE
        UNITY_BUILD_CODE_BEFORE_INCLUDE "#include \"${first}\"\nnamespace RESHARD_TEST_FILE {"
        UNITY_BUILD_CODE_AFTER_INCLUDE "}")
endfunction()
