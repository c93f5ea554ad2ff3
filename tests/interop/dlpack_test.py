#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays, and PyTorch's tensors where there is PyTorch, in and out by DLPack. usage: dlpack_test.py LIBRARY

Exit status 77: there is no NumPy here. scripts/setup installs it.
"""
import sys

from refused import refused
from reshard_dlpack import Library

try:
    import numpy
except ImportError:
    print("skipped: no NumPy. scripts/setup installs it")
    sys.exit(77)


def numpy_arrays(library):
    for dtype in ("float32", "float64", "float16", "int8", "uint16", "int64", "complex64", "bool"):
        whole = numpy.arange(12 * 10).reshape(12, 10).astype(dtype)
        rows = [whole[first:first + 3] for first in (0, 3, 6, 9)]
        # Parts of a larger array, with gaps and in Fortran's order: what strides are for.
        room = numpy.zeros((12, 20), dtype, order="F")
        columns = [room[:, first:first + 6:2] for first in (0, 6, 12)] + [room[:, 18:20:2]]
        library.redistribute("(4):(S0)", "(4):(S1)", whole.shape, rows, columns)
        assert (room[:, ::2] == whole).all() and not room[:, 1::2].any(), dtype
    rows = [numpy.ones((3, 10), "float32") for _ in range(4)]
    total = [numpy.zeros((3, 10), "float32") for _ in range(4)]
    library.redistribute("(4):(P+)", "(4):(R)", (3, 10), rows, total)
    assert all((part == 4).all() for part in total)
    refused(lambda: library.redistribute("(4):(S0)", "(4):(R)", (12, 10), rows, total), "shape")
    refused(lambda: library.redistribute("(4):(P+)", "(4):(R)", (3, 10), rows, [t.astype("int32") for t in total]), "I32")

    array = numpy.from_dlpack(library.count(3, 4))
    assert array.dtype == numpy.float32 and (array == numpy.arange(12).reshape(3, 4)).all()


def torch_tensors(library):
    import torch
    names = ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "uint8", "int64", "bool", "complex64"]
    for name in names:
        dtype = getattr(torch, name)
        whole = (torch.arange(7 * 5) % 2).reshape(7, 5).to(dtype)
        out = [torch.zeros(7, 5).to(dtype) for _ in range(3)]
        library.redistribute("(3):(S0)", "(3):(R)", whole.shape, list(torch.chunk(whole, 3)), out)
        as_bytes = whole.contiguous().view(torch.uint8)
        assert all((part.view(torch.uint8) == as_bytes).all() for part in out), name
    assert torch.from_dlpack(library.count(2, 2)).tolist() == [[0, 1], [2, 3]]


library = Library(sys.argv[1])
numpy_arrays(library)
print(f"NumPy {numpy.__version__}: passed")
try:
    import torch
except ImportError:
    print("PyTorch is not here: left out")
else:
    torch_tensors(library)
    print(f"PyTorch {torch.__version__}: passed")
