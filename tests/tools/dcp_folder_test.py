#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what tools/reshard/dcp_folder.py takes from a .metadata, with a torch that has no more than names and classes."""
import collections
import dataclasses
import enum
import os
import pathlib
import pickle
import sys
import tempfile
import types
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "reshard"


def module(name, **members):
    """In sys.modules; the classes and functions of this file that it is given are its own."""
    made = sys.modules[name] = types.ModuleType(name)
    for key, value in members.items():
        if isinstance(value, (type, types.FunctionType)) and value.__module__ in (__name__, "types"):
            value.__module__ = name
        setattr(made, key, value)
    return made


class dtype:
    def __reduce__(self):
        return "float32"


class layout:
    def __reduce__(self):
        return layouts, ("strided",)


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


def layouts(_):
    return sys.modules["torch"].strided


layouts.__qualname__ = "_get_layout"
Encoding = enum.Enum("_MEM_FORMAT_ENCODING", "CONTIGUOUS CHANNELS_LAST")
Properties = dataclasses.make_dataclass("TensorProperties", ["dtype", "layout", "memory_format"])
Chunk = dataclasses.make_dataclass("ChunkStorageMetadata", ["offsets", "sizes"])
Tensor = dataclasses.make_dataclass("TensorStorageMetadata", ["properties", "size", "chunks"])
Index = dataclasses.make_dataclass("MetadataIndex", ["fqn", "offset"], frozen=True)
Meta = dataclasses.make_dataclass("StorageMeta", ["checkpoint_id"])
Metadata = dataclasses.make_dataclass("Metadata", ["state_dict_metadata", "planner_data", "storage_data", "storage_meta"])
Info = dataclasses.make_dataclass("_StorageInfo", ["relative_path", "offset", "length"])


class Reader:
    def __init__(self, path):
        pass

    def set_up_storage_reader(self, *_):
        pass


class Unused:
    pass


module("torch", dtype=dtype, layout=layout, memory_format=type("memory_format", (), {}), Size=Size, float32=dtype(),
       strided=layout(), load=print, os=os)
module("torch.serialization", _get_layout=layouts)
module("torch.distributed")
module("torch.distributed.checkpoint", DefaultSavePlanner=Unused, FileSystemReader=Reader, FileSystemWriter=Unused)
module("torch.distributed.checkpoint.metadata", _MEM_FORMAT_ENCODING=Encoding, TensorProperties=Properties,
       ChunkStorageMetadata=Chunk, TensorStorageMetadata=Tensor, MetadataIndex=Index, StorageMeta=Meta,
       Metadata=Metadata, os=os, Path=pathlib.Path)
module("torch.distributed.checkpoint.filesystem", _StorageInfo=Info)
module("torch.distributed.checkpoint.planner", **dict.fromkeys(
    ("LoadItemType", "LoadPlan", "ReadItem", "SavePlan", "TensorWriteData", "WriteItem", "WriteItemType"), None))
sys.path.insert(0, str(TOOLS))
import dcp_folder  # noqa: E402


class Runs:
    """Two pickles that call what is named with one text when they are read."""

    def __init__(self, module, name, text):
        self.text = f"c{module}\n{name}\n(V{text}\ntR.".encode()
        self.dotted = b"\x80\x04" + b"".join(pickle.SHORT_BINUNICODE + bytes([len(one)]) + one.encode()
                                            for one in (module, name)) + f"\x93(V{text}\ntR.".encode("latin1")


class DcpFolder(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.path = self.work.name

    def tearDown(self):
        self.work.cleanup()

    def open(self, text):
        pathlib.Path(self.path, ".metadata").write_bytes(text)
        return dcp_folder.Folder(self.path)

    def test_what_a_save_writes(self):
        torch = sys.modules["torch"]
        tensor = Tensor(Properties(torch.float32, torch.strided, Encoding.CONTIGUOUS), Size([4, 2]),
                        [Chunk(Size([0, 0]), Size([4, 2]))])
        metadata = Metadata({"w": tensor}, collections.OrderedDict(w=("w",)),
                            {Index("w", Size([0, 0])): Info("__0_0.distcp", 0, 3)}, Meta(pathlib.PurePosixPath("x")))
        metadata.storage_meta.checkpoint_id = pathlib.Path(self.path)
        pathlib.Path(self.path, "__0_0.distcp").write_bytes(b"abc")
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            folder = self.open(pickle.dumps(metadata, protocol))
            self.assertEqual(folder.metadata, metadata)
            self.assertEqual((folder.size("w"), folder.chunks("w")), ((4, 2), [((0, 0), (4, 2))]))

    def test_what_else_it_names_is_not_run(self):
        made = os.path.join(self.path, "made")
        for module, name in [("os", "system"), ("posix", "system"), ("builtins", "eval"), ("torch", "os.system"),
                             ("torch", "os"), ("torch", "load"), ("torch.distributed.checkpoint.metadata", "os.system"),
                             ("torch.distributed.checkpoint.metadata", "Path"), ("pathlib", "os.system"),
                             ("torch.distributed.checkpoint.filesystem", "os"), ("no_such_module", "f")]:
            runs = Runs(module, name, f"touch {made}")
            for text in (runs.text, runs.dotted):
                with self.subTest(module=module, name=name):
                    with self.assertRaises(dcp_folder.Refused) as refused:
                        self.open(text)
                    self.assertIn(f".metadata cannot be read: it names {module}.{name}, which no save", str(refused.exception))
                    self.assertFalse(os.path.exists(made))

    def test_chunks_are_read_as_weights_only(self):
        self.assertEqual(sys.modules["torch"].load.keywords, {"weights_only": True})


if __name__ == "__main__":
    unittest.main()
