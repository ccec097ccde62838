#!/usr/bin/env python3
"""What a product's epilogue takes, on a GPU: a kernel of rows in groups with parts of it left out.

  retrograd kernels GRAPH --spec h100 --prelude >kernels.cu
  bench/fused_tile_parts.py kernels.cu.. [--out FILE] [--rounds N]

Of each file the first kernel that multiplies groups of bf16 with an epilogue is compiled as it
stands, without its loads, without its stores, without its arithmetic, with arithmetic alone, and
with a plain store of the product alone. Operands are random, groups differ by up to three times.
Rounds go over all of these; of each round the median of a few launches with a cold cache, in us.
A second build of each counts the clocks of a multiplying warpgroup for a tile: `waits` for the
tensor cores, `sums` until its sums are there, of these `operands_waited_for`, and `epilogue`; and
the GPU's clock meanwhile, and how much longer than the mean the last warpgroup was at work.

Needs torch, NVRTC and a GPU with thread block clusters.
"""

import argparse
import concurrent.futures
import ctypes
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python", "models")]

import torch  # noqa: E402
from measure.one_model import machine  # noqa: E402
from run import commit  # noqa: E402

THREADS = 384
LAUNCHES = 6
OPTIONS = ["--gpu-architecture=sm_90a", "--std=c++17", "--prec-div=false", "-default-device"]
SHARED_BYTES_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
BF16, SWIZZLE_128, PROMOTE_128 = 9, 3, 2  # of cuTensorMapEncodeTiled

# A load that costs nothing, of values that the compiler does not know.
NO_LOAD = """
template <typename T, typename Pack>
RG_INLINE void rg_no_load(const T* p, int64_t i, Pack* to) {
  const unsigned bits = static_cast<unsigned>(reinterpret_cast<size_t>(p + i)) & 0x3fff3fff;
  to->word = make_uint4(bits, bits, bits, bits);
}
"""
# Where the multiplier reads the clock: (text, what stands there in its place).
LAST = "    }\n  }\n  rg_cluster_barrier();\n}\n\n// One product of m x n"
TURN = "    int turn = 0, steps = 0;\n    rg_product_tile at;\n"
OTHERS = "      if (number % 2 != group - 1) continue;  // the other warpgroup's\n"
SUMS = "      float sums[tile_m / 64][tile_n / 2];\n"
FILLED = "          rg_bar_wait(full + 8 * stage, parity);\n"
ENDS = "          if constexpr (Tiles::sums_end) {"
SCALES = "      scales.scale(sums, at, warp, lane);\n"
FINISH = "        finish(reinterpret_cast<const Out*>(mine), at, thread);\n"
CLOCKS = [
    (TURN, """
    unsigned spent[5] = {0, 0, 0, 0, 0};
    const unsigned first_clock = clock();
    const unsigned long long first_ns = rg_ns();
""" + TURN),
    (OTHERS, OTHERS + "      const unsigned c0 = clock();\n"),
    (SUMS, "      const unsigned c1 = clock();\n" + SUMS),
    (FILLED + ENDS, "          const unsigned asked = clock();\n" + FILLED
     + "          spent[2] += clock() - asked;\n" + ENDS),
    (SCALES, "      const unsigned c2 = clock();\n" + SCALES),
    (FINISH, FINISH + """
        spent[0] += c1 - c0, spent[1] += c2 - c1, spent[3] += clock() - c2, spent[4] += 1;
"""),
    (LAST, """    }
    if (thread == 0) {
      unsigned* const to = rg_spent + (blockIdx.x * 2 + group - 1) * 8;
      for (int i = 0; i < 5; ++i) to[i] = spent[i];
      to[5] = clock() - first_clock;
      to[6] = static_cast<unsigned>(rg_ns() - first_ns);
    }
""" + LAST[6:]),
]  # fmt: skip
CLOCK_HELP = """
__device__ unsigned rg_spent[%d];
RG_INLINE unsigned long long rg_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %%0, %%globaltimer;" : "=l"(ns));
  return ns;
}
"""


def replaced(text, old, new):
    if text.count(old) != 1:
        sys.exit(f"fused_tile_parts.py: the prelude has {text.count(old)} places like {old!r}")
    return text.replace(old, new)


class Source:
    """The prelude and the first kernel with an epilogue, and its numbers."""

    def __init__(self, path):
        parts = re.split(r"(?m)^(?=RG_\w+\(rg_[0-9a-f]{16}, )", path.read_text())
        kernels = [p for p in parts[1:] if "rg_tiles_of_groups<" in p and "rg_tile," in p]
        if not kernels:
            sys.exit(f"fused_tile_parts.py: {path} has no product of groups with an epilogue")
        self.name = path.stem
        self.prelude = parts[0]  # and the comment of the kernel that stood here
        kernel = kernels[0].split("\n}\n")[0] + "\n}\n"
        self.entry = re.match(r"RG_\w+\((\w+),", kernel).group(1)
        self.arguments = re.findall(r"RG_ARG\((const )?\w+, (\w+), \d+\)", kernel)
        tile = re.search(r"rg_multiply_tiles<rg_bf16, rg_bf16, 0, (\d), (\d), (\d),", kernel)
        self.b_across, tall, wide = map(int, tile.groups())
        self.cluster = tall * wide
        self.shared = int(re.search(r"shared_bytes == (\d+)", kernel).group(1))
        sizes = re.search(r"\(rg_ends \+ \d+, (\d+), (\d+), (\d+), (\d+)\)", kernel)
        self.groups, self.m, self.n, self.k = map(int, sizes.groups())
        self.kernel = kernel

    def without_loads(self, text):
        return re.sub(r"rg_load_pack\((p\d+),", r"rg_no_load(\1,", text)

    def without_stores(self, text):
        return re.sub(
            r"if \(inside\) \{(\s+rg_store_vec<8>\(\w+, [^;]*, (\w+)\);)",
            r"if (inside && \2[0] == 12345.0f) {\1",
            text,
        )

    def without_arithmetic(self, text):
        """Each result is the product by one element, of those that are loaded by turns."""
        loop = re.search(
            r"for \(int j = 0; j < 8; \+\+j\) \{\n(.*?)\n            \}\n", text, re.DOTALL
        )
        lanes = list(
            dict.fromkeys(re.findall(r"rg_lane\w*\(q\d+\[[^\]]*\], j % 8\)", loop.group(1)))
        )
        product = re.search(r"rg_lane\w*\(v\d+\[0\], j\)", loop.group(1)).group(0)
        stored = re.findall(r"(\w+)\[j\] = ", loop.group(1))
        body = "\n".join(
            f"              {v}[j] = {product} * {lanes[i % len(lanes)]};"
            for i, v in enumerate(stored)
        )
        return text[: loop.start(1)] + body + text[loop.end(1) :]

    def product_alone(self, text):
        text = self.without_arithmetic(self.without_loads(text))
        text = re.sub(r"(\w+\[j\] = rg_lane\w*\(v\d+\[0\], j\)) \* rg_lane[^;]*;", r"\1;", text)
        first, *others = re.findall(r"            if \(inside\) \{\s+rg_store_vec[^}]*\}\n", text)
        for other in others:
            text = text.replace(other, "")
        return text

    def variants(self):
        whole = self.kernel
        return {
            "whole": whole,
            "no loads": self.without_loads(whole),
            "no stores": self.without_stores(whole),
            "no arithmetic": self.without_arithmetic(whole),
            "arithmetic alone": self.without_stores(self.without_loads(whole)),
            "product alone": self.product_alone(whole),
        }

    def text(self, kernel, clocks, blocks):
        prelude = self.prelude
        if clocks:
            for old, new in CLOCKS:
                prelude = replaced(prelude, old, new)
        at = prelude.index("template <int stages, int tile_m = 128")
        more = NO_LOAD + (CLOCK_HELP % (blocks * 16) if clocks else "")
        return prelude[:at] + more + prelude[at:] + kernel


def check(result, what):
    if result:
        raise SystemExit(f"fused_tile_parts.py: {what} ended with {result}")


class Gpu:
    def __init__(self, nvrtc):
        self.nvrtc, self.driver = ctypes.CDLL(nvrtc), ctypes.CDLL("libcuda.so.1")
        torch.zeros(1, device="cuda")
        self.blocks = torch.cuda.get_device_properties(0).multi_processor_count

    def compile(self, text):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        call = self.nvrtc
        check(
            call.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"k.cu", 0, None, None),
            "NVRTC",
        )
        options = (ctypes.c_char_p * len(OPTIONS))(*(o.encode() for o in OPTIONS))
        if call.nvrtcCompileProgram(program, len(OPTIONS), options):
            call.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            call.nvrtcGetProgramLog(program, log)
            raise SystemExit(log.value.decode()[:2000])
        check(call.nvrtcGetCUBINSize(program, ctypes.byref(size)), "NVRTC")
        binary = ctypes.create_string_buffer(size.value)
        check(call.nvrtcGetCUBIN(program, binary), "NVRTC")
        return binary.raw

    def load(self, binary, entry, shared):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(self.driver.cuModuleLoadData(ctypes.byref(module), binary), "cuModuleLoadData")
        check(
            self.driver.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()),
            "its function",
        )
        check(
            self.driver.cuFuncSetAttribute(function, SHARED_BYTES_ATTRIBUTE, shared),
            "its shared memory",
        )
        return module, function

    def map(self, tensor, extents, pitches):
        buffer = (ctypes.c_char * 192)()
        at = (ctypes.addressof(buffer) + 63) // 64 * 64
        rank = len(extents)
        check(
            self.driver.cuTensorMapEncodeTiled(
                ctypes.c_void_p(at),
                BF16,
                rank,
                ctypes.c_void_p(tensor.data_ptr()),
                (ctypes.c_uint64 * rank)(*extents),
                (ctypes.c_uint64 * (rank - 1))(*pitches),
                (ctypes.c_uint32 * rank)(64, 64, *[1] * (rank - 2)),
                (ctypes.c_uint32 * rank)(*[1] * rank),
                0,
                SWIZZLE_128,
                PROMOTE_128,
                0,
            ),
            "cuTensorMapEncodeTiled",
        )
        return buffer, at


class Case:
    """The kernel's operands. What it reads and stores point by point has rows of two results."""

    def __init__(self, source, gpu):
        self.source, self.gpu = source, gpu
        m, n, k, groups = source.m, source.n, source.k, source.groups
        torch.manual_seed(0)
        sizes = torch.rand(groups) * 2 + 1
        ends = (sizes.cumsum(0) / sizes.sum() * m).round().int()
        ends[-1] = m

        def draw(*shape):
            return torch.randn(*shape, device="cuda").bfloat16()

        self.a, self.b = draw(m, k), draw(groups, n, k) * k**-0.5
        inner, outer = (n, k) if source.b_across else (k, n)
        self.map_a = gpu.map(self.a, [k, m], [2 * k])
        self.map_b = gpu.map(self.b, [inner, outer, groups], [2 * inner, 2 * n * k])
        self.tensors = {"rg_a": self.a, "rg_b": self.b, "rg_ends": ends.cuda()}
        self.read = draw(m, 2 * n)
        self.stored = torch.empty_like(self.read)
        addresses, stored = [], 0
        for const, name in source.arguments:
            if name in self.tensors:
                addresses.append(self.tensors[name].data_ptr())
            elif const:
                addresses.append(self.read.data_ptr())
            else:
                addresses.append(self.stored.data_ptr() + 2 * n * stored)
                stored += 1
        self.table = torch.tensor(addresses, dtype=torch.int64).cuda()
        self.flush = torch.empty(80 << 20, device="cuda", dtype=torch.uint8)

    def launch(self, function):
        source, count = self.source, len(self.source.arguments)
        slots = (ctypes.c_int * count)(*range(count))
        table = ctypes.c_void_p(self.table.data_ptr())
        given = (ctypes.c_void_p * 4)(
            ctypes.addressof(table), ctypes.addressof(slots), self.map_a[1], self.map_b[1]
        )
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        blocks = self.gpu.blocks // source.cluster * source.cluster
        check(
            self.gpu.driver.cuLaunchKernel(
                function, blocks, 1, 1, THREADS, 1, 1, source.shared, stream, given, None
            ),
            "the launch",
        )

    def time(self, function):
        self.launch(function)
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
        for begin, end in events:
            self.flush.zero_()
            begin.record()
            self.launch(function)
            end.record()
        torch.cuda.synchronize()
        return round(statistics.median(b.elapsed_time(e) for b, e in events) * 1e3, 1)

    def clocks(self, module, function):
        self.time(function)
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        check(
            self.gpu.driver.cuModuleGetGlobal_v2(
                ctypes.byref(address), ctypes.byref(size), module, b"rg_spent"
            ),
            "the clocks",
        )
        words = (ctypes.c_uint32 * (size.value // 4))()
        check(self.gpu.driver.cuMemcpyDtoH_v2(words, address, size), "the clocks")
        rows = [words[i : i + 8] for i in range(0, len(words), 8)]
        rows = [r for r in rows if r[4] > 0]
        tiles = sum(r[4] for r in rows)
        per_tile = {
            name: round(sum(r[i] for r in rows) / tiles)
            for i, name in enumerate(("waits", "sums", "operands_waited_for", "epilogue"))
        }
        lengths = [r[5] for r in rows]
        return per_tile | {
            "tiles": tiles,
            "mhz": round(statistics.mean(r[5] / r[6] for r in rows) * 1e3),
            "last_over_mean": round(max(lengths) / statistics.mean(lengths), 3),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--nvrtc", default="libnvrtc.so.13")
    parser.add_argument("--compile-only", action="store_true", help="of every text, without a GPU")
    arguments = parser.parse_args()
    sources = [Source(path) for path in arguments.sources]
    if arguments.compile_only:
        gpu = Gpu.__new__(Gpu)
        gpu.nvrtc, gpu.blocks = ctypes.CDLL(arguments.nvrtc), 132
        for source in sources:
            for name, kernel in source.variants().items():
                sizes = [
                    len(gpu.compile(source.text(kernel, clocks, 132))) for clocks in (False, True)
                ]
                print(source.name, name, sizes)
        return
    gpu, rows = Gpu(arguments.nvrtc), []
    for source in sources:
        case = Case(source, gpu)
        variants = source.variants()
        texts = [
            source.text(k, clocks, gpu.blocks)
            for k in variants.values()
            for clocks in (False, True)
        ]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            loaded = [
                gpu.load(b, source.entry, source.shared) for b in pool.map(gpu.compile, texts)
            ]
        built = dict(zip(variants, zip(loaded[::2], loaded[1::2], strict=True), strict=True))
        times = {name: [] for name in built}
        for _ in range(arguments.rounds):
            for name, (plain, _) in built.items():
                times[name].append(case.time(plain[1]))
        for name, (_, counting) in built.items():
            row = {
                "kernel": source.name,
                "m": source.m,
                "n": source.n,
                "k": source.k,
                "groups": source.groups,
                "part": name,
                "us": times[name],
                "clocks": case.clocks(*counting),
            }
            rows.append(row)
            print(row, flush=True)
        del case
    if arguments.out:
        result = {
            "command": "bench/fused_tile_parts.py " + " ".join(p.name for p in arguments.sources),
            "commit": arguments.commit or commit(),
            "machine": machine("cuda"),
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
