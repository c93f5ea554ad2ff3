#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts what the library prints into Markdown pages, or checks that it is there.

A text block below one of these comments is written by the library itself:

    <!-- draw: (2,4):(R,S0) [9,6] -->
    <!-- explain: (2,4):(R,S0) -> (2,4):(R,S1) [8192,1024] F32 rank 3 -->
    <!-- simulate: chains -->
    <!-- run: --dry-run --model all -->

usage: draw_docs.py PROGRAM [--write] PAGE...
PROGRAM is reshard_print, for simulate reshard_simulate, for run any program with those arguments; all are built from
examples/
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"<!-- (draw|explain|simulate|run): (.*?) -->\n```text\n(.*?)```", re.DOTALL)


def render(program, match):
    command, arguments = match.group(1), match.group(2)
    words = shlex.split(arguments) if command == "run" else [command, arguments]
    result = subprocess.run([program, *words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command}: {arguments}\n{result.stderr}")
    return f"<!-- {command}: {arguments} -->\n```text\n{result.stdout}```"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    stale = 0
    blocks = 0
    for page in options.pages:
        old = page.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda match: render(options.program, match), old)
        blocks += len(BLOCK.findall(old))
        if new == old:
            continue
        stale += 1
        if options.write:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: updated")
        else:
            print(f"{page}: not what the library prints. Fix: run scripts/draw_docs.py PROGRAM --write {page}")
    if blocks == 0:
        sys.exit("no block to check: the comments have changed their form")
    sys.exit(1 if stale and not options.write else 0)


if __name__ == "__main__":
    main()
