#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what bench/compile/*.cpp cost a compiler, and a program, with bench/compile/budget.txt.

Three counts per file, all the same on every run, unlike milliseconds:
- lines of our own headers after preprocessing (g++ -E, blank ones not counted). The total is printed too, but it
  belongs to the standard library and changes with its patches;
- template instantiations (clang++ 14, classes and functions);
- bytes of code of the object file that clang++ makes on the way. It does not optimise, which takes three times as long,
  but what users have more code of has more there (bench/compile/goals.py measures theirs).
The last two are skipped where clang++ is missing or another version.

And what a plain move has no use for is in none of these object files: kernels that fold or cast, the planner between
meshes.

A count more than 3 % above its budget fails, bytes of code 1 %; more than 1 % is reported. Raising a budget is a reviewed change:
    scripts/check_budget.py --update
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "bench" / "compile"
BUDGET = FOLDER / "budget.txt"
CLANG_MAJOR = "14"
FAIL, REPORT = 1.03, 1.01
FAIL_CODE = 1.01
NEEDED = ("threads_redistribute", "OneMesh")  # a file, and a name that is in it
NEEDLESS = {  # names that are in none, and where they stand
    "fold_steps": "memory/fold.ipp",
    "wide_sums": "memory/fold.ipp",
    "RowConverter": "memory/detail/cast.hpp",
    "convert_tile": "memory/convert.ipp",
    "TwoMeshes": "plan/detail/two_meshes.hpp",
}
HEADING = """\
# What each file of bench/compile/ may cost a compiler: scripts/check_budget.py counts, fails above +3 %, code +1 %, reports
# above +1 %. Own lines: of include/reshard, preprocessed. Instantiations: classes and functions, clang++ 14. Code: bytes
# of that object file, not optimised.
#
# file                   own lines   instantiations         code
"""


def preprocessed_lines(source):
    """Lines of our own headers, and of everything."""
    command = ["g++", "-std=c++20", f"-I{ROOT / 'include'}", "-E", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    own, total, ours = 0, 0, False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = "/include/reshard/" in marker.group(1)
        elif line.strip() and not line.startswith("#"):
            total += 1
            own += ours
    return own, total


def instantiations(source):
    """How many, the names that the object file has, and its bytes of code."""
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "unit.o"
        subprocess.run(["clang++", "-std=c++20", f"-I{ROOT / 'include'}", "-c", str(source), "-o", str(target),
                        "-ftime-trace", "-ftime-trace-granularity=0"], check=True)
        events = json.loads(target.with_suffix(".json").read_text())["traceEvents"]
        names = subprocess.run(["nm", "-C", str(target)], check=True, capture_output=True, text=True).stdout
        sizes = subprocess.run(["size", str(target)], check=True, capture_output=True, text=True).stdout.splitlines()
    count = sum(event.get("name") in ("InstantiateClass", "InstantiateFunction") for event in events)
    return count, names, int(sizes[1].split()[0])


def needless(name, names):
    """Complaints about what is in an object file, or is not."""
    found = set(re.findall(r"reshard::v0_1::detail::(\w+)", names))
    if name == NEEDED[0] and NEEDED[1] not in found:
        yield f"{name}: {NEEDED[1]} is not in the object file: is it called otherwise now?"
    for word, header in NEEDLESS.items():
        if not re.search(rf"\b{word}\b", (ROOT / "include/reshard" / header).read_text(encoding="utf-8")):
            yield f"{word} is not in include/reshard/{header}: what is it called now?"
        elif word in found:
            yield f"{name}: the object file has {word} of {header}, which a plain move has no use for"


def clang_fault():
    """Why instantiations cannot be compared, or None."""
    try:
        text = subprocess.run(["clang++", "--version"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "clang++ is missing"
    major = re.search(r"version (\d+)", text)
    if major and major.group(1) == CLANG_MAJOR:
        return None
    return f"clang++ is version {major.group(1) if major else 'unknown'}, the budget is for {CLANG_MAJOR}"


def read_budget():
    budget = {}
    for line in BUDGET.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, *counts = line.split()
            budget[name] = [int(count) for count in counts]
    return budget


def compare(name, what, count, allowed, fail=FAIL):
    """Prints one line; whether the budget holds."""
    ratio = count / allowed
    verdict = "FAIL" if ratio > fail else "above budget" if ratio > REPORT else "ok"
    print(f"{name:22} {what:15} {count:6} of {allowed:6}  {100 * (ratio - 1):+5.1f} %  {verdict}")
    return ratio <= fail


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the present counts as the budget")
    update = parser.parse_args().update
    fault = clang_fault()
    if fault and update:
        sys.exit(f"error: {fault}")
    if fault:
        print(f"instantiations are not checked: {fault}")
    budget = {} if update else read_budget()
    holds, rows = True, []
    sources = sorted(FOLDER.glob("*.cpp"))
    for source in sources:
        name = source.stem
        own, total = preprocessed_lines(source)
        count, names, code = (None, None, None) if fault else instantiations(source)
        rows.append(f"{name:22} {own:11} {count or 0:16} {code or 0:12}\n")
        if update:
            continue
        if name not in budget:
            print(f"{name}: no line in {BUDGET.relative_to(ROOT)}. Fix: scripts/check_budget.py --update")
            holds = False
            continue
        print(f"{name:22} {'all lines':15} {total:6}")
        holds = compare(name, "own lines", own, budget[name][0]) and holds
        if count is not None:
            holds = compare(name, "instantiations", count, budget[name][1]) and holds
            holds = compare(name, "code", code, budget[name][2], FAIL_CODE) and holds
            for complaint in needless(name, names):
                print(complaint)
                holds = False
    for name in budget.keys() - {source.stem for source in sources}:
        print(f"{name}: in the budget, but bench/compile/{name}.cpp does not exist")
        holds = False
    if update:
        BUDGET.write_text(HEADING + "".join(rows), encoding="utf-8")
        print(BUDGET.read_text(encoding="utf-8"), end="")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
