#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tools/mch_from_dcp.py on buffers made by hand, without torch; with a program as argument (of
tests/tools/mch_files.cpp) also against the library, which opens what the script wrote and writes what it opens."""
import importlib.util
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("mch_from_dcp", ROOT / "tools" / "mch_from_dcp.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
Buffer, Refused, MAX = tool.Buffer, tool.Refused, tool.INT64_MAX
PROGRAM = None
MCC = "ec._managed_collision_collection._managed_collision_modules"


def int32(numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


def sorted_state(prefix, offsets, seed=1, counts=True, access=False, iteration=8):
    """TorchRec's buffers of one table: some ids in every shard, ascending, slots in any order, empties behind."""
    rng = random.Random(seed)
    raw, mapping, count, last = [], [], [], []
    router = tool.Table("any", "sorted", offsets, MAX)
    for part, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        size = end - begin
        live = rng.randrange(size) if size else 0
        ids = set()
        while len(ids) < live:
            id = rng.choice([rng.randrange(2**63 - 1), -rng.randrange(1, 2**40)])
            ids |= {id} if router.part_of(id) == part else set()
        ids = sorted(ids)
        slots = list(range(begin, end - 1))
        rng.shuffle(slots)
        slots += [end - 1] if size else []
        raw += ids + [MAX] * (size - live)
        mapping += slots
        count += [rng.randrange(1, 99) for _ in ids] + [0] * (size - live)
        last += [rng.randrange(1, iteration) for _ in ids] + [0] * (size - live)
    state = {f"{prefix}._mch_sorted_raw_ids": tool.int64(raw, offsets)}
    state[f"{prefix}._mch_remapped_ids_mapping"] = tool.int64(mapping, offsets)
    if counts:
        state[f"{prefix}._mch_counts"] = tool.int64(count, offsets)
    if access:
        state[f"{prefix}._mch_last_access_iter"] = tool.int64(last, offsets)
    # What a load on other ranks leaves behind: not where the shards were cut.
    state[f"{prefix}._output_segments_tensor"] = tool.int64([0, offsets[-1]] + [-1] * 1023)
    state[f"{prefix}._current_iter_tensor"] = tool.int64([iteration])
    return state


def bucket_state(prefix, offsets, seed=2, hash_size=MAX, buckets=6):
    """TorchRec's buffers of one table whose ids lie in the buckets they are looked up in."""
    rng = random.Random(seed)
    size = offsets[-1]
    router = tool.Table("any", "buckets", offsets, hash_size, buckets=buckets)
    ids = [-1] * size
    for id in [MAX] + [rng.randrange(-(2**40), 2**63 - 1) for _ in range(size)]:  # MAX is an id like any other here
        bucket = router.bucket_of(id)
        free = [at for at in range(bucket * size // buckets, (bucket + 1) * size // buckets) if ids[at] == -1]
        if free and id != -1:
            ids[free[rng.randrange(len(free))]] = id
    identities = tool.int64(ids, offsets)
    identities.shape = (size, 1)
    hours = Buffer("I32", [size, 1], int32([-1 if id == -1 else 7 for id in ids]), offsets)
    count = Buffer("I64", [1, 1], struct.pack("<q", buckets))
    return {f"{prefix}._hash_zch_identities": identities, f"{prefix}._hash_zch_metadata": hours,
            f"{prefix}._hash_zch_bucket": count}


def content(state):
    return {key: (buffer.dtype, buffer.shape, bytes(buffer.data)) for key, buffer in state.items()}


def entries(table):
    """id -> what is beside it, and its row."""
    rows = dict(table.rows)["weights"]
    columns = [list(buffer.integers()) for _, _, buffer in table.columns]
    return {id: (bytes(rows.rows(slot, slot + 1)), *(column[at] for column in columns))
            for at, (id, slot) in enumerate(zip(table.ids.integers(), table.slots.integers())) if id != MAX}


def tables_of(state, **options):
    return tool.tables_from_state(state, {None: MAX}, buckets={None: 6}, **options)


class Mapping(unittest.TestCase):
    def refused(self, text, call):
        with self.assertRaises(Refused) as caught:
            call()
        self.assertIn(text, str(caught.exception))
        self.assertIn("Fix: ", str(caught.exception))

    def test_a_state_becomes_tables_and_the_same_state_again(self):
        state = {**sorted_state(f"{MCC}.user", [0, 4, 8, 10]), **bucket_state(f"{MCC}.item", [0, 16, 48])}
        state.update(sorted_state(f"{MCC}.shop", [0, 5, 10], counts=False, access=True))
        state["dense.weight"] = Buffer("F32", [2], bytes(8))
        tables = tables_of(state)
        self.assertEqual([table.name for table in tables], ["item", "shop", "user"])
        self.assertEqual([table.eviction for table in tables], ["none", "lru", "lfu"])
        self.assertEqual([table.offsets for table in tables], [[0, 16, 48], [0, 5, 10], [0, 4, 8, 10]])
        self.assertEqual([table.buckets for table in tables], [6, 2, 3])
        self.assertEqual([table.iteration for table in tables], [0, 8, 8])
        back = tool.state_from_tables(tables, MCC + ".{table}")
        del state["dense.weight"]
        for key, (dtype, shape, data) in content(state).items():
            if key.endswith("_output_segments_tensor"):
                continue
            self.assertEqual(content(back)[key], (dtype, shape, data), key)
        self.assertEqual(set(back), set(state))
        self.assertEqual(list(back[f"{MCC}.user._output_segments_tensor"].integers())[:6], [0, 4, 8, 10, -1, -1])
        self.assertEqual(back[f"{MCC}.user._mch_sorted_raw_ids"].bounds, [0, 4, 8, 10])

    def test_shards_are_where_chunks_end_not_where_the_segments_say(self):
        table = tables_of(sorted_state("user", [0, 7, 10]))[0]
        self.assertEqual(table.offsets, [0, 7, 10])
        table = tables_of(sorted_state("user", [0, 2, 4, 5]), ranks=5)[0]
        self.assertEqual((table.offsets, table.buckets), ([0, 2, 4, 5, 5, 5], 5))
        self.refused("saved in 3 shards, not 2", lambda: tables_of(sorted_state("user", [0, 2, 4, 5]), ranks=2))

    def test_chunks_with_holes_overlaps_or_columns_are_refused(self):
        whole = [((0, 0), (4, 2)), ((4, 0), (3, 2))]
        self.assertEqual(tool.chunk_bounds("k", (7, 2), whole[::-1]), [0, 4, 7])
        self.refused("a chunk begins at 5", lambda: tool.chunk_bounds("k", (8, 2), [whole[0], ((5, 0), (3, 2))]))
        self.refused("a chunk begins at 3", lambda: tool.chunk_bounds("k", (6, 2), [whole[0], ((3, 0), (3, 2))]))
        self.refused("cut along dimension 1", lambda: tool.chunk_bounds("k", (4, 2), [((0, 0), (4, 1))]))
        state = sorted_state("user", [0, 4, 8])
        state["user._mch_counts"].bounds = [0, 4]
        self.refused("do not cover its 8 entries", lambda: tables_of(state))
        state["user._mch_counts"].bounds = [0, 5, 8]
        self.refused("'user._mch_counts' is cut at [0, 5, 8], the ids of the table at [0, 4, 8]",
                     lambda: tables_of(state))

    def test_what_is_missing_or_wrong_is_named(self):
        self.refused("no managed-collision table is there", lambda: tables_of({"dense.weight": Buffer("F32", [0])}))
        state = sorted_state("user", [0, 4])
        for suffix in ("_mch_remapped_ids_mapping", "_current_iter_tensor"):
            less = {key: buffer for key, buffer in state.items() if not key.endswith(suffix)}
            self.refused(f"'user.{suffix}' is missing", lambda less=less: tables_of(less))
        self.refused("the hash size of table 'user' is not in the checkpoint",
                     lambda: tool.tables_from_state(state, {"item": 5}))
        self.refused("there is no table 'item'; there are: user",
                     lambda: tool.tables_from_state(state, {None: MAX, "item": 5}))
        item = bucket_state("item", [0, 12])
        del item["item._hash_zch_bucket"]
        self.refused("the number of buckets of table 'item'", lambda: tool.tables_from_state(item, {None: MAX}))
        self.assertEqual(tool.tables_from_state(item, {None: MAX}, buckets={None: 6})[0].buckets, 6)
        both = {**sorted_state("a.user", [0, 4]), **sorted_state("b.user", [0, 4])}
        self.refused("two tables are called 'user'", lambda: tables_of(both))
        self.assertEqual([t.name for t in tables_of(both, names={"b.user": "other"})], ["user", "other"])
        self.refused("two tables have the prefix 'ec'",
                     lambda: tool.state_from_tables(tables_of(both, names={"b.user": "other"}), "ec"))
        state["user._mch_counts"] = Buffer("I32", [4], bytes(16), [0, 4])
        self.refused("'user._mch_counts' is I32, not I64", lambda: tables_of(state))

    def test_states_that_are_not_sound_are_refused(self):
        def spoiled(change):
            state = sorted_state("user", [0, 4, 8], seed=4)
            state["user._mch_sorted_raw_ids"] = tool.int64([3, 9, MAX, MAX, 5, MAX, MAX, MAX], [0, 4, 8])
            state["user._mch_remapped_ids_mapping"] = tool.int64([1, 0, 2, 3, 4, 5, 6, 7], [0, 4, 8])
            change(state)
            table = tables_of(state)[0]
            table.check(0)
            table.check(1)
            return [table.bounds(part) for part in range(2)]

        self.assertEqual(spoiled(lambda state: None), [[2, 0, 3, 9], [1, 0, 5, 5]])
        zeros = {f"user.{suffix}": tool.int64([0] * 8, [0, 4, 8]) for suffix in (tool.IDS["sorted"], tool.SLOTS)}
        self.refused("all zeros, as of a state that was never loaded", lambda: spoiled(lambda s: s.update(zeros)))
        early = {"user._mch_sorted_raw_ids": tool.int64([3, MAX, 9, MAX, 5, MAX, MAX, MAX], [0, 4, 8])}
        self.refused("shard 0: its ids do not ascend", lambda: spoiled(lambda s: s.update(early)))
        equal = {"user._mch_sorted_raw_ids": tool.int64([3, 3, MAX, MAX, 5, MAX, MAX, MAX], [0, 4, 8])}
        self.refused("shard 0: its ids do not ascend", lambda: spoiled(lambda s: s.update(equal)))
        twice = {"user._mch_remapped_ids_mapping": tool.int64([1, 1, 2, 3, 4, 5, 6, 7], [0, 4, 8])}
        self.refused("shard 0: two of its entries have one slot", lambda: spoiled(lambda s: s.update(twice)))
        other = {"user._mch_remapped_ids_mapping": tool.int64([1, 0, 2, 3, 0, 5, 6, 7], [0, 4, 8])}
        self.refused("shard 1: id 5 has slot 0, outside 4 to 8", lambda: spoiled(lambda s: s.update(other)))

    def test_ids_are_where_the_hash_size_says(self):
        state = sorted_state("user", [0, 40, 80, 100], seed=3)
        tables_of(state)[0].check_routes()
        for wrong in (1, 1000, 2**62):
            table = tool.tables_from_state(state, {None: wrong})[0]
            with self.assertRaises(Refused) as caught:
                table.check_routes()
            text = str(caught.exception)
            self.assertRegex(text, f"shard [0-2]: id -?[0-9]+ was looked up in shard [0-2] if .* is {wrong}; ")
            least, most = map(int, re.search("hash sizes from ([0-9]+) to ([0-9]+) would fit", text).groups())
            self.assertTrue(least <= MAX <= most, text)
            self.assertIn("Fix: correct --hash-size", text)
        rng = random.Random(7)
        for size in (1, 90, 4000, 2**40):
            for parts in (2, 3):
                table = tool.Table("any", "sorted", list(range(0, 101 * parts, 100)), size)
                ids = [[] for _ in range(parts)]
                for id in [rng.randrange(size) if size > 90 else rng.randrange(10**6, 10**7) for _ in range(60)]:
                    ids[table.part_of(id)].append(id)
                table.ids = tool.int64([id for one in ids for id in sorted(one) + [MAX] * (100 - len(one))])
                table.check_routes()
                least, most = re.search("(up to|from ([0-9]+) to) ([0-9]+)", table.fitting_hash_sizes()).groups()[1:]
                self.assertTrue(int(least or 1) <= size <= int(most), table.fitting_hash_sizes())
        one = tool.tables_from_state(sorted_state("user", [0, 40]), {None: 7})[0]
        one.check_routes()

    def test_the_buckets_of_hash_zch_are_in_the_checkpoint_and_ids_lie_in_them(self):
        for size in (0, 1, 5000, MAX):  # 0 is TorchRec's default
            state = bucket_state("item", [0, 48, 96], hash_size=size, buckets=12)
            table = tool.tables_from_state(state, {None: size})[0]
            self.assertEqual(table.buckets, 12)
            table.check_routes()
            back = content(tool.state_from_tables([table], "{table}"))
            self.assertEqual(back, content(state))
        self.refused("table 'item' has 12 buckets in the checkpoint, --buckets says 6",
                     lambda: tool.tables_from_state(state, {None: MAX}, buckets={"item": 6}))
        del state["item._hash_zch_bucket"]
        wrong = tool.tables_from_state(state, {None: MAX}, buckets={"item": 24})[0]
        self.refused("is looked up in bucket", wrong.check_routes)
        odd = tool.tables_from_state(state, {None: MAX}, buckets={None: 7})[0]
        self.refused("96 slots in 7 buckets", odd.check_routes)
        self.refused("hash size -3", tool.tables_from_state(state, {None: -3}, buckets={None: 6})[0].check_routes)
        small = tool.tables_from_state(state, {None: 0}, buckets={None: 12})[0]
        self.refused("of 12 if the hash size is 0, and so are ", small.check_routes)

    def test_columns_of_hash_zch_go_back_as_torchrec_has_them(self):
        table = tool.tables_from_state(bucket_state("item", [0, 24, 48]), {None: MAX})[0]
        table.columns = [(name, empty, Buffer(one.dtype, [48], one.data)) for name, empty, one in table.columns]
        back = tool.state_from_tables([table], "{table}")
        self.assertEqual({key: buffer.shape for key, buffer in back.items()},
                         {"item._hash_zch_identities": (48, 1), "item._hash_zch_metadata": (48, 1),
                          "item._hash_zch_bucket": (1, 1)})
        self.assertEqual(back["item._hash_zch_bucket"].integers()[0], 6)

    def test_options_are_per_table_or_for_all(self):
        self.assertEqual(tool.by_table(["7", "user=9"], int, "--hash-size"), {None: 7, "user": 9})
        self.refused("--hash-size user=x: not a number", lambda: tool.by_table(["user=x"], int, "--hash-size"))
        self.refused("given twice", lambda: tool.by_table(["7", "8"], int, "--hash-size"))
        self.assertEqual(tool.rows_by_table(["user:w=a.b=c", "user:m=d"]), {"user": [("w", "a.b=c"), ("m", "d")]})
        self.refused("--rows user=w", lambda: tool.rows_by_table(["user=w"]))

    def test_sums_are_of_blocks_and_the_same_with_numpy_and_without(self):
        self.assertEqual(tool.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(tool.extent_sums(b""), {"crc32c": "00000000"})
        self.assertEqual(tool.fnv1a(b"foobar"), "85944171f73967e8")
        data, block = random.Random(5).randbytes(5 * 65536 + 1033), 2 * 65536
        sums = tool.extent_sums(memoryview(data), block)
        self.assertEqual(sums["crc32c"], f"{tool.crc32c(data):08x}")
        self.assertEqual(sums["crc32c_blocks"], "".join(
            f"{tool.crc32c(data[at : at + block]):08x}" for at in range(0, len(data), block)))
        self.assertEqual(tool.extent_sums(data[:block], block), {"crc32c": sums["crc32c_blocks"][:8]})
        with unittest.mock.patch.object(tool, "numpy", None):
            self.assertEqual(tool.extent_sums(memoryview(data), block), sums)

    def test_importing_and_mapping_need_no_torch(self):
        self.assertNotIn("torch", sys.modules)


class Folders(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = os.path.join(self.temporary.name, "saved")
        self.state = sorted_state(f"{MCC}.user", [0, 4, 8, 10], access=True)
        self.state.update(bucket_state(f"{MCC}.item", [0, 16, 48]))
        weights = struct.pack("<30f", *range(30))
        self.state["user.weight"] = Buffer("F32", [10, 3], weights, [0, 4, 8, 10])
        self.tables = tables_of(self.state, rows={"user": [("weights", "user.weight")]},
                                hash_function={"user": 'murmur "3"\n'})
        tool.write_folder(self.folder, self.tables, "00000000000000ab")

    def back(self, folder):
        return content(tool.state_from_tables(tool.read_folder(folder), MCC + ".{table}",
                                              {"user": [("weights", "user.weight")]}))

    def wanted(self):
        return content(tool.state_from_tables(self.tables, MCC + ".{table}", {"user": [("weights", "user.weight")]}))

    def test_a_folder_is_read_as_it_was_written(self):
        self.assertEqual(sorted(os.listdir(self.folder)), ["reshard.manifest.json", *(
            f"shard-{rank:05d}-of-00003.00000000000000ab.safetensors" for rank in (1, 2, 3))])
        self.assertEqual(self.back(self.folder), self.wanted())
        for was, table in zip(self.tables, tool.read_folder(self.folder)):
            self.assertEqual(table.describe(), was.describe())

    def write(self, leaf, data):
        with open(os.path.join(self.folder, leaf), "wb") as file:
            file.write(data)

    def read(self, leaf):
        with open(os.path.join(self.folder, leaf), "rb") as file:
            return file.read()

    def write_manifest(self, manifest):
        """With a sum that fits."""
        manifest.pop("crc32c", None)
        text = tool.compact(manifest).encode()[:-1]
        self.write(tool.MANIFEST, text + tool.manifest_end(text))

    def refused(self, text):
        """By the library as well."""
        with self.assertRaises(Refused) as caught:
            tool.read_folder(self.folder)
        self.assertIn(text, str(caught.exception))
        self.assertIn(self.folder, str(caught.exception))
        self.assertIn("Fix: ", str(caught.exception))
        if PROGRAM is not None:
            done = subprocess.run([PROGRAM, "read", self.folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn("Fix: ", done.stderr)

    def test_missing_foreign_and_damaged_files_are_told_apart(self):
        leaf = tool.file_name("00000000000000ab", 1, 3)
        good = self.read(leaf)
        self.write(leaf, good[:-1])
        self.refused(f"'bytes' is {len(good) - 1}, the manifest says {len(good)}")
        self.write(leaf, good + b" ")
        self.refused(f"'bytes' is {len(good) + 1}, the manifest says {len(good)}")
        self.write(leaf, good[:-1] + bytes([good[-1] ^ 4]))
        self.refused("have another CRC-32C than when they were saved")
        begin = 8 + struct.unpack("<Q", good[:8])[0]
        ids = json.loads(good[8:begin])["user.ids"]["data_offsets"][0] + begin
        self.write(leaf, good[:ids] + bytes([good[ids] ^ 1]) + good[ids + 1 :])
        self.refused("bytes 0 to 32 of tensor 'user.ids', slots [4, 8], have another CRC-32C")
        self.write(leaf, good.replace(b'"user.ids":{"d', b'"user.idz":{"d'))
        self.refused("'header_digest' is")
        self.write(leaf, struct.pack("<Q", 2**63) + good[8:])
        self.refused("'header_digest' is")
        self.write(leaf, self.read(tool.file_name("00000000000000ab", 2, 3)))
        self.refused("the manifest says")
        os.remove(os.path.join(self.folder, leaf))
        self.refused("is missing")
        self.write(leaf, good)
        self.assertEqual(self.back(self.folder), self.wanted())

    def test_a_manifest_that_was_damaged_or_makes_no_sense_is_refused(self):
        whole = self.read(tool.MANIFEST)
        live = self.tables[0].bounds(0)[0]
        count, fewer = b'\\"ids\\":[[%d' % live, b'\\"ids\\":[[%d' % (live - 1)
        for was, now in ((b'\\"iteration\\":8', b'\\"iteration\\":9'), (b"}\n", b"} "), (b"crc32c", b"crc32d"),
                         (count, fewer), (b'"begin":0', b'"begin":8')):
            self.assertIn(was, whole)
            self.write(tool.MANIFEST, whole.replace(was, now))
            self.refused("'crc32c' is not the sum of the text before it")
        manifest = json.loads(whole)
        at = {tensor["name"]: place for place, tensor in enumerate(manifest["tensors"])}
        extents = f"tensors {at['user.ids']} extents"
        for path, now, text in (
                ("version", 3, "version 3; this reads reshard-checkpoint, version 2"),
                ("format", "reshard-mch", "is of format reshard-mch"),
                ("files 1 name", "../" + manifest["files"][1]["name"], "is no file in the folder"),
                ("files 1 name", os.path.join(self.folder, manifest["files"][1]["name"]), "is no file in the folder"),
                ("files 1 header_digest", "0" * 16, "'header_digest' is"),
                (f"{extents} 1 crc32c", "0" * 8, "bytes 0 to 32 of tensor 'user.ids'"),
                (f"{extents} 1 box", [[5, 8]], "a chunk begins at 5, the one before it ends at 4"),
                (f"{extents} 1 box", [[3, 8]], "a chunk begins at 3, the one before it ends at 4"),
                (extents, manifest["tensors"][at["user.ids"]]["extents"][:2], "do not cover its 10 entries"),
                (f"tensors {at['user.ids']} name", "user.idz", "it has no tensor 'user.ids'"),
                (f"tensors {at['user.ids']} dtype", "F64", "tensor 'user.ids' is F64 [10], its table has I64 [10]"),
                (f"tensors {at['user.rows.weights']} shape", [11, 3], "is F32 [11, 3], its table has F32 [10, 3]"),
                (f"tensors {at['user.rows.weights']} dtype", "I32", "is I32 [10, 3], its table has F32 [10, 3]")):
            *keys, last = [int(key) if key.isdigit() else key for key in path.split()]
            changed = json.loads(whole)
            place = changed
            for key in keys:
                place = place[key]
            place[last] = now
            self.write_manifest(changed)
            self.refused(text)
        for was, now, text in ((count, fewer, "'ids' of table 'item' is [["),
                               (b'\\"version\\":3', b'\\"version\\":4', "table 'item' is of version 4, this reads 3")):
            self.assertIn(was, whole)
            self.write_manifest(json.loads(whole.replace(was, now)))
            self.refused(text)
        self.write_manifest(manifest)
        self.assertEqual(self.back(self.folder), self.wanted())

    def test_what_readers_would_find_too_long_is_not_written(self):
        before = sorted(os.listdir(self.folder))
        for most, text in (("MOST_MANIFEST", f"{tool.MANIFEST}: it would have"),
                           ("MOST_HEADER", "its header would have")):
            with unittest.mock.patch.object(tool, most, 500), self.assertRaises(Refused) as caught:
                tool.write_folder(self.folder, self.tables, "00000000000000cd")
            self.assertIn(text, str(caught.exception))
            self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_tables_that_share_the_name_of_a_tensor_are_not_written(self):
        item, user = self.tables
        item.name, user.rows = "user.rows", [("ids", dict(user.rows)["weights"])]
        with self.assertRaises(Refused) as caught:
            tool.write_folder(self.folder, self.tables)
        self.assertIn("two tensors are called 'user.rows.ids'", str(caught.exception))

    def test_a_folder_of_an_older_release_is_refused(self):
        self.write(tool.OLD_INDEX, b"{}")
        self.assertEqual(self.back(self.folder), self.wanted())  # the manifest has tables
        manifest = json.loads(self.read(tool.MANIFEST))
        manifest["metadata"] = {"step": "7"}
        self.write_manifest(manifest)
        self.refused("has no managed-collision tables. Fix: name a checkpoint that has; if mch.index.json is beside it")
        os.remove(os.path.join(self.folder, tool.MANIFEST))
        self.refused("mch.index.json was saved by an older release. Fix: load and save it with the library "
                     "(MchCheckpoint, save)")

    def test_other_tensors_of_a_checkpoint_are_left_out(self):
        manifest = json.loads(self.read(tool.MANIFEST))
        header = tool.compact({"dense.codes": {"dtype": "F8_E5M2", "shape": [5], "data_offsets": [0, 5]}}).encode()
        start = struct.pack("<Q", len(header)) + header
        self.write("dense.safetensors", start + b"codes")
        manifest["files"].append({"name": "dense.safetensors", "bytes": len(start) + 5,
                                  "header_digest": tool.fnv1a(start)})
        manifest["tensors"].append({"name": "dense.codes", "dtype": "F8_E5M2", "shape": [5], "replicas": 1,
                                    "distribution": "", "extents": [{"file": 3, "begin": 0, "box": [[0, 5]]}]})
        before = self.run_program("read", self.folder) if PROGRAM else None
        self.write_manifest(manifest)
        self.assertEqual(self.back(self.folder), self.wanted())
        if PROGRAM:
            self.assertEqual(self.run_program("read", self.folder), before)

    def test_a_part_may_lie_in_several_extents_with_sums_and_without(self):
        manifest = json.loads(self.read(tool.MANIFEST))
        for tensor in manifest["tensors"]:
            width = tool.BYTES[tensor["dtype"]] * tool.product(tensor["shape"][1:])
            split = [{**extent, "replica": 1} for extent in tensor["extents"]]
            for extent in tensor["extents"]:
                (begin, end), *others = extent["box"]
                self.assertEqual(extent.pop("crc32c_blocks", None), None)
                sum_of_all = extent.pop("crc32c")
                for slot in range(begin, end):
                    split.append({**extent, "key": f"{slot}", "begin": extent["begin"] + (slot - begin) * width,
                                  "box": [[slot, slot + 1], *others]})
                split.append({**extent, "begin": 0, "box": [[end, end], *others], "crc32c": "00000000"})
                if end - begin == 4:
                    split[-5:-1] = [{**extent, "crc32c": sum_of_all}]
            tensor["extents"] = split[::-1]
        self.write_manifest(manifest)
        self.assertEqual(self.back(self.folder), self.wanted())

    # ---- With the library

    def run_program(self, *arguments):
        if PROGRAM is None:
            self.skipTest("no program was given")
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_library_opens_what_was_written(self):
        text = self.run_program("read", self.folder)
        lines = text.splitlines()
        self.assertEqual(lines[0], "ranks 3")
        self.assertIn("table 'item' of 48 slots (2):(S0[0,16,48]) buckets no eviction", text)
        self.assertIn("table 'user' of 10 slots (3):(S0) sorted DistanceLFU, hash size 9223372036854775807 by m", text)
        for table in self.tables:
            begin = next(i for i, line in enumerate(lines) if line.startswith(f"table '{table.name}' "))
            end = next((i for i in range(begin + 1, len(lines)) if lines[i].startswith("table ")), len(lines))
            section = lines[begin:end]
            self.assertIn(" " + " ".join(map(str, table.offsets)), section)
            bounds = [(table.bounds(part) + [0, -1])[:4] for part in range(len(table.ranks))]
            self.assertIn("".join(f" {b[0]}/{b[1]}/{b[2]}/{b[3]}" for b in bounds), section)
            for name, buffer in [("ids", table.ids), ("slots", table.slots),
                                 *((f"metadata.{n}", b) for n, _, b in table.columns),
                                 *((f"rows.{n}", b) for n, b in table.rows)]:
                if buffer is not None:
                    self.assertIn(f"{name} {bytes(buffer.data).hex()}", section)
            if table.layout == "sorted":
                self.assertIn(f"iteration {struct.pack('<q', table.iteration).hex()}", section)

    def test_blocks_of_long_tensors_have_sums_that_the_library_has_as_well(self):
        shape = [10, 100_000]
        rows = Buffer("F32", shape, random.Random(6).randbytes(4_000_000), [0, 4, 8, 10])
        user = self.tables[1]
        user.rows = [("weights", rows)]
        tool.write_folder(self.folder, [user], "00000000000000cd")
        leaf = tool.file_name("00000000000000cd", 1, 3)
        good, extents = self.read(leaf), json.loads(self.read(tool.MANIFEST))["tensors"][-2]["extents"]
        self.assertEqual([len(extent.get("crc32c_blocks", "")) // 8 for extent in extents], [2, 2, 0])
        self.write(leaf, good[:-1] + bytes([good[-1] ^ 4]))
        self.refused("bytes 1048576 to 1600000 of tensor 'user.rows.weights', slots [4, 8], have another CRC-32C")
        self.write(leaf, good)
        copied = os.path.join(self.temporary.name, "copied")
        self.assertIn(f"rows.weights {bytes(rows.data).hex()}\n", self.run_program("read", self.folder))
        self.run_program("copy", self.folder, copied, "3")
        with open(os.path.join(copied, tool.MANIFEST), "rb") as file:
            by_library = json.load(file)["tensors"][-2]
        self.assertEqual([extent.get("crc32c_blocks") for extent in by_library["extents"]],
                         [extent.get("crc32c_blocks") for extent in extents])
        (table,) = tool.read_folder(copied)
        self.assertEqual(bytes(dict(table.rows)["weights"].data), bytes(rows.data))

    def test_tables_without_slots_and_ranks_without_slots(self):
        none = sorted_state("none", [0, 0, 0])
        none["none.weight"] = Buffer("F32", [0, 3], b"", [0, 0, 0])
        none.update(sorted_state("some", [0, 0, 7, 7]))
        tables = tables_of(none, rows={"none": [("weights", "none.weight")]})
        tool.write_folder(self.folder, tables, "00000000000000cd")
        self.assertEqual([leaf for leaf in os.listdir(self.folder) if ".00000000000000cd." in leaf],
                         [tool.file_name("00000000000000cd", 1, 3)])
        wanted = [table.describe() for table in tables]
        self.assertEqual([table.describe() for table in tool.read_folder(self.folder)], wanted)
        self.assertIn("table 'none' of 0 slots", self.run_program("read", self.folder))
        copied = os.path.join(self.temporary.name, "copied")
        self.run_program("copy", self.folder, copied, "2")
        back = [table.describe() for table in tool.read_folder(copied)]
        self.assertEqual([table["rows"] for table in back], [table["rows"] for table in wanted])
        self.assertEqual([table["offsets"] for table in back], [[0, 0, 0], [0, 4, 7]])
        manifest = json.loads(self.read(tool.MANIFEST))
        manifest["tensors"] = [tensor for tensor in manifest["tensors"] if not tensor["name"].startswith("none.")]
        self.write_manifest(manifest)
        self.assertEqual([table.describe() for table in tool.read_folder(self.folder)], wanted)
        self.assertIn("table 'none' of 0 slots", self.run_program("read", self.folder))

    def test_what_the_library_writes_is_opened(self):
        copied = os.path.join(self.temporary.name, "copied")
        self.run_program("copy", self.folder, copied, "2")
        tables = tool.read_folder(copied)
        self.assertEqual([table.offsets for table in tables], [[0, 24, 48], [0, 5, 10]])
        wanted, back = self.wanted(), self.back(copied)
        for key in wanted:
            if "_hash_zch_" in key or key.endswith("_current_iter_tensor"):
                self.assertEqual(back[key][2], wanted[key][2], key)
        self.assertEqual(entries(tables[1]), entries(self.tables[1]))
        for was, table in zip(self.tables, tables):
            about, before = table.describe(), was.describe()
            for key in ("layout", "eviction", "hash_size", "hash_function", "rows"):
                self.assertEqual(about[key], before[key])


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isfile(sys.argv[1]):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
