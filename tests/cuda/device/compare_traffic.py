#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traffic of kernels as their double predicts it, beside what a profiler has counted on a GPU.

    ncu --csv --page raw --print-units base --metrics $(compare_traffic.py --metrics) reshard_device_traffic > ncu.csv
    compare_traffic.py ncu.csv          a table; 1 where a kernel is missing, or moves other bytes or sectors

predicted.txt has what tests/cuda/watch counts: bytes that requests to global memory ask for, sectors of 32 bytes that
they touch, requests to shared memory of up to 128 bytes, and the cycles that banks add to these. CUB's scans use shared
memory that is not the kernels' own, so that is told and not compared. Metrics have these names in Nsight Compute 2022.3
and 2024.1, on ga100 and gh100 (ncu --query-metrics --chips).
"""
import csv
import pathlib
import sys

METRICS = {
    "bytes": ["smsp__sass_data_bytes_mem_global_op_ld.sum", "smsp__sass_data_bytes_mem_global_op_st.sum"],
    "sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "shared": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
               "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
    "conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
                  "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
}
COMPARED = ["bytes", "sectors"]
TOLERANCE = 0.03  # where lanes diverge, requests are put together that a device makes one by one, and the other way round


def read_predictions(path):
    """Kernel, as a part of its name in a launch: numbers by column. A wavefront is a request, or what a conflict adds."""
    lines = [line.split() for line in path.read_text().splitlines()]
    names = lines[0][2:]
    table = {line[0]: dict(zip(names, map(int, line[1:]))) for line in lines[1:]}
    for numbers in table.values():
        numbers["shared"] += numbers["conflicts"]
    return table


def read_counts(lines, kernels):
    """The sums of all launches of each kernel; none where it was not launched. Lines that are not CSV are the
    program's."""
    rows = csv.DictReader(line for line in lines if line.startswith('"'))
    counted = {kernel: None for kernel in kernels}
    for row in rows:
        for kernel in kernels:
            if row["ID"] == "" or kernel not in row["Kernel Name"]:
                continue  # the first row has units
            sums = counted[kernel] or dict.fromkeys(METRICS, 0)
            for column, metrics in METRICS.items():
                sums[column] += sum(round(float(row[metric].replace(",", ""))) for metric in metrics)
            counted[kernel] = sums
    return counted


def main(arguments):
    if arguments == ["--metrics"]:
        print(",".join(metric for metrics in METRICS.values() for metric in metrics))
        return 0
    predicted = read_predictions(pathlib.Path(__file__).resolve().parent / "predicted.txt")
    counted = read_counts(pathlib.Path(arguments[0]).read_text().splitlines(), predicted)
    wrong = 0
    print(f"{'kernel':16}{'':11}{'predicted':>12}{'measured':>12}")
    for kernel, numbers in predicted.items():
        measured = counted[kernel]
        if measured is None:
            print(f"{kernel.rstrip('<'):16}MISSING: the profiler has no launch of it")
            wrong += 1
            continue
        for column in METRICS:
            expected, found = numbers[column], measured[column]
            far = abs(found - expected) > TOLERANCE * max(expected, 1) and column in COMPARED
            ratio = f"{found / expected:8.3f}" if expected else ""
            print(f"{kernel.rstrip('<'):16}{column:11}{expected:12}{found:12}{ratio:>9}{'  DIFFERS' if far else ''}")
            wrong += far
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
