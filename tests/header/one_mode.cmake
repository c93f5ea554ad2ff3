# SPDX-License-Identifier: Apache-2.0
#
# Two files that only include the library, one of them as users of the compiled library do: linking them must fail.
file(MAKE_DIRECTORY ${WORK})
file(WRITE ${WORK}/first.cpp "#include <reshard/core/error.hpp>\nvoid second();\nint main() { second(); }\n")
file(WRITE ${WORK}/second.cpp "#include <reshard/core/error.hpp>\nvoid second();\nvoid second() {}\n")
set(compile ${COMPILER} -std=c++20 -I${INCLUDE})
foreach(mode IN ITEMS "" -DRESHARD_COMPILED)
    execute_process(COMMAND ${compile} ${mode} -c ${WORK}/first.cpp -o ${WORK}/first.o COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${compile} -c ${WORK}/second.cpp -o ${WORK}/second.o COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${COMPILER} ${WORK}/first.o ${WORK}/second.o -o ${WORK}/program
                    RESULT_VARIABLE failed ERROR_VARIABLE text)
    if(NOT mode AND failed)
        message(FATAL_ERROR "Files of one mode do not link: ${text}")
    elseif(mode AND NOT text MATCHES "Fix_compile_all_files_of_this_program_with_RESHARD_COMPILED_or_none")
        message(FATAL_ERROR "Files of both modes link, or the linker does not say why not: ${text}")
    endif()
endforeach()
