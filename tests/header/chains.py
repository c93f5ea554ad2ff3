#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chains of headers: each of a chain includes, directly or not, all that those before it do, and them.

    chains.py INCLUDE_FOLDER HEADER...     a line per chain, its headers in order

One file that includes a chain in order tests that each of it compiles alone: what was seen before a header is what it
includes itself. So a third of the files less are compiled. Includes are read as text, without those of an .ipp.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r"^#include <([^>]+)>", re.MULTILINE)


def main():
    root, headers = pathlib.Path(sys.argv[1]), sys.argv[2:]
    closures = {}

    def closure(header):
        if header not in closures:
            closures[header] = {header}
            if header.startswith("reshard/"):
                for name in INCLUDE.findall((root / header).read_text(encoding="utf-8")):
                    if not name.endswith(".ipp"):
                        closures[header] |= closure(name)
        return closures[header]

    # The fewest chains: a matching of headers with those that come next (each is somebody's next at most once).
    after = {a: [b for b in headers if b != a and a in closure(b)] for a in headers}
    before = {}

    def place(header, tried):
        for candidate in after[header]:
            if candidate not in tried:
                tried.add(candidate)
                if candidate not in before or place(before[candidate], tried):
                    before[candidate] = header
                    return True
        return False

    for header in headers:
        place(header, set())
    following = {first: second for second, first in before.items()}
    for header in headers:
        if header not in before:
            chain = [header]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            print(" ".join(chain))


if __name__ == "__main__":
    main()
