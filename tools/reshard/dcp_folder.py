# SPDX-License-Identifier: Apache-2.0
"""Folders of torch.distributed.checkpoint, read and written chunk by chunk by PyTorch's own code. For mch_dcp.py."""
import enum
import functools
import io
import os
import pickle

import torch
from dcp_error import Refused, first_line
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import (LoadItemType, LoadPlan, ReadItem, SavePlan, TensorWriteData,
                                                  WriteItem, WriteItemType)

torch.load = functools.partial(torch.load, weights_only=True)  # by which older releases read chunks without


def member(of, name):
    """What pickles of some releases of Python 3.11 (3.11.2) have as getattr(an enumeration, the name of a member)."""
    if not isinstance(of, enum.EnumMeta):
        raise pickle.UnpicklingError("it asks for attributes of what is no enumeration")
    return of[name]


class MetadataUnpickler(pickle.Unpickler):
    """.metadata is a pickle, and may name any function, with what it is to be called with: it gets what
    torch.distributed.checkpoint writes there, and nothing else."""

    CLASSES_OF = ("torch.distributed.checkpoint.metadata", "torch.distributed._shard.sharded_tensor.metadata")
    NAMED = {("collections", "OrderedDict"), ("pathlib", "PosixPath"), ("pathlib", "WindowsPath"),
             ("pathlib._local", "PosixPath"), ("pathlib._local", "WindowsPath"), ("torch", "Size"),
             ("torch.distributed.checkpoint.filesystem", "_StorageInfo"), ("torch.serialization", "_get_layout")}

    def find_class(self, module, name):
        if name == "getattr" and module in ("builtins", "__builtin__"):
            return member
        if (module, name) in self.NAMED:
            return super().find_class(module, name)
        if (module == "torch" or module in self.CLASSES_OF) and "." not in name:  # a dot: of what it has imported
            found = super().find_class(module, name)
            constant = isinstance(found, (torch.dtype, torch.layout, torch.memory_format))
            if constant if module == "torch" else isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no save of torch.distributed.checkpoint does: it "
                                     "may be there to run a stranger's code")


class Into:
    """Where a reader puts what it reads."""

    def __init__(self, tensor):
        self.got = tensor

    def resolve_tensor(self, _):
        return self.got

    def commit_tensor(self, *_):
        pass

    def load_bytes(self, _, data):
        self.got = io.BytesIO(data.getvalue())


class Folder:
    """A folder that torch.distributed.checkpoint wrote."""

    def __init__(self, path):
        self.path = path
        if not os.path.exists(os.path.join(path, ".metadata")):
            raise Refused(f"{path}/.metadata is missing: it is no folder of torch.distributed.checkpoint, or its save "
                          "never ended. Fix: correct the path.")
        self.reader = FileSystemReader(path)
        try:
            with open(os.path.join(path, ".metadata"), "rb") as file:
                self.metadata = MetadataUnpickler(file).load()
            self.about = self.metadata.state_dict_metadata
            self.reader.set_up_storage_reader(self.metadata, True)
            ends = {}
            for info in self.metadata.storage_data.values():
                ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
        except Exception as error:  # pickle raises anything
            raise Refused(f"{path}/.metadata cannot be read: {first_line(error)}. Fix: restore it.") from None
        for leaf, end in sorted(ends.items()):
            file = os.path.join(path, leaf)
            size = os.path.getsize(file) if os.path.exists(file) else None
            if size is None or size < end:
                what = "is missing" if size is None else f"has {size} bytes, .metadata names {end}: it was cut short"
                raise Refused(f"{file} {what}. Fix: restore it.")

    def keys(self):
        return self.about.keys()

    def size(self, key):
        return tuple(getattr(self.about[key], "size", ()))

    def itemsize(self, key):
        return torch.empty(0, dtype=self.about[key].properties.dtype).element_size()

    def chunks(self, key):
        """(offsets, sizes) of each, by where they begin."""
        chunks = getattr(self.about[key], "chunks", ())
        return sorted((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in chunks)

    def fetch(self, key, chunk=None):
        """A chunk as a tensor; without, the bytes of what is no tensor."""
        offsets, sizes = self.chunks(key)[chunk] if chunk is not None else ((0,), (0,))
        kind = LoadItemType.BYTE_IO if chunk is None else LoadItemType.TENSOR
        index = MetadataIndex(key) if chunk is None else MetadataIndex(key, torch.Size(offsets))
        zeros = torch.Size([0] * len(sizes))
        item = ReadItem(kind, index, zeros, index, zeros, torch.Size(sizes))
        into = Into(None if chunk is None else torch.empty(sizes, dtype=self.about[key].properties.dtype))
        try:
            self.reader.read_data(LoadPlan([item]), into).wait()
        except Exception as error:
            raise Refused(f"{self.path}: '{key}' cannot be read: {first_line(error)}. Fix: restore the file.") from None
        return into.got

    def read(self, key, chunk):
        """The bytes of a chunk."""
        tensor = self.fetch(key, chunk).contiguous().view(-1)
        return memoryview(tensor.view(torch.uint8).numpy()) if tensor.numel() else memoryview(b"")


def write_folder(path, folder, changed, ranks):
    """All that `folder` has, with what has changed, in as many files as ranks."""
    sources, items = {}, [[] for _ in range(ranks)]  # index -> a call that has the tensor

    def add(rank, key, size, offsets, sizes, source):
        about = folder.about[key]
        index = MetadataIndex(key, torch.Size(offsets))
        chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        data = TensorWriteData(chunk, about.properties, torch.Size(size))
        items[rank % ranks].append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        sources[index] = source

    def made(key, data, sizes):
        tensor = torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)
        return tensor.view(folder.about[key].properties.dtype).view(sizes)

    for place, key in enumerate(sorted(folder.keys())):
        size, chunks = folder.size(key), folder.chunks(key)
        if not hasattr(folder.about[key], "chunks"):
            items[place % ranks].append(WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO))
            sources[MetadataIndex(key)] = lambda key=key: folder.fetch(key)
        elif key in changed:
            length, pieces = changed[key]
            for rank, (begin, rows, data) in enumerate(pieces):
                sizes = (rows, *size[1:])
                add(rank, key, (length, *size[1:]), [begin, *[0] * (len(size) - 1)], sizes,
                    lambda key=key, data=data, sizes=sizes: made(key, data, sizes))
        else:
            for at, (offsets, sizes) in enumerate(chunks):
                add(at if len(chunks) > 1 else place, key, size, offsets, sizes,
                    lambda key=key, at=at: folder.fetch(key, at))

    class Planner(DefaultSavePlanner):
        def resolve_data(self, write_item):
            return sources[write_item.index]()

    os.makedirs(path)
    planner, writer = Planner(), FileSystemWriter(path)
    names = folder.metadata.planner_data or {key: (key,) for key in folder.keys()}
    planner.set_up_planner({}, None, True)
    writer.set_up_storage_writer(True)
    plans, metadata = planner.create_global_plan([SavePlan(one, planner_data=names) for one in items])
    results = []
    for plan in writer.prepare_global_plan(plans):
        results.append(writer.write_data(plan, planner).wait())
    writer.finish(metadata, results)
