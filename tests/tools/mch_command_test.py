#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `reshard mch` as a program, on checkpoints as TorchRec has them (fake_dcp.py) and on those of the library. The
rows of an id hold its number, so that each row says whose it is: an id finds its own, or is listed as evicted."""
import fcntl
import importlib.util
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("fake_dcp", HERE / "fake_dcp.py")
fake = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake)
PROGRAM = None
FULL = 2**63 - 1
MCC = "_managed_collision_collection._managed_collision_modules"


def numbers(data):
    return list(memoryview(data).cast("B").cast("q"))


def words(values):
    return struct.pack(f"<{len(values)}q", *values)


def cut(values, offsets, row=1, size=()):
    """A tensor of 8-byte numbers, `row` of them a slot, in chunks."""
    chunks = [((a, *[0] * len(size)), (b - a, *size), words(values[a * row : b * row]))
              for a, b in zip(offsets, offsets[1:])]
    return fake.Tensor(8, (offsets[-1], *size), chunks)


def whole(values, size):
    return fake.Tensor(8, size, [(tuple([0] * len(size)), size, words(values))])


def bucket_of(id, buckets, hash_size=FULL):
    """fbgemm's _block_bucketize_sparse_features."""
    raw, block = id % 2**64, -(-max(hash_size, 1) // buckets)
    return raw // block if raw < block * buckets else raw % buckets


def chunked(slots, ranks):
    block = -(-slots // ranks)
    return [min(block * rank, slots) for rank in range(ranks + 1)]


def table(stem, name, slots, ranks, fill, seed, counts=True, access=False, hash_size=FULL, offsets=None):
    """(keys of the model, keys of the optimizer, id -> (count, access)) of an MCH table."""
    rng, offsets, live = random.Random(seed), offsets or chunked(slots, ranks), {}
    ids, mapping, count, last, rows = [], [], [], [], [0] * (2 * slots)
    for part in range(ranks):
        size, mine = offsets[part + 1] - offsets[part], set()
        while len(mine) < min(int(fill * size), size - 1):
            id = rng.choice([rng.randrange(FULL), rng.randrange(FULL), -rng.randrange(1, 2**40)])
            mine |= {id} if bucket_of(id, ranks, hash_size) == part else set()
        own = list(range(offsets[part], offsets[part + 1] - 1))
        rng.shuffle(own)
        ids += sorted(mine) + [FULL] * (size - len(mine))
        mapping += own + [offsets[part + 1] - 1]
        count += [rng.randrange(1, 9) for _ in mine] + [0] * (size - len(mine))
        last += [rng.randrange(1, 30) for _ in mine] + [0] * (size - len(mine))
    for at, id in enumerate(ids):
        if id != FULL:
            rows[2 * mapping[at]], rows[2 * mapping[at] + 1] = id, at
            live[id] = (count[at], last[at])
    prefix = f"{stem}.{MCC}.{name}."
    model = {prefix + "_mch_sorted_raw_ids": cut(ids, offsets),
             prefix + "_mch_remapped_ids_mapping": cut(mapping, offsets),
             prefix + "_current_iter_tensor": whole([30], (1,)),
             prefix + "_output_segments_tensor": whole([0, slots] + [-1] * 1023, (1025,)),  # not where shards are cut
             f"{stem}._embedding_module.embeddings.{name}.weight": cut(rows, offsets, 2, (2,))}
    model.update({prefix + "_mch_counts": cut(count, offsets)} if counts else {})
    model.update({prefix + "_mch_last_access_iter": cut(last, offsets)} if access else {})
    state = {f"state.{stem}._embedding_module.embeddings.{name}.weight.{name}.momentum1": cut(rows[::2], offsets)}
    return model, state, live


def bucket_table(stem, name, slots, ranks, buckets, hash_size=0, seed=5):
    rng, ids = random.Random(seed), [-1] * slots
    for id in [rng.randrange(-(2**40), FULL) for _ in range(slots)]:
        begin = bucket_of(id, buckets, hash_size) * (slots // buckets)
        free = [at for at in range(begin, begin + slots // buckets) if ids[at] == -1]
        if free and id != -1:
            ids[rng.choice(free)] = id
    offsets, prefix = chunked(slots, ranks), f"{stem}.{MCC}.{name}."
    return {prefix + "_hash_zch_identities": cut(ids, offsets, 1, (1,)),
            prefix + "_hash_zch_metadata": cut([7] * slots, offsets, 1, (1,)),
            prefix + "_hash_zch_bucket": whole([buckets], (1, 1)),
            f"{stem}._embedding_module.embeddings.{name}.weight": cut(ids, offsets, 1, (1,))}


def joined(tensor):
    return [number for _, _, data in tensor.chunks for number in numbers(data)]


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.folder.name

    def tearDown(self):
        left = [name for name in os.listdir(self.path) if "work" in name or name.startswith(".reshard")]
        self.folder.cleanup()
        self.assertEqual(left, [])

    def run_mch(self, *arguments, python=None, cwd="."):
        environment = {**os.environ, "RESHARD_PYTHON": python or str(HERE / "fake_dcp.py")}
        return subprocess.run([PROGRAM, "mch", *map(str, arguments)], cwd=os.path.join(self.path, cwd), env=environment,
                              capture_output=True, text=True, timeout=60, check=False)

    def answer(self, *arguments):
        done = self.run_mch(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {one["name"]: one for one in json.loads(done.stdout)["tables"]}

    def refused(self, text, *arguments, python=None):
        before = sorted(os.listdir(self.path))
        done = self.run_mch(*arguments, python=python)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertIn("Fix: ", done.stderr)
        self.assertEqual(sorted(os.listdir(self.path)), before)

    def save(self, name, *states):
        fake.save(os.path.join(self.path, name), {key: value for state in states for key, value in state.items()})

    def as_one_file(self, name):
        """mch_dcp.py, and what it makes of a folder's tables for `reshard mch`: a checkpoint of the library."""
        sys.path.insert(0, str(HERE.parents[1] / "tools" / "reshard"))
        import mch_dcp

        given = mch_dcp.argparse.Namespace(hash_size=[], buckets=[], decay_exponent=[], rows=[],
                                           no_rows=[], to=0, ids_only=False)
        mch_dcp.read_tables(self.path, [fake.Folder(os.path.join(self.path, name))], given)
        return mch_dcp, pathlib.Path(self.path, "in", "model.safetensors")

    def check(self, model, optimizer, stem, name, live, ranks, slots, said, hash_size=FULL, score=lambda c, a: c,
              offsets=None):
        """Every id is found where it is looked up, with its own rows, or was said to be evicted: the lowest scores."""
        prefix, offsets = f"{stem}.{MCC}.{name}.", offsets or chunked(slots, ranks)
        ids, mapping = (joined(model[prefix + one]) for one in ("_mch_sorted_raw_ids", "_mch_remapped_ids_mapping"))
        weights = model[f"{stem}._embedding_module.embeddings.{name}.weight"]
        self.assertEqual(weights.size, (slots, 2))
        self.assertEqual([chunk[0][0] for chunk in weights.chunks], offsets[:-1])
        rows = joined(weights)
        momenta = joined(optimizer[f"state.{stem}._embedding_module.embeddings.{name}.weight.{name}.momentum1"])
        self.assertEqual(joined(model[prefix + "_output_segments_tensor"])[: ranks + 2], offsets + [-1])
        found = {}
        for part in range(ranks):
            here = ids[offsets[part] : offsets[part + 1]]
            self.assertEqual(here, sorted(here))
            for at, id in enumerate(here, offsets[part]):
                if id == FULL:
                    continue
                self.assertEqual(bucket_of(id, ranks, hash_size), part)
                self.assertTrue(offsets[part] <= mapping[at] < offsets[part + 1] - 1)
                self.assertEqual((rows[2 * mapping[at]], momenta[mapping[at]]), (id, id))
                found[id] = part
            self.assertEqual(sorted(mapping[offsets[part] : offsets[part + 1]]), list(range(*offsets[part : part + 2])))
            taken = {mapping[at] for at, id in enumerate(here, offsets[part]) if id != FULL}
            for slot in set(range(offsets[part], offsets[part + 1] - 1)) - taken:  # nobody's row is left in them
                self.assertEqual((rows[2 * slot], momenta[slot]), (0, 0))
        self.assertEqual(len(said["evicted"]), len(live) - len(found))
        self.assertEqual(set(said["evicted"]) | set(found), set(live))
        for id in said["evicted"]:
            part = bucket_of(id, ranks, hash_size)
            stay = [score(*live[one]) for one, where in found.items() if where == part]
            self.assertEqual(len(stay), offsets[part + 1] - offsets[part] - 1)
            self.assertLessEqual(score(*live[id]), min(stay, default=FULL))

    def test_three_tables_of_two_collections_take_rows_and_momenta_along_and_the_rest_stays(self):
        dense = {"dense.weight": whole([1, 2, 3], (3,)), "config": b"any bytes"}
        user, user_state, users = table("ec", "user", 40, 2, 0.7, 1)
        item, item_state, items = table("ec", "item", 31, 2, 1.0, 2, access=True)
        other, other_state, others = table("other", "user", 40, 2, 0.9, 3, counts=False, access=True)
        self.save("model", dense, user, item, other)
        self.save("optimizer", user_state, item_state, other_state, {"step": whole([9], (1,))})
        for ranks, sizes in ((1, {}), (3, {}), (4, {}), (8, {}), (4, {"ec.user": 90, "item": 12}), (2, {"item": 100})):
            out, state = f"model.{ranks}.{len(sizes)}", f"optimizer.{ranks}.{len(sizes)}"
            options = [word for name, size in sizes.items() for word in ("--size", f"{name}={size}")]
            said = self.answer("model", out, "--to", ranks, "--also", "optimizer", state, *options, "--decay-exponent",
                               "item=0.5")
            model, optimizer = (fake.load(os.path.join(self.path, one)) for one in (out, state))
            self.assertEqual({key: model[key] for key in dense}, dense)
            self.assertEqual(set(model), {*dense, *user, *item, *other})
            self.assertEqual(optimizer["step"], whole([9], (1,)))
            at = lambda name, slots: (ranks, sizes.get(name, slots), said[name])
            self.check(model, optimizer, "ec", "user", users, *at("ec.user", 40))
            self.check(model, optimizer, "ec", "item", items, *at("item", 31),
                       score=lambda count, access: count / (31 - access) ** 0.5)
            self.check(model, optimizer, "other", "user", others, *at("other.user", 40), score=lambda _, access: access)

    def test_a_table_that_does_not_change_keeps_its_cut(self):
        user, user_state, users = table("ec", "user", 40, 2, 0.95, 1, offsets=[0, 30, 40])
        item, item_state, items = table("ec", "item", 31, 2, 0.5, 2)
        hashed = bucket_table("ec", "hashed", 40, 4, 10)  # 10 buckets are no multiple of 4 ranks
        for key, tensor in hashed.items():
            if tensor.size[0] == 40:
                hashed[key] = cut(joined(tensor), [0, 12, 20, 32, 40], 1, tensor.size[1:])
        self.save("model", user, user_state, item, item_state, hashed)
        for out, options in (("size", ()), ("to", ("--to", 2))):
            said = self.answer("model", out, "--size", "item=62", *options)
            made = fake.load(os.path.join(self.path, out))
            self.assertEqual((said["user"]["moved"], said["user"]["evicted"]), (0, []))
            self.check(made, made, "ec", "user", users, 2, 40, said["user"], offsets=[0, 30, 40])
            self.check(made, made, "ec", "item", items, 2, 62, said["item"])
            self.assertEqual({key: made[key] for key in hashed}, hashed)

    def test_folders_are_made_where_links_and_dots_lead(self):
        user, state, live = table("ec", "user", 40, 2, 0.5, 1)
        self.save("model", user)
        self.save("optimizer", state)
        for name in ("disk", "disk/model", "disk/optimizer", "here"):
            os.mkdir(os.path.join(self.path, name))
        for name in ("model", "optimizer"):
            os.symlink(f"disk/{name}", os.path.join(self.path, f"{name}.4"))
        said = self.answer("model", "model.4", "--to", 4, "--also", "optimizer", "optimizer.4/")
        made = [fake.load(os.path.join(self.path, "disk", name)) for name in ("model", "optimizer")]
        self.check(*made, "ec", "user", live, 4, 40, said["user"])
        self.assertTrue(os.path.islink(os.path.join(self.path, "model.4")))
        self.assertEqual(sorted(os.listdir(os.path.join(self.path, "disk"))), ["model", "optimizer"])
        for out in (".", "new/."):
            done = self.run_mch("../model", out, "--to", 4, "--also", "../optimizer", "../other", cwd="here")
            self.assertEqual(done.returncode, 0, done.stderr)
            made = [fake.load(os.path.join(self.path, name)) for name in (os.path.join("here", out), "other")]
            self.check(*made, "ec", "user", live, 4, 40, {"evicted": []})
            for name in ("here", "other"):
                shutil.rmtree(os.path.join(self.path, name))
            os.mkdir(os.path.join(self.path, "here"))
        os.symlink("nowhere", os.path.join(self.path, "dangling"))
        self.refused("is a link to a folder that is not there", "model", "dangling", "--to", 4)
        self.refused("are one inside the other", "model", "here", "--to", 4, "--also", "optimizer", "here/inside")
        done = self.run_mch("model", "out", "--to", 4, "--also", "optimizer", "")
        self.assertIn("--also: '' is no path", done.stderr)
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            for place in (line.split()[1] for line in mounts):
                try:
                    apart = os.stat(place).st_dev != os.stat(os.path.dirname(place)).st_dev
                    if apart and os.path.isdir(place) and not os.listdir(place):
                        self.refused("is a mount point", "model", place, "--to", 4)
                except OSError:
                    continue

    def test_a_dry_run_says_the_same_and_writes_nothing(self):
        user, state, _ = table("ec", "user", 40, 2, 1.0, 1)
        self.save("model", user, state)
        planned = self.answer("model", "out", "--to", 4, "--dry-run")
        self.assertEqual(self.answer("model", "--to", 4, "--dry-run"), planned)
        self.assertEqual(os.listdir(self.path), ["model"])
        done = self.answer("model", "out", "--to", 4)
        self.assertEqual(planned, done)
        self.assertGreater(len(done["user"]["evicted"]), 0)

    def test_what_a_killed_run_left_goes_with_the_next_and_nothing_else(self):
        user, state, _ = table("ec", "user", 40, 2, 1.0, 1)
        self.save("model", user, state)
        lock = ".reshard-mch.lock"
        for name, files in (("out.work-killed", (lock, "data")), ("out.work-atwork", (lock,)), ("out.work-backup", ("data",)),
                            ("other.work-killed", (lock,))):
            os.mkdir(os.path.join(self.path, name))
            for file in files:
                pathlib.Path(self.path, name, file).touch()
        os.symlink("other.work-killed", os.path.join(self.path, "out.work-linked"))
        with open(os.path.join(self.path, "out.work-atwork", lock)) as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.answer("model", "out", "--to", 4)
        left = sorted(name for name in os.listdir(self.path) if "work" in name)
        self.assertEqual(left, ["other.work-killed", "out.work-atwork", "out.work-backup", "out.work-linked"])
        os.unlink(os.path.join(self.path, "out.work-linked"))
        for name in left[:-1]:
            shutil.rmtree(os.path.join(self.path, name))

    def test_hash_sizes_are_checked_against_where_ids_lie(self):
        user, state, live = table("ec", "user", 40, 2, 0.9, 1, hash_size=5000)
        self.save("model", user, state)
        self.refused("hash size 9223372036854775807 it was looked up on rank", "model", "out", "--to", 4)
        said = self.answer("model", "out", "--to", 4, "--hash-size", "user=5000")
        model = fake.load(os.path.join(self.path, "out"))
        self.check(model, model, "ec", "user", live, 4, 40, said["user"], hash_size=5000)
        self.refused("left ids out of reach, --accept-strays", "model", "no", "--to", 4)
        one, state, _ = table("ec", "user", 40, 1, 0.9, 1)
        self.save("one", one, state)
        self.refused("nothing tells its hash size. Fix: --hash-size user=N", "one", "other", "--to", 4)

    def test_hash_tables_keep_their_slots_and_are_checked(self):
        item = bucket_table("ec", "item", 48, 2, 12)
        self.save("model", item)
        self.assertEqual(self.answer("model", "out", "--to", 4)["item"]["layout"], "buckets")
        self.assertEqual(fake.load(os.path.join(self.path, "out")), item)
        self.refused("12 buckets, which 5 ranks cannot share evenly", "model", "no", "--to", 5)
        self.refused("the places of ids follow from the size", "model", "no", "--size", "96")
        self.refused("12 buckets and hash size 4611686018427387904 are not what its ids were placed by: I5 id is looked up",
                     "model", "no", "--to", 4, "--hash-size", 2**62)
        self.refused("--rows item=ec._embedding_module.embeddings.item.weight: rows of a hash table stay", "model", "no",
                     "--to", 4, "--rows", "item=ec._embedding_module.embeddings.item.weight")
        self.refused("--decay-exponent: table 'item' is a hash table", "model", "no", "--to", 4, "--decay-exponent",
                     "item=2")
        self.refused("was saved with 12 buckets", "model", "no", "--to", 4, "--buckets", 6)
        other, other_state, _ = table("other", "item", 48, 2, 0.5, 1)
        plain = "plain.item.weight"
        self.save("both", item, other, other_state, {plain: cut([7] * 48, [0, 48])})
        self.refused(f"may be of ec.item or other.item. Fix: say whose it is: --rows other.item={plain}", "both", "no",
                     "--to", 4)
        self.answer("both", "out.3", "--to", 4, "--no-rows", f"other.item={plain}")
        self.assertEqual(fake.load(os.path.join(self.path, "out.3"))[plain], cut([7] * 48, [0, 48]))
        ids = joined(item[f"ec.{MCC}.item._hash_zch_identities"])
        twice = next(at for at in range(0, 48, 4) if -1 not in ids[at : at + 2])
        ids[twice] = ids[twice + 1]
        self.save("twice", {**item, f"ec.{MCC}.item._hash_zch_identities": cut(ids, [0, 24, 48], 1, (1,))})
        self.refused("table 'item' is not sound: ", "twice", "no", "--to", 4)
        del item[f"ec.{MCC}.item._hash_zch_bucket"]
        self.save("without", item)
        self.refused("number of buckets of table 'item' is not in the checkpoint", "without", "no", "--to", 4)
        self.refused("6 buckets and hash size ", "without", "no", "--to", 3, "--buckets", 6)
        self.answer("without", "out.2", "--to", 4, "--buckets", 12)

    def test_rows_that_would_be_left_behind_are_named(self):
        user, state, _ = table("ec", "user", 40, 2, 0.5, 1)
        weight = user.pop("ec._embedding_module.embeddings.user.weight")
        self.save("model", user)
        self.refused("table 'user': no tensor of 40 rows is named after it and 'weight'", "model", "out", "--to", 4)
        self.save("weights", {"elsewhere": weight})
        self.refused("is named twice", "model", "one", "--to", 4, "--also", "weights", "one/", "--rows", "user=elsewhere")
        self.answer("model", "out", "--to", 4, "--also", "weights", "weights.4", "--rows", "user=elsewhere")
        self.answer("model", "out.2", "--to", 4, "--no-rows", "user")
        for no_rows in ("user", "user=elsewhere"):
            self.refused("--rows user=elsewhere: --no-rows says", "model", "no", "--to", 4, "--also", "weights", "no.2",
                         "--rows", "user=elsewhere", "--no-rows", no_rows)
        self.save("model", user, {"ec.user.weight": cut([0] * 30, [0, 30])})
        self.refused("only 'ec.user.weight' with 30 rows", "model", "no", "--to", 4)
        self.refused("there is no table 'usr'; there are: user", "model", "no", "--to", 4, "--no-rows", "usr")
        self.refused("no folder has this key", "model", "no", "--to", 4, "--rows", "user=nothing")
        self.refused("it has [30] rows for 40 slots", "model", "no", "--to", 4, "--rows", "user=ec.user.weight")

    def test_a_plain_table_of_the_same_name_is_not_taken_for_its_rows(self):
        user, state, _ = table("ec", "user", 40, 2, 0.5, 1)
        plain = "plain.embedding_bags.user.weight"
        self.save("model", user, state, {plain: cut([7] * 40, [0, 40])})
        self.refused(f"--rows user={plain}, or does not: --no-rows user={plain}", "model", "no", "--to", 4)
        self.refused("no folder has this key", "model", "no", "--to", 4, "--no-rows", "user=nothing")
        self.answer("model", "out", "--to", 4, "--no-rows", f"user={plain}")
        self.assertEqual(fake.load(os.path.join(self.path, "out"))[plain], cut([7] * 40, [0, 40]))
        root = {key.replace("ec.", "", 1): value for key, value in {**user, **state}.items()}
        self.save("model", root, {plain: cut([7] * 40, [0, 40])})
        self.refused(f"--rows user={plain}, or does not: --no-rows user={plain}", "model", "no", "--to", 4)
        other, other_state, _ = table("other", "user", 40, 2, 0.5, 2)
        self.save("model", root, other, other_state)
        self.assertEqual(set(self.answer("model", "root", "--to", 4)), {"user", "other.user"})

    def test_what_is_damaged_or_misspelt_is_one_sentence(self):
        user, state, _ = table("ec", "user", 40, 2, 0.5, 1)
        self.save("model", user, state)
        prefix = f"ec.{MCC}.user."
        for key, change, text in (
                ("_current_iter_tensor", None, "_current_iter_tensor' is missing"),
                ("_mch_counts", cut([0] * 40, [0, 10, 40]), "is not cut where the ids of the table are"),
                ("_mch_sorted_raw_ids", cut([0] * 40, [0, 20, 30]), "is not cut where the ids"),
                ("_mch_unheard_of", cut([0] * 40, [0, 20, 40]), "nobody here knows what it is"),
                ("_mch_sorted_raw_ids", cut([7, 5] * 20, [0, 20, 40]), "do not ascend"),
                ("_mch_sorted_raw_ids", cut([5] * 20 + [2**62] * 20, [0, 20, 40]), "once"),
                ("_mch_sorted_raw_ids", cut([5] * 20 + [2**62] * 20, [0, 20, 40]), "corrupt; take another save"),
                ("_mch_remapped_ids_mapping", cut([0, 0, *range(2, 40)], [0, 20, 40]), "of table 'user' both have slot 0"),
                ("_mch_remapped_ids_mapping", cut([99] * 40, [0, 20, 40]), "slot 99, outside its shard")):
            self.save("bad", {name: value for name, value in {**user, **state, prefix + key: change}.items() if value})
            self.refused(text, "bad", "out", "--to", 4)
        gap = fake.Tensor(8, (40,), [((0,), (20,), bytes(160)), ((30,), (10,), bytes(80))])
        self.save("bad", user, state, {prefix + "_mch_sorted_raw_ids": gap})
        self.refused("a chunk begins at 30, the one before it ends at 20", "bad", "out", "--to", 4)
        self.save("nothing", {"dense": whole([1], (1,))})
        self.refused("has no managed-collision table", "nothing", "out", "--to", 4)
        self.refused("there is no table 'usr'", "model", "out", "--size", "usr=50")
        self.refused("--hash-size: there is no table 'usr'", "model", "out", "--to", 4, "--hash-size", "usr=5")
        self.refused("not a whole number from 0", "model", "out", "--to", 4, "--hash-size", "many")
        self.refused("not a number from 0 on", "model", "out", "--to", 4, "--decay-exponent", "-1")
        self.refused("Fix: --mode route, or the saved size", "model", "out", "--size", 50, "--mode", "slot_owner")
        self.refused("--buckets: table 'user' is no hash table", "model", "out", "--to", 4, "--buckets", "user=7")
        self.refused("_output_segments_tensor' has room for 1024 shards, not 1025", "model", "out", "--to", 1025)
        self.refused("leaves 17 of them without any", "model", "out", "--to", 57)
        self.refused("of 4 slots, cut for 4 ranks, leaves rank 3 one slot", "model", "out", "--to", 4, "--size", 4)
        self.refused("of 40 slots, cut for 14 ranks, leaves rank 13 one slot", "model", "out", "--to", 14)
        self.refused("no room for", "model", "out", "--size", "9999999999999")
        self.refused("is not empty", "model", "model", "--to", 4)
        self.refused("has no parent folder", "model", "no/where/out", "--to", 4)
        self.refused("cannot open", "missing", "out", "--to", 4)
        self.refused("ended with status 1", "model", "out", "--to", 4, python="/bin/false")
        self.refused("cannot start '/no/python'", "model", "out", "--to", 4, python="/no/python")
        os.mkdir(os.path.join(self.path, "all"))
        self.save("all/model", user, state)
        self.refused("Fix: reshard mch all/model OUT/model, and --also all/optimizer", "all", "out", "--to", 4)
        self.refused("nothing to do", "model", "out")
        self.refused("OUT is missing", "model", "--to", 4)
        self.refused("is not empty", "model", "model", "--to", 4, "--dry-run")
        self.refused("--also needs two folders", "model", "out", "--to", 4, "--also", "all")
        self.refused("not a number of slots", "model", "out", "--size", "user=0")
        self.refused("given twice", "model", "out", "--size", "5", "--size", "6")

    def test_a_checkpoint_of_the_library_stays_one_with_its_other_tensors(self):
        user, state, live = table("ec", "user", 40, 2, 1.0, 1)
        self.save("model", user, state, bucket_table("ec", "item", 48, 2, 12))
        mch_dcp, file = self.as_one_file("model")
        os.mkdir(os.path.join(self.path, "tables"))
        shutil.copy(file, os.path.join(self.path, "tables"))
        size = int.from_bytes(file.read_bytes()[:8], "little")
        header, data = json.loads(file.read_bytes()[8 : 8 + size]), file.read_bytes()[8 + size :]
        header["dense"] = {"dtype": "F32", "shape": [5, 2], "data_offsets": [len(data), len(data) + 40]}
        header["scale"] = {"dtype": "F64", "shape": [], "data_offsets": [len(data) + 40, len(data) + 48]}
        header["__metadata__"]["note"] = "kept"
        text = json.dumps(header).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + data + bytes(range(48)))
        os.mkdir(os.path.join(self.path, "first"))
        for left in (".reshard.manifest.json.lock", ".reshard.manifest.json.tmp.99.0",
                     ".shard-00001-of-00003.0123456789abcdef.safetensors.tmp.99.0",
                     "shard-00001-of-00003.0123456789abcdef.safetensors"):
            pathlib.Path(self.path, "first", left).write_bytes(b"")  # as a run leaves them that is killed
        first = self.answer("in", "first", "--to", 3)["user"]
        there = os.listdir(os.path.join(self.path, "first"))
        self.assertEqual([leaf for leaf in there if leaf[0] == "." or "0123456789abcdef" in leaf], [])
        self.refused("is not empty: there is '", "in", "first", "--to", 3)
        self.refused("Fix: --mode route, or the saved size", "first", "no", "--size", "user=50", "--mode", "slot-owner")
        answer = self.answer("first", "out", "--to", 2, "--size", "user=60")
        last = answer["user"]
        self.assertEqual(answer["item"]["kept"], answer["item"]["ids"])
        self.assertEqual((last["ids"], last["kept"], last["evicted"]), (first["kept"], first["kept"], []))
        made = mch_dcp.Made(os.path.join(self.path, "out"))
        with open(os.path.join(self.path, "out", "reshard.manifest.json"), encoding="utf-8") as manifest:
            self.assertEqual(json.load(manifest)["metadata"]["note"], "kept")
        ids, slots, rows = ([number for _, _, part in made.pieces("user." + one) for number in numbers(part)]
                            for one in ("ids", "slots", "rows.0"))
        self.assertEqual(set(ids) - {FULL}, set(live) - set(first["evicted"]))
        self.assertTrue(all(rows[2 * slot] == id for id, slot in zip(ids, slots) if id != FULL))
        for name, wanted in (("dense", bytes(range(40))), ("scale", bytes(range(40, 48)))):
            found = b""
            for one in sorted(made.tensors[name]["extents"], key=lambda one: one["box"]):
                rows = one["box"][0][1] - one["box"][0][0] if one["box"] else 1
                found += made.files[one["file"]][one["begin"] : one["begin"] + 8 * rows]
            self.assertEqual(found, wanted)
        for name, tensor in (("first", "dense"), ("tables", "item.ids")):
            apart = name + ".apart"
            subprocess.run([PROGRAM, "shard", name, apart, "--to", "(2):(R)", "--apart", "0"], cwd=self.path, check=True,
                           capture_output=True, timeout=60)
            self.refused(f"tensor '{tensor}' has 2 copies that were saved apart", apart, "no", "--to", 2)
        self.refused("is no folder of torch.distributed.checkpoint", "first", "no", "--to", 2, "--hash-size", 9)
        with open(os.path.join(self.path, "first", os.listdir(os.path.join(self.path, "first"))[0]), "r+b") as file:
            file.truncate(100)
        self.refused("Fix: ", "first", "no", "--to", 2)

    def test_a_checkpoint_of_the_library_goes_to_more_ranks_than_torchrec_knows(self):
        user, state, live = table("ec", "user", 2050, 2, 0.5, 1)
        self.save("model", user, state)
        self.as_one_file("model")
        said = self.answer("in", "--to", 1025, "--dry-run")["user"]
        self.assertEqual((said["ranks"], said["ids"]), ([2, 1025], len(live)))

    def test_rows_keep_their_types_where_consolidate_casts_and_inspect_tells_of_tables(self):
        user, state, live = table("ec", "user", 40, 2, 0.5, 1)
        self.save("model", user, state, bucket_table("ec", "item", 48, 2, 12))
        _, file = self.as_one_file("model")
        size = int.from_bytes(file.read_bytes()[:8], "little")
        header, data = json.loads(file.read_bytes()[8 : 8 + size]), file.read_bytes()[8 + size :]
        header["user.rows.0"].update(dtype="F32", shape=[40, 4])
        about = json.loads(header["__metadata__"]["mch.table.user"])
        about["rows"][0].update(dtype="F32", shape=[4])
        header["__metadata__"]["mch.table.user"] = json.dumps(about)
        header["__metadata__"]["mch.table.other"] = "no table"
        for name in ("dense", "user.dense"):
            header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
            data += bytes(8)
        text = json.dumps(header).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + data)
        ask = lambda *words: subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=60)
        said = ask("inspect", "in").stdout
        self.assertIn(f"\n  table user: MCH, LFU, 40 slots on 2 ranks, {len(live)} ids, iteration 30; rows 0 F32 [4], 1 U8 [8]\n",
                      said)
        self.assertIn("\n  table item: HashZCH, no eviction, 48 slots on 2 ranks, ", said)
        self.assertIn("\n  mch.table.other: no table\n", said)
        tables = json.loads(ask("inspect", "in", "--json").stdout)["tables"]
        self.assertEqual([(one["name"], one["slots"], one["ranks"]) for one in tables], [("item", 48, 2), ("user", 40, 2)])
        self.assertEqual((tables[1]["ids"], tables[1]["rows"][0]["shape"]), (len(live), [4]))

        del header["__metadata__"]["mch.table.other"]
        text = json.dumps(header).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + data)
        for words in (["consolidate", "in", "cast"], ["shard", "in", "shards", "--to", "(3):(S0)"]):
            planned = json.loads(ask(*words, "--dtype", "bf16", "--dry-run", "--json").stdout)
            self.assertEqual(planned["tables_not_cast"], ["user"])
            for dry_run in (["--dry-run"], []):
                said = ask(*words, "--dtype", "bf16", "--ranks", "2", *dry_run).stdout
                self.assertIn("note: the rows of table 'user' keep their types", said)
                self.assertNotIn("'item'", said)
            types = {one["name"]: one["dtype"] for one in json.loads(ask("inspect", words[2], "--json").stdout)["tensors"]}
            self.assertEqual([types[name] for name in ("dense", "user.dense", "user.rows.0")], ["BF16", "BF16", "F32"])
            self.assertEqual(self.answer(words[2], words[2] + ".3", "--to", 3)["user"]["ids"], len(live))
        self.assertNotIn("note", ask("consolidate", "in", "same", "--dtype", "f32").stdout)
        names = pathlib.Path(self.path, "names")
        for lines, found in (("user.rows.0 weights", "would be 'weights', not 'user.rows.0'"),
                             ("user.ids a.ids\nuser.* b.*", "would be 'b.metadata.counts', not 'a.metadata.counts'")):
            names.write_text(lines + "\n")
            for verb, *more in (["consolidate"], ["shard", "--to", "(2):(S0)"]):
                said = ask(verb, "in", "none", *more, "--rename", "names")
                self.assertIn("takes table 'user' apart: its tensor ", said.stderr)
                self.assertIn(found, said.stderr)
                self.assertEqual((said.returncode, os.path.exists(os.path.join(self.path, "none"))), (2, False))
        names.write_text("user.* old.user.*\n")
        for dry_run in (["--dry-run"], []):
            said = ask("consolidate", "in", "export", "--dtype", "bf16", "--rename", "names", *dry_run)
            self.assertIn("note: the rows of table 'old.user' keep their types", said.stdout)
        self.assertIn("table old.user: MCH, LFU, 40 slots", ask("inspect", "export").stdout)
        again = self.answer("export", "export.3", "--to", 3)
        self.assertEqual((again["old.user"]["ids"], sorted(again)), (len(live), ["item", "old.user"]))

    def test_any_words_end_with_a_status(self):
        user, state, _ = table("ec", "user", 40, 2, 0.5, 1)
        self.save("model", user, state)
        rng = random.Random(7)
        known = ["--to", "--size", "--mode", "--also", "--hash-size", "--rows", "--no-rows", "--buckets", "--dry-run",
                 "--decay-exponent", "model", "out", "user=", "user=9", "=", "-1", "0", "4", "route",
                 "99999999999999999999", "", "--json", "nan", "\u00e4", "/", "."]
        for _ in range(40):
            words = [rng.choice(known) for _ in range(rng.randrange(1, 8))]
            done = self.run_mch(*words)
            self.assertIn(done.returncode, (0, 2), (words, done.stderr))
            self.assertNotIn("Traceback", done.stderr, words)
            subprocess.run(["rm", "-rf", os.path.join(self.path, "out")], check=True)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
