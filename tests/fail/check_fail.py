#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a file that holds a mistake the compiler must reject in our words.

    // expect-error: exactly one placement per mesh axis
    #include <reshard/reshard.hpp>
    #ifndef RESHARD_FAIL
    ... the correct form ...
    #else
    ... the same with the mistake ...
    #endif

The text after `expect-error:` is what an error line must hold, word for word; if it is not there word for word, it is
tried as a regular expression. Several expect-error lines must all be found; with `expect-only:` no other sentence
of ours may be. `expect-note:` also accepts the lines that
explain an error, for constraints, whose text compilers put there.

usage: check_fail.py (--baselines FILE... | --rejects FILE | --self-test) -- COMPILER [FLAG]...

All baselines are one file for the compiler, each in a namespace of its own behind what any of them includes; by itself is
compiled what sets macros or has a namespace, and all of them where that file is refused.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ALONE = re.compile(r"^(template <>|namespace |#define |#undef )", re.MULTILINE)
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
EXPECT = re.compile(r"^[ \t]*//[ \t]*expect-(error|only|note):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
OURS = re.compile(r"static.assert.*reshard:")


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def holds(line, wanted):
    line, wanted = squeeze(line), squeeze(wanted)
    if wanted in line:
        return True
    try:
        return re.search(wanted, line) is not None
    except re.error:
        return False


def run(compiler, *args):
    done = subprocess.run([*compiler, *map(str, args)], capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout + done.stderr


def baseline(compiler, file):
    """Returns what is wrong, or None."""
    status, output = run(compiler, file)
    return None if status == 0 else f"{file}: must compile without RESHARD_FAIL, but does not\n{output}"


def baselines(compiler, files):
    """The same of many."""
    texts = {file: pathlib.Path(file).read_text(encoding="utf-8") for file in files}
    alone = [file for file in files if ALONE.search(texts[file])]
    together = [file for file in files if file not in alone]
    includes = {line: None for file in together for line in INCLUDE.findall(texts[file])}
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = pathlib.Path(folder) / "baselines.cpp"
        all_of_them.write_text("\n".join([*includes, *(f'namespace baseline_{i} {{\n#include "{pathlib.Path(file).resolve()}"\n}}'
                                                      for i, file in enumerate(together))]) + "\n", encoding="utf-8")
        refused = baseline(compiler, all_of_them)
    wrong = [baseline(compiler, file) for file in (files if refused else alone)]
    return "\n".join(filter(None, wrong)) or refused


def rejects(compiler, file):
    wanted = EXPECT.findall(pathlib.Path(file).read_text(encoding="utf-8"))
    if not any(text for _, text in wanted) or not all(text for _, text in wanted):
        return f"{file}: say what the compiler must answer: // expect-error: <text>"
    status, output = run(compiler, "-DRESHARD_FAIL", file)
    if status == 0:
        return f"{file}: the mistake compiles"
    if "internal compiler error" in output:
        return f"{file}: the compiler crashed\n{output}"
    errors = [line for line in output.splitlines() if "error:" in line]
    for kind, text in wanted:
        lines = output.splitlines() if kind == "note" else errors
        if not any(holds(line, text) for line in lines):
            return f"{file}: rejected, but not with: {text}\n{output}"
        others = [line for line in errors if OURS.search(line) and not holds(line, text)]
        if kind == "only" and others:
            return f"{file}: also complains: {others[0]}"
    return None


def self_test(compiler):
    """The check itself must tell a good file from each way of being a bad one."""
    source = '// expect-{expect}\n#ifdef RESHARD_FAIL\n{mistake}\n#endif\n{rest}\n'
    rejected = 'static_assert(sizeof(int) == 0, "reshard::f(x): give one [sic]. Fix: do.");'
    cases = [  # expect, mistake, rest, begin of the complaint about baseline, about rejects
        ("error: reshard::f(x): give one [sic]. Fix: do.", rejected, "", None, None),
        ("error: give (one|two)", rejected, "", None, None),
        ("only: give one", rejected, "", None, None),
        ("only: redefinition", rejected + " int again = 0; int again;", "", None, "also complains"),
        ("error: another sentence", rejected, "", None, "rejected, but not with"),
        ("error: one", "", "", None, "the mistake compiles"),
        ("error: ", rejected, "", None, "say what the compiler must answer"),
        ("error: one", rejected, "int broken = ;", "must compile without", None),
    ]
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "sample.cpp"
        for expect, mistake, rest, *complaints in cases:
            file.write_text(source.format(expect=expect, mistake=mistake, rest=rest), encoding="utf-8")
            for check, complaint in zip((baseline, rejects), complaints):
                found = check(compiler, file)
                if check is baseline and (baselines(compiler, [file, file]) is None) != (found is None):
                    bad.append(f"baselines, of {mistake!r} twice, is not {found!r}")
                if (found is None) != (complaint is None) or (complaint and complaint not in found):
                    bad.append(f"{check.__name__} of {mistake!r}, expecting {expect!r}: wanted {complaint!r}, got {found!r}")
    return "\n".join(bad) or None


def main(argv):
    if "--" not in argv:
        sys.exit(__doc__)
    split = argv.index("--")
    args, compiler = argv[:split], argv[split + 1:]
    if args == ["--self-test"]:
        wrong = self_test(compiler)
    elif len(args) >= 2 and args[0] == "--baselines":
        wrong = baselines(compiler, args[1:])
    elif len(args) == 2 and args[0] == "--rejects":
        wrong = rejects(compiler, args[1])
    else:
        sys.exit(__doc__)
    if wrong:
        sys.exit(wrong)


if __name__ == "__main__":
    main(sys.argv[1:])
