# SPDX-License-Identifier: Apache-2.0
# A shared library, built header-only as docs/building.md says: it exports its own function, and nothing of ours that
# another one could call.
file(MAKE_DIRECTORY ${WORK})
file(WRITE ${WORK}/my.cpp [[
#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/reshard.hpp>
extern "C" __attribute__((visibility("default"))) int my_move() {
    using namespace reshard;
    Shape const shape{8, 8};
    Mesh const mesh{2};
    auto const move = plan(distribution(mesh, shape, "S0"), distribution(mesh, shape, "S1"));
    run_on_threads(2, [&](ThreadCommunicator& comm) {
        Tensor<float> rows(Shape{4, 8});
        Tensor<float> columns(Shape{8, 4});
        Batch batch;
        batch.add(move, rows.view(), columns.view());
        redistribute(batch, comm);
    });
    return 7;
}
]])
file(WRITE ${WORK}/my.map "{ global: my_*; local: *; };\n")
execute_process(COMMAND ${COMPILER} -std=c++20 -O1 -fPIC -shared -fvisibility=hidden -I${SOURCE}/include my.cpp
                        -Wl,--exclude-libs,ALL -Wl,--version-script=my.map -o libmy.so -pthread
                WORKING_DIRECTORY ${WORK} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} --dynamic --defined-only libmy.so WORKING_DIRECTORY ${WORK} OUTPUT_VARIABLE names
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT names MATCHES " my_move" OR names MATCHES "reshard|_ti|_ZNSt")
    message(FATAL_ERROR "The library exports more than its function:\n${names}")
endif()
