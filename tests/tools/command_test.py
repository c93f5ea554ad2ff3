#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command `reshard` answers, as a user and as a script would ask it: text, --json, exit statuses.

    command_test.py CHECKPOINT RESHARD [LAUNCHER OPTION...]

CHECKPOINT is the example that saves something to look at. With a launcher ranks are processes, and a short story is told:
starting them takes long, and what they do is the same.
"""
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import xml.dom.minidom

CHECKPOINT, RESHARD, LAUNCHER = sys.argv[1], sys.argv[2], sys.argv[3:]
ROWS, COLUMNS = "(2,4):(R,S0)", "(2,4):(R,S1)"


def start(*words, ranks=0, cwd=None):
    command = [RESHARD, *(str(word) for word in words)]
    if ranks:
        command = [*LAUNCHER, "-n", str(ranks), *command] if LAUNCHER else [*command, "--ranks", str(ranks)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


def ask(*words, status=0, says=(), ranks=0):
    """The answer; the exit status and parts of what is said must be those that are named."""
    result = start(*words, ranks=ranks)
    said = result.stdout + result.stderr
    missing = [part for part in ([says] if isinstance(says, str) else says) if part not in said]
    if result.returncode != status or missing:
        sys.exit(f"reshard {' '.join(map(str, words))}\nended with {result.returncode}, not {status}; not said: {missing}\n{said}")
    return result.stdout


def asked(*words, status=0, ranks=0):
    """The same with --json, which must be one document."""
    return json.loads(ask(*words, "--json", status=status, ranks=ranks))


def expect(value, what):
    if not value:
        sys.exit(f"not true: {what}")


def spoil(path, from_end=1):
    data = bytearray(path.read_bytes())
    data[-from_end] ^= 1
    path.write_bytes(data)


def write_file(path, tensors, metadata={}, shape=[1], dtype="U8"):
    """A safetensors file of tensors of one byte: {name: byte}."""
    header = {"__metadata__": metadata} | {name: {"dtype": dtype, "shape": shape, "data_offsets": [at, at + 1]}
                                           for at, name in enumerate(tensors)}
    header = json.dumps(header).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(tensors.values()))


def save(folder, where="(2,2):(R,S0)", seed=42):
    words = [CHECKPOINT, "save", folder, "--from", where, "--layers", 1, "--scale", 32, "--fast", "--seed", seed]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


# ---- Verbs without ranks -----------------------------------------------------------------------------------------


def test_help(here):
    verbs = [line.split()[0] for line in ask("--help").split("Subcommands:\n")[1].split("\n\n")[0].splitlines()]
    expect(len(verbs) >= 10, "there are ten verbs")
    for verb in verbs:
        ask(verb, "--help", says=["Example:\n", f"reshard {verb}"])
    ask(status=2, says="name a verb")
    ask("no-such-verb", "--help", status=2, says=["no-such-verb", "Verbs: "])
    ask("no-such-verb", status=2, says=["no-such-verb", "Verbs: " + " ".join(verbs)])
    expect(ask("--version").startswith("reshard 0."), "--version says which it is")
    ask("explain", ROWS, status=2, says="reshard explain: TO is required")


def test_explain(here):
    ask("explain", ROWS, COLUMNS, "--shape", "8192x1024", "--rank", 3, says="receives 6.0 MiB, lower bound 6.0 MiB")
    answer = asked("explain", ROWS, COLUMNS, "--shape", "[8192,1024]", "--dtype", "bf16")
    expect(answer["bytes_received"] == answer["bytes_bound"] == 3 << 20, "explain counts bytes")
    expect(answer["shape"] == [8192, 1024] and answer["kind"] == "collective", "explain says what was asked")
    ask("explain", "(2,4):(R,S9)", COLUMNS, "--shape", "8x8", status=2, says=["FROM: ", "Fix: "])
    ask("explain", ROWS, "(3):(S0)", "--shape", "8x8", says="different meshes")
    for shape in ("8x", "8xx8", "x", "8x8.5", "[8", "1x1x1x1x1x1x1x1x1", "99999999999999999999"):
        ask("explain", ROWS, COLUMNS, "--shape", shape, status=2, says=f"--shape: '{shape}' is no shape. Fix: ")
    ask("explain", ROWS, COLUMNS, "--shape", "8x8", "--dtype", "f31", status=2, says=["no element type is called 'f31'", " BF16, "])
    for name in ("bfloat16", "BF16", "float16", "half", "float", "torch.double", "fp32", "uint8", "int64", "complex64"):
        ask("explain", ROWS, COLUMNS, "--shape", "8x8", "--dtype", name)
    pair = {"float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2": "F8_E5M2",
            "torch.float8_e5m2fnuz": "F8_E5M2FNUZ", "torch.float8_e8m0fnu": "F8_E8M0", "torch.bool": "BOOL"}
    for torch, ours in pair.items():
        answer = asked("explain", ROWS, COLUMNS, "--shape", "8x8", "--dtype", torch)
        expect(answer["dtype"] == ours, f"{torch} is {ours}")
    for verb in ("explain", "simulate"):
        for pair, dtype, fault in ((["(2):(P&)", "(2):(R)"], "f32", "--dtype: reshard::prepare: band is not defined for F32"),
                                   (["(2):(P*)", "(2):(S0)"], "complex64", "product is not defined for C64"),
                                   (["(2):(Pavg)", "(2):(R)"], "i64", "avg is not defined for I64"),
                                   (["(2):(Pavg)", "(2):(P+)"], "i64", "an average of I64 would be rounded"),
                                   (["(2):(R)", "(2):(P^)"], "f32", "bxor has no identity for F32"),
                                   (["(2):(S0)", "(2):(S1)"], "f4", "elements of F4 are smaller than a byte")):
            ask(verb, *pair, "--shape", "8x8", "--dtype", dtype, status=2, says=[fault, ". Fix: "])
    ask("explain", ROWS, COLUMNS, "--shape", "8x8", "--rank", 8, status=2, says="rank 8 is in neither mesh. Fix: ")
    for rank in ("-1", "abc", "1e3", "9999999999"):
        ask("explain", ROWS, COLUMNS, "--shape", "8x8", "--rank", rank, status=2, says=f"--rank: '{rank}' is no number from 0 to ")
    ask("explain", ROWS, COLUMNS, "--shape", "8x8", "--shape", "9x9", status=2, says="--shape is given more than once")
    ask("explain", ROWS, COLUMNS, "--shape", "8x8", "--rank", status=2, says="--rank needs a value")
    expect(asked("explain", ROWS, COLUMNS, "--shape", "8x8", "--relayed", 4)["relayed"] == 4, "explain says what was asked")
    ask("explain", ROWS, "(99999999):(R)", "--shape", "8x8", status=2, says="more than 2^24 ranks. Fix: ")
    for verb in ("explain", "simulate"):
        ask(verb, ROWS, COLUMNS, "--shape", "8x8", "--relayed", 0, status=2, says="--relayed: '0' is no number from 1 to 16777216")
    huge = asked("explain", "(8):(S0)", "(8):(R)", "--shape", "2147483648x2147483648")
    expect(huge["bytes_received"] is None, "bytes beyond 64 bits are no number")
    huge = asked("explain", "(2):(S0)", "(2):(R)", "--shape", 1 << 62, "--dtype", "u8")
    expect(huge["bytes_received"] == 1 << 61, "bytes within 64 bits are one, though bits are not")
    ask("explain", "(dp=2,tp=4):[tp]", "(2,4):[-,1]", "--shape", "8x8", says="(dp=2,tp=4):(R,S0) -> (2,4):(R,S1)")


def test_draw(here):
    ask("draw", ROWS, "--shape", "9x6", says="\n  3:6 | 1,5\n")
    picture = xml.dom.minidom.parseString(ask("draw", ROWS, "--shape", "9x6", "--svg"))
    expect(len(picture.getElementsByTagName("rect")) == 3, "a picture has a cell for each part")
    answer = asked("draw", "(4):(S0)", "--shape", "5")
    expect(answer["parts"][-1] == {"box": [[4, 5]], "ranks": [2]}, "draw lists parts")
    ask("draw", "(2):(S2)", "--shape", "4x4x4", says="dimension 2 is cut by axis 0, and is not drawn")
    expect(asked("draw", "(2):(S2)", "--shape", "4x4x4")["parts"] == [{"box": [[0, 4], [0, 4], [0, 2]], "ranks": [0]},
                                                                      {"box": [[0, 4], [0, 4], [2, 4]], "ranks": [1]}],
           "parts are whole boxes")
    expect(asked("draw", "(2):(R)", "--shape", "[]")["parts"] == [{"box": [], "ranks": [0, 1]}], "a scalar is one part")
    ask("draw", "(1048576):(S0)", "--shape", 1 << 20, status=2, says="Fix: draw a smaller mesh")
    ask("draw", "(2000000000):(R)", "--shape", "[]", status=2, says="Fix: draw a smaller mesh")
    ask("draw", "(9000):(R)", "--shape", 8, says="0-8999")


def test_simulate(here):
    pair = ["(32,32):(S0,S1)", "(32,32):(S1,S0)"]
    ask("simulate", *pair, "--shape", "1048576x1048576", says=["cluster: all ranks, 10.0 us", " 4.0 GiB "])
    answer = asked("simulate", *pair, *pair, "--shape", "4096x4096", "--tier", "all:all:10:50")["transitions"]
    expect(len(answer) == 2 and answer[0] == answer[1], "simulate takes pairs")
    expect(answer[0]["most_received"] == answer[0]["bytes_bound"] == 4096 * 4096 * 4 // 1024, "simulate counts bytes")
    expect(list(answer[0]["phases"][0]["tiers"]) == ["all"], "simulate takes tiers")
    ask("simulate", pair[0], "--shape", "8x8", status=2, says="goes nowhere")
    for tier, fault in (("node", "4 or 5 parts"), ("node:8:x:1", "'x' is no number"), ("node:8.7:1:1", "no number of ranks"),
                         ("node:8:1:0", "bad bandwidth")):
        ask("simulate", *pair, "--shape", "8x8", "--tier", tier, status=2, says=fault)
    ask("relabel", "(8):(S0:bal)", "(6):(S0:bal)", "--shape", "8192x8192", "--dtype", "bf16", says="moves 42.6 MiB")
    answer = asked("relabel", "(4):(S0)", "(4)[1,2,3,0]:(S0)", "--shape", "8x8")
    expect(answer["ranks"] == [0, 1, 2, 3] and answer["bytes_after"] == 0, "relabel mends a cycle")
    answer = asked("relabel", "(3):(S0)", "(5):(S0)", "--shape", "15")
    expect((answer["ranks"][::2], answer["bytes_before"], answer["bytes_after"]) == ([0, 1, 2], 44, 24), "ranks that are new take places")
    ask("relabel", "(4):(S0)", "(5000):(S0)", "--shape", "8x8", status=2, says="TO: more than 4096 ranks. Fix: ")
    ask("relabel", "(2):(P+)", "(2):(S0)", "--shape", "8x8", status=2, says=["FROM TO: ", "(2):(P+) owes a reduction", "Fix: "])
    ask("plan-save", "(8,4):(R,S0)", "--layers", 1, says=["\n  balanced ", "copies of axis 1 apart"])
    expect(len(asked("plan-save", "(2):(R)", "--layers", 1)["policies"]) == 4, "plan-save lists policies")
    ask("plan-save", "(2):(R)", "--model", "no-model", status=2, says="Qwen2.5-0.5B")
    ask("plan-save", "(2):(S2)", "--layers", 1, status=2, says="WHERE: no tensor has a dimension 2. Fix: ")
    save(here / "saved")
    ask("plan-save", "(2,4):(R,S0)", here / "saved", says=["saved, (2,4):(R,S0) of 8 ranks\n", "\n  balanced ", " 288.3 KiB "])
    answer = asked("plan-save", "(2,4):(R,S0)", here / "saved")
    expect(answer["checkpoint"] == str(here / "saved"), "plan-save says what was asked")
    expect([one["bytes"] for one in answer["policies"][:3]] == [295248] * 3, "plan-save counts the bytes of a checkpoint")
    for option, value in (("--model", "Qwen2.5-3B"), ("--layers", 1)):
        ask("plan-save", "(2):(R)", here / "saved", option, value, status=2, says=option)
    ask("plan-save", "(2):(S2)", here / "saved", status=2, says="WHERE: no tensor has a dimension 2. Fix: ")
    ask("plan-save", "(2):(R)", here / "nothing", status=2, says="nothing")


def test_inspect(here):
    save(here / "saved")
    ask("inspect", here / "saved", says=["shards with a manifest", "by 4 ranks", "  seed: 42\n", "(2,2):(R,S0)  2 shards, all with checksum"])
    answer = asked("inspect", here / "saved")
    names = [one["name"] for one in answer["tensors"]]
    expect("model.norm.weight" in names and names == sorted(names), "inspect lists tensors")
    one = asked("inspect", here / "saved", "--tensor", "model.norm.weight")["tensors"]
    expect(len(one) == 1 and len(one[0]["shards"]) == 2 and one[0]["shards"][0]["crc32c"], "inspect lists shards")
    ask("inspect", here / "saved", "--tensor", "model.norm", status=2, says="'model.norm'; similar names: 'model.norm.weight'")
    ask("inspect", "", status=2, says="CHECKPOINT: '' is no path")
    ask("inspect", here / "saved", "--tensor", "no.tensor", status=2, says="no tensor is called 'no.tensor'")
    ask("inspect", here / "saved", "--tensor", "", status=2, says="no tensor is called ''")
    error = asked("inspect", here / "nothing", status=2)["error"]
    expect(error["code"] == "io" and "nothing" in error["message"], "an error is a document, too")
    for folder, byte in (("evil", 1), ("evil2", 2)):
        (here / folder).mkdir()
        write_file(here / folder / "\x1b[2J.safetensors", {"x\x1b[31m": byte}, {"\x1b]0;owned\x07": "\x1b[31m"})
    said = ask("inspect", here / "evil", says="  'x\\x1b[31m'  U8 [1]")
    said += ask("inspect", here / "evil", "--tensor", "x\x1b[31m") + ask("compare", here / "evil", here / "evil2", status=1)
    expect("\x1b" not in said, "names do nothing to a terminal")
    ask("inspect", here / "evil", "--tensor", "a\nb", status=2, says="no tensor is called 'a\\x0ab'")
    for words in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            result = subprocess.run([RESHARD, "inspect", here / "saved", *words], stdout=full, stderr=subprocess.PIPE, text=True)
        expect(result.returncode == 2 and "No space left on device. Fix: " in result.stderr, "an answer that is lost is no success")


def test_plan_load(here):
    save(here / "saved")
    ask("plan-load", here / "saved", "(2,8):(R,S0)", says=["cooperative read: 14 tensors, 288.3 KiB in files, ", "on 16 ranks\n", "by the model\n"])
    answer = asked("plan-load", here / "saved", "(8):(S0)", "--strategy", "every")
    expect(answer["ranks"] == 8 and answer["bytes_on_wire"] == 0 and answer["read_directly"], "each rank reads for itself")
    expect(answer["bytes_in_files"] == 295248, "plan-load counts bytes")
    words = {"boxes": "each rank reads its boxes: ", "scatter": "one rank reads, scatter: ", "broadcast": "one rank reads, broadcast: "}
    for strategy, said in words.items():
        ask("plan-load", here / "saved", "(4):(S0)", "--strategy", strategy, says=said)
    ask("plan-load", here / "saved", "(4):(S0)", "--strategy", "none", status=2, says="--strategy: none not in {")
    compared = [asked("plan-load", here / "saved", "(16):(S0)", "--strategy", "every", "--checksums", which) for which in ("none", "whole", "touched")]
    expect(compared[0]["bytes_verified"] == 0 and compared[0]["bytes_read"] == compared[1]["bytes_read"], "whole blocks take no more reading")
    expect(compared[1]["bytes_verified"] < compared[2]["bytes_verified"] and compared[1]["bytes_read"] < compared[2]["bytes_read"], "touched blocks do")
    expect(compared[2]["bytes_verified"] >= 295248, "and all of them are compared")
    ask("plan-load", here / "saved", "(5000):(S0)", status=2, says="WHERE: more than 4096 ranks. Fix: ")
    ask("plan-load", here / "saved", "(2):(S2)", status=2, says="WHERE: no tensor has a dimension 2. Fix: ")
    ask("plan-load", here / "saved", "(2:(S0)", status=2, says=["WHERE: ", "Fix: "])
    ask("plan-load", here / "nothing", "(2):(S0)", status=2, says="nothing")
    ask("shard", here / "saved", here / "apart", "--to", "(dp=2,tp=2):(R,R)", "--apart", "dp", "--no-sync", ranks=2)
    ask("plan-load", here / "apart", "(dp=2,tp=2):(R,R)", status=2, says="Fix: ")
    ask("plan-load", here / "apart", "(dp=2,tp=2):(R,R)", "--apart", "dp", says="on 4 ranks\n")


# ---- Verbs with ranks --------------------------------------------------------------------------------------------


def test_verify(here):
    save(here / "saved")
    ask("verify", here / "saved", ranks=3, says="all as it should be")
    expect(asked("verify", here / "saved", ranks=2)["shards_without_checksum"] == 0, "verify counts checksums")
    damaged = max((here / "saved").glob("*.safetensors"), key=lambda path: path.stat().st_size)
    spoil(damaged)
    ask("verify", here / "saved", ranks=2, status=1, says=[damaged.name, "Fix: "])
    answer = asked("verify", here / "saved", ranks=2, status=1)
    expect(answer["ok"] is False and answer["error"]["code"] == "format", "a document says that it is corrupt")
    expect([(one["file"], one["read"]) for one in answer["faults"]] == [(damaged.name, True)], "and where")
    expect(answer["faults"][0]["message"] in answer["error"]["message"], "and how")
    answer = asked("verify", here / "nothing", ranks=2, status=2)
    expect(list(answer) == ["error"] and answer["error"]["code"] == "io", "of nothing it says neither")
    damaged.unlink()
    ask("verify", here / "saved", ranks=2, status=1, says=[f"1 of the 4 files it names are missing: '{damaged.name}'", "Fix: "])
    answer = asked("verify", here / "saved", ranks=2, status=1)
    expect(answer["ok"] is False and answer["error"]["rule"] == "MissingFiles", "a checkpoint that is not whole is an answer")
    later = here / "saved" / "reshard.manifest.json"
    later.write_text(re.sub(r'"version": *\d+', '"version": 99', later.read_text()))
    ask("verify", here / "saved", ranks=2, status=2, says="of version 99, this library reads versions up to")
    later.unlink()
    ask("verify", here / "saved", ranks=2, status=2, says="parts of a save that never ended")
    (here / "dcp").mkdir()
    write_file(here / "dcp" / "shard-00001-model-00001-of-00001.safetensors", {"a": 1},
               {"DCP_SHARDING_INFO": '{"a": {"saved_offsets": [0]}}'})
    note = "see that the last rank's file is there"
    for verb, *others in (["compare", here / "dcp"], ["consolidate", "--dry-run"], ["consolidate", here / "whole"],
                          ["shard", "--to", "(2):(S0)", "--dry-run"]):
        ask(verb, here / "dcp", *others, ranks=2, says=note)
    for words in (["inspect", here / "dcp"], ["plan-load", here / "dcp", "(2):(S0)"], ["plan-save", "(2):(S0)", here / "dcp"]):
        ask(*words, says=note)
    ask("verify", here / "dcp", ranks=2, says=["readable; nothing to compare with: 1 shard without checksum\n",
                                               note])
    ask("verify", here / "dcp" / "shard-00001-model-00001-of-00001.safetensors", ranks=2, status=2, says="no checkpoint: it is one of")
    write_file(here / "nine.safetensors", {"a": 1}, shape=[1] * 9)
    ask("verify", here / "nine.safetensors", ranks=2, status=2, says="more than 8 dimensions, and this library reads no more")
    write_file(here / "later.safetensors", {"a": 1}, dtype="F3_E1M1")
    ask("verify", here / "later.safetensors", ranks=2, status=2, says="'a' is of dtype 'F3_E1M1', and this library reads none")
    write_file(here / "reshard::verify_checkpoint: .safetensors", {"reshard::verify_checkpoint: ": 1}, dtype="F33")
    ask("verify", here / "reshard::verify_checkpoint: .safetensors", ranks=2, status=2, says="of dtype 'F33'")
    for name in ("this library reads", " files it names are missing: ", "UnknownDType: "):  # names decide nothing
        write_file(here / f"{name}.safetensors", {"a": 1, name: 2}, shape=[2])
        ask("verify", here / f"{name}.safetensors", status=1, says="TensorInvalidInfo: ")
        ask("verify", here / f"{name}.safetensors", ranks=2, status=1, says="TensorInvalidInfo: ")
        ask("verify", here / name, ranks=2, status=2, says=name)
    ask("verify", here / "nothing", ranks=2, status=2, says="nothing")
    ask("verify", here / "saved", "--ranks", 4097, status=2, says="--ranks: '4097' is no number from 1 to 4096")
    expect(start("verify", here / "nothing", "--ranks", 2).stderr.startswith("reshard: "), "no empty line comes first")


def test_unlisted(here):
    """Tensors in files of an index that it does not name: a note, and no part of the checkpoint."""
    full = here / "full"
    full.mkdir()
    write_file(full / "f", {"a": 1, "more": 2, "most": 3})
    write_file(full / "g", {"b": 4})
    (full / "model.safetensors.index.json").write_text('{"weight_map": {"a": "f", "b": "g"}}')
    note = "note: the index does not name 2 tensors of 'f': no part of the checkpoint\n"
    ask("inspect", full, says=[note, "2 tensors\n"])
    expect([one["unlisted"] for one in asked("inspect", full)["files"]] == [2, 0], "inspect counts them")
    planned = [["consolidate", full, "--dry-run"], ["shard", full, "--to", "(2):(S0)", "--dry-run"],
               ["plan-load", full, "(2):(S0)"], ["plan-save", "(2):(S0)", full]]
    for words in planned:
        ask(*words, says=note)
    for words in (["verify", full], ["consolidate", full, here / "out"], ["shard", full, here / "shards", "--to", "(2):(S0)"]):
        ask(*words, ranks=2, says=note)
    for words in [["verify", full], *planned]:
        expect(asked(*words)["unlisted"] == {"f": 2}, f"{words[0]} counts them")
    for leaf, value in (("f", 1), ("g", 2)):
        write_file(full / leaf, {"a" if leaf == "f" else "b": 4}, {"format": "np", "k": str(value)})
    for words in (["inspect", full], ["verify", full], ["consolidate", full, "--dry-run"]):
        ask(*words, says="note: of metadata the first file counts, which contradicts 'k' in 'g'\n")
        answer = asked(*words)
        expect(answer.get("unlisted", {}) == {}, f"{words[0]}: other metadata are no tensors")
        told = {one["file"]: one["contradicts"] for one in answer["files"] if one["contradicts"]} if words[0] == "inspect" else answer["contradicting"]
        expect(told == {"g": "k"}, f"{words[0]}: a document says what contradicts")
    expect(asked("inspect", full)["metadata"] == {"format": "np", "k": "1"}, "inspect shows a format")
    (full / "g").unlink()
    ask("verify", full, ranks=2, status=1, says="1 of the 2 files it names are missing: 'g'")
    expect("note" not in ask("verify", here / "out", ranks=2), "what is written has none")


def test_consolidate_and_shard(here):
    saved, full = here / "saved", here / "full"
    save(saved)
    before = sorted(here.iterdir())
    for words in (["consolidate", saved, full], ["shard", saved, full, "--to", "(3):(S0)"]):
        expect(asked(*words, "--dry-run", "--ranks", 5000)["ranks"] == 5000, "a dry run is of any number of ranks")
        ask(*words[:2], saved, *words[3:], "--dry-run", status=2, says="is not empty: there is '")
        ask(*words, "--ranks", 5000, status=2, says="4096 at most")
        ask(*words[:2], status=2, says="OUT is missing" if words[0] == "consolidate" else "--to is required")
    expect(sorted(here.iterdir()) == before, "a dry run writes nothing")

    ask("consolidate", saved, full, "--files", 3, "--no-sync", ranks=3, says="in 3 files; checksums of 288.3 KiB that were read: as saved")
    expect(len(list(full.glob("model-0000?-of-00003.safetensors"))) == 3, "so many files as were asked for")
    ask("consolidate", saved, full, ranks=2, status=2, says="full")
    ask("consolidate", saved, here / "like", "--like", full / "model.safetensors.index.json", "--no-sync", ranks=2)
    names = lambda folder: sorted(path.name for path in folder.iterdir())
    expect(names(here / "like") == names(full), "--like names the same files")
    ask("consolidate", saved, here / "summed", "--files", 3, "--manifest", "--no-sync", ranks=2)
    ask("verify", here / "summed", ranks=2, says="14 tensors in 14 shards of 3 files, 288.3 KiB read once: all as it should be\n")
    for name, kind in (("summed", "full files with a manifest"), ("saved", "shards with a manifest"), ("full", "files with an index")):
        for verb in ("verify", "inspect"):
            expect(asked(verb, here / name)["kind"] == kind, f"{verb} says what {name} is")
    ask("inspect", here / "summed", says="summed: full files with a manifest, 288.3 KiB\n")
    ask("verify", full, ranks=2, says="288.3 KiB read once: readable; nothing to compare with: 14 shards without checksum\n")
    spoil(here / "summed/model-00002-of-00003.safetensors")
    ask("verify", here / "summed", ranks=2, status=1, says=["1 fault:", "'model-00002-of-00003.safetensors'"])
    ask("consolidate", saved, here / "x", "--manifest", "--no-checksums", status=2, says="--no-checksums")
    ask("consolidate", saved, here / "x", "--files", 99999, status=2, says="one tensor a file at most")
    ask("consolidate", saved, here / "x", "--files", 2, "--one-file", status=2, says="--files")
    ask("consolidate", saved, here / "x.safetensors", "--one-file", status=2, says="Fix: name the folder")
    ask("consolidate", saved, here / "x", "--dtype", "f31", status=2, says="--dtype: ")
    ask("consolidate", saved, here / "x", "--dtype", "i64", status=2, says="Fix: f16, bf16, f32 or f64")
    ask("consolidate", saved, "--dry-run", "--model", "Qwen2.5-0.5B", status=2, says="takes the place of IN")
    ask("shard", full, here / "x", "--to", "(2:(S0)", status=2, says="--to: ")
    ask("shard", full, here / "x", "--to", "(2):(S0[0,3,28])", status=2, says=["--to: ", "has boundaries of one extent", "Fix: cut by S0"])
    ask("shard", full, here / "x", "--to", "(2):(S5)", status=2, says="--to: no tensor has a dimension 5. Fix: S0 cuts rows")
    ask("shard", full, here / "x", "--to", "(2):(S0)", "--apart", 9, status=2, says="--apart 9: the mesh of --to has 1 axis. Fix: ")
    ask("shard", full, here / "x", "--to", "(dp=2):(S0)", "--apart", "tp", status=2, says="no axis is called 'tp'; the names are: dp")
    ask("shard", full, here / "x", "--to", "(2,2):(R,S0)", "--apart", "dp", status=2,
        says=["--apart dp: the mesh of --to gives its axes no names. Fix: they count from 0, or give a name ", "(dp=2,tp=4)"])
    ask("consolidate", saved, here / "x", "--max-file-bytes", "5XB", status=2, says="--max-file-bytes: '5XB' is no number from 1 to ")
    planned = [asked("consolidate", saved, "--dry-run", "--max-file-bytes", size)["files_out"] for size in ("100KiB", 102400, "1000KB")]
    expect(planned[0] == planned[1] > planned[2] == 1, "sizes may have units")
    ask("consolidate", saved, here / "x", "--replica", -5, status=2, says="--replica")
    ask("consolidate", saved, here / "x", "--window", 65536, "--in-flight", 4, status=2, says="--window 65536: less than 65536 for each of 4")
    expect(not (here / "x").exists(), "wrong usage writes nothing")

    table = here / "table"
    table.write_text("# Hugging Face's names\nmodel.norm.weight  norm\nmodel.layers.*  blocks.*\n")
    ask("consolidate", saved, here / "renamed", "--rename", table, "--files", 2, "--no-sync", ranks=2)
    names = [one["name"] for one in asked("inspect", here / "renamed")["tensors"]]
    expect("norm" in names and "blocks.0.mlp.up_proj.weight" in names and len(names) == 14, "tensors have other names")
    ask("compare", saved, here / "renamed", ranks=2, status=1, says="not equal: ")
    ask("compare", saved, here / "renamed", "--rename", table, ranks=2, says="equal: 14 tensors, ")
    ask("compare", here / "renamed", saved, "--rename", table, ranks=2, status=2, says=["'model.norm.weight'", "Fix: "])
    ask("compare", saved, here / "renamed", "--rename", here / "none", status=2, says="--rename: cannot open")
    table.write_text("no.such.tensor x\n")
    ask("consolidate", saved, here / "x", "--rename", table, ranks=2, status=2, says=["'no.such.tensor'", "Fix: "])
    table.write_bytes(b"no such tensor\tx y\r\n")  # names with blanks
    ask("consolidate", saved, here / "x", "--rename", table, status=2, says=["'no such tensor'", "Fix: "])
    table.write_text("one\n")
    ask("consolidate", saved, here / "x", "--rename", table, status=2, says="line 1 of ")
    ask("consolidate", saved, here / "x", "--rename", here / "none", status=2, says="cannot open")
    ask("consolidate", saved, here / "x", "--rename", full, status=2, says="cannot read")

    ask("shard", full, here / "shards", "--to", "(4,2):(S0,R)", "--no-sync", ranks=2, says="in ")
    ask("shard", full, here / "apart", "--to", "(dp=2):(R)", "--apart", "dp", "--dedup", "lowest-rank", "--no-sync", ranks=3)
    for other in ("full", "like", "shards", "apart"):
        ask("compare", saved, here / other, ranks=2, says="equal: ")
    spoil(max(saved.glob("*.safetensors"), key=lambda path: path.stat().st_size))
    for words in (["consolidate"], ["shard", "--to", "(2):(S0)"]):
        ask(words[0], saved, here / "x", *words[1:], ranks=2, status=2, says=["reshard: box [", "--no-checksums"])
    ask("consolidate", saved, here / "x", "--no-checksums", "--no-sync", ranks=2)


def test_compare(here):
    for name, where, seed in (("saved", "(2,2):(R,S0)", 42), ("same", "(3):(S1)", 42), ("other", "(2):(S0)", 7)):
        save(here / name, where, seed)
    ask("compare", here / "saved", here / "same", ranks=3, says="equal: 14 tensors, ")
    ask("compare", here / "saved", here / "other", ranks=2, status=1,
        says=["not equal: ", "  model.norm.weight: BF16 [28], 2", "    [0]: ", " more\n"])

    ask("consolidate", here / "same", here / "full", "--one-file", "--no-sync", ranks=1)
    spoil(here / "full" / "model.safetensors")
    answer = asked("compare", here / "saved", here / "full", ranks=4, status=1)
    expect(not answer["equal"] and len(answer["differences"]) == 1, "one byte is one difference")
    one = answer["differences"][0]
    expect(one["kind"] == "values" and one["elements"] == 1 and one["places"][0]["first"] != one["places"][0]["second"],
           "a difference has tensor, index and both values")
    expect(asked("compare", here / "saved", here / "full", "--most", 0, ranks=1, status=1)["differences"][0]["places"] == [],
           "--most bounds the list")

    ask("consolidate", here / "same", here / "wide", "--dtype", "f32", "--no-sync", ranks=2)
    ask("compare", here / "saved", here / "wide", ranks=2, status=1, says="model.norm.weight: BF16 [28] in the first, F32 [28] in the second")
    ask("compare", here / "saved", here / "wide", "--ignore-dtype", ranks=2, says="equal: 14 tensors, ")
    ask("consolidate", here / "same", here / "some", "--dtype", "f32", "--keep", "model.norm.*", "--no-sync", ranks=2)
    ask("inspect", here / "some", says=["model.norm.weight  BF16 [28]", ".input_layernorm.weight  F32 [28]"])
    ask("consolidate", here / "same", here / "x", "--dtype", "f32", "--keep", "norm", status=2, says="--keep 'norm': no tensor is called so")
    ask("consolidate", here / "same", here / "x", "--keep", "model.norm.*", status=2, says="--dtype")
    ask("consolidate", here / "wide", here / "half", "--dtype", "f16", "--no-sync", ranks=2)
    ask("compare", here / "half", here / "wide", "--ignore-dtype", ranks=2, status=1, says=["not equal: ", ": F16 [", "] and F32, "])
    ask("compare", here / "half", here / "wide", "--ignore-dtype", "--rtol", 0.001, "--atol", "1e-5", ranks=2,
        says="equal within rtol 0.001 and atol 1e-05: 14 tensors, ")
    for option in ("--rtol", "--atol"):
        for value in (-1, "nan", "1e999"):
            ask("compare", here / "saved", here / "same", option, value, ranks=1, status=2,
                says=f"{option}: no tolerance. Fix: give 0 or more")
    ask("compare", here / "saved", here / "nothing", ranks=2, status=2, says="nothing")
    for dtype, largest in (("I8", None), ("F8_E4M3", 0.001953125)):  # its smallest number
        for name, value in (("one", 0), ("two", 1)):
            write_file(here / f"{name}.safetensors", {"a": value}, dtype=dtype)
        answer = asked("compare", here / "one.safetensors", here / "two.safetensors", ranks=1, status=1)
        expect(answer["differences"][0]["largest"] == largest, "only floats have a distance")

    for name, tensors in (("copies", {"w.__tp_replica_0": 1, "w.__tp_replica_1": 1}), ("plain", {"w": 1}), ("lone", {"w.__tp_replica_0": 1}),
                          ("others", {"w.__tp_replica_0": 1, "w.__tp_replica_1": 2})):
        write_file(here / f"{name}.safetensors", tensors)
    answer = asked("compare", here / "copies.safetensors", here / "others.safetensors", ranks=2, status=1)
    expect((answer["differences"][0]["tensor"], answer["differences"][0]["copy"]) == ("w", 1), "a copy is named")
    expect(asked("compare", here / "others.safetensors", here / "plain.safetensors", ranks=1)["copies_not_compared"] == 1, "copies are counted")
    ask("compare", here / "lone.safetensors", here / "plain.safetensors", ranks=1, status=1, says="w.__tp_replica_0: U8 [1], only in the first")
    ask("consolidate", here / "lone.safetensors", here / "kept", "--no-sync", ranks=1)
    expect("w.__tp_replica_0" in (here / "kept" / "model.safetensors").read_bytes().decode(), "a name that says little stays")


# ---- Any command line --------------------------------------------------------------------------------------------


def test_any_words(here):
    """Whatever is typed: an answer, or an error with status 1 or 2; no crash, no hang."""
    save(here / "saved")
    words = ["explain", "draw", "simulate", "relabel", "inspect", "verify", "compare", "consolidate", "shard", "plan-save", "plan-load",
             "--shape", "--dtype", "--rank", "--relayed", "--tier", "--tensor", "--ranks", "--most", "--dry-run", "--to",
             "--files", "--model", "--layers", "--svg", "--json", "--help", "--window", "--in-flight", "--replica", "--apart",
             "saved", "out", "/dev/null", "", "-", "--", "-1", "0", "1", "3", "99999999999999999999", "1e9", "nan", "\xff",
             ROWS, COLUMNS, "(2):(S0:bal)", "(8):(P+)", "(2):(S0[0,3,9])", "(2,2):(S0,S0)@1,0", "()", "(2):(S0", "(0):(R)",
             "8x8", "0x4", "[]", "[8,8]", "x", "bf16", "f4", "node:8:3:450", "all:all:1:1", "Qwen2.5-0.5B"]
    templates = [["explain", ROWS, COLUMNS, "--shape", "8x8"], ["draw", ROWS, "--shape", "8x8"], ["compare", "saved", "saved"],
                 ["simulate", ROWS, COLUMNS, "--shape", "8x8"], ["consolidate", "saved", "out"], ["inspect", "saved"],
                 ["relabel", ROWS, COLUMNS, "--shape", "8x8"], ["shard", "saved", "out", "--to", ROWS], ["verify", "saved"],
                 ["plan-load", "saved", ROWS]]
    seed = random.randrange(1 << 32)
    print(f"  seed {seed}", flush=True)
    dice = random.Random(seed)
    for _ in range(250):
        line = list(dice.choice(templates)) if dice.random() < 0.7 else []
        for _ in range(dice.randint(0 if line else 1, 3)):
            at = dice.randrange(len(line) + 1)
            line[at:at + dice.randint(0, 1)] = [dice.choice(words)]
        result = start(*line, cwd=here)
        if result.returncode not in (0, 1, 2) or (result.returncode and not result.stderr and not result.stdout):
            sys.exit(f"seed {seed}: reshard {line}\nended with {result.returncode}\n{result.stdout}{result.stderr}")


def test_processes(here):
    save(here / "saved")
    save(here / "other", "(2):(S0)", 7)
    ask("draw", "(4):(S0)", "--shape", 9, ranks=3, says="(4):(S0)  shape [9]\n")
    ask("shard", here / "saved", here / "shards", "--to", "(3):(S0)", "--no-sync", ranks=2, says="14 tensors")
    ask("verify", here / "shards", ranks=3, says="all as it should be")
    ask("compare", here / "saved", here / "shards", ranks=3, says="equal: 14 tensors, ")
    expect(not asked("compare", here / "saved", here / "other", ranks=3, status=1)["equal"], "one process answers")
    for words in (["compare", here / "saved", here / "nothing"], ["verify", here / "nothing"], ["verify", here]):
        for ranks in (1, 3):
            ask(*words, ranks=ranks, status=2, says="Fix: ")
            expect(asked(*words, ranks=ranks, status=2)["error"]["code"] == "io", "processes answer as threads do")
        said = start(*words, ranks=3).stderr
        expect(said.count("reshard: rank 0 of 3: ") == 1 and "MPI_Abort" not in said and "MPI_ABORT" not in said, "one says it")
    ask("verify", here / "saved", "--ranks", 3, ranks=2, status=2, says="--ranks 3 but the launcher started 2")


tests = [test_help, test_explain, test_draw, test_simulate, test_inspect, test_plan_load, test_verify, test_unlisted, test_consolidate_and_shard, test_compare,
         test_any_words]
for test in [test_processes] if LAUNCHER else tests:
    with tempfile.TemporaryDirectory(prefix="reshard_command_") as folder:
        test(pathlib.Path(folder))
    print(f"{test.__name__}: ok", flush=True)
