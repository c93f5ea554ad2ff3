#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user's file costs to compile, beside a file that parses and prints JSON with nlohmann.

    bench/compile/goals.py [GOAL ...] [--table]     g++ -std=c++20 -O2, processor time, medians of 5 in turn

Prints `goal NAME VALUE TARGET ok|short|skipped` lines as the other benchmarks do; --table, the table of
docs/performance.md.
"""
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "bench" / "compile" / "goals"
COMPILED = ["-DRESHARD_COMPILED", "-DRESHARD_COMPILED_CHECKPOINT", "-DRESHARD_COMPILED_MCH", "-DRESHARD_COMPILED_MPI"]
TIMES = [  # goal, file, compiled, at most
    ("compile_redistribute_compiled", "redistribute", True, 0.45),
    ("compile_redistribute", "redistribute", False, 1.3),
    ("compile_mpi", "mpi", True, 0.6),
    ("compile_load_save", "load_save", True, 0.8),
    ("compile_load_save_headers", "load_save", False, 2.5),
    ("compile_mch", "mch", True, 0.8),
]
TEXT = ("text_redistribute", "redistribute", 0.5, 312309)  # bytes of code before plans were compiled as values
REPEATS = 5


def mpi_flags():
    try:
        text = subprocess.run(["mpicxx.openmpi", "--showme:compile"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return text.split()


def command(name, compiled, target):
    flags = ["g++", "-std=c++20", "-O2", f"-I{ROOT / 'include'}", "-c", str(FOLDER / f"{name}.cpp"), "-o", str(target)]
    return flags + (COMPILED if compiled else []) + (mpi_flags() or [] if name == "mpi" else [])


def processor_seconds(arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def text_bytes(target):
    rows = subprocess.run(["size", str(target)], capture_output=True, text=True, check=True).stdout.splitlines()
    return int(rows[1].split()[0])


def main(arguments):
    table = "--table" in arguments
    wanted = [argument for argument in arguments if argument != "--table"]
    lines, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "unit.o"
        for goal, name, compiled, limit in TIMES:
            if wanted and goal not in wanted:
                continue
            if name == "mpi" and mpi_flags() is None:
                lines.append(f"goal {goal} - - skipped")
                continue
            mine, theirs = [], []
            for _ in range(REPEATS):
                mine.append(processor_seconds(command(name, compiled, target)))
                theirs.append(processor_seconds(command("json", False, target)))
            seconds, beside = statistics.median(mine), statistics.median(theirs)
            ratio = seconds / beside
            print(f"  {goal}: {seconds:.2f} s beside {beside:.2f} s", flush=True)
            lines.append(f"goal {goal} {ratio:.3g} {limit} {'ok' if ratio <= limit else 'short'}")
            rows.append((name, "compiled library" if compiled else "header-only", seconds, ratio))
        goal, name, limit, before = TEXT
        if not wanted or goal in wanted:
            processor_seconds(command(name, False, target))
            ratio = text_bytes(target) / before
            lines.append(f"goal {goal} {ratio:.3g} {limit} {'ok' if ratio <= limit else 'short'}")
    if table:
        print("| file of bench/compile/goals | mode | seconds | beside a JSON parse |\n|---|---|---|---|")
        for name, mode, seconds, ratio in rows:
            print(f"| {name}.cpp | {mode} | {seconds:.1f} | {ratio:.2f} |")
    print()
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
