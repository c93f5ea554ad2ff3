#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for tools/reshard/dcp_folder.py where there is no torch, and for the Python that `reshard mch` starts: with
RESHARD_PYTHON=fake_dcp.py folders of torch.distributed.checkpoint are one pickle each, key -> Tensor, or bytes."""
import collections
import importlib.util
import os
import pickle
import sys

Tensor = collections.namedtuple("Tensor", "itemsize size chunks")  # chunks: (offsets, sizes, bytes)


def save(path, state):
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, ".metadata"), "wb") as file:
        pickle.dump({key: tuple(value) if isinstance(value, Tensor) else value for key, value in state.items()}, file)


def load(path):
    with open(os.path.join(path, ".metadata"), "rb") as file:
        return {key: value if isinstance(value, bytes) else Tensor(*value) for key, value in pickle.load(file).items()}


class Folder:
    def __init__(self, path):
        self.path, self.state = path, load(path)

    def keys(self):
        return self.state.keys()

    def size(self, key):
        return () if isinstance(self.state[key], bytes) else self.state[key].size

    def itemsize(self, key):
        return self.state[key].itemsize

    def chunks(self, key):
        return [] if isinstance(self.state[key], bytes) else [chunk[:2] for chunk in self.state[key].chunks]

    def read(self, key, chunk):
        return memoryview(self.state[key].chunks[chunk][2])


def write_folder(path, folder, changed, ranks):
    state = dict(folder.state)
    for key, (length, pieces) in changed.items():
        was = state[key]
        chunks = [((begin, *[0] * (len(was.size) - 1)), (rows, *was.size[1:]), bytes(data))
                  for begin, rows, data in pieces]
        state[key] = Tensor(was.itemsize, (length, *was.size[1:]), chunks)
    save(path, state)


if __name__ == "__main__":
    _, path, *arguments = sys.argv[1:]  # -B first
    sys.modules["dcp_folder"] = sys.modules["__main__"]
    sys.path.insert(0, os.path.dirname(path))  # as where mch_dcp.py is the program
    spec = importlib.util.spec_from_file_location("mch_dcp", path)
    front = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(front)
    sys.exit(front.main(arguments))
