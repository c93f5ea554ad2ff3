#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the tree is the dependency diagram: reads the includes, compiles nothing.

- A room includes only its own headers and those of the rooms listed below.
- A room's detail/ is included only from that room; core/detail/ is open to all.
- Includes form no cycle.
- The standard headers that core/error.hpp and core/index.hpp bring are not named again by what includes these.
- No file has more than 400 lines.
- The umbrella reshard.hpp holds nothing but includes, reaches only the rooms it stands for, and none of the headers it
  reaches includes one of the expensive standard headers.

usage: check_floors.py [INCLUDE_FOLDER] | --self-test
"""
import pathlib
import re
import sys
import tempfile

ROOMS = {  # room: the rooms it may use
    "core": [],
    "algebra": ["core"],
    "memory": ["core"],
    "interop": ["core"],
    "plan": ["core", "algebra"],
    "comm": ["core", "algebra", "memory"],
    "exec": ["core", "algebra", "memory", "plan", "comm"],
    "cuda": ["core", "algebra", "memory", "plan", "comm"],
    "init": ["core", "algebra", "memory", "plan", "exec"],
    "checkpoint": ["core", "algebra", "memory", "plan", "comm", "exec", "cuda"],
    "mch": ["core", "algebra", "memory", "plan", "comm", "exec", "cuda", "checkpoint"],
}
LINES = 400  # a file that is read at one sitting
UMBRELLA = "reshard/reshard.hpp"
UMBRELLA_REACHES = re.compile(r"reshard/((core|algebra|memory|plan|exec)/|comm/(agree|any_communicator|communicator|self)\.hpp$|comm/detail/)")
UMBRELLA_AVOIDS = {"algorithm", "chrono", "filesystem", "functional", "iostream", "memory", "ranges", "regex", "thread"}
BRING = ("reshard/core/error.hpp", "reshard/core/index.hpp")  # standard headers, to nearly every file

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def room(header):
    parts = header.split("/")
    return parts[1] if len(parts) > 2 else ""


def files(folder):
    return sorted(path for kind in ("hpp", "ipp", "cuh") for path in folder.glob(f"reshard/**/*.{kind}"))


def read(folder):
    """header -> list of what it includes, both as written after the include folder, each file for itself."""
    graph = {}
    for path in files(folder):
        name = path.relative_to(folder).as_posix()
        found = []
        for quote, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            beside = (path.parent / target).resolve()
            if quote == '"' and beside.is_file():
                target = beside.relative_to(folder.resolve()).as_posix()
            found.append(target)
        graph[name] = found
    return graph


def merge(graph):
    """What stands beside a header, in its .ipp, comes with it: both count as one. So a header that an .ipp needs must not
    include the .ipp's own header, or whoever includes it first gets the .ipp before what that needs."""
    for name in [name for name in graph if name.endswith(".ipp")]:
        header = name[:-4] + ".hpp"
        if header in graph:
            both = [target for target in graph[header] + graph.pop(name) if target not in (header, name)]
            graph[header] = list(dict.fromkeys(both))
    return graph


def reached(graph, header):
    """All headers that come with this one, but for its own .ipp, which stands behind everything."""
    seen, queue = set(), [target for target in graph[header] if target != header[:-4] + ".ipp"]
    while queue:
        target = queue.pop()
        if target in graph and target not in seen:
            seen.add(target)
            queue += graph[target]
    return seen


def check_brought(graph):
    for header, includes in graph.items():
        comes_with = reached(graph, header)
        for bringer in BRING:
            for target in includes:
                if bringer in comes_with and target in graph[bringer] and "/" not in target:
                    yield f"{header}: <{target}> comes with {bringer} already"


def check_lengths(folder):
    for path in files(folder):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LINES:
            yield f"{path.relative_to(folder).as_posix()}: {lines} lines, at most {LINES}: which part is a thing of its own?"


def check_rooms(graph):
    for header, includes in graph.items():
        mine = room(header)
        if mine not in ROOMS and header != UMBRELLA:
            yield f"{header}: '{mine}' is not one of the rooms {', '.join(ROOMS)}"
            continue
        for target in includes:
            if not target.startswith("reshard/"):
                continue
            theirs = room(target)
            if target not in graph:
                yield f"{header}: includes {target}, which does not exist"
            elif header == UMBRELLA:
                continue  # has a rule of its own
            elif target == UMBRELLA:
                yield f"{header}: includes the umbrella; include what is used"
            elif theirs != mine and theirs not in ROOMS[mine]:
                yield f"{header}: {mine} may not use {theirs} ({target}); it may use {', '.join(ROOMS[mine]) or 'nothing'}"
            elif theirs != mine and theirs != "core" and "/detail/" in target:
                yield f"{header}: {target} is private to {theirs}"


def check_cycles(graph):
    state = {}

    def visit(header, trail):
        if state.get(header) == "done":
            return
        if header in trail:
            yield "cycle: " + " -> ".join([*trail[trail.index(header):], header])
            return
        for target in graph.get(header, []):
            yield from visit(target, [*trail, header])
        state[header] = "done"

    for header in graph:
        yield from visit(header, [])


def check_umbrella(graph, text):
    for line in COMMENT.sub("", text).splitlines():
        if line.strip() and not re.match(r"\s*#\s*(include|pragma once)\b", line):
            yield f"{UMBRELLA}: holds something other than includes: {line.strip()}"
    came_from, queue = {UMBRELLA: None}, [UMBRELLA]
    while queue:
        header = queue.pop()
        for target in graph.get(header, []):
            if target in UMBRELLA_AVOIDS:
                trail, step = [], header
                while step:
                    trail.append(step)
                    step = came_from[step]
                yield f"the umbrella reaches <{target}>: {' -> '.join(reversed(trail))}"
            elif target.startswith("reshard/") and not UMBRELLA_REACHES.match(target):
                yield f"the umbrella may not reach {target} (included by {header})"
            elif target in graph and target not in came_from:
                came_from[target] = header
                queue.append(target)


def check(folder):
    graph = read(folder)
    if not graph:
        return graph, [f"{folder}: no headers found"]
    wrong = [*check_lengths(folder), *check_brought(graph)]
    graph = merge(graph)
    wrong += [*check_rooms(graph), *check_cycles(graph)]
    umbrella = folder / UMBRELLA
    if umbrella.is_file():
        wrong += check_umbrella(graph, umbrella.read_text(encoding="utf-8"))
    else:
        wrong.append(f"{UMBRELLA}: missing")
    return graph, wrong


def self_test():
    good = {
        "reshard.hpp": "// text\n#pragma once\n#include <reshard/core/a.hpp>\n#include <reshard/comm/self.hpp>\n",
        "core/a.hpp": "#include <vector>\n// #include <thread>\n",
        "core/detail/b.hpp": "",
        "plan/p.hpp": '#include "../core/a.hpp"\n#include <reshard/core/detail/b.hpp>\n',
        "plan/detail/q.hpp": "",
        "comm/self.hpp": "#include <reshard/core/a.hpp>\n",
        "comm/threads.hpp": "#include <thread>\n",
    }
    cases = [  # what changes, what the complaint must hold
        ({}, None),
        ({"core/a.hpp": "#include <reshard/plan/p.hpp>"}, "core may not use plan"),
        ({"core/a.hpp": '#include "../plan/p.hpp"'}, "core may not use plan"),
        ({"comm/self.hpp": "# include <reshard/plan/p.hpp>"}, "comm may not use plan"),
        ({"mch/m.hpp": "#include <reshard/checkpoint/c.hpp>", "checkpoint/c.hpp": ""}, None),
        ({"checkpoint/c.hpp": "#include <reshard/mch/m.hpp>", "mch/m.hpp": ""}, "checkpoint may not use mch"),
        ({"exec/e.hpp": "#include <reshard/plan/detail/q.hpp>"}, "private to plan"),
        ({"exec/e.hpp": "#include <reshard/plan/missing.hpp>"}, "does not exist"),
        ({"core/a.hpp": "#include <reshard/reshard.hpp>"}, "includes the umbrella"),
        ({"core/a.hpp": "#include <reshard/core/detail/b.hpp>", "core/detail/b.hpp": '#include "../a.hpp"'}, "cycle"),
        ({"core/a.hpp": "#include <reshard/core/a.ipp>", "core/a.ipp": "#include <reshard/core/a.hpp>"}, None),
        ({"core/a.hpp": "#include <reshard/core/a.ipp>", "core/a.ipp": "#include <reshard/core/detail/b.hpp>",
          "core/detail/b.hpp": "#include <reshard/core/a.hpp>"}, "cycle"),
        ({"core/a.hpp": "#include <reshard/core/a.ipp>", "core/a.ipp": "#include <reshard/plan/p.hpp>"}, "core may not use plan"),
        ({"attic/x.hpp": ""}, "not one of the rooms"),
        ({"core/detail/b.hpp": "\n" * 400}, None),
        ({"core/detail/b.ipp": "\n" * 401}, "core/detail/b.ipp: 401 lines"),
        ({"core/a.hpp": "#include <memory>"}, "the umbrella reaches <memory>"),
        ({"comm/self.hpp": "#include <reshard/comm/threads.hpp>"}, "may not reach reshard/comm/threads.hpp"),
        ({"core/error.hpp": "#include <string>", "core/a.hpp": "#include <reshard/core/error.hpp>", "plan/p.hpp":
          "#include <reshard/core/a.hpp>\n#include <string>"}, "<string> comes with reshard/core/error.hpp already"),
        ({"core/error.hpp": "#include <string>", "core/a.hpp": "#include <string>"}, None),
        ({"reshard.hpp": "#include <reshard/core/a.hpp>\nint x;"}, "something other than includes"),
    ]
    bad = []
    for change, complaint in cases:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for name, text in {**good, **change}.items():
                path = folder / "reshard" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            wrong = check(folder)[1]
            if bool(wrong) != bool(complaint) or (complaint and not any(complaint in line for line in wrong)):
                bad.append(f"{change}: wanted {complaint!r}, got {wrong}")
    return bad


def main(argv):
    if argv == ["--self-test"]:
        wrong = self_test()
        done = "self-test passed"
    else:
        folder = pathlib.Path(argv[0]) if argv else pathlib.Path(__file__).resolve().parent.parent / "include"
        graph, wrong = check(folder)
        done = f"{len(graph)} headers keep to their floors"
    print("\n".join(wrong) or done)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
