#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `reshard` and the example reshard_checkpoint make of each other's files, and of made ones.

    checkpoint_programs_test.py CHECKPOINT RESHARD [LAUNCHER OPTION...]

Without a launcher ranks are threads; with one they are processes. What the programs write is compared byte for byte
with what it was made of, by the few lines of Python that the format needs.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

CHECKPOINT, RESHARD, LAUNCHER = sys.argv[1], sys.argv[2], sys.argv[3:]
SCALE = ["--layers", "2", "--scale", "32"]
WIDTH = {"F32": 4, "I64": 8, "BF16": 2, "U8": 1}


# ---- safetensors -------------------------------------------------------------------------------------------------


def write_file(path, tensors, metadata):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read_file(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size :]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def read_folder(folder):
    """All tensors of full files, found as Hugging Face's readers find them."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read_file(folder / "model.safetensors")
    tensors = {}
    for name, leaf in json.loads(index.read_text())["weight_map"].items():
        tensors[name] = read_file(folder / leaf)[name]
    return tensors


def made(name, dtype, shape):
    count = WIDTH[dtype]
    for extent in shape:
        count *= extent
    return dtype, shape, bytes((len(name) * 31 + i * 7 + i // 251) % 256 for i in range(count))


def part(tensor, begin, shape):
    """The box of at most two dimensions that begins there."""
    dtype, whole, data = tensor
    if len(whole) < 2:
        first, count = (begin[0], shape[0]) if whole else (0, 1)
        return dtype, shape, data[first * WIDTH[dtype] : (first + count) * WIDTH[dtype]]
    rows = []
    for row in range(begin[0], begin[0] + shape[0]):
        at = (row * whole[1] + begin[1]) * WIDTH[dtype]
        rows.append(data[at : at + shape[1] * WIDTH[dtype]])
    return dtype, shape, b"".join(rows)


def write_shards(folder, without=None):
    """As PyTorch's sharded saving lays them out: three files, cuts that are not even. Returns the whole tensors. The
    second file may lack a tensor."""
    whole = {
        "rows": made("rows", "F32", [700, 50]),
        "columns": made("columns", "BF16", [60, 901]),
        "ids": made("ids", "I64", [1001]),
        "step": made("step", "I64", []),
        "nothing": made("nothing", "F32", [0, 4]),
    }
    parts = [
        {"rows": ([0, 0], [300, 50]), "columns": ([0, 0], [60, 400]), "ids": ([0], [500]), "step": ([], [])},
        {"rows": ([300, 0], [399, 50]), "columns": ([0, 400], [60, 1]), "nothing": ([0, 0], [0, 4])},
        {"rows": ([699, 0], [1, 50]), "columns": ([0, 401], [60, 500]), "ids": ([500], [501])},
    ]
    parts[1].pop(without, None)
    for number, boxes in enumerate(parts, start=1):
        info = {name: {"saved_offsets": begin} for name, (begin, _) in boxes.items()}
        write_file(folder / f"shard-{number:05}-model-00001-of-00001.safetensors",
                   {name: part(whole[name], begin, shape) for name, (begin, shape) in boxes.items()},
                   {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)})
    return whole


# ---- Programs ----------------------------------------------------------------------------------------------------


def run(ranks, *words, fails=None):
    """The output, of all ranks. With `fails` the program must fail, and say that."""
    words = [str(word) for word in words]
    command = [*LAUNCHER, "-n", str(ranks), *words] if LAUNCHER else [*words, "--ranks", str(ranks)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = result.stdout + result.stderr
    if (result.returncode != 0) != (fails is not None) or (fails and fails not in said):
        sys.exit(f"{' '.join(command)}\nended with {result.returncode}, {'not ' if fails else ''}as it should"
                 f"{f' (saying {fails!r})' if fails else ''}:\n{said}")
    return said


def inspect(folder):
    """The tensors that a folder has: name, type and shape of each."""
    text = subprocess.run([RESHARD, "inspect", folder, "--json"], capture_output=True, text=True, check=True).stdout
    return sorted((one["name"], one["dtype"], one["shape"]) for one in json.loads(text)["tensors"])


def expect(value, what):
    if not value:
        sys.exit(f"not true: {what}")


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- Tests -------------------------------------------------------------------------------------------------------


def test_made_shards(here):
    shards = here / "made"
    shards.mkdir()
    whole = write_shards(shards)
    outputs = {}
    for ranks in (1, 2, 4):
        one, several = here / f"one.{ranks}", here / f"several.{ranks}"
        run(ranks, RESHARD, "consolidate", shards, one, "--one-file", "--no-sync")
        expect(read_folder(one) == whole, f"{ranks} ranks leave the tensors that the shards are parts of, in one file")
        run(ranks, RESHARD, "consolidate", shards, several, "--max-file-bytes", 110000, "--no-sync")
        expect(read_folder(several) == whole, f"{ranks} ranks leave those tensors in several files")
        outputs[ranks] = files_of(one), files_of(several)
        expect(inspect(one) == inspect(shards), "a full file has the tensors of its shards, as inspect sees them")
    expect(outputs[1] == outputs[2] == outputs[4], "any number of ranks leaves the same files")
    expect(len(outputs[1][1]) == 4 + 1, "four files and an index")

    write_shards(shards, without="columns")
    run(2, RESHARD, "consolidate", shards, here / "none", fails="columns")
    (shards / "shard-00002-model-00001-of-00001.safetensors").unlink()
    run(2, RESHARD, "consolidate", shards, here / "none", fails="shard 2 of at least 3 is missing")
    expect(not (here / "none").exists(), "nothing is written where a part of a tensor is missing")


def test_save_and_load(here):
    folder, full, shards = here / "saved", here / "full", here / "shards"
    run(4, CHECKPOINT, "save", folder, "--from", "(2,2):(R,S0)", *SCALE, "--fast")
    run(3, CHECKPOINT, "load", folder, "--to", "(3):(S1)")
    run(1, CHECKPOINT, "load", folder, "--to", "(1):(R)")
    run(2, RESHARD, "verify", folder)

    # A full file has no metadata with the seed: load compares with the program's own, which save has used.
    run(4, RESHARD, "consolidate", folder, full, "--no-sync")
    run(2, CHECKPOINT, "load", full, "--to", "(2):(S0)")
    expect(inspect(full) != [] and [t[:2] for t in inspect(full)] == [t[:2] for t in inspect(folder)],
           "a consolidated folder has the tensors of the save")
    run(1, RESHARD, "consolidate", folder, here / "alone", "--no-sync")
    expect(files_of(full) == files_of(here / "alone"), "four ranks consolidate as one does")

    run(3, RESHARD, "shard", full, shards, "--to", "(2,2):(S0,S1)", "--no-sync")
    run(3, CHECKPOINT, "load", shards, "--to", "(3):(S1)")
    run(4, RESHARD, "verify", shards)
    run(2, RESHARD, "consolidate", shards, here / "again", "--no-sync")
    expect(read_folder(here / "again") == read_folder(full), "files to shards to files: the same tensors")

    # A second save into the folder, by other ranks, takes the place of the first.
    run(3, CHECKPOINT, "save", folder, "--from", "(3):(S0)", *SCALE, "--fast", "--seed", 7, "--dedup", "shared")
    run(2, CHECKPOINT, "load", folder, "--to", "(2):(S1)")

    damaged = max(folder.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    with open(damaged, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    run(3, RESHARD, "verify", folder, fails=damaged.name)
    run(2, CHECKPOINT, "load", folder, "--to", "(2):(S1)", fails=damaged.name)


for test in (test_made_shards, test_save_and_load):
    with tempfile.TemporaryDirectory(prefix="reshard_programs_") as folder:
        test(pathlib.Path(folder))
    print(f"{test.__name__}: ok")
