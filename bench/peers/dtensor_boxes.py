#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which part of a tensor PyTorch's DTensor gives to each rank: the lines of tests/algebra/data/dtensor_*.txt.

    dtensor_boxes.py > tests/algebra/data/dtensor_boxes.txt
    dtensor_boxes.py --strided > tests/algebra/data/dtensor_strided.txt

A line is a distribution in this library's notation, its shape, and of each rank OFFSET+SIZE per dimension. The cases
are random (the seed is printed): one to three mesh axes of 1 to 5 ranks, up to three dimensions of 0 to 17 elements,
several axes on one dimension among them. What DTensor writes as (_StridedShard(d, split_factor), Shard(d)) is the axis
order @1,0 here; it is taken where parts are even, which is what _StridedShard is made for.

With --strided: uneven ones, of one dimension. A line is the mesh, the extent, per mesh axis the split_factor (1: Shard,
0: Replicate), and of each rank the runs of what it has, OFFSET+SIZE joined by commas, or "-".
"""
import itertools
import math
import random
import sys

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

SEED = 20261123
LINES = 500
STRIDED_LINES = 120


def case(random_numbers):
    mesh = [random_numbers.randint(1, 5) for _ in range(random_numbers.randint(1, 3))]
    shape = [random_numbers.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17]) for _ in range(random_numbers.randint(1, 3))]
    placements = [None if random_numbers.random() < 0.25 else random_numbers.randrange(len(shape)) for _ in mesh]
    reverse = random_numbers.random() < 0.1
    if reverse:  # of at least two ranks each: else both orders are one, and it is printed without
        mesh = [random_numbers.randint(2, 5) for _ in range(2)]
        placements = [random_numbers.randrange(len(shape))] * 2
        shape[placements[0]] = math.prod(mesh) * random_numbers.randint(1, 3)
    return mesh, shape, placements, reverse


def line(mesh, shape, placements, reverse):
    theirs = [Replicate() if dim is None else Shard(dim) for dim in placements]
    ours = ["R" if dim is None else f"S{dim}" for dim in placements]
    if reverse:
        theirs[0] = _StridedShard(placements[0], split_factor=mesh[1])
    parts = []
    for coordinates in itertools.product(*map(range, mesh)):
        local, offset = _compute_local_shape_and_global_offset(shape, mesh, list(coordinates), theirs)
        parts.append(",".join(f"{begin}+{size}" for begin, size in zip(offset, local)))
    text = ",".join(map(str, mesh)), ",".join(ours), "@1,0" if reverse else "", ",".join(map(str, shape)), " ".join(parts)
    return "({}):({}){} [{}] {}".format(*text)


def strided_case(random_numbers):
    kind = random_numbers.randrange(3)
    if kind == 0:  # one axis
        mesh = [random_numbers.randint(1, 5)]
        factors = [random_numbers.randint(2, 5)]
    elif kind == 1:  # an order of axes, where parts are even
        mesh = [random_numbers.randint(1, 4) for _ in range(random_numbers.randint(2, 3))]
        factors = [math.prod(mesh[axis + 1 :]) for axis in range(len(mesh))]
    else:
        mesh = [random_numbers.randint(1, 4) for _ in range(2)]
        factors = [random_numbers.randint(0, 3) for _ in mesh]
    even = math.prod(mesh) * math.prod(max(1, factor) for factor in factors[:1])
    extent = random_numbers.choice([random_numbers.randint(0, 24), even, factors[0] * random_numbers.randint(1, 6)])
    return mesh, extent, factors


def runs(elements):
    parts = []
    for element in elements:
        if parts and sum(parts[-1]) == element:
            parts[-1][1] += 1
        else:
            parts.append([element, 1])
    return ",".join(f"{begin}+{size}" for begin, size in parts) or "-"


def strided_line(mesh, extent, factors):
    parts = []
    for coordinates in itertools.product(*map(range, mesh)):
        held = torch.arange(extent)
        for size, factor, coordinate in zip(mesh, factors, coordinates):
            if factor == 0:
                continue
            placement = Shard(0) if factor == 1 else _StridedShard(0, split_factor=factor)
            held = placement._split_tensor(held, size, with_padding=False)[0][coordinate]
        parts.append(runs(held.tolist()))
    return f"({','.join(map(str, mesh))}) {extent} {','.join(map(str, factors))} {' '.join(parts)}"


def main():
    strided = sys.argv[1:] == ["--strided"]
    if sys.argv[1:] and not strided:
        sys.exit(__doc__)
    random_numbers = random.Random(SEED)
    print(f"# torch {torch.__version__.split('+')[0]}, seed {SEED}: written by bench/peers/dtensor_boxes.py{' --strided' * strided}")
    seen = set()
    while len(seen) < (STRIDED_LINES if strided else LINES):
        text = strided_line(*strided_case(random_numbers)) if strided else line(*case(random_numbers))
        if text not in seen:
            seen.add(text)
            print(text)


if __name__ == "__main__":
    main()
