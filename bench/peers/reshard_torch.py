#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DTensor.redistribute beside this library on the same tensors: bits, and seconds.

    reshard_torch.py LIBRARY [--cases N]        LIBRARY: libreshard_dlpack.so, built with the tests

The cases: each distribution of tests/algebra/data/dtensor_boxes.txt on at most eight ranks, to another one of its mesh,
drawn at random (the seed is printed); replicated axes become sums in one case of three. DTensor runs on as many processes
(gloo), this library on threads of one process; it reads and writes torch's memory by DLPack. Numbers are whole, so a sum
has one value in any order. Exit status 1: bits differ.
"""
import argparse
import datetime
import logging
import math
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard, distribute_tensor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SEED = 20261124
RANKS = 8
TIMED = [("(4):(S0)", "(4):(S1)"), ("(4):(S0)", "(4):(R)"), ("(4):(P+)", "(4):(S0)"), ("(2,2):(R,S0)", "(2,2):(S1,R)")]
LINE = re.compile(r"\(([\d,]+)\):\(([RS\d,]+)\) \[([\d,]+)\]")


def numbers(text):
    return tuple(map(int, text.split(",")))


def cases(limit):
    draw = random.Random(SEED)
    found = []
    for line in (ROOT / "tests/algebra/data/dtensor_boxes.txt").read_text(encoding="utf-8").splitlines():
        match = LINE.match(line)  # not those with an order of axes: DTensor does not redistribute _StridedShard
        if not match or math.prod(numbers(match[1])) > RANKS:
            continue
        mesh, source, shape = numbers(match[1]), match[2].split(","), numbers(match[3])
        if draw.random() < 1 / 3:
            source = ["P+" if word == "R" else word for word in source]
        target = ["R" if draw.random() < 0.3 else f"S{draw.randrange(len(shape))}" for _ in mesh]
        found.append((mesh, source, target, shape))
    return found[:limit]


def theirs(word):
    return {"R": Replicate(), "P+": Partial()}.get(word) or Shard(int(word[1:]))


def dtensor(mesh, source, shape):
    """The tensor as placed by `source`; ranks hold different addends where it is a sum."""
    full = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) % 1021
    strides = full.stride()
    local = distribute_tensor(full, mesh, [Replicate() if word == "P+" else theirs(word) for word in source],
                              src_data_rank=None).to_local().contiguous()
    for axis, word in enumerate(source):
        if word == "P+":
            local = local * (mesh.get_coordinate()[axis] + 1)
    return DTensor.from_local(local, mesh, [theirs(word) for word in source], run_check=False, shape=full.shape, stride=strides)


def words_of(text):
    mesh, placements = re.fullmatch(r"\(([\d,]+)\):\((.+)\)", text).groups()
    return numbers(mesh), placements.split(",")


def work(rank, limit, side, repeat, folder):
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # advice on faster meshes, once per case
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS,
                                         timeout=datetime.timedelta(seconds=120))
    meshes = {}

    def mesh_of(extents):  # by all ranks, members or not
        if extents not in meshes:
            meshes[extents] = DeviceMesh("cpu", torch.arange(math.prod(extents)).reshape(extents))
        return meshes[extents]

    done, seconds = [], []
    for extents, source, target, shape in cases(limit):
        mesh = mesh_of(extents)
        if rank < math.prod(extents):
            before = dtensor(mesh, source, shape)
            after = before.redistribute(placements=[theirs(word) for word in target])
            done.append((before.to_local().clone(), after.to_local().clone()))
        else:
            done.append(None)
    for source, target in TIMED:
        mesh = mesh_of(words_of(source)[0])
        if rank < 4:
            before = dtensor(mesh, words_of(source)[1], (side, side))
            took = []
            for _ in range(repeat):
                for axis in range(mesh.ndim):
                    torch.distributed.barrier(mesh.get_group(axis))
                begin = time.perf_counter()
                after = before.redistribute(placements=[theirs(word) for word in words_of(target)[1]])
                after.to_local()  # waits for what is asynchronous
                took.append(time.perf_counter() - begin)
            seconds.append((before.to_local(), after.to_local().contiguous(), sorted(took)[repeat // 2]))
    torch.save((done, seconds), f"{folder}/{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def bits(tensor):
    return tensor.flatten().contiguous().view(torch.int32)


def run(library, extents, source, target, shape, parts):
    """Ours, into fresh memory: whether the bits are DTensor's, and the seconds."""
    before = [part[0].contiguous() for part in parts]
    after = [torch.full_like(part[1], -1, memory_format=torch.contiguous_format) for part in parts]
    mesh = ",".join(map(str, extents))
    seconds = library.redistribute(f"({mesh}):({','.join(source)})", f"({mesh}):({','.join(target)})", shape, before, after)
    same = all(mine.shape == part[1].shape and bits(mine).equal(bits(part[1]))
               for mine, part in zip(after, parts))
    return same, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared_library")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--side", type=int, default=4096, help="rows and columns of the float32 matrix that is timed")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests/interop"))
    from reshard_dlpack import Library
    library = Library(os.path.abspath(args.shared_library))

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (args.cases, args.side, args.repeat, folder), nprocs=RANKS)
        results = [torch.load(f"{folder}/{rank}") for rank in range(RANKS)]

    listed = cases(args.cases)
    different = 0
    for i, (extents, source, target, shape) in enumerate(listed):
        parts = [results[rank][0][i] for rank in range(math.prod(extents))]
        if not run(library, extents, source, target, shape, parts)[0]:
            different += 1
            print(f"differs: {extents} {source} -> {target} {shape}")
    sums = sum("P+" in source for _, source, _, _ in listed)
    print(f"torch {torch.__version__}, seed {SEED}: {len(listed)} cases, {sums} with sums, {different} differ")
    for i, (source, target) in enumerate(TIMED):
        extents, words = words_of(source)
        parts = [results[rank][1][i] for rank in range(4)]
        runs = [run(library, extents, words, words_of(target)[1], (args.side, args.side), parts) for _ in range(args.repeat)]
        different += not all(same for same, _ in runs)
        mine, peer = sorted(seconds for _, seconds in runs)[args.repeat // 2], max(part[2] for part in parts)
        print(f"{source} -> {target}: {mine * 1e3:.1f} ms, DTensor {peer * 1e3:.1f} ms, {peer / mine:.1f} times")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
