# SPDX-License-Identifier: Apache-2.0
#
# reshard_launcher_command(OUTPUT LAUNCHER): the launcher and the options that a small machine needs;
# "-n N PROGRAM" follows. Open MPI is told by what it says of itself.
function(reshard_launcher_command output launcher)
    execute_process(COMMAND ${launcher} --version OUTPUT_VARIABLE version ERROR_QUIET)
    set(command ${launcher})
    if(version MATCHES "Open MPI|OpenRTE")
        # Ranks share the cores of a small machine, and containers run as root. Without a network no other transport
        # is looked for, which takes seconds.
        list(APPEND command --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1
             --mca btl self,vader)
    endif()
    set(${output} ${command} PARENT_SCOPE)
endfunction()
