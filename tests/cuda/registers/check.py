#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ptxas says of the kernels in kernels.cu: registers, local and shared memory, against budget.txt.

    tests/cuda/registers/check.py [--nvcc NVCC] [--arch 80 90 100]      the table; a line and status 1 for what is over
    tests/cuda/registers/check.py --self-test

A kernel of budget.txt that is not compiled is an error, and so is one that budget.txt does not have, and one with
atomics of 64 bits on shared memory: ptxas makes loops of compare-and-swap of them (ATOMS.CAST.SPIN). The last column
of the table is computed: blocks of 256 threads that a processor of the device has room for at a time. It needs no
budget of its own: registers are handed out by eights, as budget.txt has them, so who has fewer blocks is over it.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent.parent
SHARED_OF_PROCESSOR = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}  # bytes; CUDA C++ programming guide, table of
REGISTERS_OF_PROCESSOR, THREADS_OF_PROCESSOR, THREADS = 65536, 2048, 256  # compute capabilities
ARCHITECTURES = sorted(SHARED_OF_PROCESSOR)


def budgets(text):
    """{architecture: {kernel: (registers, bytes of local memory, bytes of shared memory)}}. A line has registers and
    local memory for each architecture, and shared memory for all."""
    rows = {arch: {} for arch in ARCHITECTURES}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, *numbers = line.rsplit(maxsplit=2 * len(ARCHITECTURES) + 1)
        numbers = [int(number) for number in numbers]
        for at, arch in enumerate(ARCHITECTURES):
            rows[arch][name.strip()] = (numbers[at], numbers[len(ARCHITECTURES) + at], numbers[-1])
    return rows


def short_name(demangled):
    """`void tile_kernel<NoState, NoShared, EachIndex<MchGiveSlots> >(...)` is EachIndex<MchGiveSlots>, the body."""
    name = re.sub(r"reshard::v[\d_]+::|detail::|^void ", "", demangled)
    depth, begin = 0, 0
    for at, letter in enumerate(name):  # the arguments begin outside all < >
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 1:
            begin = at + 2
        if letter == "(" and depth == 0:
            name = name[begin:at - 1].rstrip() if name.startswith("tile_kernel<") else name[:at]
            break
    return re.sub(r"\blong\b", "int64", name.replace(" >", ">").replace("unsigned long", "uint64"))


def kernels(ptxas):
    """{mangled: (registers, bytes of local memory, bytes of shared memory)} from ptxas -v."""
    rows, name, local = {}, None, 0
    for line in ptxas.splitlines():
        entry = re.search(r"Compiling entry function '(\S+)'", line)
        spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        used = re.search(r"Used (\d+) registers", line)
        if entry:
            name, local = entry[1], 0
        elif spills:
            local = sum(int(number) for number in spills.groups())
        elif used and name:
            shared = re.search(r"(\d+) bytes smem", line)
            rows[name] = (int(used[1]), local, int(shared[1]) if shared else 0)
            name = None
    return rows


def shared_swaps(ptx):
    """{mangled: atomics of 64 bits on shared memory} of the kernels that have some."""
    rows, name = {}, None
    for line in ptx.splitlines():
        entry = re.search(r"\.entry (\w+)", line)
        if entry:
            name = entry[1]
        elif re.search(r"\b(atom|red)\.(\w+\.)*shared(::\w+)?\.\w+\.[busf]64", line):
            rows[name] = rows.get(name, 0) + 1
    return rows


def blocks_at_once(registers, shared, arch):
    by_registers = REGISTERS_OF_PROCESSOR // (-(-registers // 8) * 8 * THREADS)
    by_shared = SHARED_OF_PROCESSOR[arch] // (shared + 1024) if shared else 99  # 1 KiB of each block is the system's
    return min(by_registers, by_shared, THREADS_OF_PROCESSOR // THREADS)


def compare(found, allowed, arch):
    """The lines of the table, and what is wrong."""
    lines, faults = [], []
    for name, numbers in sorted(found.items()):
        lines.append(f"sm_{arch} {name:<66} {numbers[0]:>4} {numbers[1]:>5} {numbers[2]:>6} "
                     f"{blocks_at_once(numbers[0], numbers[2], arch):>3}")
        if name not in allowed:
            faults.append(f"sm_{arch} {name}: not in budget.txt")
            continue
        for what, is_now, most in zip(("registers", "bytes of local memory", "bytes of shared memory"), numbers, allowed[name]):
            if is_now > most:
                faults.append(f"sm_{arch} {name}: {is_now} {what}, budget.txt allows {most}")
    faults += [f"sm_{arch} {name}: in budget.txt, and not compiled" for name in sorted(set(allowed) - set(found))]
    return lines, faults


def compile_for(nvcc, arch):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, "-std=c++20", f"-I{ROOT / 'include'}", f"-arch=sm_{arch}", "-cubin", "-Xptxas", "-v",
             "-diag-suppress=2810,20013,20015", "-keep", "-keep-dir", folder, str(FOLDER / "kernels.cu"), "-o",
             f"{folder}/kernels.cubin"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        swaps = shared_swaps(pathlib.Path(folder, "kernels.ptx").read_text())
    rows = kernels(done.stdout + done.stderr)
    text = subprocess.run(["c++filt"], input="\n".join(rows), capture_output=True, text=True, check=True).stdout
    names = {mangled: short_name(name) for mangled, name in zip(rows, text.splitlines()) if "cub::" not in name}
    faults = [f"sm_{arch} {names[mangled]}: {count} atomics of 64 bits on shared memory"
              for mangled, count in swaps.items() if mangled in names]
    return {name: rows[mangled] for mangled, name in names.items()}, faults


def self_test():
    text = ("ptxas info    : Compiling entry function 'a' for 'sm_90'\n"
            "    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
            "ptxas info    : Used 64 registers, used 1 barriers, 26944 bytes smem\n"
            "ptxas info    : Compiling entry function 'b' for 'sm_90'\n"
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            "ptxas info    : Used 10 registers, used 0 barriers\n")
    found = kernels(text)
    assert found == {"a": (64, 28, 26944), "b": (10, 0, 0)}, found
    assert compare(found, {"a": (64, 28, 30000), "b": (10, 0, 0)}, 90)[1] == []
    assert compare(found, {"a": (63, 28, 30000), "b": (10, 0, 0)}, 90)[1] == ["sm_90 a: 64 registers, budget.txt allows 63"]
    assert compare(found, {"a": (64, 0, 30000)}, 90)[1] == ["sm_90 a: 28 bytes of local memory, budget.txt allows 0",
                                                            "sm_90 b: not in budget.txt"]
    assert compare({}, {"a": (1, 0, 0)}, 80)[1] == ["sm_80 a: in budget.txt, and not compiled"]
    assert blocks_at_once(80, 26944, 90) == 3 and blocks_at_once(16, 0, 90) == 8 and blocks_at_once(120, 47424, 80) == 2
    assert short_name("void reshard::v0_1::detail::tile_kernel<reshard::v0_1::detail::NoState, reshard::v0_1::detail::NoShared, "
                      "reshard::v0_1::detail::EachIndex<reshard::v0_1::detail::MchGiveSlots> >(reshard::v0_1::detail::"
                      "EachIndex<reshard::v0_1::detail::MchGiveSlots>)") == "EachIndex<MchGiveSlots>"
    ptx = (".visible .entry a(\n atom.shared.add.u32 %r1, [%r2], 1;\n atom.global.or.b64 %rd1, [%rd2], %rd3;\n}\n"
           ".visible .entry b(\n atom.shared.or.b64 %rd1, [%r2], %rd3;\n red.relaxed.cta.shared::cta.add.u64 [%r2], %rd3;\n}")
    assert shared_swaps(ptx) == {"b": 2}, shared_swaps(ptx)
    rows = budgets("# a\n\nScatterTile<8, A, B>  80 64 72  0 0 16  3\n")
    assert [rows[arch] for arch in ARCHITECTURES] == [{"ScatterTile<8, A, B>": numbers} for numbers in
                                                      ((80, 0, 3), (64, 0, 3), (72, 16, 3))], rows
    # A spill that another architecture is allowed, and a block fewer.
    assert len(compare({"ScatterTile<8, A, B>": (65, 16, 3)}, rows[90], 90)[1]) == 2
    assert blocks_at_once(64, 3, 90) == 4 and blocks_at_once(65, 3, 90) == 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", nargs="+", type=int, default=[90], choices=ARCHITECTURES)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    self_test()
    if arguments.self_test:
        return
    allowed = budgets((FOLDER / "budget.txt").read_text())
    wrong = []
    print(f"{'kernel':<72} registers, bytes of local memory, bytes of shared memory, blocks at once")
    for arch in arguments.arch:
        found, swaps = compile_for(arguments.nvcc, arch)
        lines, faults = compare(found, allowed[arch], arch)
        print("\n".join(lines))
        wrong += swaps + faults
    for fault in wrong:
        print(fault, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
