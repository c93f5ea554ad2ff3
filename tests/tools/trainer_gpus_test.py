#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reshard_trainer --gpus has the losses of threads, to the last bit, and their files.

    trainer_gpus_test.py TRAINER [--real]

With --real on the GPUs that nvidia-smi lists, else on the 8 of the double that the program is linked with. Status 77
where there is none.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

MODES = [
    (1, []),
    (3, ["--weights", "S0"]),
    (4, ["--place", "(2,2):(R,S0),(R,S1)", "--weights", "S0,S0", "--optimizer", "S0,S0"]),
    (4, ["--place", "(4):(S1)", "--sums", "fixed"]),
    (8, ["--place", "(4,2):(R,S1),(S0,R)", "--activations", "S0,S1"]),
]


def train(folder, ranks, *options):
    done = subprocess.run([sys.argv[1], "--quiet", "--ranks", str(ranks), "--curve", "curve", *options], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, (options, done.stdout, done.stderr)
    return (folder / "curve.csv").read_text().splitlines()[1:], done.stdout


def count_gpus():
    if sys.argv[2:] != ["--real"]:
        return 8
    if not shutil.which("nvidia-smi"):
        return 0
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")


def main():
    gpus = count_gpus()
    if gpus == 0:
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ranks, options in MODES:
            if ranks > gpus:
                continue
            (here, _), (there, said) = (train(folder, ranks, "--steps", "4", *options, *way) for way in ([], ["--gpus"]))
            assert here == there and len(here) == 4, (ranks, options, here, there)
            assert f"{ranks} ranks (nccl)" in said, said
        # Saved by GPUs, continued by threads.
        fixed = ["--sums", "fixed", "--save", "saved"]
        first, _ = train(folder, min(gpus, 2), "--steps", "3", *fixed, "--gpus")
        last, _ = train(folder, 3, "--steps", "6", *fixed, "--resume", "saved")
        assert first + last == train(folder, 1, "--steps", "6", "--sums", "fixed")[0]
        # Each rank has a GPU of its own, or no rank begins.
        none = subprocess.run([sys.argv[1], "--ranks", str(gpus + 1), "--gpus"], capture_output=True, text=True)
        assert none.returncode == 1, none
        assert f"rank {gpus} is number {gpus} of its node, which has {gpus} GPUs. Fix:" in none.stderr, none


main()
