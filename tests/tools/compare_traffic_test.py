#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_traffic.py reads what `ncu --csv --page raw` prints, sums launches, and says which kernel is missing or moves
other sectors than predicted."""
import csv
import io
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parent.parent / "cuda" / "device" / "compare_traffic.py"
sys.path.insert(0, str(TOOL.parent))
import compare_traffic  # noqa: E402

PREDICTED = compare_traffic.read_predictions(TOOL.parent / "predicted.txt")
METRICS = [metric for metrics in compare_traffic.METRICS.values() for metric in metrics]


def name_of(kernel):
    """As ncu prints a launch of it."""
    if kernel.endswith("<"):
        return f"void reshard::v0_1::detail::{kernel}reshard::v0_1::ByList>(reshard::v0_1::detail::TilePlan, T1)"
    return f"void reshard::v0_1::detail::tile_kernel<reshard::v0_1::detail::NoState, reshard::v0_1::detail::{kernel}>(T3)"


def report(launches):
    """The program's own lines, then a row of names, one of units, one for each launch: all in quotes."""
    text = io.StringIO()
    text.write("==PROF== Connected to process 17\nok     traffic: a partition\n==PROF== Disconnected\n")
    rows = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows.writerow(["ID", "Process ID", "Kernel Name", "Block Size", *METRICS])
    rows.writerow(["", "", "", "", *["byte"] * 2, *["sector"] * 2, *[""] * 4])
    for number, (kernel, counts) in enumerate(launches):
        values = [counts[metric] for metric in METRICS]
        rows.writerow([number, 17, name_of(kernel), "(256, 1, 1)", *values])
    rows.writerow([len(launches), 17, "void cub::DeviceScanKernel<int>(T1)", "(128, 1, 1)", *["1,024"] * len(METRICS)])
    return text.getvalue()


def launches_of(kernel, times, more_sectors=0):
    """Launches that come to what is predicted: loads are a third, and of several launches the last has what is left."""
    made = []
    for launch in range(times):
        counts = {}
        for column, metrics in compare_traffic.METRICS.items():
            whole = PREDICTED[kernel][column] + (more_sectors if column == "sectors" else 0)
            share = whole // times + (whole % times if launch == times - 1 else 0)
            counts[metrics[0]] = f"{share // 3:,}"
            counts[metrics[1]] = f"{share - share // 3}.000000"
        made.append((kernel, counts))
    return made


def run(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ncu.csv"
        path.write_text(text)
        done = subprocess.run([sys.executable, "-B", str(TOOL), str(path)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


assert len(PREDICTED) == 6
equal = [launch for kernel in PREDICTED for launch in launches_of(kernel, 3 if kernel.startswith("Merge") else 1)]
status, out, error = run(report(equal))
check(status == 0, f"equal counts are well: {out}{error}")
check(out.count("1.000") == sum(value != 0 for numbers in PREDICTED.values() for value in numbers.values()), out)

without = [launch for launch in equal if launch[0] != "MergeRound"]
status, out, _ = run(report(without))
check(status == 1 and "MergeRound      MISSING" in out and out.count("MISSING") == 1, out)

status, out, _ = run(report(without + launches_of("MergeRound", 3, more_sectors=5000)))
check(status == 1 and out.count("DIFFERS") == 1, out)
check([line for line in out.splitlines() if "DIFFERS" in line][0].split()[:2] == ["MergeRound", "sectors"], out)

listed = subprocess.run([sys.executable, "-B", str(TOOL), "--metrics"], capture_output=True, text=True).stdout
check(listed.strip().split(",") == METRICS, listed)
print("compare_traffic: all well")
