#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What safetensors and PyTorch take to load the files that reshard_files_bench --keep has left, and to write them.

    safetensors_load.py FOLDER [DEVICE]     default: cuda

For FOLDER and each folder in it that has .safetensors files: load_file() of all of them one after the other, and
save_file() of the same tensors into FOLDER, which are read back, compared and removed. Medians of three after a
warm-up. No checksums, which safetensors files do not have. For cpu load_file() maps files, and reads nothing yet.
"""
import os
import statistics
import sys
import tempfile
import time


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    root, device = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "cuda"
    try:
        import safetensors
        import torch
        from safetensors.torch import load_file, save_file
    except ImportError as error:
        print(f"{error}: nothing was measured.")
        sys.exit(77)
    on_gpu = device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        print("No GPU here: nothing was measured.")
        sys.exit(77)

    def wait():
        if on_gpu:
            torch.cuda.synchronize()

    def median_ms(body, before=lambda: None, rounds=3):
        times = []
        for round_ in range(-1, rounds):
            before()
            wait()
            begin = time.perf_counter()
            result = body()
            wait()
            if round_ >= 0:
                times.append(1e3 * (time.perf_counter() - begin))
            del result
        return statistics.median(times)

    def bits(tensor):
        return tensor.contiguous().reshape(-1).view(torch.uint8)

    print(f"PyTorch {torch.__version__}, safetensors {safetensors.__version__}, {device}: ms (GB/s)")
    found = wrong = 0
    for folder in [root] + sorted(entry.path for entry in os.scandir(root) if entry.is_dir()):
        paths = sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".safetensors"))
        if not paths:
            continue
        found += 1
        ms = median_ms(lambda: [load_file(path, device=device) for path in paths])
        files = [load_file(path, device=device) for path in paths]
        size = sum(tensor.numel() * tensor.element_size() for file in files for tensor in file.values())
        name = os.path.basename(os.path.normpath(folder))
        print(f"  load_file, {name}, {len(paths)} files, {size / 2**30:.2f} GiB: {ms:9.2f} ({size / ms / 1e6:6.2f})")
        print(f"measured load_file_{name} {ms:.4f}")
        with tempfile.TemporaryDirectory(dir=root, prefix="saved_again_") as again:
            copies = [os.path.join(again, f"{i}.safetensors") for i in range(len(files))]

            def save():
                for file, path in zip(files, copies):
                    save_file(file, path)

            def remove():
                for path in copies:
                    if os.path.exists(path):
                        os.remove(path)

            ms = median_ms(save, remove)
            for file, path in zip(files, copies):
                read = load_file(path, device=device)
                if sorted(read) != sorted(file) or not all(torch.equal(bits(read[k]), bits(file[k])) for k in file):
                    print(f"WRONG: {path} has other values")
                    wrong += 1
        print(f"  save_file, {name}: {ms:9.2f} ({size / ms / 1e6:6.2f})")
        print(f"measured save_file_{name} {ms:.4f}", flush=True)
    if not found:
        print(f"FAILED: no .safetensors files in {root}")
    sys.exit(0 if found and not wrong else 1)


if __name__ == "__main__":
    main()
