#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Managed-collision tables from a TorchRec checkpoint (torch.distributed.checkpoint) to one of reshard, and back.

    mch_from_dcp.py to-mch DCP FOLDER --hash-size 9223372036854775807
    mch_from_dcp.py to-dcp FOLDER DCP --prefix 'ec._managed_collision_collection._managed_collision_modules.{table}'

The format is described in docs/mch-format.md and docs/manifest.md; the buffers are those of TorchRec's
MCHManagedCollisionModule and HashZchManagedCollisionModule (github.com/pytorch/torchrec, torchrec/modules/mc_modules.py
and hash_mc_modules.py). As any save does, to-mch takes the place of a checkpoint that is in FOLDER. to-dcp reads the
tables of a checkpoint and leaves out all else that is in it.

Where a saved shard ends is read from the chunks of the tensors in the checkpoint's metadata, never from
_output_segments_tensor: after a load on another number of ranks that tensor may still say what was there before.
What ids are hashed to before they are looked up is in no checkpoint: --hash-size is TorchRec's input_hash_size (unless
it was configured, 2^63 - 1 of MCH and 0 of HashZCH), --hash-function names the input_hash_func, if there is one. Both
are compared with what a training is configured for when it loads a table, and with where the ids lie. The number of
buckets of a HashZCH table is in its checkpoint, unless persist_hash_zch_bucket was off: then --buckets says it.

Only the reading and writing of such checkpoints needs torch. The mapping works on plain buffers.
"""
import argparse
import array
import json
import os
import re
import struct
import sys

try:
    import numpy
except ImportError:
    numpy = None  # what is slow without: checksums

MANIFEST = "reshard.manifest.json"
OLD_INDEX = "mch.index.json"  # of folders of older releases, which the library reads
FORMAT, VERSION = "reshard-checkpoint", 2
TABLE_KEY, TABLE_VERSION = "mch.table.", 3  # in the manifest's metadata
INT64_MAX = 2**63 - 1
EMPTY = {"sorted": INT64_MAX, "buckets": -1}
MOST_MANIFEST, MOST_HEADER = 500_000_000, 100_000_000  # bytes that readers take
BLOCK = 1 << 20  # bytes of a tensor that have one checksum
SEGMENTS = 1025  # TorchRec's buffer: at most 1024 shards
BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}

# Buffers by layout: what they are called in a state_dict, and here. Columns: (suffix, name, byte of an empty entry).
IDS = {"sorted": "_mch_sorted_raw_ids", "buckets": "_hash_zch_identities"}
SLOTS = "_mch_remapped_ids_mapping"
COLUMNS = {
    "sorted": [("_mch_counts", "counts", 0), ("_mch_last_access_iter", "last_access_iter", 0)],
    "buckets": [("_hash_zch_metadata", "metadata", 0xFF), ("_hash_zch_runtime_meta", "runtime_meta", 0)],
}
ITERATION = "_current_iter_tensor"
BUCKETS = "_hash_zch_bucket"  # [[n]]
OUTPUT_SEGMENTS = "_output_segments_tensor"
POLICIES = {(True, True): "distance_lfu", (True, False): "lfu", (False, True): "lru", (False, False): "none"}


class Refused(Exception):
    """What is wrong, and the remedy."""


def product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


def times(sums, power):
    """Of polynomials over GF(2), modulo that of the CRC: bit 31 is x^0. `sums` may be an array of numpy."""
    result = 0
    for bit in range(31, -1, -1):
        result ^= (sums >> bit & 1) * power
        power = power >> 1 ^ (power & 1) * 0x82F63B78
    return result


def followed(sums, size):
    """What is left of sums in those of longer runs, with `size` bytes behind: xor the sums of these."""
    power = 1 << 23
    while size:
        if size & 1:
            sums = times(sums, power)
        power, size = times(power, power), size >> 1
    return sums


CRC = [times(byte, 1 << 23) for byte in range(256)]


def crc32c(data):
    """CRC-32C: that of b'123456789' is 0xe3069283. With numpy, which torch comes with mostly, 1024 runs at a time."""
    state, begin, size = 0xFFFFFFFF, 0, len(data) // 1024
    if size >= 64 and numpy:
        table = numpy.array(CRC, dtype=numpy.uint32)
        runs = numpy.frombuffer(data, dtype=numpy.uint8, count=1024 * size).reshape(1024, size)
        sums = numpy.full(1024, state, dtype=numpy.uint32)
        for column in numpy.ascontiguousarray(runs.T):
            sums = table[(sums ^ column) & 255] ^ sums >> 8
        sums ^= state
        while len(sums) > 1:
            sums, size = followed(sums[::2], size) ^ sums[1::2], 2 * size
        state, begin = int(sums[0]) ^ state, size
    for byte in data[begin:]:
        state = CRC[(state ^ byte) & 255] ^ state >> 8
    return state ^ 0xFFFFFFFF


def extent_sums(data, block=BLOCK):
    """The sum of an extent as the manifest has it and, if it is longer than a block, that of every block."""
    blocks, whole = [crc32c(data[at : at + block]) for at in range(0, len(data), block)], 0
    for at, one in enumerate(blocks):
        whole = followed(whole, min(block, len(data) - at * block)) ^ one
    sums = {"crc32c": f"{whole:08x}"}
    if len(blocks) > 1:
        sums["crc32c_blocks"] = "".join(f"{one:08x}" for one in blocks)
    return sums


def fnv1a(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 2**64 - 1
    return f"{state:016x}"


class Buffer:
    """A tensor as it was saved: its elements, and the rows of dimension 0 where chunks begin (None: not cut)."""

    def __init__(self, dtype, shape, data=b"", bounds=None):
        self.dtype, self.shape, self.bounds = dtype, tuple(shape), bounds
        self.data = memoryview(data).cast("B") if len(data) else memoryview(b"")

    @property
    def row_bytes(self):
        return BYTES[self.dtype] * product(self.shape[1:])

    def rows(self, begin, end):
        return self.data[begin * self.row_bytes : end * self.row_bytes]

    def integers(self, begin=0, end=None):
        end = self.shape[0] if end is None else end
        numbers = array.array("q")
        numbers.frombytes(self.rows(begin, end))
        if sys.byteorder != "little":
            numbers.byteswap()
        return numbers


def int64(numbers, bounds=None):
    numbers = array.array("q", numbers)
    if sys.byteorder != "little":
        numbers.byteswap()
    return Buffer("I64", [len(numbers)], numbers.tobytes(), bounds)


class Table:
    """One table: what look-ups depend on, and its buffers, each of all Z slots."""

    def __init__(self, name, layout, offsets, hash_size, hash_function="", buckets=None, iteration=0):
        self.name, self.layout, self.offsets = name, layout, list(offsets)
        self.hash_size, self.hash_function, self.iteration = hash_size, hash_function, iteration
        self.buckets = len(self.offsets) - 1 if buckets is None else buckets
        self.ranks = list(range(len(self.offsets) - 1))
        self.ids, self.slots = None, None
        self.columns = []  # (name, byte of an empty entry, Buffer)
        self.rows = []  # (name, Buffer)
        self.policy = None

    @property
    def eviction(self):
        if self.policy is not None:
            return self.policy
        names = [name for name, _, _ in self.columns]
        return POLICIES["counts" in names, "last_access_iter" in names]

    def describe(self):
        """Its text in the manifest."""
        text = {"version": TABLE_VERSION, "layout": self.layout, "eviction": self.eviction, "offsets": self.offsets}
        text.update(ranks=self.ranks, hash_size=self.hash_size, hash_function=self.hash_function, buckets=self.buckets)
        text["columns"] = [{"name": n, "bytes": b.row_bytes, "empty": e} for n, e, b in self.columns]
        if self.layout == "sorted":
            text["iteration"] = self.iteration
        text["rows"] = [{"name": n, "dtype": b.dtype, "shape": list(b.shape[1:])} for n, b in self.rows]
        text["ids"] = [self.bounds(part) for part in range(len(self.ranks))]
        return text

    def tensors(self):
        """name -> Buffer."""
        found = [("ids", Buffer("I64", [self.offsets[-1]], self.ids.data))]
        found += [("slots", self.slots)] if self.slots is not None else []
        found += [(f"metadata.{name}", buffer) for name, _, buffer in self.columns]
        found += [(f"rows.{name}", buffer) for name, buffer in self.rows]
        return [(f"{self.name}.{name}", buffer) for name, buffer in found]

    def check(self, part):
        """Refuses a shard that no reader would take."""
        begin, end = self.offsets[part], self.offsets[part + 1]
        ids = self.ids.integers(begin, end)
        slots = self.slots.integers(begin, end) if self.slots is not None else []
        where = f"table '{self.name}', shard {part}"
        if end - begin >= 2 and not any(ids) and not any(slots):
            raise Refused(f"{where}: all zeros, as of a state that was never loaded. Fix: save a state that was.")
        if self.layout == "sorted" and any(a > b or a == b != INT64_MAX for a, b in zip(ids, ids[1:])):
            raise Refused(f"{where}: its ids do not ascend. Fix: sort the buffers before they are saved.")
        if len(set(slots)) < len(slots):
            raise Refused(f"{where}: two of its entries have one slot. Fix: the state is corrupt; take another one.")
        for id, slot in zip(ids, slots):
            if id != EMPTY[self.layout] and not begin <= slot < end:
                raise Refused(f"{where}: id {id} has slot {slot}, outside {begin} to {end}. Fix: the state was loaded "
                              "on other ranks and not redistributed, or is corrupt.")

    def bucket_of(self, id):
        """The rule of include/reshard/mch/routing.hpp."""
        raw, block = id % 2**64, -(-self.hash_size // self.buckets)
        return raw // block if raw < block * self.buckets else raw % self.buckets

    def part_of(self, id):
        """The shard whose rank looks an id up in a sorted table."""
        return self.bucket_of(id) // (self.buckets // len(self.ranks))

    def check_buckets(self):
        """Every id lies in the bucket that it is looked up in; it is found nowhere else."""
        if self.buckets < 1 or self.hash_size < 0 or self.offsets[-1] % self.buckets:
            raise Refused(f"table '{self.name}': {self.offsets[-1]} slots in {self.buckets} buckets, hash size "
                          f"{self.hash_size}. Fix: --buckets and --hash-size as the module was made with.")
        size = max(self.offsets[-1] // self.buckets, 1)
        lost = [(slot, id) for slot, id in enumerate(self.ids.integers())
                if id != EMPTY["buckets"] and self.bucket_of(id) != slot // size]
        if lost:
            slot, id = lost[0]
            raise Refused(f"table '{self.name}': id {id} at slot {slot}, in bucket {slot // size}, is looked up "
                          f"in bucket {self.bucket_of(id)} of {self.buckets} if the hash size is {self.hash_size}, "
                          f"and so are {len(lost) - 1} more. Fix: --buckets and --hash-size as the module was made "
                          "with.")

    def fitting_hash_sizes(self):
        """Of a sorted table those with which all ids are looked up where they are."""
        local = self.buckets // len(self.ranks)
        least, most, lowest, dealt, possible = 1, INT64_MAX, INT64_MAX, True, True
        for part in range(len(self.ranks)):
            for id in self.ids.integers(*self.offsets[part : part + 2]):
                if id == EMPTY[self.layout]:
                    continue
                is_dealt = id % 2**64 % self.buckets // local == part
                dealt, possible = dealt and is_dealt, possible and (id >= 0 or is_dealt)
                if id >= 0:
                    lowest, least = min(lowest, id), max(least, id // (part + 1) + 1)
                    most = min(most, id // part) if part else most
        least, most = -(-least // local), min(most // local, -(-INT64_MAX // self.buckets))
        found = [f"up to {lowest // self.buckets * self.buckets}"] if dealt and lowest >= self.buckets else []
        if least <= most:
            found.append(f"from {(least - 1) * self.buckets + 1} to {min(most * self.buckets, INT64_MAX)}")
        if not possible or not found:
            return "no hash size was found that fits (are the shards those of the ranks that trained them?)"
        return f"hash sizes {' and '.join(found)} would fit"

    def check_routes(self):
        """Every id is in the shard whose rank looks it up: a wrong hash size would scatter the table later."""
        if self.layout == "buckets":
            return self.check_buckets()
        for part in range(len(self.ranks) if len(self.ranks) > 1 else 0):
            for id in self.ids.integers(*self.offsets[part : part + 2]):
                if id != EMPTY[self.layout] and self.part_of(id) != part:
                    raise Refused(f"table '{self.name}', shard {part}: id {id} was looked up in shard "
                                  f"{self.part_of(id)} if the hash size is {self.hash_size}; "
                                  f"{self.fitting_hash_sizes()}. Fix: correct --hash-size and --ranks; "
                                  "--accept-strays for a table that was loaded on other ranks without moving its ids.")

    def bounds(self, part):
        """[ids, negative ids] of one shard and, if any are not, the lowest and the highest of the others."""
        live = [id for id in self.ids.integers(*self.offsets[part : part + 2]) if id != EMPTY[self.layout]]
        others = [id for id in live if id >= 0]
        return [len(live), len(live) - len(others)] + ([min(others), max(others)] if others else [])


# ---- From state_dict keys to tables and back ---------------------------------------------------------------------


def shard_bounds(key, buffer, parts=None):
    """Where the chunks of a tensor begin, and its length; with `parts`, shards without entries follow."""
    bounds = list(buffer.bounds) if buffer.bounds is not None else [0, buffer.shape[0]]
    if bounds[0] != 0 or bounds[-1] != buffer.shape[0] or any(a > b for a, b in zip(bounds, bounds[1:])):
        raise Refused(f"'{key}': its chunks {bounds} do not cover its {buffer.shape[0]} entries. Fix: a shard is "
                      "missing; restore the checkpoint.")
    if parts is not None and len(bounds) - 1 > parts:
        raise Refused(f"'{key}' was saved in {len(bounds) - 1} shards, not {parts}. Fix: correct --ranks.")
    return bounds + [bounds[-1]] * (0 if parts is None else parts - (len(bounds) - 1))


def table_prefixes(keys):
    """prefix -> layout of every table in a list of keys."""
    found = {}
    for key in keys:
        for layout, suffix in IDS.items():
            if key == suffix or key.endswith("." + suffix):
                found[key[: -len(suffix)]] = layout
    return found


def tables_from_state(state, hash_size, hash_function=None, buckets=None, names=None, rows=None, ranks=None):
    """Tables of a state_dict: key -> Buffer. `hash_size`, `hash_function` and `buckets` by table name, None for all
    others; `names`: prefix -> name (default: its last word); `rows`: name -> [(rows name, key)]."""
    hash_function, buckets, names, rows = hash_function or {}, buckets or {}, names or {}, rows or {}
    tables = []
    for prefix, layout in sorted(table_prefixes(state).items()):
        bare = prefix[:-1]
        name = names.get(bare) or bare.split(".")[-1] or "table"
        if any(name == other.name for other in tables):
            raise Refused(f"two tables are called '{name}', one of them at '{bare}'. Fix: --name PREFIX=TABLE.")

        def buffer_of(suffix, dtype=None, needed=False):
            buffer = state.get(prefix + suffix)
            if buffer is None and needed:
                raise Refused(f"'{prefix}{suffix}' is missing. Fix: the checkpoint has no whole table '{name}'.")
            if buffer is not None and dtype is not None and buffer.dtype != dtype:
                raise Refused(f"'{prefix}{suffix}' is {buffer.dtype}, not {dtype}. Fix: convert it.")
            return buffer

        ids = buffer_of(IDS[layout], "I64")
        offsets = shard_bounds(prefix + IDS[layout], ids, ranks)
        size = hash_size.get(name, hash_size.get(None))
        if size is None:
            raise Refused(f"the hash size of table '{name}' is not in the checkpoint. Fix: --hash-size {name}=N.")
        count = buckets.get(name, buckets.get(None))
        there = buffer_of(BUCKETS, "I64")
        if layout == "sorted":
            count = None  # one per rank
        elif there is not None:
            saved = there.integers()[0] if there.shape in ((1, 1), (1,)) else 0
            if saved < 1 or count not in (None, saved):
                raise Refused(f"table '{name}' has {saved} buckets in the checkpoint, --buckets says {count}. Fix: "
                              f"leave --buckets {name}=N out.")
            count = saved
        elif count is None:
            raise Refused(f"the number of buckets of table '{name}' is not in the checkpoint. Fix: --buckets {name}=N.")
        table = Table(name, layout, offsets, size, hash_function.get(name, hash_function.get(None, "")), count)
        table.ids = ids
        others = []
        if layout == "sorted":
            table.slots = buffer_of(SLOTS, "I64", needed=True)
            table.iteration = buffer_of(ITERATION, "I64", needed=True).integers()[0]
            others.append((prefix + SLOTS, table.slots))
        for suffix, column, empty in COLUMNS[layout]:
            buffer = buffer_of(suffix, "I64" if layout == "sorted" else None)
            if buffer is not None:
                table.columns.append((column, empty, buffer))
                others.append((prefix + suffix, buffer))
        for column, key in rows.get(name, []):
            if key not in state:
                raise Refused(f"'{key}', rows of table '{name}', is missing. Fix: correct --rows.")
            table.rows.append((column, state[key]))
            if state[key].shape[0] != table.ids.shape[0]:
                raise Refused(f"'{key}' has {state[key].shape[0]} rows for {table.ids.shape[0]} slots. Fix: correct "
                              "--rows.")
        for key, buffer in others:
            if shard_bounds(key, buffer, ranks) != offsets:
                raise Refused(f"'{key}' is cut at {shard_bounds(key, buffer, ranks)}, the ids of the table at "
                              f"{offsets}. Fix: the tensors are of different saves.")
        tables.append(table)
    if not tables:
        raise Refused("no managed-collision table is there: no key ends in "
                      f"{' or '.join(IDS.values())}. Fix: name the checkpoint of the model.")
    for name in [*hash_size, *hash_function, *buckets, *rows]:
        if name is not None and all(name != table.name for table in tables):
            there = ", ".join(table.name for table in tables)
            raise Refused(f"there is no table '{name}'; there are: {there}. Fix: correct it.")
    return tables


def state_from_tables(tables, prefix, rows=None):
    """key -> Buffer, as TorchRec's modules have them. `prefix` has {table} in it; `rows` as above."""
    state = {}
    for table in tables:
        at = prefix.replace("{table}", table.name) + "."
        if at + IDS[table.layout] in state:
            raise Refused(f"two tables have the prefix '{at[:-1]}'. Fix: put {{table}} into --prefix.")
        bounds = table.offsets
        ids = Buffer("I64", table.ids.shape, table.ids.data, bounds)
        if table.layout == "buckets":
            ids.shape = (ids.shape[0], 1)
        state[at + IDS[table.layout]] = ids
        if table.slots is not None:
            state[at + SLOTS] = Buffer("I64", table.slots.shape, table.slots.data, bounds)
        known = {column: suffix for suffix, column, _ in COLUMNS[table.layout]}
        for column, _, buffer in table.columns:
            if column not in known:
                raise Refused(f"table '{table.name}' has a column '{column}' that TorchRec has not. Fix: load and save "
                              "it without.")
            # HashZCH keeps a column of one number as (z, 1) as well.
            shape = (*buffer.shape, 1) if table.layout == "buckets" and len(buffer.shape) == 1 else buffer.shape
            state[at + known[column]] = Buffer(buffer.dtype, shape, buffer.data, bounds)
        if table.layout == "buckets":
            state[at + BUCKETS] = Buffer("I64", [1, 1], int64([table.buckets]).data)
        if table.layout == "sorted":
            if len(bounds) > SEGMENTS:
                raise Refused(f"table '{table.name}' has {len(bounds) - 1} shards, TorchRec has room for "
                              f"{SEGMENTS - 1}. Fix: load and save it on fewer ranks.")
            state[at + OUTPUT_SEGMENTS] = int64(bounds + [-1] * (SEGMENTS - len(bounds)))
            state[at + ITERATION] = int64([table.iteration])
        for name, buffer in table.rows:
            for column, key in (rows or {}).get(table.name, []):
                if column == name:
                    state[key] = Buffer(buffer.dtype, buffer.shape, buffer.data, bounds)
    return state


# ---- Checkpoints of the library ----------------------------------------------------------------------------------


def file_name(save, rank, ranks):
    return f"shard-{rank + 1:05d}-of-{ranks:05d}.{save}.safetensors"


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def check_length(path, what, length, most):
    if length > most:
        raise Refused(f"{path}: {what} would have {length} bytes, readers take {most}. Fix: save fewer tables into one "
                      "folder.")


def write_file(path, pieces):
    """Under another name first, made durable, then renamed."""
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp.{os.getpid()}.0")
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def manifest_end(before):
    """How a manifest ends: with the sum of all that stands before."""
    return b',\n  "crc32c": "%08x"\n}\n' % crc32c(before)


def write_folder(folder, tables, save=None, ranks=None):
    """A checkpoint as save() makes it: a file for each rank that has slots, then the manifest. Returns its id."""
    save = save or os.urandom(8).hex()
    ranks = max([ranks or 1, *(max(table.ranks) + 1 for table in tables)])
    tensors, of_rank = {}, [[] for _ in range(ranks)]
    for table in tables:
        for part in range(len(table.ranks)):
            table.check(part)
        for name, buffer in table.tensors():
            if name in tensors:
                raise Refused(f"two tensors are called '{name}'. Fix: give one of the tables another name.")
            tensors[name] = {"name": name, "dtype": buffer.dtype, "shape": list(buffer.shape), "replicas": 1,
                             "distribution": "", "extents": []}
            for rank, begin, end in zip(table.ranks, table.offsets, table.offsets[1:]):
                of_rank[rank] += [(name, buffer, begin, end)] if begin < end else []
    files, contents = [], []
    for rank, pieces in enumerate(of_rank):
        if not pieces:
            continue
        header, info, data, at = {}, {}, [], 0
        for name, buffer, begin, end in sorted(pieces, key=lambda one: (-BYTES[one[1].dtype], one[0])):
            data.append(buffer.rows(begin, end))
            box = [[begin, end], *([0, size] for size in buffer.shape[1:])]
            tensors[name]["extents"] += [{"file": len(files), "begin": at, "box": box, **extent_sums(data[-1])}]
            info[name] = {"saved_offsets": [first for first, _ in box]}
            header[name] = {"dtype": buffer.dtype, "shape": [last - first for first, last in box],
                            "data_offsets": [at, at + len(data[-1])]}
            at += len(data[-1])
        about = {"DCP_SHARDING_INFO": json.dumps(info, ensure_ascii=False), "format": "pt", "reshard_save": save}
        text = compact({"__metadata__": about, **header}).encode()
        text += b" " * (-len(text) % 8)
        leaf, start = file_name(save, rank, ranks), struct.pack("<Q", len(text)) + text
        check_length(os.path.join(folder, leaf), "its header", len(text), MOST_HEADER)
        files.append({"name": leaf, "bytes": len(start) + at, "header_digest": fnv1a(start), "writer": rank})
        contents.append([start, *data])
    path = os.path.join(folder, MANIFEST)
    manifest = {
        "format": FORMAT, "version": VERSION, "save": save, "world_size": ranks,
        "metadata": {TABLE_KEY + table.name: compact(table.describe()) for table in tables},
        "block_bytes": BLOCK, "files": files, "tensors": [tensors[name] for name in sorted(tensors)]}
    text = compact(manifest)[:-1].replace('{"name":', '\n{"name":').encode()  # within texts there is no such quote
    text += manifest_end(text)
    check_length(path, "it", len(text), MOST_MANIFEST)
    os.makedirs(folder, exist_ok=True)
    for file, content in zip(files, contents):
        write_file(os.path.join(folder, file["name"]), content)
    write_file(path, [text])
    return save


class Saved:
    """A checkpoint, of which tensors are read slot by slot."""

    def __init__(self, folder):
        self.folder, self.path = folder, os.path.join(folder, MANIFEST)
        if not os.path.exists(self.path) and os.path.exists(os.path.join(folder, OLD_INDEX)):
            raise Refused(f"{folder}/{OLD_INDEX} was saved by an older release. Fix: load and save it with the library "
                          "(MchCheckpoint, save).")
        with open(self.path, "rb") as file:
            text = file.read()
        manifest = json.loads(text)
        form, version = manifest.get("format"), manifest.get("version")
        if (form, version) != (FORMAT, VERSION):
            raise Refused(f"{self.path} is of format {form}, version {version}; this reads {FORMAT}, version "
                          f"{VERSION}. Fix: load and save it with the library that this script came with.")
        before = text[: -len(manifest_end(b""))]
        if text != before + manifest_end(before):
            raise Refused(f"{self.path}: 'crc32c' is not the sum of the text before it. Fix: restore the manifest.")
        self.block = manifest.get("block_bytes", BLOCK)
        self.files, self.metadata = manifest["files"], manifest["metadata"]
        self.tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}
        self.begins = [self.data_section(file) for file in self.files]

    def data_section(self, about):
        """Where it begins in a file that the manifest names."""
        path = os.path.join(self.folder, about["name"])
        if any(part in ("", ".", "..") for part in about["name"].split("/")):
            raise Refused(f"{self.path}: '{about['name']}' is no file in the folder. Fix: restore the manifest.")
        if not os.path.exists(path):
            raise Refused(f"{path} is missing. Fix: restore it: the manifest names it.")
        with open(path, "rb") as file:
            start = file.read(8)
            start += file.read(min(int.from_bytes(start, "little"), MOST_HEADER))
        for what, found in (("bytes", os.path.getsize(path)), ("header_digest", fnv1a(start))):
            if found != about[what]:
                raise Refused(f"{path}: '{what}' is {found}, the manifest says {about[what]}: it was cut short or "
                              "changed, or is of another save. Fix: restore it.")
        return len(start)

    def read(self, name, extent, size):
        """The bytes of an extent, their sums compared."""
        path = os.path.join(self.folder, self.files[extent["file"]]["name"])
        with open(path, "rb") as file:
            file.seek(self.begins[extent["file"]] + extent["begin"])
            data = file.read(size)
        key, block = ("crc32c_blocks", self.block) if extent.get("crc32c_blocks") else ("crc32c", size)
        found = extent_sums(data, block).get(key, "")
        was = extent.get(key, found)
        if was == found and len(data) == size:
            return data
        at = next((at for at in range(0, len(was), 8) if was[at : at + 8] != found[at : at + 8]), 0) // 8 * block
        raise Refused(f"{path}: bytes {at} to {min(at + block, size)} of tensor '{name}', slots {extent['box'][0]}, "
                      "have another CRC-32C than when they were saved. Fix: restore the file of this save, or take "
                      "another save.")

    def tensor(self, name, slots, dtype, row):
        """All slots of a tensor, of that type and shape of a slot; U8 stands for any of as many bytes."""
        wanted, about = Buffer(dtype, [slots, *row]), self.tensors.get(name)
        if about is None and slots == 0:
            return wanted  # no reader needs it
        if about is None:
            raise Refused(f"{self.path}: it has no tensor '{name}'. Fix: restore the save, or take another one.")
        found = Buffer(about["dtype"], about["shape"])
        if (dtype not in ("U8", found.dtype) or found.dtype not in BYTES or found.shape[:1] != (slots,)
                or found.row_bytes != wanted.row_bytes):
            raise Refused(f"{self.path}: tensor '{name}' is {found.dtype} {list(found.shape)}, its table has {dtype} "
                          f"{list(wanted.shape)}. Fix: restore the save, or take another one.")
        boxes = [(extent["box"], extent) for extent in about["extents"] if extent.get("replica", 0) == 0]
        boxes = sorted((one for one in boxes if all(a < b for a, b in one[0])), key=lambda one: one[0])
        if found.row_bytes:
            where = f"{self.path}: {name}"
            chunks = [([a for a, _ in box], [b - a for a, b in box]) for box, _ in boxes]
            shard_bounds(where, Buffer(dtype, found.shape, bounds=chunk_bounds(where, found.shape, chunks)))
        pieces = [self.read(name, extent, found.row_bytes * (box[0][1] - box[0][0])) for box, extent in boxes]
        return Buffer(found.dtype, found.shape, b"".join(pieces))


def read_folder(folder):
    """The tables of a checkpoint that save() or write_folder() wrote."""
    saved, tables = Saved(folder), []
    for name in sorted(key[len(TABLE_KEY) :] for key in saved.metadata if key.startswith(TABLE_KEY)):
        about = json.loads(saved.metadata[TABLE_KEY + name])
        if about.get("version") != TABLE_VERSION:
            raise Refused(f"{saved.path}: table '{name}' is of version {about.get('version')}, this reads "
                          f"{TABLE_VERSION}. Fix: use the script that came with the library.")
        table = Table(name, about["layout"], about["offsets"], about["hash_size"], about["hash_function"],
                      about["buckets"], about.get("iteration", 0))
        table.ranks, table.policy, slots = about["ranks"], about["eviction"], table.offsets[-1]
        table.ids = saved.tensor(f"{name}.ids", slots, "I64", [])
        if table.layout == "sorted":
            table.slots = saved.tensor(f"{name}.slots", slots, "I64", [])
        for one in about["columns"]:
            buffer = saved.tensor(f"{name}.metadata.{one['name']}", slots, "U8", [one["bytes"]])
            table.columns.append((one["name"], one["empty"], buffer))
        for one in about["rows"]:
            buffer = saved.tensor(f"{name}.rows.{one['name']}", slots, one["dtype"], one["shape"])
            table.rows.append((one["name"], buffer))
        for key, found in table.describe().items():
            if about[key] != found:
                raise Refused(f"{saved.path}: '{key}' of table '{name}' is {about[key]}, its tensors say {found}. Fix: "
                              "restore the save, or take another one.")
        tables.append(table)
    if not tables:
        raise Refused(f"{saved.path} has no managed-collision tables. Fix: name a checkpoint that has; if {OLD_INDEX} "
                      "is beside it, load and save that with the library.")
    return tables


# ---- torch.distributed.checkpoint --------------------------------------------------------------------------------


def torch_dtypes():
    import torch

    return {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "F16": torch.float16,
            "BF16": torch.bfloat16, "I32": torch.int32, "F32": torch.float32, "I64": torch.int64, "F64": torch.float64}


def chunk_bounds(key, size, chunks):
    """Rows where chunks of dimension 0 begin, and their number. `chunks`: (offsets, sizes)."""
    bounds = [0]
    for offsets, sizes in sorted(chunks):
        if list(sizes[1:]) != list(size[1:]) or any(offsets[1:]):
            raise Refused(f"'{key}' is cut along dimension 1 as well. Fix: such tables are sharded row-wise.")
        if offsets[0] != bounds[-1]:
            raise Refused(f"'{key}': a chunk begins at {offsets[0]}, the one before it ends at {bounds[-1]}. Fix: a "
                          "shard is missing or saved twice; restore the checkpoint.")
        bounds.append(offsets[0] + sizes[0])
    return bounds


def read_dcp(folder, more_keys=()):
    """key -> Buffer of the managed-collision buffers of a checkpoint, and of `more_keys`."""
    import torch
    import torch.distributed.checkpoint as dcp

    about = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    prefixes = table_prefixes(about)
    wanted = [key for key in about if any(key.startswith(p) for p in prefixes) or key in more_keys]
    suffixes = {suffix for columns in COLUMNS.values() for suffix, _, _ in columns}
    suffixes |= {*IDS.values(), SLOTS, ITERATION, BUCKETS}
    names = {dtype: name for name, dtype in torch_dtypes().items()}
    state = {}
    for key in wanted:
        if key not in more_keys and key.split(".")[-1] not in suffixes:
            continue
        if not hasattr(about[key], "chunks"):
            raise Refused(f"'{key}' is no tensor. Fix: save the module's state_dict as it is.")
        dtype = about[key].properties.dtype
        if dtype not in names:
            raise Refused(f"'{key}' is {dtype}, which is not stored. Fix: save it as one of {', '.join(BYTES)}.")
        tensor = torch.zeros(tuple(about[key].size), dtype=dtype)
        dcp.load({key: tensor}, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
        data = tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b""
        chunks = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in about[key].chunks]
        state[key] = Buffer(names[dtype], tensor.shape, data, chunk_bounds(key, about[key].size, chunks))
    return state


def write_dcp(folder, state):
    """The buffers as a checkpoint, in the chunks they have."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

    dtypes = torch_dtypes()
    tensors = {}
    for key, buffer in state.items():
        tensors[key] = torch.empty(buffer.shape, dtype=dtypes[buffer.dtype])
        if len(buffer.data) != 0:
            raw = torch.frombuffer(bytearray(buffer.data), dtype=torch.uint8)
            tensors[key] = raw.view(dtypes[buffer.dtype]).view(buffer.shape)

    class InChunks(dcp.DefaultSavePlanner):
        """Writes one tensor as several ranks would have."""

        def create_local_plan(self):
            items = []
            for key, buffer in state.items():
                bounds = [0, buffer.shape[0]] if buffer.bounds is None else buffer.bounds
                for begin, end in zip(bounds, bounds[1:]):
                    if begin == end:
                        continue
                    offsets = torch.Size([begin, *[0] * (len(buffer.shape) - 1)])
                    chunk = ChunkStorageMetadata(offsets, torch.Size([end - begin, *buffer.shape[1:]]))
                    properties = TensorProperties.create_from_tensor(tensors[key])
                    items.append(WriteItem(MetadataIndex(key, offsets), WriteItemType.SHARD,
                                           tensor_data=TensorWriteData(chunk, properties, torch.Size(buffer.shape))))
            self.plan = SavePlan(items, planner_data={key: (key,) for key in state})
            return self.plan

        def resolve_data(self, write_item):
            chunk = write_item.tensor_data.chunk
            begin = chunk.offsets[0]
            return tensors[write_item.index.fqn][begin : begin + chunk.sizes[0]]

    dcp.save(tensors, storage_writer=dcp.FileSystemWriter(folder), planner=InChunks(), no_dist=True)


# ---- Command line ------------------------------------------------------------------------------------------------


def by_table(values, convert, option):
    """['7', 'user=9'] -> {None: 7, 'user': 9}."""
    result = {}
    for text in values:
        name, value = text.rsplit("=", 1) if "=" in text else (None, text)
        if name in result:
            raise Refused(f"{option} {text}: given twice. Fix: once for all tables, or once per table.")
        try:
            result[name] = convert(value)
        except ValueError:
            raise Refused(f"{option} {text}: not a number. Fix: {option} [TABLE=]N.") from None
    return result


def rows_by_table(values):
    """['user:weights=ec.user.weight'] -> {'user': [('weights', 'ec.user.weight')]}."""
    result = {}
    for text in values:
        match = re.fullmatch(r"([^:]+):([^=]+)=(.+)", text)
        if not match:
            raise Refused(f"--rows {text}: Fix: --rows TABLE:NAME=KEY.")
        result.setdefault(match[1], []).append((match[2], match[3]))
    return result


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    to_mch = commands.add_parser("to-mch", help="from a checkpoint of torch.distributed.checkpoint")
    to_mch.add_argument("dcp")
    to_mch.add_argument("folder")
    to_mch.add_argument("--hash-size", action="append", required=True, metavar="[TABLE=]N", help="input_hash_size")
    to_mch.add_argument("--hash-function", action="append", default=[], metavar="[TABLE=]NAME", help="input_hash_func")
    to_mch.add_argument("--buckets", action="append", default=[], metavar="[TABLE=]N", help="of HashZCH tables without "
                        + BUCKETS)
    to_mch.add_argument("--name", action="append", default=[], metavar="PREFIX=TABLE", help="default: its last word")
    to_mch.add_argument("--accept-strays", action="store_true", help="ids that no look-up finds are no mistake")
    to_mch.add_argument("--ranks", type=int, metavar="N", help="that saved, where trailing ones had no slots")
    to_dcp = commands.add_parser("to-dcp", help="to such a checkpoint")
    to_dcp.add_argument("folder")
    to_dcp.add_argument("dcp")
    to_dcp.add_argument("--prefix", required=True, metavar="PREFIX", help="of the keys of a table, with {table} in it")
    for command in (to_mch, to_dcp):
        command.add_argument("--rows", action="append", default=[], metavar="TABLE:NAME=KEY",
                             help="weights or an optimizer state, one row per slot")
    given = parser.parse_args(argv)
    try:
        rows = rows_by_table(given.rows)
        if given.command == "to-mch":
            keys = {key for one in rows.values() for _, key in one}
            names = by_table(given.name, str, "--name")
            if None in names:
                raise Refused(f"--name {names[None]}: Fix: --name PREFIX=TABLE.")
            tables = tables_from_state(
                read_dcp(given.dcp, keys), by_table(given.hash_size, int, "--hash-size"),
                by_table(given.hash_function, str, "--hash-function"), by_table(given.buckets, int, "--buckets"), names,
                rows, given.ranks)
            for table in [] if given.accept_strays else tables:
                table.check_routes()
            save = write_folder(given.folder, tables)
            print(f"{given.folder}: save {save}")
        else:
            tables = read_folder(given.folder)
            write_dcp(given.dcp, state_from_tables(tables, given.prefix, rows))
        for table in tables:
            about = f"{table.offsets[-1]} slots in {len(table.ranks)} shards, {table.layout}, {table.eviction}"
            print(f"{table.name}: {about}")
    except (Refused, OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
