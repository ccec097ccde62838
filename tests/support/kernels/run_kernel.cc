#include "tests/support/kernels/run_kernel.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "absl/strings/str_format.h"
#include "graph/base/rounding.h"
#include "graph/base/status.h"
#include "tests/support/kernels/sorted_list.h"

namespace retrograd {
namespace {

uint16_t ToHalfBits(double value) {
  const _Float16 h = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &h, 2);
  return bits;
}

double FromHalfBits(uint16_t bits) {
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return static_cast<double>(h);
}

// The number of a code, by the format's definition.
double FromE4M3(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double size = exponent == 15 && fraction == 7 ? std::numeric_limits<double>::quiet_NaN()
                      : exponent == 0                 ? std::ldexp(fraction, -9)
                                                      : std::ldexp(fraction + 8, exponent - 10);
  return std::copysign(size, code < 128 ? 1.0 : -1.0);
}

// Of an fnuz format with so many bits of fraction: the exponent's bias is half of its codes.
double FromFnuz(uint8_t code, int fraction_bits) {
  if (code == 128) return std::numeric_limits<double>::quiet_NaN();
  const int exponent = (code & 127) >> fraction_bits, ones = 1 << fraction_bits;
  const int fraction = code % ones, bias = 1 << (6 - fraction_bits);
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                    : std::ldexp(fraction + ones, exponent - bias - fraction_bits);
  return code < 128 ? size : -size;
}

// Of a number that the format has, whose size is that of one of the codes below 128.
template <typename From>
uint8_t CodeOf(double value, From from) {
  uint8_t code = 0;
  while (code < 127 && from(code) != std::fabs(value)) ++code;
  return code;
}
uint8_t ToE4M3(double value) { return CodeOf(value, FromE4M3) | (std::signbit(value) ? 128 : 0); }
uint8_t ToFnuz(double value, int fraction_bits) {
  if (std::isnan(value)) return 128;
  const uint8_t code = CodeOf(value, [&](uint8_t c) { return FromFnuz(c, fraction_bits); });
  return code | (value < 0 ? 128 : 0);
}

void Put(DType dtype, double value, char* to) {
  auto put = [&](auto v) { std::memcpy(to, &v, sizeof v); };
  switch (dtype) {
    case DType::kBool: return put(static_cast<uint8_t>(value != 0));
    case DType::kInt8: return put(static_cast<int8_t>(value));
    case DType::kUInt8: return put(static_cast<uint8_t>(value));
    case DType::kInt32: return put(static_cast<int32_t>(value));
    case DType::kInt64: return put(static_cast<int64_t>(value));
    case DType::kFp16: return put(ToHalfBits(value));
    case DType::kBf16: {
      const float f = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      return put(static_cast<uint16_t>(bits >> 16));
    }
    case DType::kFp32: return put(static_cast<float>(value));
    case DType::kFp64: return put(value);
    case DType::kFp8E4M3: return put(ToE4M3(value));
    case DType::kFp8E5M2: return put(static_cast<uint8_t>(ToHalfBits(value) >> 8));
    case DType::kFp8E4M3Fnuz: return put(ToFnuz(value, 3));
    case DType::kFp8E5M2Fnuz: return put(ToFnuz(value, 2));
  }
}

template <typename T>
T Read(const char* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

double Get(DType dtype, const char* from) {
  switch (dtype) {
    case DType::kBool: return Read<uint8_t>(from) != 0;
    case DType::kInt8: return Read<int8_t>(from);
    case DType::kUInt8: return Read<uint8_t>(from);
    case DType::kInt32: return Read<int32_t>(from);
    case DType::kInt64: return static_cast<double>(Read<int64_t>(from));
    case DType::kFp16: return FromHalfBits(Read<uint16_t>(from));
    case DType::kBf16: {
      const uint32_t bits = static_cast<uint32_t>(Read<uint16_t>(from)) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return f;
    }
    case DType::kFp32: return Read<float>(from);
    case DType::kFp64: return Read<double>(from);
    case DType::kFp8E4M3: return FromE4M3(Read<uint8_t>(from));
    case DType::kFp8E5M2: return FromHalfBits(static_cast<uint16_t>(Read<uint8_t>(from)) << 8);
    case DType::kFp8E4M3Fnuz: return FromFnuz(Read<uint8_t>(from), 3);
    case DType::kFp8E5M2Fnuz: return FromFnuz(Read<uint8_t>(from), 2);
  }
  return 0;
}

// Memory that begins at a multiple of `alignment` and of nothing larger.
struct Memory {
  Memory(int64_t bytes, int64_t alignment) {
    storage.resize(bytes + 2 * alignment + 64);
    const uintptr_t at = reinterpret_cast<uintptr_t>(storage.data());
    uintptr_t start = (at + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
    if (start + bytes > at + storage.size()) start -= 2 * alignment;
    data = storage.data() + (start - at);
  }
  std::vector<char> storage;
  char* data;
};

// One unit of the stored dtype; what is stored as it is computed has no rounding of its own.
double StoredUnit(DType dtype, double value) {
  return IsNarrowFloat(dtype) ? UnitInLastPlace(dtype, value) : 0;
}

}  // namespace

BufferValues RandomBuffers(const KernelIr& ir, uint64_t seed) {
  std::mt19937_64 random(seed);
  BufferValues values;
  for (const Buffer& b : ir.buffers) {
    std::vector<double> v(b.elements);
    for (double& x : v) {
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      if (IsFloat(b.dtype)) {
        x = RoundTo(b.dtype, RoundTo(DType::kFp32, 2 * u - 1));
      } else if (b.dtype == DType::kBool) {
        x = u < 0.5 ? 0 : 1;
      } else {
        x = std::floor(u * 18) - (b.dtype == DType::kUInt8 ? 0 : 9);
      }
    }
    values.push_back(std::move(v));
  }
  if (ir.scatter) {
    std::vector<double> indices(ir.Points(ir.scatter->row_axes));
    // Every other list has one row most of the time, whose segment goes through many chunks.
    const bool skewed = seed % 2 == 1;
    for (double& x : indices) {
      x = skewed && random() % 4 != 0 ? 0 : static_cast<double>(random() % 18) - 9;
    }
    values[ir.scatter->sorted] = SortedList(indices, ir.scatter->table_rows);
  }
  return values;
}

absl::StatusOr<BufferValues> RunKernels(const HostModule& module, const KernelBody& body,
                                        const GroupKernels& group, const BufferValues& before,
                                        uint64_t seed) {
  const KernelIr& ir = body.ir;
  bool adds = false;
  for (const Store& s : ir.stores) adds = adds || s.mode == StoreMode::kAdd;
  std::vector<std::unique_ptr<Memory>> memory;
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    const Buffer& buffer = ir.buffers[b];
    const int64_t size = SizeBytes(buffer.dtype);
    memory.push_back(std::make_unique<Memory>(buffer.elements * size, buffer.alignment));
    for (int64_t i = 0; i < buffer.elements; ++i) {
      Put(buffer.dtype, before[b][i], memory[b]->data + i * size);
    }
  }
  const int64_t workspace_bytes = WorkspaceBytes(ir, body.schedule);
  Memory workspace(workspace_bytes, 256);
  HostLauncher launcher;
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    const bool defined = !ir.buffers[b].written || adds;
    const int64_t bytes = ir.buffers[b].elements * SizeBytes(ir.buffers[b].dtype);
    if (defined) {
      launcher.MarkDefined(memory[b]->data, bytes);
    } else {
      launcher.MarkUndefined(memory[b]->data, bytes);
    }
  }
  launcher.MarkUndefined(workspace.data, workspace_bytes);
  for (const Kernel& kernel : group.launches) {
    std::vector<HostArg> args;
    for (const KernelArg& arg : kernel.args) {
      if (arg.kind == KernelArg::kWorkspace) {
        args.push_back({.data = workspace.data,
                        .bytes = workspace_bytes,
                        .alignment = 256,
                        .written = true,
                        .contents = HostContents::kTracked});
        continue;
      }
      for (size_t b = 0; b < ir.buffers.size(); ++b) {
        if (!(ir.buffers[b].value == arg.value)) continue;
        args.push_back({.data = memory[b]->data,
                        .bytes = ir.buffers[b].elements * SizeBytes(ir.buffers[b].dtype),
                        .alignment = ir.buffers[b].alignment,
                        .written = ir.buffers[b].written,
                        .contents = HostContents::kTracked});
      }
    }
    RG_CHECK(args.size() == kernel.args.size());
    RG_ASSIGN_OR_RETURN(const HostKernel found, module.Find(kernel.name));
    RG_RETURN_IF_ERROR(launcher.Run(found, kernel.blocks, kernel.threads, args, {.seed = seed}));
  }
  BufferValues after = before;
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    const int64_t size = SizeBytes(ir.buffers[b].dtype);
    for (int64_t i = 0; i < ir.buffers[b].elements; ++i) {
      after[b][i] = Get(ir.buffers[b].dtype, memory[b]->data + i * size);
    }
  }
  return after;
}

std::string CompareToInterpreter(const KernelIr& ir, const BufferValues& before,
                                 const BufferValues& after) {
  const BufferValues want = InterpretKernel(ir, before);
  const BufferValues sizes = InterpretMagnitudes(ir, before);
  // fp32 arithmetic, unless nothing in the kernel is below fp64.
  bool all_double = true;
  for (const Instr& i : ir.instrs) {
    all_double = all_double && (i.dtype == DType::kFp64 || !IsFloat(i.dtype));
  }
  const double points = static_cast<double>(ir.Points(ir.all_axes()));
  const double relative = all_double ? 1e-13 : 1e-6 * std::max(1.0, std::sqrt(points) / 64);
  std::vector<bool> added(ir.buffers.size(), false);
  for (const Store& s : ir.stores) added[s.buffer] = added[s.buffer] || s.mode == StoreMode::kAdd;
  for (size_t b = 0; b < want.size(); ++b) {
    const Buffer& buffer = ir.buffers[b];
    for (size_t i = 0; i < want[b].size(); ++i) {
      const double w = want[b][i], got = after[b][i];
      // A value rounded on the way may fall on the other side: what is added to another one is
      // rounded before, and may be larger than the sum.
      const double rounded = added[b] ? std::max(sizes[b][i], std::fabs(w)) : w;
      const double tolerance = relative * sizes[b][i] + 1.01 * StoredUnit(buffer.dtype, rounded) +
                               (all_double ? 0 : 1e-30);
      const bool exact = !IsFloat(buffer.dtype) || !buffer.written;
      // Sums may leave the numbers of fp8.
      if (!exact && !std::isfinite(RoundTo(buffer.dtype, w)) && !std::isfinite(got)) continue;
      if (exact ? got == w : std::fabs(got - w) <= tolerance) continue;
      return absl::StrFormat("buffer %d element %d is %.9g, not %.9g (tolerance %.3g)", b, i, got,
                             w, tolerance);
    }
  }
  return "";
}

}  // namespace retrograd
