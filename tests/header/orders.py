#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes all public headers in several orders: each must compile without a warning.

In the order of their names and backwards, so that of any two each comes first once; or in shuffled orders: of these,
what comes before a header differs from one to the next.

usage: orders.py [--shuffles N] INCLUDE_FOLDER HEADER... -- COMPILER [FLAG]...
"""
import argparse
import pathlib
import random
import subprocess
import sys


def orders(headers, shuffles):
    if not shuffles:
        yield "sorted", sorted(headers)
        yield "backwards", sorted(headers, reverse=True)
    for seed in range(shuffles):
        order = sorted(headers)
        random.Random(seed).shuffle(order)
        yield f"shuffled with seed {seed}", order


def main():
    own, command = sys.argv[1:], []
    if "--" in own:
        own, command = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shuffles", type=int, default=0)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("headers", nargs="+", type=pathlib.Path)
    options = parser.parse_args(own)
    if not command:
        parser.error("no compiler is given")
    headers = [path.relative_to(options.folder).as_posix() for path in options.headers]
    failed = 0
    for name, order in orders(headers, options.shuffles):
        text = "".join(f"#include <{header}>\n" for header in order)
        done = subprocess.run([*command, "-x", "c++", "-"], input=text, text=True, capture_output=True)
        if done.returncode == 0 and not done.stderr:
            continue
        failed += 1
        print(f"{name}:\n{done.stderr[:4000]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
