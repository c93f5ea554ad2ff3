#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Managed-collision tables from a TorchRec checkpoint (torch.distributed.checkpoint) to the files of reshard, and back.

    mch_from_dcp.py to-mch DCP FOLDER --hash-size 9223372036854775807
    mch_from_dcp.py to-dcp FOLDER DCP --prefix 'ec._managed_collision_collection._managed_collision_modules.{table}'

The format is described in docs/mch-format.md; the buffers are those of TorchRec's MCHManagedCollisionModule and
HashZchManagedCollisionModule (github.com/pytorch/torchrec, torchrec/modules/mc_modules.py and hash_mc_modules.py).

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

VERSION = 2  # what is written; 1, which has no checksums, is read
INDEX = "mch.index.json"
INT64_MAX = 2**63 - 1
EMPTY = {"sorted": INT64_MAX, "buckets": -1}
MOST_BYTES = 100_000_000  # of an index, and of the header of a file
RUN = 65536  # bytes of a tensor that have one checksum
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


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC = crc_table()


def crc32c(data):
    """CRC-32C: that of b'123456789' is 0xe3069283."""
    state = 0xFFFFFFFF
    for byte in data:
        state = CRC[(state ^ byte) & 255] ^ state >> 8
    return state ^ 0xFFFFFFFF


def run_sums(data):
    """The sum of every run of a tensor, as text. numpy, which torch comes with mostly, sums many runs at once."""
    sums, whole = [], len(data) // RUN
    if whole >= 16:
        try:
            import numpy
        except ImportError:
            whole = 0
        else:
            table = numpy.array(CRC, dtype=numpy.uint32)
            for first in range(0, whole, 1024):
                runs = numpy.frombuffer(data[first * RUN : min(first + 1024, whole) * RUN], dtype=numpy.uint8)
                state = numpy.full(len(runs) // RUN, 0xFFFFFFFF, dtype=numpy.uint32)
                for column in numpy.ascontiguousarray(runs.reshape(-1, RUN).T):
                    state = table[(state ^ column) & 255] ^ state >> 8
                sums += [int(one) ^ 0xFFFFFFFF for one in state]
    for at in range(len(sums) * RUN, len(data), RUN):
        sums.append(crc32c(data[at : at + RUN]))
    return "".join(f"{one:08x}" for one in sums)


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
        text = {"layout": self.layout, "eviction": self.eviction, "offsets": self.offsets, "ranks": self.ranks}
        text.update(hash_size=self.hash_size, hash_function=self.hash_function, buckets=self.buckets)
        text["columns"] = [{"name": n, "bytes": b.row_bytes, "empty": e} for n, e, b in self.columns]
        if self.layout == "sorted":
            text["iteration"] = self.iteration
        text["rows"] = [{"name": n, "dtype": b.dtype, "shape": list(b.shape[1:])} for n, b in self.rows]
        return text

    def tensors(self, part):
        """name -> (dtype, shape, bytes) of one shard."""
        begin, end = self.offsets[part], self.offsets[part + 1]
        if begin == end:
            return {}
        found = {f"{self.name}.ids": ("I64", [end - begin], self.ids.rows(begin, end))}
        if self.slots is not None:
            found[f"{self.name}.slots"] = ("I64", [end - begin], self.slots.rows(begin, end))
        for name, _, buffer in self.columns:
            shape = [end - begin, *buffer.shape[1:]]
            found[f"{self.name}.metadata.{name}"] = (buffer.dtype, shape, buffer.rows(begin, end))
        for name, buffer in self.rows:
            shape = [end - begin, *buffer.shape[1:]]
            found[f"{self.name}.rows.{name}"] = (buffer.dtype, shape, buffer.rows(begin, end))
        return found

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


# ---- Folders -----------------------------------------------------------------------------------------------------


def check_save(save, where):
    """The id of a save becomes part of the names of files."""
    if not isinstance(save, str) or not re.fullmatch("[0-9a-f]{16}", save):
        raise Refused(f"{where}: the id of the save is {save!r}, not 16 hexadecimal digits. Fix: restore the index.")


def file_name(save, rank, ranks):
    return f"mch-{save}-{rank:05d}-of-{ranks:05d}.safetensors"


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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


def write_safetensors(path, tensors, metadata):
    metadata = {**metadata, **{f"crc32c.{name}": run_sums(data) for name, (_, _, data) in tensors.items()}}
    order = sorted(tensors, key=lambda name: (-BYTES[tensors[name][0]], name))
    header, at = {"__metadata__": metadata}, 0
    for name in order:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = compact(header).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_BYTES:
        raise Refused(f"{path}: its header would have {len(text)} bytes, readers take {MOST_BYTES}. Fix: save fewer "
                      "tables into one folder.")
    write_file(path, [struct.pack("<Q", len(text)), text, *(tensors[name][2] for name in order)])


def read_safetensors(path):
    """__metadata__, and name -> (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    if len(data) < 8 or 8 + struct.unpack("<Q", data[:8])[0] > len(data):
        raise Refused(f"{path}: cut short. Fix: restore it.")
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(bytes(data[8:begin]))
    metadata = header.pop("__metadata__", {})
    if begin + max((info["data_offsets"][1] for info in header.values()), default=0) != len(data):
        raise Refused(f"{path}: cut short, or with bytes appended. Fix: restore it.")
    tensors = {}
    for name, info in header.items():
        first, last = info["data_offsets"]
        tensors[name] = (info["dtype"], info["shape"], data[begin + first : begin + last])
    return metadata, tensors


def write_folder(folder, tables, save=None, ranks=None):
    """A save as save_mch() makes it: a file per rank, then the index. Returns its id."""
    save = save or os.urandom(8).hex()
    check_save(save, folder)
    ranks = max([ranks or 1, *(max(table.ranks) + 1 for table in tables)])
    for table in tables:
        for part in range(len(table.ranks)):
            table.check(part)
    ids = {table.name: [table.bounds(part) for part in range(len(table.ranks))] for table in tables}
    os.makedirs(folder, exist_ok=True)
    files = [file_name(save, rank, ranks) for rank in range(ranks)]
    index = {"format": "reshard-mch", "version": VERSION, "save": save, "files": files}
    index["tables"] = {table.name: table.describe() for table in tables}
    index["ids"] = ids
    text = compact(index).encode()[:-1]
    if len(text) + len(index_end(text)) > MOST_BYTES:
        raise Refused(f"{folder}/{INDEX} would have {len(text)} bytes, readers take {MOST_BYTES}. Fix: save fewer "
                      "tables into one folder.")
    for rank, file in enumerate(files):
        metadata = {"format": "pt", "mch.version": str(VERSION), "mch.save": save}
        metadata.update({"mch.rank": str(rank), "mch.ranks": str(ranks)})
        tensors = {}
        for table in tables:
            metadata[f"table.{table.name}"] = compact(table.describe())
            if rank in table.ranks:
                tensors.update(table.tensors(table.ranks.index(rank)))
        write_safetensors(os.path.join(folder, file), tensors, metadata)
    write_file(os.path.join(folder, INDEX), [text, index_end(text)])
    return save


def index_end(before):
    """How an index ends: with the sum of all that stands before."""
    return b',"crc32c":"%08x"}\n' % crc32c(before)


def read_index(folder):
    with open(os.path.join(folder, INDEX), "rb") as file:
        text = file.read()
    index = json.loads(text)
    version = index.get("version")
    if index.get("format") != "reshard-mch" or version not in range(1, VERSION + 1):
        raise Refused(f"{folder}/{INDEX} is of format {index.get('format')}, version {version}; this reads "
                      f"reshard-mch, versions 1 to {VERSION}. Fix: use the script that came with the library.")
    before = text[: -len(index_end(b""))]
    if version > 1 and text != before + index_end(before) or version == 1 and "crc32c" in index:
        raise Refused(f"{folder}/{INDEX}: 'crc32c' is not the sum of the text before it. Fix: restore the index.")
    check_save(index["save"], f"{folder}/{INDEX}")
    return index


def check_sums(path, metadata, tensors):
    for name, (_, _, data) in tensors.items():
        was, found = metadata.get(f"crc32c.{name}", "none"), run_sums(data)
        if was == found:
            continue
        run = next((at for at in range(0, len(found), 8) if was[at : at + 8] != found[at : at + 8]), 0) // 8 * RUN
        raise Refused(f"{path}: bytes {run} to {min(run + RUN, len(data))} of tensor '{name}' have another CRC-32C "
                      "than when they were saved. Fix: restore the file of this save, or take another save.")


def read_folder(folder):
    """The tables of a folder that save_mch() or write_folder() wrote."""
    index = read_index(folder)
    ranks = len(index["files"])
    shards = []
    for rank, name in enumerate(index["files"]):
        path = os.path.join(folder, name)
        if name != file_name(index["save"], rank, ranks):
            raise Refused(f"{folder}/{INDEX}: '{name}' is not the file of rank {rank} of {ranks}. Fix: restore the "
                          "index.")
        if not os.path.exists(path):
            raise Refused(f"{path} is missing. Fix: restore it: it holds the ids of rank {rank}.")
        metadata, tensors = read_safetensors(path)
        if index["version"] > 1:
            check_sums(path, metadata, tensors)
        expected = {"mch.save": index["save"], "mch.rank": str(rank), "mch.ranks": str(ranks)}
        for key, value in expected.items():
            if metadata.get(key) != value:
                raise Refused(f"{path}: '{key}' is '{metadata.get(key)}', the index says '{value}'. Fix: restore it.")
        shards.append(tensors)
    tables = []
    for name, about in index["tables"].items():
        table = Table(name, about["layout"], about["offsets"], about["hash_size"], about["hash_function"],
                      about["buckets"], about.get("iteration", 0))
        table.ranks, table.policy = about["ranks"], about["eviction"]

        def whole(tensor, name=name, table=table):
            pieces, dtype, shape = [], None, None
            for part, rank in enumerate(table.ranks):
                if table.offsets[part] == table.offsets[part + 1]:
                    continue
                if f"{name}.{tensor}" not in shards[rank]:
                    raise Refused(f"{index['files'][rank]} has no tensor '{name}.{tensor}'. Fix: restore it.")
                dtype, shape, data = shards[rank][f"{name}.{tensor}"]
                if shape[0] != table.offsets[part + 1] - table.offsets[part]:
                    raise Refused(f"{index['files'][rank]}: '{name}.{tensor}' has shape {shape}. Fix: restore it.")
                pieces.append(data)
            return Buffer(dtype or "I64", [table.offsets[-1], *(shape or [0])[1:]], b"".join(pieces), table.offsets)

        table.ids = whole("ids")
        if table.layout == "sorted":
            table.slots = whole("slots")
        table.columns = [(c["name"], c["empty"], whole(f"metadata.{c['name']}")) for c in about["columns"]]
        table.rows = [(rows["name"], whole(f"rows.{rows['name']}")) for rows in about["rows"]]
        if (found := [table.bounds(part) for part in range(len(table.ranks))]) != index["ids"][name]:
            raise Refused(f"{folder}/{INDEX}: 'ids.{name}' is {index['ids'][name]}, the files have {found}. Fix: "
                          "restore the index.")
        tables.append(table)
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
