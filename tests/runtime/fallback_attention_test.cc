// Our own attention kernels against the host's BLAS implementation, on the checking host device,
// and through NVRTC.
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/attention/emit_attention.h"
#include "codegen/print/lift_numbers.h"
#include "fusion/ops/attention/warp_attention_tiles.h"
#include "runtime/compiler/rtc.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/attention/fallback_attention.h"
#include "runtime/ops/attention/host_attention.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernels_from_text.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };

const AttentionTarget kHopper(Dialect::kCuda, 32, 232448), kCdna(Dialect::kHip, 64, 65536);

struct Case {
  AttentionCall call;
  std::vector<DType> dtypes;
  std::string text;
};

int64_t Between(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Strides of a tensor whose axes lie in a random order, sometimes with a gap between rows.
AttentionOperand Strided(std::mt19937_64& random, std::vector<int64_t> shape) {
  AttentionOperand t{.offset = Between(random, 0, 1) * 4 * Between(random, 0, 10), .shape = shape};
  std::vector<size_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  // Half of them begin with the channels, as those of models do.
  const bool any = Between(random, 0, 1) == 1;
  std::shuffle(order.begin() + (any ? 0 : 1), order.end(), random);
  t.strides.resize(shape.size());
  int64_t stride = 1;
  for (const size_t axis : order) {
    t.strides[axis] = stride;
    stride *= shape[axis] + (Between(random, 0, 3) == 0 ? (any ? 3 : 8) : 0);
  }
  return t;
}

constexpr const char* kVariants[] = {"cudnn", "flash", "efficient"};

// Few, those of usual heads, more than one kernel makes both gradients of, and more than tiles
// take.
int64_t ChannelsOf(std::mt19937_64& random) {
  constexpr int64_t kUsual[] = {16, 48, 64, 72, 80, 128, 130, 256, 400};
  return Between(random, 0, 2) > 0 ? Between(random, 1, 10) : kUsual[Between(random, 0, 8)];
}

Case RandomCase(std::mt19937_64& random, DType dtype) {
  Case c;
  const int64_t batch = Between(random, 1, 2), kv_heads = Between(random, 1, 2);
  const int64_t heads = kv_heads * Between(random, 1, 3);
  // Some of them more than the kernels take at once, and none of them a multiple of it.
  const int64_t queries =
      Between(random, 0, 3) == 0 ? Between(random, 129, 140) : Between(random, 1, 9);
  const int64_t keys =
      Between(random, 0, 3) == 0 ? Between(random, 129, 140) : Between(random, 1, 9);
  const int64_t dim = ChannelsOf(random), v_dim = ChannelsOf(random);
  c.call.dtype = dtype;
  c.call.causal = Between(random, 0, 1) == 1;
  c.call.scale = 0.3;
  c.call.operands = {Strided(random, {batch, heads, queries, v_dim}),
                     Strided(random, {batch, heads, queries, dim}),
                     Strided(random, {batch, kv_heads, keys, dim}),
                     Strided(random, {batch, kv_heads, keys, v_dim}),
                     Strided(random, {batch, heads, queries, v_dim}),
                     Strided(random, {batch, heads, queries})};
  const DType lse = dtype == DType::kFp64 ? DType::kFp64 : DType::kFp32;
  c.dtypes = {dtype, dtype, dtype, dtype, dtype, lse};
  if (Between(random, 0, 1) == 1) {
    const std::vector<std::vector<int64_t>> shapes = {{batch, heads, queries, keys},
                                                      {1, heads, 1, keys},
                                                      {queries, keys},
                                                      {batch, 1, queries, 1}};
    c.call.operands.push_back(Strided(random, shapes[static_cast<size_t>(Between(random, 0, 3))]));
    c.dtypes.push_back(Between(random, 0, 1) == 1 ? lse : dtype);
  }
  if (Between(random, 0, 1) == 1) {
    c.call.dropout_p = 0.4;
    c.call.variant = kVariants[Between(random, 0, 2)];
    for (int i = 0; i < 2; ++i) {
      c.call.operands.push_back({.offset = Between(random, 0, 3)});  // seed, offset
      c.dtypes.push_back(DType::kInt64);
    }
  }
  c.call.results = {Strided(random, {batch, heads, queries, dim}),
                    Strided(random, {batch, kv_heads, keys, dim}),
                    Strided(random, {batch, kv_heads, keys, v_dim})};
  if (Between(random, 0, 1) == 1) {
    c.call.results.push_back(Strided(random, {batch, heads, queries, keys}));
  }
  for (AttentionOperand& result : c.call.results) result.offset = 0;
  c.text = absl::StrCat(Name(dtype), " Q[", absl::StrJoin(c.call.operands[kQ].shape, ","), "] V[",
                        absl::StrJoin(c.call.operands[kV].shape, ","), "] causal ", c.call.causal,
                        " bias ", HasBias(c.call), " dropout ", c.call.variant,
                        " gradient of scores ", HasScoreGradient(c.call));
  return c;
}

int64_t Elements(const AttentionOperand& t) {
  int64_t last = t.offset;
  for (size_t axis = 0; axis < t.shape.size(); ++axis)
    last += (t.shape[axis] - 1) * t.strides[axis];
  return last + 1;
}

// Device memory that holds the values.
struct Memory {
  Memory(Device* device, DType dtype, const std::vector<double>& values)
      : device(device), dtype(dtype), elements(static_cast<int64_t>(values.size())) {
    std::vector<char> bytes(values.size() * static_cast<size_t>(SizeBytes(dtype)));
    if (dtype == DType::kInt64) {
      const std::vector<int64_t> integers(values.begin(), values.end());
      std::memcpy(bytes.data(), integers.data(), bytes.size());
    } else {
      REQUIRE(WithFloatType(dtype, [&](auto* type) {
        auto* p = reinterpret_cast<decltype(type)>(bytes.data());
        for (size_t i = 0; i < values.size(); ++i) StoreAs(p, static_cast<int64_t>(i), values[i]);
      }));
    }
    auto allocated = device->Allocate(static_cast<int64_t>(bytes.size()));
    REQUIRE(allocated.ok());
    data = *allocated;
    REQUIRE(device->CopyIn(data, bytes.data(), static_cast<int64_t>(bytes.size())).ok());
  }
  ~Memory() { device->Free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::vector<double> Read() const {
    std::vector<char> bytes(static_cast<size_t>(elements * SizeBytes(dtype)));
    REQUIRE(device->CopyOut(bytes.data(), data, static_cast<int64_t>(bytes.size())).ok());
    std::vector<double> values(static_cast<size_t>(elements));
    REQUIRE(WithFloatType(dtype, [&](auto* type) {
      const auto* p = reinterpret_cast<decltype(type)>(bytes.data());
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = LoadAs<double>(p, static_cast<int64_t>(i));
      }
    }));
    return values;
  }

  Device* device;
  DType dtype;
  int64_t elements;
  void* data = nullptr;
};

constexpr double kUntouched = 7;

// The results of a case under both implementations.
struct Outcome {
  std::vector<std::vector<double>> ours, hosts;
};

Outcome Run(Device* device, const Case& c, std::mt19937_64& random) {
  std::vector<std::unique_ptr<Memory>> memory;
  AttentionPointers pointers;
  std::vector<const void*> operands;
  for (size_t i = 0; i < c.call.operands.size(); ++i) {
    std::vector<double> values(static_cast<size_t>(Elements(c.call.operands[i])));
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (double& v : values) {
      v = i < AttentionSeed(c.call) ? uniform(random) + (i == kLse ? 2 : 0)
                                    : static_cast<double>(Between(random, 0, int64_t{1} << 50));
    }
    // Some queries see nothing.
    if (i == kLse && Between(random, 0, 2) == 0) values[0] = -INFINITY;
    memory.push_back(std::make_unique<Memory>(device, c.dtypes[i], values));
    operands.push_back(memory.back()->data);
  }
  Outcome outcome;
  for (int implementation = 0; implementation < 2; ++implementation) {
    std::vector<std::unique_ptr<Memory>> stored;
    std::vector<void*> results;
    for (const AttentionOperand& t : c.call.results) {
      stored.push_back(std::make_unique<Memory>(
          device, c.call.dtype, std::vector<double>(static_cast<size_t>(Elements(t)), kUntouched)));
      results.push_back(stored.back()->data);
    }
    pointers = {operands, c.dtypes, absl::MakeSpan(results)};
    if (implementation == 0) {
      // Heads may lie at the addresses of 16 bytes at once, and blocks have any room.
      AttentionTarget target(*device);
      target.shared_bytes = int64_t{1} << Between(random, 14, 18);
      const std::vector<int64_t> alignment(c.dtypes.size(), 16);
      const bool known = Between(random, 0, 1) == 1;
      auto made = MakeFallbackAttention(
          c.call, {c.dtypes, known ? alignment : absl::Span<const int64_t>()}, target);
      INFO(made.status());
      REQUIRE(made.ok());
      auto kernels = device->Load(made->kernels, made->launches);
      INFO(kernels.status());
      REQUIRE(kernels.ok());
      auto scratch = device->Allocate(made->scratch_bytes);
      REQUIRE(scratch.ok());
      const FallbackAttentionTable table = FallbackAttentionAddresses(pointers, *scratch);
      REQUIRE(device->Bind(0, **kernels, table).ok());
      for (size_t launch = 0; launch < made->launches.size(); ++launch) {
        const absl::Status launched = device->Launch(0, **kernels, launch);
        INFO(launched);
        REQUIRE(launched.ok());
      }
      device->Free(*scratch);
    } else {
      auto bytes = HostAttentionScratchBytes(c.call);
      REQUIRE(bytes.ok());
      auto scratch = device->Allocate(*bytes);
      REQUIRE(scratch.ok());
      HostAttentionBackward(c.call, pointers, *scratch);
      device->Free(*scratch);
    }
    for (const auto& result : stored) {
      (implementation == 0 ? outcome.ours : outcome.hosts).push_back(result->Read());
    }
  }
  return outcome;
}

// Sums of up to 140 terms of size 1 in another order; a narrow type rounds once more.
double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFp64: return 1e-11;
    case DType::kFp32: return 1e-4;
    case DType::kFp16: return 2e-3;
    default: return 1.6e-2;
  }
}

void CheckOursAgainstHosts(const Case& c, const Outcome& outcome) {
  for (size_t result = 0; result < c.call.results.size(); ++result) {
    double largest = 1e-30;
    for (const double v : outcome.hosts[result]) {
      if (v != kUntouched) largest = std::max(largest, std::abs(v));
    }
    for (size_t at = 0; at < outcome.hosts[result].size(); ++at) {
      const double ours = outcome.ours[result][at], hosts = outcome.hosts[result][at];
      if (!(std::abs(ours - hosts) <= Tolerance(c.call.dtype) * std::max(1.0, largest))) {
        FAIL("result " << result << ", element " << at << ": " << ours << " against " << hosts);
      }
    }
  }
}

std::unique_ptr<Device> CheckingDevice(int warp) {
  HostDeviceOptions options;
  options.compile.check = true;
  options.compile.cache = false;
  options.compile.warp = warp;
  return MakeHostDevice(options);
}

constexpr DType kTypes[] = {DType::kFp32, DType::kFp64, DType::kBf16, DType::kFp16};

TEST_CASE(
    "our attention kernels agree with the host's on random shapes, strides, masks and heads") {
  const char* text = std::getenv("RETROGRAD_ATTENTION_CASES");
  const int cases = text != nullptr ? std::atoi(text) : 12;
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  const std::unique_ptr<Device> devices[] = {CheckingDevice(32), CheckingDevice(64)};
  for (int i = 0; i < cases; ++i) {
    const Case c = RandomCase(random, kTypes[i % 4]);
    INFO("seed " << seed << ", case " << i << ": " << c.text);
    CheckOursAgainstHosts(c, Run(devices[Between(random, 0, 1)].get(), c, random));
  }
}

TEST_CASE("keys that no query sees have scores whose gradients are zeros, not what lay there") {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  const std::unique_ptr<Device> device = CheckingDevice(32);
  for (const int64_t channels : {16, 400}) {  // by tiles of warps, and a score at a time
    Case c;
    const auto hides_keys = [&] {
      return c.call.causal && HasScoreGradient(c.call) && c.call.operands[kQ].shape[2] < 10 &&
             c.call.operands[kK].shape[2] > 128 && c.call.operands[kQ].shape[3] == channels &&
             c.call.operands[kV].shape[3] == channels;
    };
    do {
      c = RandomCase(random, DType::kFp32);
    } while (!hides_keys());
    INFO("seed " << seed << ": " << c.text);
    CheckOursAgainstHosts(c, Run(device.get(), c, random));
  }
}

constexpr char kReadsScratch[] = R"(
RG_KERNEL(rg_reads_scratch, 32, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, scratch, 1);
  const int t = RG_THREAD;
  if (t == 0) rg_store(scratch, 1, rg_load(scratch, 0) + rg_load(x, 0));
}
)";

TEST_CASE("a kernel that reads scratch before anything is there is found by the checking device") {
  std::mt19937_64 random(3);
  Case c = RandomCase(random, DType::kFp32);
  c.call.dropout_p = 0;
  c.call.operands.resize(6);
  c.call.results.resize(3);
  c.dtypes.resize(6);
  AttentionKernels kernels{.workspace_bytes = 64};
  kernels.launches.push_back({.kernel = KernelsFromText(kReadsScratch)[0],
                              .args = {kQ, 9},  // behind six operands and three results
                              .written = {false, true}});
  kernels.launches[0].kernel.blocks = 1;
  const auto made = AttentionLaunches(c.call, {c.dtypes}, kernels);
  REQUIRE(made.ok());
  HostDeviceOptions options;
  options.compile.check = true;
  options.compile.cache = false;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  auto loaded = device->Load(made->kernels, made->launches);
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  std::vector<double> values(static_cast<size_t>(Elements(c.call.operands[kQ])), 1.0);
  const Memory q(device.get(), DType::kFp32, values), scratch(device.get(), DType::kFp32, values);
  std::array<void*, 11> table{};
  table[kQ] = q.data;
  table[9] = scratch.data;
  REQUIRE(device->Bind(0, **loaded, table).ok());
  const absl::Status launched = device->Launch(0, **loaded, 0);
  CHECK_THAT(std::string(launched.message()), ContainsSubstring("rg_reads_scratch"));
}

TEST_CASE("our attention kernels compile for NVIDIA and AMD") {
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::kFp32, DType::kFp64, DType::kBf16, DType::kFp16}) {
    Case c = RandomCase(random, dtype);
    while (c.call.dropout_p == 0) c = RandomCase(random, dtype);
    c.call.variant = kVariants[static_cast<size_t>(dtype) % 3];
    INFO(c.text);
    if (CudaCompilerAvailable().ok()) {
      auto made = MakeFallbackAttention(c.call, {c.dtypes}, kHopper);
      REQUIRE(made.ok());
      const auto object = CompileKernels(Dialect::kCuda, made->kernels, "sm_90");
      INFO(object.status());
      REQUIRE(object.ok());
      CHECK(object->kernels.size() == 2);
      for (const KernelResources& kernel : object->kernels) CHECK(kernel.spill_bytes == 0);
    }
    if (HipCompilerAvailable().ok()) {
      auto made = MakeFallbackAttention(c.call, {c.dtypes}, kCdna);
      REQUIRE(made.ok());
      const auto object = CompileKernels(Dialect::kHip, made->kernels, "gfx90a");
      INFO(object.status());
      CHECK(object.ok());
    }
  }
}

TEST_CASE("attention of two lengths has kernels that differ in numbers alone") {
  const auto skeletons = [](int64_t length, DType dtype) {
    Case c;
    c.call.dtype = dtype;
    for (int i = 0; i < 5; ++i) {
      c.call.operands.push_back(
          {.shape = {2, 4, length, 64}, .strides = {length * 256, 64, 256, 1}});
    }
    c.call.results.assign(c.call.operands.begin(), c.call.operands.begin() + 3);
    c.call.operands.push_back({.shape = {2, 4, length}, .strides = {length * 4, length, 1}});
    c.dtypes = {dtype, dtype, dtype, dtype, dtype, DType::kFp32};
    const std::vector<int64_t> alignment(c.dtypes.size(), 16);
    const auto made = MakeFallbackAttention(c.call, {c.dtypes, alignment}, kHopper);
    REQUIRE(made.ok());
    std::vector<std::string> texts;
    for (const Kernel& kernel : made->kernels) texts.push_back(SkeletonOf(kernel));
    return texts;
  };
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    CHECK(skeletons(1000, dtype) == skeletons(997, dtype));
    CHECK(skeletons(1000, dtype).size() == 2);
  }
}

TEST_CASE("sums of heads of many channels stay in registers") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  constexpr int64_t kFewBytes = 256;  // addresses; the sums alone would be 1 KB a thread
  for (const DType dtype : {DType::kFp32, DType::kFp64, DType::kBf16}) {
    for (const int64_t dim : {96, 128, 192, 256}) {
      if (dtype == DType::kFp64 && dim > 128) continue;  // blocks have no room for enough groups
      const std::vector<int64_t> aligned(6, 16);
      for (const absl::Span<const int64_t> alignment :
           {absl::Span<const int64_t>(), absl::Span<const int64_t>(aligned)}) {
        Case c;
        c.call.dtype = dtype;
        for (int i = 0; i < 5; ++i) {
          c.call.operands.push_back(
              {.shape = {1, 2, 300, dim}, .strides = {600 * dim, dim, 2 * dim, 1}});
        }
        c.call.results.assign(c.call.operands.begin(), c.call.operands.begin() + 3);
        c.call.operands.push_back({.shape = {1, 2, 300}, .strides = {600, 300, 1}});
        c.dtypes = {dtype, dtype, dtype, dtype, dtype, DType::kFp32};
        const auto made = MakeFallbackAttention(c.call, {c.dtypes, alignment}, kHopper);
        REQUIRE(made.ok());
        const auto object = CompileKernels(Dialect::kCuda, made->kernels, "sm_90");
        REQUIRE(object.ok());
        for (const KernelResources& kernel : object->kernels) {
          INFO(Name(dtype) << ", " << dim << " channels, aligned " << !alignment.empty() << ": "
                           << kernel.name);
          CHECK(kernel.spill_bytes <= kFewBytes);
        }
      }
    }
  }
}

TEST_CASE("wide heads have tiles as far as blocks have room, with fewer groups if need be") {
  constexpr int64_t kHopperRoom = 228352, kAmdRoom = 61440;  // without the numbers
  struct Room {
    DType dtype;
    int64_t dim, bytes;
  };
  for (const Room& each :
       {Room{DType::kFp32, 256, kHopperRoom}, Room{DType::kFp64, 192, kHopperRoom},
        Room{DType::kBf16, 256, kHopperRoom}, Room{DType::kFp32, 192, kAmdRoom},
        Room{DType::kBf16, 256, kAmdRoom}, Room{DType::kFp64, 64, kAmdRoom},
        Room{DType::kFp64, 96, kAmdRoom}, Room{DType::kFp32, 32, 16384}}) {
    INFO(Name(each.dtype) << ", " << each.dim << " channels, " << each.bytes << " bytes");
    AttentionCall call;
    call.dtype = each.dtype;
    call.causal = true;
    for (int i = 0; i < 5; ++i) call.operands.push_back({.shape = {1, 2, 300, each.dim}});
    CHECK(ChooseWarpAttentionTiles(call, each.bytes).has_value());
  }
}

TEST_CASE("what our attention kernels do not know is refused with the call's shape") {
  std::mt19937_64 random(3);
  Case c = RandomCase(random, DType::kFp32);
  const auto refused = [&] {
    return std::string(MakeFallbackAttention(c.call, {c.dtypes}, kHopper).status().message());
  };
  c.call.dropout_p = 0;
  c.call.operands.resize(6);
  c.dtypes.resize(6);
  c.call.operands[kV].shape[3] = 1025;
  CHECK(refused().find("head sizes up to 1024") != std::string::npos);
  c.call.operands[kV].shape[3] = 8;
  c.call.operands[kQ].shape = {1 << 15, 1 << 15, 1 << 12, 8};
  CHECK(refused().find("Q[32768,32768,4096,8]") != std::string::npos);
}

}  // namespace
}  // namespace retrograd
