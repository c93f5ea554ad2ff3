#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chain of PyTorch operations that carries MCH state to other ranks, on one GPU, beside this library's times.

The chain is that of _redistribute_mch_state in TorchEasyRec (github.com/alibaba/TorchEasyRec, pull request 467) without
its collectives: mask, boolean index per column, floor-divide, stable argsort, gather per column, bincount.

Without PyTorch scripts/gpu-test compares with the same chain made of CUB calls (cub_chain.cuh) instead.

    torch_chain.py FILE [ENTRIES]     FILE holds the output of reshard_device_bench; default 100,000,000 entries
"""
import re
import statistics
import sys

GOAL, TARGET = "gpu_partition_vs_torch", 6.0


def skip(why):
    print(f"  {why}")
    print(f"goal {GOAL} - - skipped")
    sys.exit(0)


def median_ms(torch, body, rounds=5):
    times = []
    for round_ in range(-1, rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        body()
        end.record()
        end.synchronize()
        if round_ >= 0:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        ours = {name: float(ms) for name, ms in re.findall(r"^measured (\w+) ([\d.]+)$", file.read(), re.MULTILINE)}
    entries = int(sys.argv[2]) if len(sys.argv) == 3 else 100_000_000
    try:
        import torch
    except ImportError:
        skip("PyTorch is not installed: nothing to compare with")
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU: nothing to compare with")
    empty = torch.iinfo(torch.int64).max
    world, device = 8, "cuda"
    block = -(-entries // world)
    numbers = torch.arange(entries, device=device)
    ids = torch.randint(-(1 << 62), 1 << 62, (entries,), device=device)
    slots = numbers * 61803399 % entries
    columns = [ids, slots, numbers.clone(), -numbers]

    def partition():
        valid = columns[0] != empty
        live = [column[valid] for column in columns]
        to = torch.clamp(live[1] // block, 0, world - 1)
        order = torch.argsort(to, stable=True)
        moved = [column[order] for column in live]
        return moved, torch.bincount(to[order], minlength=world).tolist()

    theirs = median_ms(torch, partition)
    if "partition" not in ours:
        skip("nothing was measured")
    ratio = theirs / ours["partition"]
    print(f"  partition: {ours['partition']:.3f} ms, PyTorch {torch.__version__} {theirs:.3f} ms")
    print(f"goal {GOAL} {ratio:.3g} {TARGET:g} {'ok' if ratio >= TARGET else 'short'}")


if __name__ == "__main__":
    main()
