#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoint (torch.distributed.checkpoint) on CPUs, gloo, one process a rank: a model that is
cut along dimension 0 is saved, and loaded cut along dimension 1.

The model is that of bench/saving.cpp: Qwen2.5-0.5B with elements of four bytes, 1.98 GB. Files are not synced, on
neither side. Each rank has one thread, and its elements say where they belong: what is loaded is looked at.

    dcp_torch.py                              a line of JSON: seconds of a save and of a load
    dcp_torch.py --beside PROGRAM             in turn with build/release/bench/reshard_saving; prints the goals
                                              save_vs_dcp and load_vs_dcp
"""
import argparse
import json
import os
import shutil
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from beside import Processes, Program

TARGETS = {"save": 2.0, "load": 3.0}


# ---- The model -------------------------------------------------------------------------------------------------------


def model_list():
    """As demo::model_list() of examples/support/model_lists.hpp has it."""
    hidden, intermediate, queries, keys, vocabulary = 896, 4864, 14 * 64, 2 * 64, 151936
    tensors = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(24):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = (hidden,)
        for which, rows in (("q", queries), ("k", keys), ("v", keys)):
            tensors[prefix + f"self_attn.{which}_proj.weight"] = (rows, hidden)
            tensors[prefix + f"self_attn.{which}_proj.bias"] = (rows,)
        tensors[prefix + "self_attn.o_proj.weight"] = (hidden, queries)
        tensors[prefix + "post_attention_layernorm.weight"] = (hidden,)
        tensors[prefix + "mlp.gate_proj.weight"] = (intermediate, hidden)
        tensors[prefix + "mlp.up_proj.weight"] = (intermediate, hidden)
        tensors[prefix + "mlp.down_proj.weight"] = (hidden, intermediate)
    tensors["model.norm.weight"] = (hidden,)
    return tensors


def marked(number, shape, dim, rank, ranks):
    """This rank's part: elements that follow from their place in the whole tensor."""
    begin = [0] * len(shape)
    size = list(shape)
    size[dim] = shape[dim] // ranks
    begin[dim] = rank * size[dim]
    if len(shape) == 1:
        at = torch.arange(begin[0], begin[0] + size[0])
    else:
        rows = torch.arange(begin[0], begin[0] + size[0])[:, None]
        at = rows * shape[1] + torch.arange(begin[1], begin[1] + size[1])
    return ((at * 2654435761 + number) % 8388593).to(torch.float32)


class Rank:
    def __init__(self, rank, options):
        self.rank, self.ranks = rank, options.ranks
        self.mesh = init_device_mesh("cpu", (options.ranks,))
        self.list = model_list()
        self.rows = self.state(0, True)
        self.columns = self.state(1, False)

    def part_of(self, number, shape, dim):
        return marked(number, shape, dim if len(shape) == 2 else 0, self.rank, self.ranks)

    def state(self, dim, mark):
        state = {}
        for number, (name, shape) in enumerate(self.list.items()):
            local = self.part_of(number, shape, dim)
            if not mark:
                local.fill_(-1.0)
            placement = [Shard(dim if len(shape) == 2 else 0)]
            stride = (shape[1], 1) if len(shape) == 2 else (1,)
            state[name] = DTensor.from_local(local, self.mesh, placement, run_check=False, shape=torch.Size(shape),
                                             stride=stride)
        return state

    def is_right(self):
        for number, (name, shape) in enumerate(self.list.items()):
            if not torch.equal(self.columns[name].to_local(), self.part_of(number, shape, 1)):
                return False
        return True

    def run(self, word, folder):
        dist.barrier()
        start = time.perf_counter()
        if word == "save":
            dcp.save(self.rows, storage_writer=dcp.FileSystemWriter(folder, sync_files=False))
        else:
            dcp.load(self.columns, storage_reader=dcp.FileSystemReader(folder))
        dist.barrier()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "right": word == "save" or self.is_right()}


def serve(rank, ranks, meeting, connection, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    one = Rank(rank, options)
    connection.send("ready")
    while request := connection.recv():
        connection.send(one.run(*request))
    dist.destroy_process_group()


class Ranks:
    def __init__(self, options):
        self.options = options
        self.folder = None
        self.processes = Processes(serve, options.ranks, options)

    def run(self, word):
        if word == "save":  # a fresh folder every time: nothing is freed while the clock runs
            self.clear()
            self.folder = tempfile.mkdtemp(prefix="dcp_torch_", dir=self.options.dir)
        results = self.processes.ask((word, self.folder))
        return {"seconds": max(r["seconds"] for r in results), "right": all(r["right"] for r in results)}

    def clear(self):
        if self.folder:
            shutil.rmtree(self.folder)
        self.folder = None

    def stop(self):
        self.processes.stop()
        self.clear()


# ---- Beside another program ------------------------------------------------------------------------------------------


def side_by_side(ranks, program, options):
    """The first round warms up and does not count; who goes first changes from round to round."""
    results = {word: [] for word in TARGETS}
    right = True
    for repeat in range(options.repeats + 1):
        for word in TARGETS:
            sides = [ranks, program] if repeat % 2 else [program, ranks]
            by = {side: side.run(word) for side in sides}
            right = right and all(one["right"] for one in by.values())
            if repeat:
                results[word].append((by[ranks]["seconds"], by[program]["seconds"]))
    print(f"  1.98 GB on {options.ranks} ranks in {options.dir}; torch {torch.__version__}, no sync on either side:")
    lines = []
    for word, pairs in results.items():
        ratio = statistics.median(t / o for t, o in pairs)
        note = "" if right else "  WRONG RESULT"
        print(f"  {word}: torch {statistics.median(t for t, _ in pairs):.2f} s, "
              f"reshard {statistics.median(o for _, o in pairs):.2f} s, {ratio:.1f} x{note}")
        value = ratio if right else 0
        lines.append(f"goal {word}_vs_dcp {value:.3g} {TARGETS[word]:g} {'ok' if value >= TARGETS[word] else 'short'}")
    print("\n" + "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="must divide the model's extents (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs that count (%(default)s)")
    parser.add_argument("--dir", default="/dev/shm", help="where the files go (%(default)s)")
    parser.add_argument("--beside", metavar="PROGRAM", help="reshard_saving, to run in turn, with 4 ranks")
    options = parser.parse_args()
    if options.repeats < 1 or options.ranks not in (1, 2, 4):
        parser.error("--repeats of at least 1, --ranks of 1, 2 or 4")
    ranks = Ranks(options)
    if options.beside:
        program = Program(options.beside, options.dir)
        side_by_side(ranks, program, options)
        program.stop()
    else:
        for word in TARGETS:
            ranks.run(word)
        print(json.dumps({word: ranks.run(word) for word in TARGETS}))
    ranks.stop()


if __name__ == "__main__":
    main()
