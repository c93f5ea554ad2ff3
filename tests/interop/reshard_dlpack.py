# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy and tensors of PyTorch, redistributed in place by ranks that are threads: DLPack and ctypes."""
import ctypes

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Capsule:
    """What from_dlpack() of NumPy and PyTorch take: a tensor that whoever takes it lets go of."""

    def __init__(self, pointer, device):
        self._pointer = pointer
        self._device = device

    def __dlpack__(self, **_):
        return _api.PyCapsule_New(self._pointer, b"dltensor", None)

    def __dlpack_device__(self):
        return self._device


class Library:
    """`device`, in DLPack's numbers: where the tensors lie that it makes. (2, 0) is the first GPU of CUDA."""

    def __init__(self, path, device=(1, 0)):
        self._device = device
        self._library = ctypes.CDLL(path)
        self._library.reshard_redistribute.restype = ctypes.c_double
        self._library.reshard_count.restype = ctypes.c_void_p
        self._library.reshard_count.argtypes = [ctypes.c_int64, ctypes.c_int64]

    def redistribute(self, source, target, shape, sources, targets):
        """From the parts of one distribution to those of another: a tensor per rank. Returns seconds of one run."""
        ranks = max(len(sources), len(targets))
        held = [[], []]
        pointers = []
        for tensors, capsules in zip((sources, targets), held):
            capsules += [tensor.__dlpack__() for tensor in tensors]  # lets go of the tensor when it is collected
            given = [_api.PyCapsule_GetPointer(capsule, b"dltensor") for capsule in capsules]
            pointers.append((ctypes.c_void_p * ranks)(*given))
        message = ctypes.create_string_buffer(4096)
        seconds = self._library.reshard_redistribute(source.encode(), target.encode(), (ctypes.c_int64 * len(shape))(*shape),
                                                     len(shape), ranks, *pointers, message, ctypes.c_size_t(len(message)))
        if seconds < 0:
            raise ValueError(message.value.decode())
        return seconds

    def count(self, rows, columns):
        return Capsule(self._library.reshard_count(rows, columns), self._device)
