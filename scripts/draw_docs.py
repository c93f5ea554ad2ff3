#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts what programs print into Markdown pages, or checks that it is there.

A text block below one of these comments is what the command prints, as a shell runs it; with `show`, the command comes
first, and an exit status other than 0 last:

    <!-- run: reshard draw '(2,4):(R,S0)' --shape 9x6 -->
    <!-- show: reshard compare full other -->
    <!-- prepare: reshard_checkpoint save sharded --scale 64 -->   runs, and shows nothing

The commands of a page run in one empty folder, in their order. Ids of saves are random: they are shown as
0123456789abcdef. Progress bars are left out.

usage: draw_docs.py [--write] --program build/tools/reshard [--program ...] PAGE...
"""
import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# No number is an id: one of digits alone stands in the name of a file, or behind "save".
ID = re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{16}\b|(?<=[.])[0-9]{16}(?=[.]safetensors)|(?<=\bsave )[0-9]{16}\b")
BLOCK = re.compile(r"<!-- (run|show|prepare): (.*?) -->(\n```text\n.*?```)?", re.DOTALL)


class Page:
    def __init__(self, programs, folder):
        self.here = pathlib.Path(folder) / "here"
        self.here.mkdir()
        tools = pathlib.Path(folder) / "bin"
        tools.mkdir()
        for program in programs:
            (tools / program.name).symlink_to(program.resolve())
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run(self, command):
        return subprocess.run(command, shell=True, cwd=self.here, env=self.environment, capture_output=True, text=True)

    def render(self, match):
        form, command, block = match.groups()
        result = self.run(command)
        if result.returncode != 0 and form != "show":
            sys.exit(f"{command}\n{result.stderr}")
        if form == "prepare":
            return match.group(0)
        if block is None:
            sys.exit(f"{command}: no text block stands below it")
        text = result.stdout
        if form == "show":
            text = f"$ {command}\n{text}"
        if result.returncode != 0:
            text += "".join(line for line in result.stderr.splitlines(True) if line.strip() and not line.startswith("["))
            text += f"exit status {result.returncode}\n"
        text = ID.sub("0123456789abcdef", text)
        return f"<!-- {form}: {command} -->\n```text\n{text}```"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", action="append", required=True, type=pathlib.Path)
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    stale = 0
    for page in options.pages:
        old = page.read_text(encoding="utf-8")
        if not BLOCK.search(old):
            sys.exit(f"{page}: no block to check: the comments have changed their form")
        with tempfile.TemporaryDirectory(prefix="reshard_docs_") as folder:
            new = BLOCK.sub(Page(options.program, folder).render, old)
        if new == old:
            continue
        stale += 1
        if options.write:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: updated")
        else:
            print(f"{page}: not what the programs print. Fix: run scripts/draw_docs.py --write with the same arguments")
            print(*difflib.unified_diff(old.splitlines(), new.splitlines(), "page", "programs", n=0, lineterm=""), sep="\n")
    sys.exit(1 if stale and not options.write else 0)


if __name__ == "__main__":
    main()
