#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The part of `reshard mch` that reads and writes folders of torch.distributed.checkpoint, with PyTorch's own code.

    mch_dcp.py read  WORK [options] IN [IN ...]     tables of the folders into WORK/in, as `reshard mch` reads them
    mch_dcp.py write WORK IN OUT [IN OUT ...]       what it made of them, WORK/out, and all else that IN has

`reshard mch IN OUT --to N` runs both, with its own work in between; nobody else has to. Buffers are those of TorchRec's
MCHManagedCollisionModule and HashZchManagedCollisionModule (github.com/pytorch/torchrec, torchrec/modules/mc_modules.py
and hash_mc_modules.py). Tensors are read and written chunk by chunk: memory holds two chunks at most.

Folders are opened and written by dcp_folder.py, which needs torch; this file does not.
"""
import argparse
import array
import bisect
import json
import mmap
import os
import re
import sys

from dcp_error import Refused, first_line

INT64_MAX = 2**63 - 1
IDS = {"_mch_sorted_raw_ids": "sorted", "_hash_zch_identities": "buckets"}
SLOTS, ITERATION, SEGMENTS = "_mch_remapped_ids_mapping", "_current_iter_tensor", "_output_segments_tensor"
BUCKETS = "_hash_zch_bucket"  # [[n]]
COLUMNS = ("_mch_counts", "_mch_last_access_iter")
HASH_SIZES = {"sorted": INT64_MAX, "buckets": 0}  # TorchRec's defaults of input_hash_size
POLICIES = {(True, True): "distance_lfu", (True, False): "lfu", (False, True): "lru", (False, False): "none"}


def integers(data):
    return memoryview(data).cast("B").cast("q")


# ---- What lies where ---------------------------------------------------------------------------------------------


def bounds_of(key, size, chunks):
    """Where the chunks of a tensor that is cut along dimension 0 begin, and its length."""
    bounds = [0]
    for offsets, sizes in sorted(chunks):
        if list(sizes[1:]) != list(size[1:]):
            raise Refused(f"'{key}' is cut along dimension 1 as well. Fix: such tables are sharded row-wise.")
        if offsets[0] != bounds[-1]:
            raise Refused(f"'{key}': a chunk begins at {offsets[0]}, the one before it ends at {bounds[-1]}. Fix: a "
                          "shard is missing or saved twice; restore the checkpoint.")
        bounds.append(offsets[0] + sizes[0])
    if bounds[-1] != size[0]:
        raise Refused(f"'{key}': its chunks end at {bounds[-1]} of {size[0]}. Fix: a shard is missing; restore the "
                      "checkpoint.")
    return bounds


class Table:
    """One table: its name here, the prefix of its buffers, and the keys of its rows with the folder of each."""

    def __init__(self, name, prefix, layout):
        self.name, self.prefix, self.layout = name, prefix, layout
        self.word = prefix[:-1].split(".")[-1]  # what TorchRec calls it
        self.offsets, self.columns, self.rows, self.segments = [], [], [], 0

    def owns(self, key):
        return key.startswith(self.prefix) and "." not in key[len(self.prefix) :]


def stem_of(prefix):
    """The collection that a table is in: 'ec' of 'ec._managed_collision_collection...', '' of one that is the model."""
    return ("." + prefix).split("._managed_collision_collection")[0][1:]


def is_in(stem, words):
    """Whether a key, split at its dots, is of a collection."""
    if stem:
        return contains(words, stem.split("."))
    return words[0] == "_embedding_module" or contains(words, ["state", "_embedding_module"])


def find_tables(folder):
    """The tables of a folder, by the keys of their ids. Of two called 'user', one is 'ec.user'."""
    found = []
    for key in folder.keys():
        for suffix, layout in IDS.items():
            if key == suffix or key.endswith("." + suffix):
                found.append((key[: -len(suffix)], layout))
    tables = [Table("", prefix, layout) for prefix, layout in found]
    names = [[one.word or "table", f"{stem_of(one.prefix)}.{one.word}".lstrip("."), one.prefix[:-1]] for one in tables]
    for table, own in zip(tables, names):
        table.name = next((one for i, one in enumerate(own) if [name[i] for name in names].count(one) == 1), own[-1])
    if not tables:
        raise Refused(f"{folder.path} has no managed-collision table: no key ends in {' or '.join(IDS)}. Fix: name the "
                      "folder of the model.")
    return sorted(tables, key=lambda table: table.name)


def contains(words, some):
    return any(words[at : at + len(some)] == some for at in range(len(words) - len(some) + 1))


def find_rows(tables, folders, named, without):
    """Tensors that have a row per slot of a table, by the table's name in their keys: weights and optimizer states."""
    by_name = {table.name: table for table in tables}
    others = [tuple(text.split("=", 1)) for text in without if "=" in text]  # (table, key): not of its rows
    without = [text for text in without if "=" not in text]
    for option, names in (("--rows", named), ("--no-rows", without + [name for name, _ in others])):
        for name in names:
            if name not in by_name:
                raise Refused(f"{option}: there is no table '{name}'; there are: {', '.join(by_name)}. Fix: correct "
                              "it.")
    taken = {}
    for name, keys in named.items():
        if by_name[name].layout == "buckets":
            raise Refused(f"--rows {name}={keys[0]}: rows of a hash table stay where they are. Fix: leave it out.")
        for key in keys:
            if name in without or (name, key) in others:
                raise Refused(f"--rows {name}={key}: --no-rows says that they are not its own. Fix: one of the two.")
            at = [i for i, folder in enumerate(folders) if key in folder.keys()]
            if not at:
                raise Refused(f"--rows {name}={key}: no folder has this key. Fix: correct it.")
            rows = folders[at[0]].size(key)[:1]
            if list(rows) != [by_name[name].offsets[-1]]:
                raise Refused(f"--rows {name}={key}: it has {list(rows)} rows for {by_name[name].offsets[-1]} slots. "
                              "Fix: correct it.")
            taken[at[0], key] = by_name[name]
    for name, key in others:
        if not any(key in folder.keys() for folder in folders):
            raise Refused(f"--no-rows {name}={key}: no folder has this key. Fix: correct it.")
    for i, folder in enumerate(folders):
        for key in folder.keys():
            words = key.split(".")
            size = folder.size(key)
            if (i, key) in taken or not size or any(table.owns(key) for table in tables):
                continue
            fit = [one for one in tables if one.word in words and (one.name, key) not in others]
            if len(fit) > 1:  # tables of one name: that of the same collection
                fit = [one for one in fit if is_in(stem_of(one.prefix), words)] or fit
                depth = {one.name: len(stem_of(one.prefix).split(".")) for one in fit}
                fit = [one for one in fit if depth[one.name] == max(depth.values())]
            fit = [one for one in fit if size[0] == one.offsets[-1]]
            carried = [one.name for one in fit if one.layout == "sorted"]
            if len(fit) > 1 and carried:
                raise Refused(f"'{key}' may be of {' or '.join(one.name for one in fit)}. Fix: say whose it is: --rows "
                              f"{carried[0]}={key}, or whose not: --no-rows {carried[0]}={key}.")
            if fit:
                taken[i, key] = fit[0]
    for table in tables:  # a plain table elsewhere may have its name, and as many rows
        stem = stem_of(table.prefix)
        known = table.name in without or table.layout == "buckets"
        keys = [] if known else sorted(key for (_, key), one in taken.items() if one is table)
        inside = [key for key in keys if is_in(stem, key.split("."))]
        for key in keys:
            if not inside or key in inside or key in named.get(table.name, []):
                continue
            collection = f"'{stem}'" if stem else "the model's own collection"
            raise Refused(f"'{key}' has a row per slot of table '{table.name}', but is not of {collection}, as "
                          f"'{inside[0]}' is. Fix: say whether it goes with the ids: --rows {table.name}={key}, or "
                          f"does not: --no-rows {table.name}={key}.")
    for (i, key), table in sorted(taken.items()):
        bounds_of(key, folders[i].size(key), folders[i].chunks(key))
        table.rows.append((i, key))
    for table in tables:
        if table.name in without or table.layout == "buckets":  # rows of those stay where they are
            table.rows = []
            continue
        weights = [key for _, key in table.rows if key.split(".")[-1] == "weight"]
        if not weights and table.name not in named:
            near = [f"'{key}' with {folder.size(key)[0]} rows" for folder in folders for key in folder.keys()
                    if folder.size(key) and table.word in key.split(".") and not table.owns(key)]
            raise Refused(f"table '{table.name}': no tensor of {table.offsets[-1]} rows is named after it and 'weight'"
                          f"{', only ' + ', '.join(near[:3]) if near else ''}: its ids would find rows of others. Fix: "
                          f"--rows {table.name}=KEY, --also FOLDER OUT where they were saved, or --no-rows "
                          f"{table.name}.")
        if len(table.rows) == len(weights):
            print(f"table '{table.name}': no optimizer state is named after it; if one was saved elsewhere, it has to "
                  "come along: --also FOLDER OUT", file=sys.stderr)


# ---- Tables for `reshard mch` ------------------------------------------------------------------------------------


def id_bounds(key, ids, layout):
    """[ids, negative ids] of one shard and, if any are not, the lowest and the highest of the others."""
    ids = integers(ids)
    if layout == "sorted":  # who reads all of them sees whether they are
        live, negative = bisect.bisect_left(ids, INT64_MAX), bisect.bisect_left(ids, 0)
        if live < negative or (live > negative and ids[negative] > ids[live - 1]):
            raise Refused(f"the ids of '{key}' do not ascend. Fix: restore the checkpoint.")
        return [live, negative] + ([ids[negative], ids[live - 1]] if live > negative else [])
    live = [id for id in ids if id != -1]
    others = [id for id in live if id >= 0]
    return [len(live), len(live) - len(others)] + ([min(others), max(others)] if others else [])


def number(folder, key):
    data = integers(folder.read(key, 0)) if folder.itemsize(key) == 8 and folder.chunks(key) else []
    if len(data) != 1:
        raise Refused(f"'{key}' is not one number of 8 bytes. Fix: restore the checkpoint.")
    return data[0]


def describe(table, folder, options):
    """The table's text for `reshard mch` (docs/mch-format.md); sets offsets and columns."""
    ids = table.prefix + next(suffix for suffix, layout in IDS.items() if layout == table.layout)
    needed = [SLOTS, ITERATION, SEGMENTS] if table.layout == "sorted" else []
    for suffix in needed:
        if table.prefix + suffix not in folder.keys():
            raise Refused(f"'{table.prefix}{suffix}' is missing. Fix: restore the checkpoint, or save the whole "
                          "state_dict of the model.")
    table.offsets = bounds_of(ids, folder.size(ids), folder.chunks(ids))
    table.columns = [(ids, "ids")]
    if table.layout == "sorted":
        table.segments = folder.size(table.prefix + SEGMENTS)[0]
        table.columns += [(table.prefix + SLOTS, "slots")]
        there = [suffix for suffix in COLUMNS if table.prefix + suffix in folder.keys()]
        table.columns += [(table.prefix + suffix, "metadata." + suffix[len("_mch_") :]) for suffix in there]
    for key, _ in table.columns:
        wide = folder.itemsize(key) * (folder.size(key)[1] if len(folder.size(key)) > 1 else 1)
        if wide != 8:
            raise Refused(f"'{key}' has {wide} bytes a slot, not 8. Fix: save the state_dict as it is.")
        if bounds_of(key, folder.size(key), folder.chunks(key)) != table.offsets:
            raise Refused(f"'{key}' is not cut where the ids of the table are, at {table.offsets}. Fix: the tensors "
                          "are of different saves; restore the checkpoint.")
    known = {key for key, _ in table.columns} | {table.prefix + suffix for suffix in (ITERATION, SEGMENTS)}
    for key in folder.keys() if table.layout == "sorted" else ():
        if table.owns(key) and key not in known and folder.size(key)[:1] == (table.offsets[-1],):
            raise Refused(f"'{key}' has an entry per slot, and nobody here knows what it is. Fix: save without it, or "
                          "use a newer release.")
    parts, size = len(table.offsets) - 1, options.of("hash_size", table)
    ranks = options.ranks or parts
    if table.layout == "sorted" and ranks >= table.segments:
        raise Refused(f"'{table.prefix}{SEGMENTS}' has room for {table.segments - 1} shards, not {ranks}. Fix: fewer "
                      "ranks.")
    if size is None and table.layout == "sorted" and parts == 1:
        raise Refused(f"table '{table.name}' was saved by one rank, so that nothing tells its hash size. Fix: "
                      f"--hash-size {table.name}=N, TorchRec's input_hash_size ({INT64_MAX} unless it was configured).")
    text = {"version": 3, "layout": table.layout, "offsets": table.offsets, "ranks": list(range(parts)),
            "hash_size": HASH_SIZES[table.layout] if size is None else size,
            "hash_function": "", "buckets": parts,  # ids are saved after it
            "columns": [{"name": name[9:], "bytes": 8, "empty": 0} for _, name in table.columns[2:]], "rows": []}
    if table.layout == "sorted":
        names = [column["name"] for column in text["columns"]]
        text["eviction"] = POLICIES["counts" in names, "last_access_iter" in names]
        text["iteration"] = number(folder, table.prefix + ITERATION)
        if options.of("decay_exponent", table) is not None:
            text["decay_exponent"] = options.of("decay_exponent", table)
    else:
        text["eviction"] = "none"
        there = table.prefix + BUCKETS in folder.keys()
        saved = number(folder, table.prefix + BUCKETS) if there else options.of("buckets", table)
        if saved is None:
            raise Refused(f"the number of buckets of table '{table.name}' is not in the checkpoint. Fix: --buckets "
                          f"{table.name}=N, the module's total_num_buckets.")
        if options.of("buckets", table) not in (None, saved):
            raise Refused(f"table '{table.name}' was saved with {saved} buckets. Fix: leave --buckets out.")
        text["buckets"] = saved
    return text


def write_tables(path, tables, texts, folders):
    """One safetensors file with all tables: ids and columns, then rows as bytes."""
    pieces, header, at = [], {}, 0
    for table in tables:
        slots = table.offsets[-1]
        columns = [(0, key, f"{table.name}.{name}", "I64", [slots]) for key, name in table.columns]
        for place, (i, key) in enumerate(table.rows if table.layout == "sorted" else []):
            wide = folders[i].itemsize(key)
            for extent in folders[i].size(key)[1:]:
                wide *= extent
            columns.append((i, key, f"{table.name}.rows.{place}", "U8", [slots, wide]))
            texts[table.name]["rows"].append({"name": str(place), "dtype": "U8", "shape": [wide]})
        for i, key, name, dtype, shape in columns:
            size = shape[0] * (8 if dtype == "I64" else shape[1])
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            pieces.append((folders[i], key))
            at += size
        ids = table.columns[0][0]
        texts[table.name]["ids"] = [id_bounds(ids, folders[0].read(ids, chunk), table.layout)
                                    for chunk in range(len(table.offsets) - 1)]
    metadata = {"mch.table." + name: json.dumps(text) for name, text in texts.items()}
    text = json.dumps({"__metadata__": {"format": "pt", **metadata}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for folder, key in pieces:
            for chunk in range(len(folder.chunks(key))):
                file.write(folder.read(key, chunk))


class Options:
    """What was said of all tables, and of each: ['7', 'user=9'] is {None: 7, 'user': 9}."""

    def __init__(self, given):
        self.said = {"hash_size": by_table(given.hash_size, whole_number(0), "--hash-size"),
                     "buckets": by_table(given.buckets, whole_number(1), "--buckets"),
                     "decay_exponent": by_table(given.decay_exponent, decay_exponent, "--decay-exponent")}
        self.ranks = given.to  # 0: as many as saved

    def check(self, tables):
        layouts = {table.name: table.layout for table in tables}
        for option, said in self.said.items():
            word = "--" + option.replace("_", "-")
            for name in said:
                if name is None:
                    continue
                if name not in layouts:
                    raise Refused(f"{word}: there is no table '{name}'; there are: {', '.join(layouts)}. Fix: correct "
                                  "it.")
                if layouts[name] == {"buckets": "sorted", "decay_exponent": "buckets"}.get(option):
                    kind = "a hash table" if layouts[name] == "buckets" else "no hash table"
                    raise Refused(f"{word}: table '{name}' is {kind} and takes none. Fix: leave it out.")

    def of(self, option, table):
        return self.said[option].get(table.name, self.said[option].get(None))


def whole_number(least):
    def read(text):
        if not re.fullmatch(r"[0-9]+", text) or not least <= int(text) <= INT64_MAX:
            raise ValueError(f"not a whole number from {least} to 2^63 - 1")
        return int(text)

    return read


def decay_exponent(text):
    if not 0 <= float(text) < float("inf"):
        raise ValueError("not a number from 0 on")
    return repr(float(text))


def by_table(values, convert, option):
    result = {}
    for text in values:
        name, value = text.rsplit("=", 1) if "=" in text else (None, text)
        if name in result:
            raise Refused(f"{option} {text}: given twice. Fix: once for all tables, or once per table.")
        try:
            result[name] = convert(value)
        except ValueError as error:
            raise Refused(f"{option} {text}: {error}. Fix: {option} [TABLE=]VALUE.") from None
    return result


def read_tables(work, folders, given):
    """WORK/in, and in WORK/tables.json what write_tables_back() needs."""
    options, tables = Options(given), find_tables(folders[0])
    options.check(tables)
    texts = {table.name: describe(table, folders[0], options) for table in tables}
    named = {}
    for text in given.rows:
        name, _, key = text.partition("=")
        if not key:
            raise Refused(f"--rows {text}: no key. Fix: --rows TABLE=KEY.")
        named.setdefault(name, []).append(key)
    find_rows(tables, folders, named, given.no_rows)
    if given.ids_only:
        for table in tables:
            table.rows = []
    os.mkdir(os.path.join(work, "in"))
    write_tables(os.path.join(work, "in", "model.safetensors"), tables, texts, folders)
    about = [{"name": one.name, "prefix": one.prefix, "layout": one.layout, "columns": one.columns, "rows": one.rows,
              "segments": one.segments} for one in tables]
    with open(os.path.join(work, "tables.json"), "w", encoding="utf-8") as file:
        json.dump(about, file)
    for table in tables:
        for _, key in table.rows:
            print(f"table '{table.name}': rows '{key}'", file=sys.stderr)


# ---- And back ----------------------------------------------------------------------------------------------------


class Made:
    """The checkpoint that `reshard mch` wrote a moment ago: tensors as pieces of files that are mapped."""

    def __init__(self, path):
        with open(os.path.join(path, "reshard.manifest.json"), "rb") as file:
            manifest = json.load(file)
        self.tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}
        self.texts = manifest["metadata"]
        self.files = []
        for about in manifest["files"]:
            with open(os.path.join(path, about["name"]), "rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            self.files.append(data[8 + int.from_bytes(data[:8], "little") :])

    def pieces(self, name):
        """(first row, rows, bytes) of a tensor, ascending."""
        tensor, found = self.tensors[name], []
        for extent in tensor["extents"]:
            begin, end = extent["box"][0]
            row = {"I64": 8, "U8": 1}[tensor["dtype"]] * (tensor["shape"][1] if len(tensor["shape"]) > 1 else 1)
            data = self.files[extent["file"]][extent["begin"] : extent["begin"] + (end - begin) * row]
            found += [(begin, end - begin, data)] if begin < end else []
        return sorted(found, key=lambda piece: piece[0])


def changes(work, count):
    """For each of `count` folders: key -> (length of dimension 0, pieces of it), of what is not as it was."""
    with open(os.path.join(work, "tables.json"), encoding="utf-8") as file:
        tables = json.load(file)
    made, result, ranks = Made(os.path.join(work, "out")), [{} for _ in range(count)], 1
    for table in tables:
        name = table["name"]
        offsets = json.loads(made.texts["mch.table." + name])["offsets"]
        ranks = max(ranks, len(offsets) - 1)
        if table["layout"] == "buckets":
            continue  # slots stay what they are: any ranks read them from the chunks they have
        for key, tensor in table["columns"]:
            result[0][key] = (offsets[-1], made.pieces(f"{name}.{tensor}"))
        for place, (i, key) in enumerate(table["rows"]):
            result[i][key] = (offsets[-1], made.pieces(f"{name}.rows.{place}"))
        padded = array.array("q", offsets + [-1] * (table["segments"] - len(offsets)))
        result[0][table["prefix"] + SEGMENTS] = (len(padded), [(0, len(padded), bytearray(padded.tobytes()))])
    return result, ranks


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    read = commands.add_parser("read")
    read.add_argument("work")
    for option in ("--hash-size", "--buckets", "--decay-exponent", "--rows", "--no-rows"):
        read.add_argument(option, action="append", default=[])
    read.add_argument("--to", type=int, default=0)
    read.add_argument("--ids-only", action="store_true")
    read.add_argument("folders", nargs="+")
    write = commands.add_parser("write")
    write.add_argument("work")
    write.add_argument("folders", nargs="+")
    given = parser.parse_args(argv)
    try:
        try:
            from dcp_folder import Folder, write_folder
        except ImportError as error:
            raise Refused(f"PyTorch reads and writes these folders, and {sys.executable} has none ({error}). Fix: pip "
                          "install torch, or name a Python that has it in RESHARD_PYTHON.") from None
        if given.command == "read":
            read_tables(given.work, [Folder(path) for path in given.folders], given)
        else:
            changed, ranks = changes(given.work, len(given.folders) // 2)
            for at, one in enumerate(changed):
                write_folder(given.folders[2 * at + 1], Folder(given.folders[2 * at]), one, ranks)
    except (Refused, OSError, RuntimeError) as error:  # what torch raises where a disk is full
        with open(os.path.join(given.work, "error"), "w", encoding="utf-8") as file:  # who started this says it
            file.write(first_line(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
