# SPDX-License-Identifier: Apache-2.0
#
# Two files that only include the library, one of them as users of the compiled library do, or of one compiled component:
# or without exceptions: linking them must fail. PAIRS: of a macro, or `exceptions`, and a header that it changes; FLAGS: of
# the compiler.
string(REPLACE "," ";" PAIRS "${PAIRS}")
string(REPLACE "," ";" FLAGS "${FLAGS}")
file(MAKE_DIRECTORY ${WORK})
set(includes "")
foreach(pair IN LISTS PAIRS)
    string(REGEX REPLACE "^.*=" "" header ${pair})
    string(APPEND includes "#include <reshard/${header}>\n")
endforeach()
file(WRITE ${WORK}/first.cpp "${includes}void second();\nint main() { second(); }\n")
file(WRITE ${WORK}/second.cpp "${includes}void second();\nvoid second() {}\n")
set(compile ${COMPILER} -std=c++20 -I${INCLUDE} ${FLAGS})
execute_process(COMMAND ${compile} -c ${WORK}/second.cpp -o ${WORK}/second.o COMMAND_ERROR_IS_FATAL ANY)
foreach(pair IN LISTS PAIRS ITEMS "")
    string(REGEX REPLACE "=.*$" "" macro "${pair}")
    set(mode "")
    if(macro STREQUAL "exceptions")
        set(mode -fno-exceptions)
    elseif(macro)
        set(mode -D${macro})
    endif()
    execute_process(COMMAND ${compile} ${mode} -c ${WORK}/first.cpp -o ${WORK}/first.o COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${COMPILER} ${WORK}/first.o ${WORK}/second.o -o ${WORK}/program
                    RESULT_VARIABLE failed ERROR_VARIABLE text)
    if(NOT macro AND failed)
        message(FATAL_ERROR "Files of one mode do not link: ${text}")
    elseif(macro AND NOT text MATCHES "Fix_compile_all_files_of_this_program_with_${macro}_or_none")
        message(FATAL_ERROR "Files of both modes of ${macro} link, or the linker does not say why not: ${text}")
    endif()
endforeach()
