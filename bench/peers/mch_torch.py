#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Managed-collision state on another number of ranks, as published: PyTorch on CPUs, gloo, one process a rank.

The algorithm is that of _redistribute_mch_state in TorchEasyRec (github.com/alibaba/TorchEasyRec, pull request 467),
followed by what TorchRec's load_state_dict hook does (torchrec/modules/mc_modules.py, _sort_mch_buffers), in public
torch calls. all_to_all_single, which the original uses on NCCL, runs on gloo as well.

The table is made, not loaded: the closed forms are those of bench/support/mch_change.hpp. Each rank holds what a loader
that slices by position gives it, and has one thread, as the ranks of bench/mch_redistribute.cpp have.

    mch_torch.py                                      a line of JSON: seconds of each phase, of the slowest rank
    mch_torch.py --beside PROGRAM                     in turn with build/release/bench/reshard_mch_redistribute on
                                                      the same table; prints the goal mch_vs_torch

Seconds of a whole run are from the moment all ranks are ready to the moment all are done. With --beside every rank's
ids and metadata, in order, must come out the same from both programs.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist

from beside import Processes, Program

EMPTY = torch.iinfo(torch.int64).max
TARGET = 5.0


# ---- The table -------------------------------------------------------------------------------------------------------


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def shifted(x, bits):
    """Right, without the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x):
    """The finaliser of SplitMix64."""
    x = (x ^ shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shifted(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shifted(x, 31)


def cubing_prime(most):
    for p in range(most, 1, -1):
        if p % 3 == 2 and all(p % d for d in range(2, int(p**0.5) + 1)):
            return p
    return 0


def part_range(slots, parts, part):
    """Of the chunk rule."""
    block = -(-slots // parts)
    return min(block * part, slots), min(block * (part + 1), slots)


def load(slots, saved_ranks, begin, end):
    """Positions [begin, end) of the saved columns: ids, slots, counts, iterations of the last access."""
    columns = [[], [], [], []]
    for part in range(saved_ranks):
        first, last = part_range(slots, saved_ranks, part)
        size = last - first
        if max(begin, first) >= min(end, last):
            continue
        live = min(size * 95 // 100, size - 1)
        prime = cubing_prime(size - 1)
        base = -(-EMPTY // saved_ranks) * part
        gap = EMPTY // saved_ranks // (live + 1)
        position = torch.arange(max(begin, first), min(end, last))
        i = position - first
        noise = mix(position + 1)
        empty = i >= live
        columns[0].append((base + i * gap + shifted(noise, 1) % gap).masked_fill_(empty, EMPTY))
        cubes = i * i % prime * i % prime if prime else i
        columns[1].append(first + torch.where(i < prime, cubes, i))
        columns[2].append(((noise & 1023) + 1).masked_fill_(empty, 0))
        columns[3].append((shifted(noise, 10) & 4095).masked_fill_(empty, 0))
    return [torch.cat(column) for column in columns]


def weighed(column):
    """A sum that depends on the order, modulo 2^64."""
    return int((torch.arange(1, len(column) + 1) * column).sum())


# ---- The algorithm ---------------------------------------------------------------------------------------------------


class Phases:
    """Seconds since the phase before."""

    def __init__(self):
        self.seconds = {}
        self.at = time.perf_counter()

    def end(self, name):
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.at
        self.at = now


def redistribute(raw, remapped, metadata, offset, ranks):
    """In place. Returns seconds by phase."""
    phases = Phases()
    capacity = len(raw)
    valid = raw != EMPTY
    columns = [column[valid] for column in (raw, remapped, *metadata)]
    phases.end("select live entries")

    destination = torch.clamp(columns[1] // capacity, 0, ranks - 1)
    phases.end("destinations")
    order = torch.argsort(destination, stable=True)
    phases.end("sort by destination")
    columns = [column[order] for column in columns]
    phases.end("gathers")

    send_counts = torch.bincount(destination, minlength=ranks)
    receive_counts = torch.empty_like(send_counts)
    dist.all_to_all_single(receive_counts, send_counts)
    sends, receives = send_counts.tolist(), receive_counts.tolist()
    live = int(receive_counts.sum().item())
    assert live <= capacity
    phases.end("counts")

    received = []
    for column in columns:
        into = torch.empty(live, dtype=column.dtype)
        dist.all_to_all_single(into, column, receives, sends)
        received.append(into)
    phases.end("exchange of columns")

    new_raw = torch.full((capacity,), EMPTY, dtype=torch.int64)
    new_raw[:live] = received[0]
    taken = torch.zeros(capacity, dtype=torch.bool)
    taken[received[1] - offset] = True
    free = torch.nonzero(~taken).flatten()[: capacity - live] + offset
    new_remapped = torch.cat([received[1], free])
    raw.copy_(new_raw)
    remapped.copy_(new_remapped)
    for column, values in zip(metadata, received[2:]):
        padded = torch.zeros(capacity, dtype=column.dtype)
        padded[:live] = values
        column.copy_(padded)
    phases.end("rebuild")

    order = torch.argsort(raw, stable=True)  # TorchRec, when the state is loaded
    phases.end("sort by id")
    for column in (raw, remapped, *metadata):
        column.copy_(column[order])
    phases.end("gathers into place")
    return phases.seconds


def serve(rank, ranks, meeting, connection, options):
    """One rank: a run for each `True` that the connection brings."""
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    begin, end = part_range(options.entries, options.ranks, rank)
    loaded = load(options.entries, options.saved, begin, end)
    connection.send("ready")
    while connection.recv():
        raw, remapped, *metadata = [column.clone() for column in loaded]
        dist.barrier()
        start = time.perf_counter()
        phases = redistribute(raw, remapped, metadata, begin, options.ranks)
        dist.barrier()
        seconds = time.perf_counter() - start
        sums = [weighed(column) for column in (raw, *metadata)]
        connection.send({"seconds": seconds, "phases": phases, "sums": sums})
    dist.destroy_process_group()


class Ranks:
    def __init__(self, options):
        self.processes = Processes(serve, options.ranks, options)

    def run(self):
        results = self.processes.ask(True)
        phases = {name: max(r["phases"][name] for r in results) for name in results[0]["phases"]}
        return {
            "seconds": max(r["seconds"] for r in results),
            "phases": phases,
            "sums": [list(column) for column in zip(*(r["sums"] for r in results))],
        }


# ---- Reports ---------------------------------------------------------------------------------------------------------


def median_of(results):
    """Of whole runs and of each phase, to the millisecond."""
    names = results[0]["phases"]
    phases = {name: round(statistics.median(r["phases"][name] for r in results), 3) for name in names}
    return {
        "seconds": round(statistics.median(r["seconds"] for r in results), 3),
        "of which sorts": round(sum(seconds for name, seconds in phases.items() if name.startswith("sort")), 3),
        "phases": phases,
    }


def side_by_side(ranks, program, options):
    """The first round warms up and does not count; who goes first changes from round to round."""
    modes = ["route", "slot_owner"]
    theirs, ours = [], {mode: [] for mode in modes}
    right = True
    for repeat in range(options.repeats + 1):
        if repeat % 2:
            peer = ranks.run()
        mine = {mode: program.run(mode) for mode in modes}
        if repeat % 2 == 0:
            peer = ranks.run()
        same = mine["slot_owner"]
        right = right and peer["sums"] == [same["ids"], same["counts"], same["last_access_iter"]]
        if repeat:
            theirs.append(peer)
            for mode in modes:
                ours[mode].append(mine[mode]["seconds"])
    report = median_of(theirs)
    threads = "a thread each" if options.threads == 1 else f"{options.threads} threads each"
    print(f"  {options.saved} -> {options.ranks} ranks, {options.entries} slots; torch {torch.__version__}, {threads}:")
    print(f"  torch {report['seconds']:.2f} s, of which sorts {report['of which sorts']:.2f} s:", end="")
    print("".join(f" {name} {seconds:.2f}" for name, seconds in report["phases"].items()))
    least = float("inf")
    for mode in modes:
        ratio = statistics.median(t["seconds"] / o for t, o in zip(theirs, ours[mode]))
        least = min(least, ratio)
        note = "" if right else "  NOT THE SAME IDS"
        print(f"  reshard, {mode:10}: {statistics.median(ours[mode]):.2f} s, {ratio:.1f} x{note}")
    least = least if right else 0
    print(f"\ngoal mch_vs_torch {least:.3g} {TARGET:g} {'ok' if least >= TARGET else 'short'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=16_800_000, help="slots of the table (%(default)s)")
    parser.add_argument("--saved", type=int, default=3, help="ranks that saved it (%(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="ranks that load it (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of each rank (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs that count (%(default)s)")
    parser.add_argument("--beside", metavar="PROGRAM", help="reshard_mch_redistribute, to run in turn")
    options = parser.parse_args()
    for name in ("entries", "saved", "ranks", "threads", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: at least 1")
    if options.entries % options.ranks:
        parser.error(f"--entries {options.entries}: a multiple of {options.ranks} ranks; the published algorithm takes "
                     "the slots of its own rank for those of every other")
    ranks = Ranks(options)
    if options.beside:
        program = Program(options.beside, options.entries, options.saved, options.ranks)
        side_by_side(ranks, program, options)
        program.stop()
    else:
        ranks.run()
        report = median_of([ranks.run() for _ in range(options.repeats)])
        print(json.dumps({key: getattr(options, key) for key in ("entries", "saved", "ranks", "threads")} | report))
    ranks.processes.stop()


if __name__ == "__main__":
    main()
