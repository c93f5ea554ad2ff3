#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every ```cpp block of Markdown pages, and checks that the files they name exist.

A block that defines main is a program of its own. Any other block is wrapped: its includes move to the top, the rest
becomes the body of a function that sees the umbrella, the threads and `using namespace reshard`. A comment on the line
above a block changes that (words combine: `docs: namespace continue`):

    <!-- docs: continue -->        the block goes on where the previous one stopped and sees its names
    <!-- docs: namespace -->       the block stands at namespace scope: for definitions
    <!-- docs: skip REASON -->     the block is not compiled, and the reason says why
    <!-- docs: from FILE -->       the block is a part of that file, line for line; who builds the file compiles it

usage: check_docs.py [--compiler CXX] [--prelude HEADER] (PAGE... | --self-test)

HEADER has the includes that every wrapped block sees; its .gch lies beside it.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRELUDE = "#include <reshard/reshard.hpp>\n#include <reshard/comm/threads.hpp>\nusing namespace reshard;\n"
# A page shows names without using them; everything else a reader's compiler would warn about counts.
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-unused-parameter",
         "-Wno-unused-value", f"-I{ROOT / 'include'}"]
# As who links the compiled library sees the headers: half the time.
FLAGS += [f"-DRESHARD_COMPILED{part}" for part in ("", "_CHECKPOINT", "_MCH", "_MPI")]
FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\w*)")
DIRECTIVE = re.compile(r"^\s*<!--\s*docs:\s*(.*?)\s*-->\s*$")
INCLUDE = re.compile(r"^\s*#\s*include\b")
# `tests/core/shape.test.cpp` in code quotes, or the target of a relative link.
NAMED = re.compile(r"`((?:include|tests|docs|scripts|tools|bench|examples)/[\w./-]*\w)`")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
MAIN = re.compile(r"^\s*(?:int|auto)\s+main\s*\(", re.MULTILINE)


class PageError(Exception):
    pass


def read_source(name, line):
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except OSError:
        raise PageError(f"{line}: {name} does not exist") from None


class Block:
    def __init__(self, line, directive, lines):
        self.line = line  # of its first line of code
        self.lines = lines
        self.program = MAIN.search("\n".join(lines)) is not None
        words = directive.split()
        self.skip = bool(words) and words[0] == "skip"
        if self.skip and len(words) == 1:
            raise PageError(f"{line}: docs: skip needs a reason")
        self.source = words[1] if len(words) == 2 and words[0] == "from" else ""
        if self.source:
            if f"\n{chr(10).join(lines)}\n" not in f"\n{read_source(self.source, line)}":
                raise PageError(f"{line}: the block is not a part of {self.source}")
            self.skip, words = True, []
        if not self.skip and not set(words) <= {"continue", "namespace"}:
            raise PageError(f"{line}: unknown docs directive '{directive}'")
        self.follows = not self.skip and "continue" in words
        self.namespace = not self.skip and "namespace" in words


def blocks_of(text):
    blocks, directive, fence, code = [], "", None, []
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if fence is None and match:
            indent, fence, language = match.groups()
            start, code = number + 1, []
        elif fence is not None and match and match.group(2).startswith(fence) and line.strip() == match.group(2):
            if language == "cpp":
                blocks.append(Block(start, directive, code))
            fence, directive = None, ""
        elif fence is not None:
            code.append(line[len(indent):] if line.startswith(indent) else line)
        elif DIRECTIVE.match(line):
            directive = DIRECTIVE.match(line).group(1)
        elif line.strip():
            directive = ""
    if fence is not None:
        raise PageError(f"{start}: the block is not closed")
    return blocks


def marked(page, line):
    return f'#line {line} "{page}"\n'


def assemble(page, blocks):
    """The page's translation units: one for all wrapped blocks, one per program."""
    includes, body, programs = [], [], []
    in_namespace = in_function = False
    for block in blocks:
        if block.skip:
            continue
        if block.program:
            programs.append(marked(page, block.line) + "\n".join(block.lines) + "\n")
            continue
        if block.follows and not in_namespace:
            raise PageError(f"{block.line}: docs: continue has nothing to continue")
        if block.follows and block.namespace and in_function:
            raise PageError(f"{block.line}: a block at namespace scope cannot continue a function body")
        if not block.follows:
            body.append("}\n" * (in_function + in_namespace) + f"namespace line_{block.line} {{\n")
            in_namespace, in_function = True, False
        if not block.namespace and not in_function:
            body.append("void page() {\n")
            in_function = True
        code = []
        for offset, line in enumerate(block.lines):
            if INCLUDE.match(line):
                includes.append(marked(page, block.line + offset) + line + "\n")
                line = ""  # keeps the line numbers of what follows
            code.append(line)
        body.append(marked(page, block.line) + "\n".join(code) + "\n")
    body.append("}\n" * (in_function + in_namespace))
    wrapped = ["".join([*includes, PRELUDE, *body])] if in_namespace else []
    return wrapped + programs


def missing_files(page, text):
    complaints, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        in_code ^= FENCE.match(line) is not None
        if in_code:
            continue
        targets = [ROOT / name for name in NAMED.findall(line)]
        targets += [(ROOT / page).parent / name for name in LINK.findall(line)]
        complaints += [f"{page}:{number}: {target} does not exist\n" for target in targets if not target.exists()]
    return complaints


def check(page, text, compiler, prelude=None):
    """Returns the number of blocks, how many were skipped, and the complaints."""
    try:
        blocks = blocks_of(text)
        units = assemble(page, blocks)
    except PageError as error:
        return 0, 0, [f"{page}:{error}"]
    complaints = missing_files(page, text)
    with tempfile.TemporaryDirectory() as folder:
        for number, unit in enumerate(units):
            source = pathlib.Path(folder) / f"unit_{number}.cpp"
            source.write_text(unit, encoding="utf-8")
            first = ["-include", prelude] if prelude and PRELUDE in unit else []
            done = subprocess.run([compiler, *FLAGS, *first, str(source)], capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                complaints.append(done.stderr + done.stdout)
    return len(blocks), sum(block.skip and not block.source for block in blocks), complaints


def self_test(compiler):
    global PRELUDE
    PRELUDE = ""

    def block(code, directive=None):
        return (f"<!-- docs: {directive} -->\n" if directive else "") + f"```cpp\n{code}\n```\n"

    cases = [  # page, what the complaint must hold
        (block("#include <vector>\nstd::vector<int> a{1};") + "text\n" + block("int a = 2;"), None),
        (block("int a = 2;") + block("int b = a;", "continue"), None),
        (block("int a = 2;") + block("int b = a;"), "page.md:5"),
        (block("struct S { int a; };", "namespace") + block("S s{1};", "continue"), None),
        (block("template <class T> T f() { return {}; }"), "page.md:2"),
        (block("template <class T> T f() { return {}; }", "namespace"), None),
        (block("int a = ;"), "page.md:2"),
        (block("int a = ;", "skip a mistake on purpose"), None),
        (block("int a = ;", "skip"), "needs a reason"),
        (block("int a = 1;", "contniue"), "unknown docs directive"),
        (block("int b = 1;", "continue"), "nothing to continue"),
        (block("int a = 1;\nint b = 2;\n#include <array>\nint c = ;"), "page.md:5"),
        (block("#include <cstdio>\nint main() { std::puts(\"\"); }"), None),
        (block("int main() { return x; }"), "page.md:2"),
        ("- item\n\n  ```cpp\n  int a = ;\n  ```\n", "page.md:4"),
        ("```cpp\nint a = 1;\n", "not closed"),
        (block("set(ROOT_IS_HERE", "from scripts/check_docs.py"), "not a part of"),
        (block("def missing_files(page, text):", "from scripts/check_docs.py"), None),
        (block("int a;", "from scripts/no_such.py"), "does not exist"),
        ("```sh\nint a = ;\n```\n", None),
        ("see `scripts/check_docs.py` and [the readme](README.md)\n", None),
        ("see `tests/core/no_such.test.cpp`\n", "page.md:1"),
        ("see\n[this](docs/no_such.md)\n", "page.md:2"),
    ]
    bad = []
    for page, complaint in cases:
        complaints = check("page.md", page, compiler)[2]
        if bool(complaints) != bool(complaint) or (complaint and not any(complaint in text for text in complaints)):
            bad.append(f"{page}wanted {complaint!r}, got {complaints}\n")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--prelude")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("pages", nargs="*")
    args = parser.parse_args()
    if args.self_test:
        wrong = self_test(args.compiler)
        print("\n".join(wrong) or "self-test passed")
        sys.exit(1 if wrong else 0)
    if not args.pages:
        parser.error("name a page")
    failed = False
    for page in args.pages:
        count, skipped, complaints = check(page, pathlib.Path(page).read_text(encoding="utf-8"), args.compiler,
                                             args.prelude)
        print("\n".join(complaints), end="")
        print(f"{page}: {count} blocks, {skipped} skipped, {'FAILED' if complaints else 'ok'}")
        failed = failed or bool(complaints)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
