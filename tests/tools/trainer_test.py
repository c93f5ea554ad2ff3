#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reshard_trainer promises, from outside: curves compared byte for byte, files opened, mistakes made.

    trainer_test.py TRAINER [LAUNCHER OPTION...]

Without a launcher ranks are threads; with one they are processes, and what does not depend on that is left out.
"""
import json
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

TRAINER, LAUNCHER = sys.argv[1], sys.argv[2:]
STEPS = 12
FIXED = ["--sums", "fixed", "--seed", "7"]


def command(ranks, *options):
    if LAUNCHER:
        return [*LAUNCHER, "-n", str(ranks), TRAINER, "--quiet", *options]
    return [TRAINER, "--quiet", "--ranks", str(ranks), *options]


def train(folder, ranks, *options):
    """The losses, line by line; and what it said."""
    done = subprocess.run(command(ranks, "--curve", "curve", *options), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (options, done.stdout, done.stderr)
    return (folder / "curve.csv").read_text().splitlines()[1:], done.stdout


def check_placements(folder, whole):
    modes = [
        (2, []),
        (3, ["--place", "(3):(S1)"]),
        (4, ["--weights", "S0"]),
        (4, ["--place", "(2,2):(R,S0),(R,S1)", "--weights", "S0,S0", "--activations", "S0,S1"]),
    ]
    if not LAUNCHER:
        modes += [
            (3, ["--optimizer", "S0"]),
            (4, ["--place", "(4):(S0),(S1)"]),
            (4, ["--place", "(2,2):(S0,S1),(S1,R)", "--activations", "S1,S0"]),
            (4, ["--place", "(2,2):(R,R)", "--weights", "S0,R", "--optimizer", "S0,S0"]),
            (4, ["--place", "(4):(S0:cyc3)"]),
        ]
    for ranks, options in modes:
        curve, _ = train(folder, ranks, *FIXED, "--steps", str(STEPS), *options)
        assert curve == whole, options
    # The comparison can fail: sums of floats do depend on who adds them up.
    one, two = (train(folder, ranks, "--steps", str(STEPS), "--place", f"({ranks}):(S1)")[0] for ranks in (1, 4))
    assert one != two


def check_world_sizes(folder, whole):
    third = STEPS // 3
    save = [*FIXED, "--save", "saved"]
    curve, _ = train(folder, 2, *save, "--steps", str(third))
    more, said = train(folder, 4, *save, "--resume", "saved", "--steps", str(2 * third), "--place", "(2,2):(R,S0)",
                       "--weights", "S0,S1", "--dedup", "shared")
    assert f"went on from step {third}" in said
    last, _ = train(folder, 3, *save, "--resume", "saved", "--steps", str(STEPS), "--strategy", "every-rank", "--full", "full")
    assert curve + more + last == whole


def check_full_files(folder):
    file = folder / "full" / "model.safetensors"
    data = file.read_bytes()
    names = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert names["layer.0.weight"]["shape"] == [32, 24] and names["layer.0.weight"]["dtype"] == "F32"
    try:
        from safetensors.numpy import load_file
    except ImportError:
        print("skipped: the official package is not there")
        return
    tensors = load_file(file)
    assert tensors["layer.0.weight"].shape == (32, 24)
    assert list(tensors["trainer.progress"]) == [STEPS, STEPS * 48]


def check_loads(folder):
    """The same weights by windows and by a scatter of what all have: the same losses, and not those of other weights."""
    ways = ["windows", "redundant-scatter"] if LAUNCHER else ["windows", "every-rank", "cooperative", "scatter", "broadcast", "redundant-scatter"]
    for mode in (["--activations", "S0"], ["--place", "(2,2):(R,S0),(R,S1)", "--activations", "S0,S1"]):
        curves = [train(folder, 4, "--seed", "7", "--resume", "full", "--steps", str(STEPS + 5), "--strategy", way, *mode)[0]
                  for way in ways]
        assert len(curves[0]) == 5 and all(curve == curves[0] for curve in curves), mode


def check_crashes(folder):
    """Killed again and again while it saves after every step, it goes on from the last save, which is whole."""
    random.seed(1)
    whole = train(folder, 2, *FIXED, "--steps", "400")[0]
    resume = []
    for _ in range(6):
        running = subprocess.Popen(command(2, *FIXED, "--steps", "400", "--save", "killed", "--save-every", "1", *resume),
                                   cwd=folder, stdout=subprocess.PIPE, text=True)
        for line in running.stdout:  # to the first save of this run
            if line.startswith("saved"):
                break
        time.sleep(random.uniform(0, 0.05))
        running.send_signal(signal.SIGKILL)
        said = line + running.communicate()[0]
        assert running.returncode == -signal.SIGKILL, "it ended before it was killed"
        resume = ["--resume", "killed"]
    last = max(int(one.split()[2].rstrip(":")) for one in said.splitlines() if one.startswith("saved"))
    curve, said = train(folder, 2, *FIXED, "--steps", "400", *resume)
    first = int(said.split("went on from step ")[1].split()[0])
    assert first in (last, last + 1), (first, last)
    assert curve == whole[first:]


def check_reports(folder):
    _, said = train(folder, 4, "--steps", "3", "--explain", "--weights", "S0", "--trace", "trace.json", "--compare-sums")
    assert "(4):(S0) -> (R)" in said and "(4):(P+) -> (S0)" in said and "bytes a step" in said
    assert "fixed sums take" in said and "hidden behind computing" in said
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3} and any(event["name"] == "step 3" for event in events)
    assert (folder / "curve.svg").read_text().startswith("<svg")


def check_mistakes(folder):
    (folder / "short.csv").write_text("1,11,12\n0,13,14\n")
    (folder / "odd.csv").write_text("1,11,12\n0,13\n")
    (folder / "empty.csv").write_text("")
    for options, words in [
        (["--place", "nonsense"], "expected '('"),
        (["--place", "(4):(S2)"], "has no dimension 2"),
        (["--place", "(4):(P+)"], "nothing can be multiplied with. Fix: R, S0 or S1"),
        (["--place", "(2,2):(S0)"], "1 placements for a mesh of 2 axes"),
        (["--place", "(2):(R)"], "the mesh has 2 ranks from rank 0, but 4 take part"),
        (["--activations", "R"], "axis 0 copies activations"),
        (["--weights", "S0", "--optimizer", "R"], "Fix: cut what --weights leaves whole"),
        (["--resume", "full", "--hidden", "64,16", "--steps", "30"], "'layer.0.weight': the checkpoint has shape [32,24]"),
        (["--resume", "nowhere"], "nowhere: cannot open"),
        (["--data", "short.csv"], "the data ends after 2 samples"),
        (["--data", "empty.csv"], "has no samples"),
        (["--data", "odd.csv"], "line 2: has 1 ids, the first has 2"),
        (["--rate", "1e9"], "the loss is not a number any more"),
        (["--rate", "1e9", *FIXED], "the loss is not a number any more"),
        (["--slots", "9"], "--slots 9: rank 3 of 4 would have 0"),
        (["--broken-seeds"], "3 of 19 tensors with replicas differ"),
    ]:
        done = subprocess.run(command(4, *options, "--save", "never"), cwd=folder, capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr and "Fix: " in done.stderr, (options, done.stderr)
        assert not (folder / "never").exists(), options
    assert subprocess.run(command(4, "--sums", "odd"), cwd=folder, capture_output=True).returncode > 100


with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    curve_of_one = train(here, 1, *FIXED, "--steps", str(STEPS))[0]
    assert len(curve_of_one) == STEPS and float(curve_of_one[-1].split(",")[1]) < 0.7
    check_placements(here, curve_of_one)
    check_world_sizes(here, curve_of_one)
    check_full_files(here)
    check_loads(here)
    if not LAUNCHER:
        check_crashes(here)
        check_reports(here)
        check_mistakes(here)
print("all as promised")
