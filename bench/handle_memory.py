#!/usr/bin/env python3
"""What a handle of cuBLASLt, one of cuDNN and a stream hold of memory, which each program has or shares.

  bench/handle_memory.py --out FILE   JSON: by kind the bytes of the device, and of the process on the host

Needs torch with CUDA, whose copies of the libraries are loaded.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib

import torch

KINDS = {
    "cublaslt": ("libcublasLt.so.*", "cublasLtCreate", 40),
    "cudnn": ("libcudnn.so.*", "cudnnCreate", 10),
    "stream": (None, "cuStreamCreate", 100),
}


def held():
    """Bytes of the device and of the host, of this process alone on the GPU."""
    free, total = torch.cuda.mem_get_info()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return total - free, pages * os.sysconf("SC_PAGE_SIZE")


def loaded(pattern):
    """The library of PyTorch's packages, or the driver's."""
    if pattern is None:
        return ctypes.CDLL("libcuda.so.1")
    for place in importlib.util.find_spec("nvidia").submodule_search_locations:
        for path in sorted(pathlib.Path(place).rglob(pattern)):
            return ctypes.CDLL(str(path))
    raise OSError(f"no {pattern} beside PyTorch")


def measure(pattern, function, count):
    """The bytes that one more holds, behind the first."""
    made = getattr(loaded(pattern), function)
    flags = () if pattern else (1,)  # no stream waits for the default stream

    def make():
        handle = ctypes.c_void_p()
        if made(ctypes.byref(handle), *flags) != 0:
            raise RuntimeError(f"{function} failed")

    make()
    device, host = held()
    for _ in range(count):
        make()
    later_device, later_host = held()
    return {
        "device": round((later_device - device) / count), "host": round((later_host - host) / count)
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path)
    out = parser.parse_args().out
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    told = {"command": "bench/handle_memory.py", "device": torch.cuda.get_device_name()}
    told |= {"pytorch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    told["bytes"] = {kind: measure(*how) for kind, how in KINDS.items()}
    text = json.dumps(told, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
