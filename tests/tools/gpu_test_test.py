#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-test fails where nothing was built to be run, where a program fails, and where one does not end, under
compute-sanitizer too; not where there is no GPU. Programs and CUDA's tools are stand-ins."""
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "gpu-test"


def run(steps, programs=(), tools=()):
    """Status and output where these (name, status) are all that was built, and all that is found beside the system's."""
    with tempfile.TemporaryDirectory() as folder:
        for place, files in (("build", programs), ("bin", tools)):
            pathlib.Path(folder, place).mkdir()
            for name, status in files:
                file = pathlib.Path(folder, place, name)
                file.write_text(f"#!/bin/sh\nexit {status}\n")
                file.chmod(0o755)
        environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", RESHARD_GPU_STEPS=steps,
                           RESHARD_CUDA_ARCH="sm_90", RESHARD_TORCH_PYTHON="no-such-python")
        done = subprocess.run([str(SCRIPT), f"{folder}/build"], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


SMI = ("nvidia-smi", 1)  # whatever this machine has
for step in ("test", "sanitize", "profile", "bench"):
    status, out = run(step, tools=[SMI])
    check(status == 1 and "FAILED   there are none" in out, out)

status, out = run("test", [("device_ranks", 0), ("device_large", 77)], [SMI])
check(status == 0, out)
for line in ("device_ranks ok", "device_large skipped no GPU", "device_mch skipped not built"):
    check(any(" ".join(each.split()).startswith(line) for each in out.splitlines()), f"{line}: {out}")
check(run("test", [("device_ranks", 9)], [SMI])[0] == 1, "a test that fails")

SANITIZER = ("compute-sanitizer", 0)
check(run("sanitize", [("device_ranks", 0)], [SMI, SANITIZER])[0] == 0, "nothing is found")
status, out = run("sanitize", [("device_ranks", 0)], [SMI, SANITIZER, ("timeout", 124)])
check(status == 1 and out.count("FAILED   took more than") == 2, out)
print("gpu-test: all well")
