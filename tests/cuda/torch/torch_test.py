#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors on one GPU, redistributed by ranks that are threads, beside PyTorch's own chunk, cat and sum.

    torch_test.py LIBRARY [cpu]     of torch_library.cu; with `cpu` that of tests/interop, and tensors of the host

All values are compared exactly; the last line but one has times of S0 -> S1. Exit status 77: no PyTorch, or it sees no
GPU.
"""
import itertools
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interop"))
from refused import refused  # noqa: E402
from reshard_dlpack import Library  # noqa: E402

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
DEVICE = sys.argv[2] if len(sys.argv) == 3 else "cuda"
try:
    import torch
except ImportError:
    print("skipped: no PyTorch in this Python")
    sys.exit(77)
if DEVICE == "cuda" and not torch.cuda.is_available():
    print(f"skipped: No GPU here that PyTorch {torch.__version__} sees")
    sys.exit(77)

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int64, torch.int32, torch.uint8]


def wait():
    """The library's streams wait for none of PyTorch's."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def values(shape, dtype, most=None):
    """Any values; or whole numbers from 0 to `most`, whose sums are exact in every type."""
    if most is not None:
        return torch.randint(0, most + 1, shape, device=DEVICE).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, device=DEVICE, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, device=DEVICE).to(dtype)
    bits = {torch.int64: 62, torch.int32: 30, torch.uint8: 8}[dtype]
    return torch.randint(0, 1 << bits, shape, device=DEVICE).to(dtype)


# ---- What each rank should have, by PyTorch ----------------------------------------------------------------------


def cut(whole, placement, parts, part):
    """`S0`: torch.chunk, `S0:cyc2`: blocks of two rows dealt in turn, `R` and `P+`: all of it."""
    if not placement.startswith("S"):
        return whole
    dim, _, block = placement[1:].partition(":cyc")
    dim = int(dim)
    if block:
        held = [i for i in range(whole.shape[dim]) if i // int(block) % parts == part]
        return whole.index_select(dim, torch.tensor(held, dtype=torch.int64, device=whole.device))
    pieces = torch.chunk(whole, parts, dim)
    return pieces[part] if part < len(pieces) else whole.narrow(dim, whole.shape[dim], 0)


def part_of(whole, mesh, placements, place):
    for axis, placement in enumerate(placements):
        whole = cut(whole, placement, mesh[axis], place[axis])
    return whole


def places(mesh):
    return list(itertools.product(*(range(extent) for extent in mesh)))


def text(mesh, placements):
    return f"({','.join(map(str, mesh))}):({','.join(placements)})"


# ---- Where tensors lie -------------------------------------------------------------------------------------------

# How a matrix lies in a larger tensor: the room that it takes, and the view of it.
LAYOUTS = {
    "dense": (lambda rows, columns: (rows, columns), lambda room: room),
    "every second row and column": (lambda rows, columns: (2 * rows + 1, 2 * columns + 1),
                                    lambda room: room[1::2, 1::2]),
    "part of wider rows": (lambda rows, columns: (rows + 2, columns + 5), lambda room: room[1:-1, 3:-2]),
    "columns first": (lambda rows, columns: (columns + 3, rows), lambda room: room[3:].t()),
}


class Placed:
    """A tensor in a room of one value, which nobody else may change."""

    def __init__(self, shape, dtype, layout):
        size, self._view = LAYOUTS[layout]
        self._room = torch.full(size(*shape), 1, dtype=dtype, device=DEVICE)
        self.tensor = self._view(self._room)
        assert self.tensor.shape == shape, (self.tensor.shape, shape, layout)

    def holds(self, expected):
        room = torch.full_like(self._room, 1)
        self._view(room).copy_(expected)
        return torch.equal(self._room, room)


moves = 0


def check(library, mesh, source, target, parts, expected, layouts):
    """Redistributes a list of parts, one for each rank, and compares with what is expected."""
    global moves
    what = (f"{text(mesh, source)} -> {text(mesh, target)} of {tuple(check.shape)}, {parts[0].dtype} -> "
            f"{expected[0].dtype}, {layouts[0]} -> {layouts[1]}")
    sources = [Placed(part.shape, part.dtype, layouts[0]) for part in parts]
    for placed, part in zip(sources, parts):
        placed.tensor.copy_(part)
    targets = [Placed(part.shape, part.dtype, layouts[1]) for part in expected]
    wait()
    try:
        library.redistribute(text(mesh, source), text(mesh, target), check.shape, [placed.tensor for placed in sources],
                             [placed.tensor for placed in targets])
    except ValueError as error:
        raise AssertionError(f"{what}: {error}") from None
    for rank, (placed, part) in enumerate(zip(targets, expected)):
        assert placed.holds(part), f"{what}: rank {rank} has other values, or values beside its tensor were changed"
    for rank, (placed, part) in enumerate(zip(sources, parts)):
        assert placed.holds(part), f"{what}: the source of rank {rank} was changed"
    moves += 1


# ---- Moves -------------------------------------------------------------------------------------------------------

WHOLE = [  # of all values
    ((4,), ["S0"], ["S1"]),
    ((4,), ["S0"], ["R"]),
    ((4,), ["R"], ["S1"]),
    ((4,), ["S0:cyc2"], ["S1"]),
    ((4,), ["S1"], ["S0:cyc3"]),
    ((2, 2), ["S0", "S1"], ["S1", "S0"]),
    ((2, 2), ["S0", "R"], ["R", "S1"]),
    ((2, 2), ["R", "S0:cyc2"], ["S0", "S1"]),
]
OWED = [  # of sums
    ((4,), ["P+"], ["R"]),
    ((4,), ["P+"], ["S0"]),
    ((4,), ["P+"], ["S1"]),
    ((2, 2), ["P+", "S0"], ["R", "S0"]),
    ((2, 2), ["S1", "P+"], ["S1", "S0"]),
    ((2, 2), ["P+", "P+"], ["S0", "R"]),
]


def move_whole(library, mesh, source, target, shape, dtype, to=None, layouts=("dense", "dense")):
    check.shape = shape
    whole = values(shape, dtype)
    cast = whole if to is None else whole.to(to)
    check(library, mesh, source, target, [part_of(whole, mesh, source, place) for place in places(mesh)],
          [part_of(cast, mesh, target, place) for place in places(mesh)], layouts)


def move_owed(library, mesh, source, target, shape, dtype, to=None, layouts=("dense", "dense")):
    check.shape = shape
    owed = [axis for axis, placement in enumerate(source) if placement == "P+"]
    addends = {}
    for place in places(mesh):
        addends.setdefault(tuple(place[axis] for axis in owed), values(shape, dtype, 7))
    total = torch.stack([addend.to(torch.float64) for addend in addends.values()]).sum(0).to(to or dtype)
    parts = [part_of(addends[tuple(place[axis] for axis in owed)], mesh, source, place) for place in places(mesh)]
    check(library, mesh, source, target, parts, [part_of(total, mesh, target, place) for place in places(mesh)],
          layouts)


def every_type(library):
    for dtype in FLOATS + INTEGERS + [torch.bool]:
        for mesh, source, target in WHOLE:
            for shape in ((12, 20), (13, 22), (300, 516)):
                move_whole(library, mesh, source, target, shape, dtype)
        if dtype == torch.bool:  # has no sum
            continue
        for mesh, source, target in OWED:
            for shape in ((12, 20), (13, 22), (300, 516)):
                move_owed(library, mesh, source, target, shape, dtype)


def every_layout(library):
    for layouts in itertools.product(LAYOUTS, LAYOUTS):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
            for mesh, source, target in WHOLE:
                move_whole(library, mesh, source, target, (26, 44), dtype, layouts=layouts)
        for dtype in (torch.float32, torch.bfloat16, torch.int32):
            for mesh, source, target in OWED:
                move_owed(library, mesh, source, target, (26, 44), dtype, layouts=layouts)


def casts(library):
    pairs = [(torch.float32, torch.bfloat16), (torch.float32, torch.float16), (torch.bfloat16, torch.float32),
             (torch.float64, torch.float32), (torch.float16, torch.float64)]
    for dtype, to in pairs:
        for layouts in (("dense", "dense"), ("columns first", "every second row and column")):
            for mesh, source, target in WHOLE:
                move_whole(library, mesh, source, target, (52, 84), dtype, to, layouts)
            for mesh, source, target in OWED:
                move_owed(library, mesh, source, target, (52, 84), dtype, to, layouts)


def other_ranks(library):
    """Ranks that have no part on one side hand over no tensor there."""
    whole = values((12, 20), torch.bfloat16)
    columns = [torch.zeros(12, 5, dtype=torch.bfloat16, device=DEVICE) for _ in range(4)]
    rows = [torch.zeros(6, 20, dtype=torch.bfloat16, device=DEVICE) for _ in range(2)]
    wait()
    library.redistribute("(2):(S0)", "(4):(S1)", (12, 20), list(torch.chunk(whole, 2)), columns)
    assert torch.equal(torch.cat(columns, 1), whole)
    library.redistribute("(4):(S1)", "(2):(S0)", (12, 20), columns, rows)
    assert torch.equal(torch.cat(rows), whole)


def refusals(library):
    whole = values((12, 20), torch.float32)
    rows = list(torch.chunk(whole, 4))
    columns = [torch.zeros(12, 5, device=DEVICE) for _ in range(4)]
    wait()

    def move(sources, targets):
        return lambda: library.redistribute("(4):(S0)", "(4):(S1)", (12, 20), sources, targets)

    refused(move(rows, columns[:3] + [torch.zeros(12, 6, device=DEVICE)]), "shape")
    refused(move([rows[0][:2]] + rows[1:], columns), "shape")
    refused(move(rows, [columns[0].to(torch.complex64)] + columns[1:]), "C64")
    if DEVICE == "cuda":
        refused(move(rows[:2] + [rows[2].cpu()] + rows[3:], columns), "lies on device (1, 0)")
        refused(move(rows, columns[:1] + [columns[1].cpu()] + columns[2:]), "lies on device (1, 0)")
        flags = [torch.ones(12, 20, dtype=torch.bool, device=DEVICE) for _ in range(4)]
        wait()
        refused(lambda: library.redistribute("(4):(P+)", "(4):(R)", (12, 20), flags, flags), "BOOL")
    move(rows, columns)()  # a move that was refused leaves nothing behind
    assert torch.equal(torch.cat(columns, 1), whole)


def handed_over(library):
    """A tensor that the library made, and lets go of when PyTorch does."""
    tensor = torch.from_dlpack(library.count(3, 4))
    assert tensor.device.type == DEVICE and tensor.dtype == torch.float32, tensor
    assert tensor.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], tensor


def times(library, size=8192, rounds=9):
    """S0 -> S1 on four ranks, beside what PyTorch does of it where one program has all the parts."""
    whole = values((size, size), torch.float32)
    rows = [part.contiguous() for part in torch.chunk(whole, 4)]
    columns = [torch.empty(size, size // 4, device=DEVICE) for _ in range(4)]
    wait()
    ours = [library.redistribute("(4):(S0)", "(4):(S1)", (size, size), rows, columns) for _ in range(rounds)]
    assert torch.equal(torch.cat(columns, 1), whole), "S0 -> S1 of a large matrix has other values"
    theirs = []
    for _ in range(rounds):
        wait()
        begin = time.perf_counter()
        made = [part.contiguous() for part in torch.cat(rows).chunk(4, 1)]
        wait()
        theirs.append(time.perf_counter() - begin)
    assert all(torch.equal(part, other) for part, other in zip(made, columns))
    print(f"S0 -> S1 of {size} x {size} float32, 4 ranks as threads of one device, medians of {rounds}: "
          f"{1000 * statistics.median(ours):.3f} ms; torch.cat, chunk(4, 1) and contiguous() "
          f"{1000 * statistics.median(theirs):.3f} ms")


def main():
    device = torch.cuda.get_device_name(0) if DEVICE == "cuda" else "the host"
    print(f"PyTorch {torch.__version__}, {device}")
    torch.manual_seed(20260101)
    library = Library(sys.argv[1], (2, 0) if DEVICE == "cuda" else (1, 0))
    handed_over(library)
    print("a tensor of the library is PyTorch's: passed", flush=True)
    steps = [("element types", every_type), ("layouts", every_layout)]
    if DEVICE == "cuda":  # the library of the host casts nothing
        steps.append(("casts", casts))
    for name, step in steps:
        before, begin = moves, time.perf_counter()
        step(library)
        print(f"{name}: {moves - before} moves passed, {time.perf_counter() - begin:.1f} s", flush=True)
    other_ranks(library)
    refusals(library)
    print("other ranks, refusals: passed", flush=True)
    times(library, *(() if DEVICE == "cuda" else (1024, 3)))
    print(f"PyTorch's tensors: passed, {moves} moves")


main()
