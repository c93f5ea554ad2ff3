#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lambdas of the headers have one layout, whichever compiler reads them.

    check.py --nvcc NVCC --cxx CXX [--include FOLDER] [--files]     files: also headers that read and write checkpoints

A program may have objects of both, and each inline function is taken from one of them: a lambda that one has made is
then called by what the other has compiled. nvcc writes `f(x)` of a member as `this->f(x)` before g++ sees it, so what
`[&]` captures first differs: `this`, or x. (Found by a crash: the lambda read a reference as `this`.) `[&, this]` says
which, and is what a lambda needs that calls a member by its bare name with something captured.

Compiles the headers with both, all inline functions kept, and compares the members of closures in the debug
information. A lambda that does differ is compiled along: a comparison that finds none is broken.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADERS = ["reshard.hpp", "checkpoint/verify_replicas.hpp", "comm/abort_on_failure.hpp", "comm/any_communicator.hpp",
           "comm/device_threads.hpp", "comm/nccl.hpp", "comm/staged.hpp", "comm/staged_on_host.hpp",
           "comm/streams.hpp", "comm/threads.hpp", "comm/traced.hpp", "exec/batch.hpp", "exec/collectives.hpp",
           "exec/sync.hpp", "init/initialize.hpp", "mch/redistribute.hpp", "mch/row_moves.hpp", "mch/validate.hpp"]
FILES = ["checkpoint/compare_checkpoints.hpp", "checkpoint/consolidate.hpp", "checkpoint/load.hpp", "checkpoint/save.hpp",
         "checkpoint/save_async.hpp", "checkpoint/verify_checkpoint.hpp", "mch/checkpoint.hpp"]  # half of the time
BROKEN = """
#line 987654
struct Broken {
    int sum = 0;
    void add(int x) { sum += x; }
    void run(int x) { [&] { add(x); }(); }
};
inline void broken() { Broken().run(1); }
"""
BROKEN_LINE = 987657


def compile_with(arguments, source, target):
    done = subprocess.run([*arguments, "-std=c++20", "-O0", "-g", f"-I{ROOT / 'include'}", "-c", source, "-o", target],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stderr}")


def closures(program):
    """(line, the names captured): the orders that they lie in. Types whose members are all captures are closures."""
    found = {}
    around = []  # types that the entry at hand lies in: level, line, names
    in_member = heads_type = False

    def leave(level):
        while around and around[-1][0] >= level:
            _, line, names = around.pop()
            if names and all(name.startswith("__") for name in names):
                found.setdefault((line, frozenset(names)), set()).add(tuple(name[2:] for name in names))

    dump = subprocess.Popen(["readelf", "--debug-dump=info", program], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, errors="replace")
    for text in dump.stdout:
        if entry := re.match(r" <([0-9a-f]+)><[0-9a-f]+>: Abbrev Number: \d+ \((DW_TAG_\w+)\)", text):
            level, tag = int(entry.group(1), 16), entry.group(2)
            leave(level)
            in_member = tag == "DW_TAG_member" and bool(around) and around[-1][0] == level - 1
            heads_type = tag in ("DW_TAG_structure_type", "DW_TAG_class_type")
            if heads_type:
                around.append([level, 0, []])
        elif heads_type and "DW_AT_decl_line" in text:
            around[-1][1] = int(text.rsplit(":", 1)[1], 0)
        elif in_member and "DW_AT_name" in text:
            around[-1][2].append(text.rsplit(":", 1)[1].strip())
    leave(0)
    if dump.wait() != 0:
        sys.exit("readelf has failed")
    return found


def places(line):
    """Headers that have a lambda there."""
    for path in sorted((ROOT / "include").rglob("*.*pp")):
        lines = path.read_text().splitlines()
        if line <= len(lines) and "[&]" in lines[line - 1]:
            yield f"{path.relative_to(ROOT)}:{line}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--include", nargs="*", default=[], help="folders of nccl.h and of CUDA's headers")
    parser.add_argument("--files", action="store_true", help="also headers that read and write checkpoints")
    given = parser.parse_args()
    folders = [f"-I{folder}" for folder in given.include]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        includes = "".join(f"#include <reshard/{header}>\n" for header in HEADERS + FILES * given.files)
        text = f"#ifndef __CUDA_ARCH__\n{includes}#endif\n{BROKEN}"  # what is compared is for the host
        (folder / "all.cpp").write_text(text)
        (folder / "all.cu").write_text(text)
        compile_with([given.cxx, "-fkeep-inline-functions", *folders], folder / "all.cpp", folder / "host.o")
        compile_with([given.nvcc, "-arch=sm_90", "-Xcompiler", "-fkeep-inline-functions", *folders], folder / "all.cu",
                     folder / "device.o")
        host, device = closures(folder / "host.o"), closures(folder / "device.o")
    both = sorted(set(host) & set(device), key=lambda key: key[0])
    different = [key for key in both if host[key] != device[key]]
    print(f"{len(both)} closures of both compilers")
    if len(both) < 100 or BROKEN_LINE not in [line for line, _ in different]:
        sys.exit("FAILED: the comparison sees too few closures, or not the one that differs")
    wrong = [key for key in different if key[0] != BROKEN_LINE]
    for key in wrong:
        print(f"{' or '.join(places(key[0])) or 'line ' + str(key[0])}: {sorted(host[key])} by {given.cxx}, "
              f"{sorted(device[key])} by nvcc. Fix: capture [&, this].")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
