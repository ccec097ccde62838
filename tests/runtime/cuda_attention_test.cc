// Attention on a real GPU; every case is skipped where there is none. "[.times]" prints what our
// kernels and each plan of cuDNN take for the shapes of a few models, "[.layouts]" what they take
// for one of them with operands and results in other orders, and for parts of its batch:
//   cuda_attention_test "[.times]"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/attention/cuda_attention.h"
#include "runtime/ops/attention/host_attention.h"
#include "tests/catch.h"
#include "tests/support/plans/calls.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };

struct Shape4 {
  int64_t batch, heads, kv_heads, queries, keys, dim, v_dim;
};

std::string Print(const Shape4& s) {
  return absl::StrCat("B ", s.batch, ", H ", s.heads, "/", s.kv_heads, ", T ", s.queries, "/",
                      s.keys, ", D ", s.dim, "/", s.v_dim);
}

// The device, or null where there is no GPU.
// With what is meant to make the calls.
enum Maker { kCudnn, kTiled, kSimple, kFastest };
std::unique_ptr<Device> Gpu(bool deterministic, Maker maker = kFastest) {
  CudaDeviceOptions options;
  options.attention.cudnn.deterministic = deterministic;
  options.attention.allow_cudnn = maker == kCudnn || maker == kFastest;
  options.attention.allow_tiled = maker == kTiled || maker == kFastest;
  auto device = MakeCudaDevice(options);
  if (!device.ok()) {
    WARN("skipped: " << device.status());
    return nullptr;
  }
  return *std::move(device);
}

// [B,H,T,D], in memory [B,T,H,D] as frameworks keep it.
AttentionOperand Tokens(int64_t b, int64_t h, int64_t t, int64_t d) {
  return {.shape = {b, h, t, d}, .strides = {t * h * d, d, h * d, 1}};
}

AttentionCall CallOf(const Shape4& s, DType dtype, bool causal, bool bias) {
  AttentionCall call{
      .dtype = dtype, .scale = 1 / std::sqrt(static_cast<double>(s.dim)), .causal = causal};
  call.operands = {
      Tokens(s.batch, s.heads, s.queries, s.v_dim),
      Tokens(s.batch, s.heads, s.queries, s.dim),
      Tokens(s.batch, s.kv_heads, s.keys, s.dim),
      Tokens(s.batch, s.kv_heads, s.keys, s.v_dim),
      Tokens(s.batch, s.heads, s.queries, s.v_dim),
      {.shape = {s.batch, s.heads, s.queries}, .strides = {s.heads * s.queries, s.queries, 1}}};
  if (bias) {
    call.operands.push_back({.shape = {s.batch, 1, s.queries, s.keys},
                             .strides = {s.queries * s.keys, s.queries * s.keys, s.keys, 1}});
  }
  call.results = {Tokens(s.batch, s.heads, s.queries, s.dim),
                  Tokens(s.batch, s.kv_heads, s.keys, s.dim),
                  Tokens(s.batch, s.kv_heads, s.keys, s.v_dim)};
  return call;
}

int64_t Elements(const AttentionOperand& t) {
  int64_t count = 1;
  for (const int64_t extent : t.shape) count *= extent;
  return count;
}

using Values = std::vector<double>;

int64_t At(const AttentionOperand& t, int64_t b, int64_t h, int64_t i, int64_t c) {
  return b * t.strides[0] + h * t.strides[1] + i * t.strides[2] + c * t.strides[3];
}

// O and the log-sum-exp, of Q, K, V and the bias.
void Forward(const Shape4& s, const AttentionCall& call, std::vector<Values>* v) {
  const int64_t sharing = s.heads / s.kv_heads;
  Values score(static_cast<size_t>(s.keys));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.queries; ++i) {
        const int64_t seen = call.causal ? std::min(i + 1, s.keys) : s.keys;
        double sum = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double x = 0;
          for (int64_t c = 0; c < s.dim; ++c) {
            x += (*v)[kQ][At(call.operands[kQ], b, h, i, c)] *
                 (*v)[kK][At(call.operands[kK], b, h / sharing, j, c)];
          }
          x *= call.scale;
          if (v->size() > kBias) {
            const Shape& bias = call.operands[kBias].shape;
            const int64_t table = b % bias[0] * bias[1] + h % bias[1];
            x += (*v)[kBias][(table * bias[2] + i % bias[2]) * s.keys + j];
          }
          score[j] = std::exp(x);
          sum += score[j];
        }
        (*v)[kLse][(b * s.heads + h) * s.queries + i] = std::log(sum);
        for (int64_t c = 0; c < s.v_dim; ++c) {
          double o = 0;
          for (int64_t j = 0; j < seen; ++j) {
            o += score[j] / sum * (*v)[kV][At(call.operands[kV], b, h / sharing, j, c)];
          }
          (*v)[kO][At(call.operands[kO], b, h, i, c)] = o;
        }
      }
    }
  }
}

std::vector<char> Encode(DType dtype, const Values& values) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(SizeBytes(dtype)));
  REQUIRE(WithFloatType(dtype, [&](auto* type) {
    auto* p = reinterpret_cast<decltype(type)>(bytes.data());
    for (size_t i = 0; i < values.size(); ++i) StoreAs(p, static_cast<int64_t>(i), values[i]);
  }));
  return bytes;
}

double Element(DType dtype, const std::vector<char>& bytes, int64_t i) {
  double value = 0;
  REQUIRE(WithFloatType(dtype, [&](auto* type) {
    value = LoadAs<double>(reinterpret_cast<decltype(type)>(const_cast<char*>(bytes.data())), i);
  }));
  return value;
}

// A call loaded on the device, with its memory.
struct Loaded {
  // `alignment`: what is known of the operands' addresses, in bytes; 0: nothing.
  Loaded(Device* device, const AttentionCall& call, const std::vector<DType>& dtypes,
         const std::vector<std::vector<char>>& operands, int64_t alignment = 0)
      : device(device), call(call), dtypes(dtypes) {
    CallFacts facts;
    if (alignment > 0) facts.operand_alignment.assign(call.operands.size(), alignment);
    auto made = device->Load(ToCall(call, dtypes), facts);
    INFO(made.status());
    REQUIRE(made.ok());
    loaded = *std::move(made);
    for (const std::vector<char>& bytes : operands) {
      inputs.push_back(Take(static_cast<int64_t>(bytes.size())));
      REQUIRE(device->CopyIn(taken.back(), bytes.data(), static_cast<int64_t>(bytes.size())).ok());
    }
    for (const AttentionOperand& t : call.results) {
      results.push_back(Take(Elements(t) * SizeBytes(call.dtype)));
    }
    scratch = Take(loaded->scratch_bytes());
  }
  ~Loaded() {
    for (void* data : taken) device->Free(data);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  void* Take(int64_t bytes) {
    auto data = device->Allocate(bytes);
    INFO(data.status());
    REQUIRE(data.ok());
    taken.push_back(*data);
    return *data;
  }
  absl::Status Run() { return loaded->Run(0, {inputs, absl::MakeSpan(results)}, scratch); }
  std::vector<std::vector<char>> Results() {
    REQUIRE(device->Synchronize().ok());
    std::vector<std::vector<char>> all;
    for (size_t i = 0; i < results.size(); ++i) {
      all.emplace_back(static_cast<size_t>(Elements(call.results[i]) * SizeBytes(call.dtype)));
      REQUIRE(
          device->CopyOut(all.back().data(), results[i], static_cast<int64_t>(all.back().size()))
              .ok());
    }
    return all;
  }
  std::string Describe() const { return loaded->Describe(); }

  Device* device;
  AttentionCall call;
  std::vector<DType> dtypes;
  std::unique_ptr<LoadedCall> loaded;
  std::vector<void*> taken, results;
  std::vector<const void*> inputs;
  void* scratch = nullptr;
};

std::vector<DType> DTypes(const AttentionCall& call) {
  std::vector<DType> dtypes(call.operands.size(), call.dtype);
  dtypes[kLse] = call.dtype == DType::kFp64 ? DType::kFp64 : DType::kFp32;
  return dtypes;
}

// A causal mask as PyTorch writes it for cuDNN.
void MaskBias(const AttentionOperand& bias, Values* values) {
  const int64_t queries = bias.shape[bias.shape.size() - 2], keys = bias.shape.back();
  for (size_t n = 0; n < values->size(); ++n) {
    const int64_t j = static_cast<int64_t>(n) % keys, i = static_cast<int64_t>(n) / keys % queries;
    (*values)[n] = j > i ? -65504 : 0;
  }
}

// Numbers of a bias: one for each query and key; the same, for each head; a causal mask; one for
// each key, as a mask of padding has.
enum Numbers { kOfPairs, kOfHeads, kCausalMask, kOfKeys };

void ShareAmongQueries(AttentionOperand* bias) {
  const int64_t keys = bias->shape[3];
  *bias = {.shape = {bias->shape[0], 1, 1, keys}, .strides = {keys, keys, keys, 1}};
}

// A table for each head, one for all batches.
void ShareAmongBatches(int64_t heads, AttentionOperand* bias) {
  const int64_t queries = bias->shape[2], keys = bias->shape[3], table = queries * keys;
  *bias = {.shape = {1, heads, queries, keys}, .strides = {heads * table, table, keys, 1}};
}

// ‖ours - hosts‖ / ‖hosts‖ of each result, and whether a second run gives the same bits.
void CheckAgainstHost(Device* device, const Shape4& shape, DType dtype, bool causal, bool bias,
                      double tolerance, Maker maker, Numbers numbers = kOfPairs,
                      int64_t alignment = 0) {
  AttentionCall call = CallOf(shape, dtype, causal, bias);
  if (numbers == kOfKeys) ShareAmongQueries(&call.operands.back());
  if (numbers == kOfHeads) ShareAmongBatches(shape.heads, &call.operands.back());
  // cuDNN gives no gradient of scores.
  if (bias && maker != kCudnn) {
    const int64_t rows = shape.queries * shape.keys;
    call.results.push_back({.shape = {shape.batch, shape.heads, shape.queries, shape.keys},
                            .strides = {shape.heads * rows, rows, shape.keys, 1}});
  }
  const std::vector<DType> dtypes = DTypes(call);
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<Values> values;
  for (const AttentionOperand& t : call.operands) {
    values.emplace_back(static_cast<size_t>(Elements(t)));
    for (double& v : values.back()) v = normal(random);
  }
  if (numbers == kCausalMask) MaskBias(call.operands.back(), &values.back());
  Forward(shape, call, &values);
  std::vector<std::vector<char>> bytes;
  for (size_t i = 0; i < values.size(); ++i) bytes.push_back(Encode(dtypes[i], values[i]));

  Loaded loaded(device, call, dtypes, bytes, alignment);
  INFO(Print(shape) << " " << Name(dtype) << (causal ? " causal" : "") << (bias ? " bias" : "")
                    << " aligned " << alignment << "\n"
                    << loaded.Describe());
  const auto& made = static_cast<CudaAttentionCall&>(*loaded.loaded);
  CHECK((made.library() != nullptr) == (maker == kCudnn));
  CHECK(made.tiled() == (maker == kTiled));
  const absl::Status run = loaded.Run();
  INFO(run);
  REQUIRE(run.ok());
  const std::vector<std::vector<char>> ours = loaded.Results();
  for (int again = 0; again < 5; ++again) {
    REQUIRE(loaded.Run().ok());
    CHECK(loaded.Results() == ours);
  }

  std::vector<std::vector<char>> hosts;
  std::vector<const void*> operands;
  std::vector<void*> results;
  for (const std::vector<char>& b : bytes) operands.push_back(b.data());
  for (const std::vector<char>& b : ours) hosts.emplace_back(b.size());
  for (std::vector<char>& b : hosts) results.push_back(b.data());
  auto scratch_bytes = HostAttentionScratchBytes(call);
  REQUIRE(scratch_bytes.ok());
  std::vector<char> scratch(static_cast<size_t>(*scratch_bytes) + 64);
  void* aligned = scratch.data();
  size_t room = scratch.size();
  std::align(64, static_cast<size_t>(*scratch_bytes), aligned, room);
  HostAttentionBackward(call, {operands, dtypes, absl::MakeSpan(results)}, aligned);
  for (size_t result = 0; result < call.results.size(); ++result) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < Elements(call.results[result]); ++i) {
      const double host = Element(dtype, hosts[result], i);
      const double difference = Element(dtype, ours[result], i) - host;
      error += difference * difference;
      norm += host * host;
    }
    INFO("result " << result << ": error " << std::sqrt(error / norm));
    CHECK(std::sqrt(error / norm) <= tolerance);
  }
}

TEST_CASE("on a GPU cuDNN's gradients of attention agree with the host's, and repeat to the bit") {
  const std::unique_ptr<Device> device = Gpu(/*deterministic=*/true, kCudnn);
  if (device == nullptr) return;
  const Shape4 shapes[] = {{2, 4, 4, 128, 128, 64, 64},
                           {1, 8, 4, 256, 256, 64, 64},
                           {2, 6, 6, 197, 197, 64, 64},
                           {1, 4, 2, 64, 192, 128, 128},
                           {1, 4, 4, 32, 32, 16, 16}};
  for (const Shape4& shape : shapes) {
    for (const DType dtype : {DType::kBf16, DType::kFp16}) {
      CheckAgainstHost(device.get(), shape, dtype, true, false, 1e-2, kCudnn);
      CheckAgainstHost(device.get(), shape, dtype, false, false, 1e-2, kCudnn);
    }
  }
  CheckAgainstHost(device.get(), shapes[0], DType::kBf16, false, true, 1e-2, kCudnn);
  CheckAgainstHost(device.get(), shapes[0], DType::kBf16, false, true, 1e-2, kCudnn, kOfKeys);
}

TEST_CASE(
    "on a GPU our gradients of attention by tiles agree with the host's, and repeat to the bit") {
  const std::unique_ptr<Device> device = Gpu(/*deterministic=*/true, kTiled);
  if (device == nullptr) return;
  if (!device->multiplies_with_epilogues()) {
    WARN("skipped: these kernels are Hopper's");
    return;
  }
  const Shape4 shapes[] = {{2, 2, 2, 128, 128, 64, 64},
                           {1, 4, 2, 260, 260, 64, 64},
                           {1, 2, 1, 64, 192, 128, 128},
                           {1, 2, 1, 200, 65, 64, 64},
                           {1, 1, 1, 140, 140, 128, 128}};
  for (const Shape4& shape : shapes) {
    for (const DType dtype : {DType::kBf16, DType::kFp16}) {
      CheckAgainstHost(device.get(), shape, dtype, true, false, 5e-3, kTiled);
      CheckAgainstHost(device.get(), shape, dtype, false, false, 5e-3, kTiled);
    }
    CheckAgainstHost(device.get(), shape, DType::kBf16, false, true, 5e-3, kTiled);
    CheckAgainstHost(device.get(), shape, DType::kFp16, true, true, 5e-3, kTiled);
    CheckAgainstHost(device.get(), shape, DType::kBf16, false, true, 5e-3, kTiled, kCausalMask);
    CheckAgainstHost(device.get(), shape, DType::kBf16, false, true, 5e-3, kTiled, kOfKeys);
  }
}

TEST_CASE("on a GPU a bias that comes in boxes gives the host's gradients, and repeats them") {
  const std::unique_ptr<Device> device = Gpu(/*deterministic=*/true, kTiled);
  if (device == nullptr) return;
  if (!device->multiplies_with_epilogues()) {
    WARN("skipped: these kernels are Hopper's");
    return;
  }
  const Shape4 shapes[] = {{2, 2, 2, 128, 128, 64, 64},
                           {2, 4, 2, 200, 136, 64, 64},
                           {1, 4, 2, 330, 328, 64, 64},
                           {2, 2, 1, 72, 192, 128, 128},
                           {1, 2, 2, 136, 200, 128, 128}};
  for (const Shape4& shape : shapes) {
    for (const Numbers numbers : {kOfPairs, kOfHeads, kCausalMask}) {
      INFO(numbers);
      CheckAgainstHost(device.get(), shape, DType::kBf16, false, true, 5e-3, kTiled, numbers, 16);
      CheckAgainstHost(device.get(), shape, DType::kFp16, true, true, 5e-3, kTiled, numbers, 16);
    }
  }
}

TEST_CASE("on a GPU our kernels make the gradients of attention that cuDNN refuses") {
  const std::unique_ptr<Device> device = Gpu(/*deterministic=*/true);
  if (device == nullptr) return;
  const Shape4 shape = {2, 6, 3, 150, 140, 20, 12};
  for (const bool causal : {false, true}) {
    CheckAgainstHost(device.get(), shape, DType::kFp32, causal, causal, 1e-5, kSimple);
    CheckAgainstHost(device.get(), shape, DType::kFp64, causal, false, 1e-12, kSimple);
    CheckAgainstHost(device.get(), shape, DType::kBf16, causal, false, 5e-3, kSimple);
  }
}

TEST_CASE("on a GPU without cuDNN our kernels take its calls") {
  const std::unique_ptr<Device> device = Gpu(/*deterministic=*/true, kSimple);
  if (device == nullptr) return;
  CheckAgainstHost(device.get(), {1, 4, 2, 130, 130, 64, 64}, DType::kBf16, true, false, 5e-3,
                   kSimple);
}

TEST_CASE("what cuDNN is known to refuse is refused before it is asked, with shape and reason") {
  const auto refusal = [](const AttentionCall& call) {
    const std::vector<DType> dtypes = DTypes(call);
    return std::string(CudnnRefusal(call, {dtypes}).message());
  };
  const Shape4 shape = {2, 4, 2, 32, 48, 64, 64};
  CHECK(refusal(CallOf(shape, DType::kBf16, true, true)).empty());
  CHECK(refusal(CallOf(shape, DType::kFp32, true, false)) ==
        "attention_backward %0, f32 Q[2,4,32,64] K[2,2,48,64], causal: cuDNN takes bf16 and fp16 "
        "only");
  CHECK(refusal(CallOf({2, 4, 2, 32, 48, 20, 64}, DType::kBf16, false, false))
            .find("head sizes that 8 divides, not 20 and 64") != std::string::npos);
  CHECK(refusal(CallOf({2, 4, 2, 32, 48, 64, 264}, DType::kFp16, false, false))
            .find("head sizes up to 256, not 64 and 264") != std::string::npos);
  AttentionCall call = CallOf(shape, DType::kBf16, false, false);
  call.operands[kK].offset = 4;
  CHECK(refusal(call).find("K has the strides 6144,64,128,1 and the offset 4") !=
        std::string::npos);
  call = CallOf(shape, DType::kBf16, false, false);
  call.results[2].strides = {6144, 3072, 1, 48};
  CHECK(refusal(call).find("dV has the strides") != std::string::npos);
  call = CallOf(shape, DType::kBf16, false, true);
  ShareAmongQueries(&call.operands.back());
  CHECK(refusal(call).empty());
  call.operands.back() = {.shape = {shape.batch, 1, shape.queries, 1},
                          .strides = {shape.queries, shape.queries, 1, 1}};
  CHECK(refusal(call).find("needs a bias with a number for each key") != std::string::npos);
}

TEST_CASE("cuDNN is asked for dropout with one integer as seed and as offset, with a bias or not") {
  for (const bool bias : {false, true}) {
    AttentionCall call = CallOf({2, 4, 2, 32, 48, 64, 64}, DType::kBf16, true, bias);
    call.dropout_p = 0.1;
    call.variant = "cudnn";
    std::vector<DType> dtypes = DTypes(call);
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}}) {
      call.operands.push_back({.shape = shape, .strides = shape});
      dtypes.push_back(DType::kInt64);
    }
    CHECK(CudnnRefusal(call, {dtypes}).ToString() == "OK");
    call.variant = "flash";
    CHECK_THAT(std::string(CudnnRefusal(call, {dtypes}).message()),
               ContainsSubstring("dropout 0.1") && ContainsSubstring("flash"));
  }
}

TEST_CASE("a cuDNN that is not there is Unavailable and named, and the next try is answered too") {
  for (int again = 0; again < 3; ++again) {
    const absl::Status status =
        again < 2 ? CudnnHandle::Create("/nowhere/libcudnn.so.9", 90).status()
                  : CudnnHandle::Shared("/nowhere/libcudnn.so.9", 90, GpuContext{}).status();
    CHECK(absl::IsUnavailable(status));
    INFO(status);
    // Which of the two is missing depends on the machine, as does whether it was built in.
    CHECK((status.message().find("/nowhere/libcudnn.so.9") != absl::string_view::npos ||
           status.message().find("CUDA runtime") != absl::string_view::npos ||
           status.message().find("this build has no cuDNN") != absl::string_view::npos));
  }
}

TEST_CASE("times of attention's backward pass", "[.times]") {
  const Shape4 shapes[] = {{48, 8, 4, 2048, 2048, 64, 64},   {32, 8, 4, 2048, 2048, 64, 64},
                           {4, 16, 8, 2048, 2048, 64, 64},   {4, 12, 12, 1024, 1024, 64, 64},
                           {8, 12, 12, 512, 512, 64, 64},    {8, 6, 6, 197, 197, 64, 64},
                           {4, 16, 8, 2048, 2048, 128, 128}, {4, 16, 16, 2048, 2048, 64, 64}};
  for (const bool deterministic : {true, false}) {
    for (const Shape4& shape : shapes) {
      const std::unique_ptr<Device> device = Gpu(deterministic);
      if (device == nullptr) return;
      const bool causal = shape.queries != 197 && shape.queries != 512;
      // The last has a causal mask as a bias; it is timed with one, then runs with random numbers.
      const bool bias = shape.kv_heads == 16;
      const AttentionCall call = CallOf(shape, DType::kBf16, causal && !bias, bias);
      std::mt19937_64 random(7);
      std::normal_distribution<float> normal;
      std::vector<std::vector<char>> bytes;
      const std::vector<DType> dtypes = DTypes(call);
      for (size_t i = 0; i < call.operands.size(); ++i) {
        Values values(static_cast<size_t>(Elements(call.operands[i])));
        // Four thousand random numbers, again and again; a log-sum-exp that keeps exp() near 0.
        float some[4096];
        for (float& v : some) v = normal(random);
        for (size_t at = 0; at < values.size(); ++at) {
          values[at] = i == kLse ? 8 : static_cast<double>(some[(at * 31 + i) % 4096]);
        }
        bytes.push_back(Encode(dtypes[i], values));
      }
      Loaded loaded(device.get(), call, dtypes, bytes);
      auto samples = device->Time([&] { return loaded.Run(); }, 11, /*cold=*/false);
      INFO(samples.status());
      REQUIRE(samples.ok());
      std::sort(samples->begin(), samples->end());
      REQUIRE(loaded.Run().ok());
      const std::vector<std::vector<char>> first = loaded.Results();
      bool equal = true;
      for (int again = 0; again < 5; ++again) {
        REQUIRE(loaded.Run().ok());
        equal = equal && loaded.Results() == first;
      }
      std::printf("%s%s, %s: %.1f us, %s\n%s\n", Print(shape).c_str(),
                  bias     ? ", bias"
                  : causal ? ", causal"
                           : "",
                  deterministic ? "deterministic" : "free", (*samples)[samples->size() / 2],
                  equal ? "equal bits" : "bits differ", loaded.Describe().c_str());
      std::fflush(stdout);
    }
  }
}

// The same [B,H,T,D], in memory as well.
AttentionOperand Heads(const AttentionOperand& t) {
  return {
      .shape = t.shape,
      .strides = {t.shape[1] * t.shape[2] * t.shape[3], t.shape[2] * t.shape[3], t.shape[3], 1}};
}

TEST_CASE("times of attention's backward pass by the layout of what it reads and writes",
          "[.layouts]") {
  const Shape4 grouped{32, 8, 4, 2048, 2048, 64, 64}, full{32, 8, 8, 2048, 2048, 64, 64};
  const struct {
    const char* what;
    Shape4 shape;
    std::vector<int> operands, results;  // stored head by head; the rest token by token
  } kCases[] = {
      {"all by tokens", grouped, {}, {}},
      {"O and dO by heads", grouped, {kDO, kO}, {}},
      {"Q, K and V by heads", grouped, {kQ, kK, kV}, {}},
      {"dQ by heads", grouped, {}, {0}},
      {"dK and dV by heads", grouped, {}, {1, 2}},
      {"all by heads", grouped, {kDO, kQ, kK, kV, kO}, {0, 1, 2}},
      {"as many heads of keys as of queries", full, {}, {}},
      {"16 of 32", {16, 8, 4, 2048, 2048, 64, 64}, {}, {}},
      {"8 of 32", {8, 8, 4, 2048, 2048, 64, 64}, {}, {}},
      {"4 of 32", {4, 8, 4, 2048, 2048, 64, 64}, {}, {}},
      {"2 of 32", {2, 8, 4, 2048, 2048, 64, 64}, {}, {}},
      {"1 of 32", {1, 8, 4, 2048, 2048, 64, 64}, {}, {}},
  };
  for (const bool deterministic : {true, false}) {
    for (const auto& c : kCases) {
      const std::unique_ptr<Device> device = Gpu(deterministic);
      if (device == nullptr) return;
      AttentionCall call = CallOf(c.shape, DType::kBf16, /*causal=*/true, /*bias=*/false);
      for (const int i : c.operands) call.operands[i] = Heads(call.operands[i]);
      for (const int i : c.results) call.results[i] = Heads(call.results[i]);
      const std::vector<DType> dtypes = DTypes(call);
      auto loaded = device->Load(ToCall(call, dtypes), {});
      INFO(loaded.status());
      REQUIRE(loaded.ok());
      std::printf("%s, %s: %s\n", c.what, deterministic ? "deterministic" : "free",
                  (*loaded)->Describe().c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace retrograd
