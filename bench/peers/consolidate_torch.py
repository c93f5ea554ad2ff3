#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's consolidate_safetensors_files_on_every_rank on CPUs, gloo, one process a rank, beside ours: the same eight
shards of 2 GB become one full file, and eight.

The shards are made by bench/consolidating.cpp, in the form of PyTorch's own. Files are not synced, on neither side.

    consolidate_torch.py --beside PROGRAM     in turn with build/release/bench/reshard_consolidating; prints the goals
                                              consolidate_vs_torch and consolidate_vs_torch_8
"""
import argparse
import os
import shutil
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files_on_every_rank

from beside import Processes, Program

GOALS = {"one": ("consolidate_vs_torch", 5.0), "eight": ("consolidate_vs_torch_8", 2.5)}


def serve(rank, ranks, meeting, connection):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    connection.send("ready")
    while request := connection.recv():
        source, destination, files = request
        dist.barrier()
        start = time.perf_counter()
        consolidate_safetensors_files_on_every_rank(source, destination, files)
        dist.barrier()
        connection.send(time.perf_counter() - start)
    dist.destroy_process_group()


class Ranks:
    def __init__(self, count, parent):
        self.parent = parent
        self.processes = Processes(serve, count)

    def run(self, source, files):
        folder = tempfile.mkdtemp(prefix="consolidate_torch_", dir=self.parent)
        seconds = max(self.processes.ask((source, folder, files)))
        written = sum(os.path.getsize(os.path.join(folder, leaf)) for leaf in os.listdir(folder))
        shutil.rmtree(folder)
        return seconds, written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs that count (%(default)s)")
    parser.add_argument("--dir", default="/dev/shm", help="where the files go (%(default)s)")
    parser.add_argument("--beside", metavar="PROGRAM", required=True, help="reshard_consolidating, to run in turn")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats of at least 1")
    program = Program(options.beside, options.dir)
    shards = program.answer()
    ranks = Ranks(4, options.dir)
    source = shards["folder"]
    mappings = {"one": {name: 1 for name in shards["files"]}, "eight": shards["files"]}
    results = {word: [] for word in GOALS}
    right = True
    for repeat in range(options.repeats + 1):  # the first round warms up; who goes first changes
        for word in GOALS:
            order = ["torch", "reshard"] if repeat % 2 else ["reshard", "torch"]
            seconds = {}
            for side in order:
                if side == "torch":
                    seconds[side], written = ranks.run(source, mappings[word])
                    right = right and written > 1e9 * shards["gigabytes"]
                else:
                    answer = program.run(word)
                    seconds[side] = answer["seconds"]
                    right = right and answer["right"]
            if repeat:
                results[word].append((seconds["torch"], seconds["reshard"]))
    ranks.processes.stop()
    program.stop()
    print(f"  {shards['gigabytes']:.2f} GB in 8 shards, 4 ranks, in {options.dir}; torch {torch.__version__}, "
          "no sync on either side:")
    lines = []
    for word, pairs in results.items():
        name, target = GOALS[word]
        ratio = statistics.median(t / o for t, o in pairs)
        files = len(set(mappings[word].values()))
        print(f"  {files} full file{'s' if files > 1 else ''}: torch {statistics.median(t for t, _ in pairs):.2f} s, "
              f"reshard {statistics.median(o for _, o in pairs):.2f} s, {ratio:.1f} x{'' if right else '  WRONG RESULT'}")
        value = ratio if right else 0
        lines.append(f"goal {name} {value:.3g} {target:g} {'ok' if value >= target else 'short'}")
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
