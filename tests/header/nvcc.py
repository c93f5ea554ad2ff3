#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nvcc compiles the headers without a warning, and lambdas have one layout, whichever compiler reads them.

    nvcc.py --nvcc NVCC --source headers.cu --fewest N [--cxx G++] [-- FLAGS]

A program may have objects of nvcc and of g++, and each inline function is taken from one of them: a lambda that one has
made is then called by what the other has compiled. nvcc writes `f(x)` of a member as `this->f(x)` before g++ sees it, so
what `[&]` captures first differs: `this`, or x. (Found by a crash: the lambda read a reference as `this`.) `[&, this]`
says which, and is what a lambda needs that calls a member by its bare name with something captured.

With --cxx the order of captures of both compilers is compared, as g++ writes it down where closures are made. The
source has a lambda that does differ: a comparison that does not find it is broken.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

BROKEN = "void Broken::run(int)"
MEMBER = re.compile(r"[{}]|(?<=[{ ])\.__(\w+)=")


def compile_with(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def captures(text, begin):
    """The members of an initializer that begins there, in order, without those of what it contains."""
    names = []
    depth = 0
    for token in MEMBER.finditer(text, begin):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                break
        elif depth == 1:
            names.append(token.group(1))
    return tuple(names)


def closures(dump):
    """(function, the names captured): the orders in which its closures have them."""
    found = {}
    parts = re.split(r"^;; Function (.*) \(.*\)$", dump.read_text(errors="replace"), flags=re.MULTILINE)
    for function, body in zip(parts[1::2], parts[2::2]):
        orders = [captures(body, start.start()) for start in re.finditer(r"\{(?=\.__)", body)]
        assigned = {}  # what is filled member by member
        for variable, name in re.findall(r"(\w+)\.__(\w+) = ", body):
            assigned.setdefault(variable, []).append(name)
        for order in orders + [tuple(names) for names in assigned.values()]:
            found.setdefault((function, frozenset(order)), set()).add(order)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--cxx", help="g++, to compare with")
    parser.add_argument("--fewest", type=int, default=1, help="closures that both compilers have at least, or nothing was compared")
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        device, host = folder / "device.txt", folder / "host.txt"
        flags = ["-std=c++20", *given.flags]
        compile_with([given.nvcc, *flags, "-Werror", "all-warnings", "-Xcompiler",
                      f"-fsyntax-only,-fdump-tree-original={device}", "-c", given.source, "-o", str(folder / "device.o")])
        if given.cxx is None:
            return 0
        toolkit = pathlib.Path(given.nvcc).parent.parent / "include"  # behind the system's, which it is where nvcc is Debian's
        compile_with([given.cxx, *flags, "-idirafter", str(toolkit), "-x", "c++", "-fsyntax-only",
                      f"-fdump-tree-original={host}", given.source])
        host, device = closures(host), closures(device)
    both = sorted(set(host) & set(device), key=str)
    different = [key for key in both if host[key] != device[key]]
    print(f"{len(both)} closures of both compilers")
    if len(both) < given.fewest or BROKEN not in [function for function, _ in different]:
        sys.exit("FAILED: the comparison sees too few closures, or not the one that differs")
    wrong = [key for key in different if key[0] != BROKEN]
    for key in wrong:
        print(f"a lambda in {key[0]}: {sorted(host[key])} by {given.cxx}, {sorted(device[key])} by nvcc. "
              "Fix: capture [&, this].")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
