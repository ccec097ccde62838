// Convolutions on a real GPU; every case is skipped where there is none.
#include "runtime/ops/convolution/cuda_convolution.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/host/host_numbers.h"
#include "tests/catch.h"
#include "tests/support/plans/convolutions.h"

namespace retrograd {
namespace {

constexpr Op kOps[] = {Op::convolution, Op::convolution_input_gradient,
                       Op::convolution_weight_gradient};

using Values = std::vector<double>;

// The device, or null, with a line that says why, where there is no GPU.
std::unique_ptr<Device> Gpu(const CudaDeviceOptions& options) {
  auto device = MakeCudaDevice(options);
  if (device.ok()) return *std::move(device);
  std::printf("[SKIP] no GPU: %s\n", device.status().ToString().c_str());
  return nullptr;
}

// Of which this one makes all gradients that it takes.
CudaDeviceOptions Alone(ConvolutionBackend backend, CudaDeviceOptions options = {}) {
  options.convolution.backends = {.input = {backend}, .weight = {backend}};
  return options;
}

int64_t Elements(const CallTensor& t) {
  int64_t count = 1;
  for (const int64_t extent : t.shape) count *= extent;
  return count;
}

// Where element `index`, in row-major order, lies in memory.
int64_t PlaceOf(const CallTensor& t, int64_t index) {
  int64_t at = 0;
  for (size_t axis = t.shape.size(); axis-- > 0;) {
    at += index % t.shape[axis] * t.strides[axis];
    index /= t.shape[axis];
  }
  return at;
}

std::vector<char> Encode(const CallTensor& t, const Values& values) {
  std::vector<char> bytes(static_cast<size_t>(SpanOf(t) * SizeBytes(t.dtype)));
  REQUIRE(WithFloatType(t.dtype, [&](auto* type) {
    auto* p = reinterpret_cast<decltype(type)>(bytes.data());
    for (size_t i = 0; i < values.size(); ++i) {
      StoreAs(p, PlaceOf(t, static_cast<int64_t>(i)), values[i]);
    }
  }));
  return bytes;
}

Values Decode(const CallTensor& t, const std::vector<char>& bytes) {
  Values values(static_cast<size_t>(Elements(t)));
  REQUIRE(WithFloatType(t.dtype, [&](auto* type) {
    const auto* p = reinterpret_cast<decltype(type)>(const_cast<char*>(bytes.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = LoadAs<double>(p, PlaceOf(t, static_cast<int64_t>(i)));
    }
  }));
  return values;
}

// The result in fp64, of the operands' values.
Values Expected(Op op, const ConvolutionShape& shape, const Values& first, const Values& second,
                size_t results) {
  Values result(results, 0.0);
  ForEachProduct(shape, [&](int64_t x, int64_t w, int64_t y) {
    if (op == Op::convolution) {
      result[y] += first[x] * second[w];
    } else if (op == Op::convolution_input_gradient) {
      result[x] += first[y] * second[w];
    } else {
      result[w] += first[y] * second[x];
    }
  });
  return result;
}

// ‖got - expected‖ / ‖expected‖
double Error(const Values& got, const Values& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

// The norm of the rounding to the result's dtype is at most 2^-9 of the result's in bf16 and 2^-12
// in fp16; sums of up to some thousand products in fp32 are off by less than 1e-5.
double Tolerance(DType result, bool tf32) {
  if (tf32) return 1e-3;
  return result == DType::kBf16 ? 0x1p-9 + 1e-5 : result == DType::kFp16 ? 0x1p-12 + 1e-5 : 1e-5;
}

// Some of cuDNN's plans make a bf16 or fp16 result in pieces and round each piece before they add
// them up: a few roundings of 2^-9 or 2^-12.
double PiecesTolerance(DType result, bool tf32) { return 4 * Tolerance(result, tf32); }

// A call loaded on the device, with its memory: scratch memory for any of cuDNN's plans.
class OnDevice {
 public:
  OnDevice(Device* device, const Call& call, std::unique_ptr<LoadedCall> loaded,
           const std::vector<std::vector<char>>& operands)
      : device_(device), result_(call.results[0]), loaded_(std::move(loaded)) {
    CudnnPlans* const library = this->library();
    const int64_t most = library == nullptr ? 0 : library->most_workspace_bytes();
    for (const std::vector<char>& bytes : operands) {
      inputs_.push_back(Take(static_cast<int64_t>(bytes.size())));
      REQUIRE(device->CopyIn(taken_.back(), bytes.data(), static_cast<int64_t>(bytes.size())).ok());
    }
    output_ = Take(SpanOf(result_) * SizeBytes(result_.dtype));
    scratch_ = Take(std::max(loaded_->scratch_bytes(), most));
  }
  ~OnDevice() {
    for (void* data : taken_) device_->Free(data);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  CudnnPlans* library() { return static_cast<CudaConvolutionCall&>(*loaded_).library(); }

  // The result's bytes, which held others before.
  std::vector<char> Run() {
    std::vector<char> bytes(static_cast<size_t>(SpanOf(result_) * SizeBytes(result_.dtype)), 0x55);
    const auto size = static_cast<int64_t>(bytes.size());
    REQUIRE(device_->CopyIn(output_, bytes.data(), size).ok());
    const absl::Status run = loaded_->Run(0, {inputs_, absl::MakeSpan(&output_, 1)}, scratch_);
    INFO(run);
    REQUIRE(run.ok());
    REQUIRE(device_->Synchronize().ok());
    REQUIRE(device_->CopyOut(bytes.data(), output_, size).ok());
    return bytes;
  }

 private:
  void* Take(int64_t bytes) {
    auto data = device_->Allocate(bytes);
    INFO(data.status());
    REQUIRE(data.ok());
    taken_.push_back(*data);
    return *data;
  }

  Device* device_;
  const CallTensor result_;
  std::unique_ptr<LoadedCall> loaded_;
  std::vector<void*> taken_;
  std::vector<const void*> inputs_;
  void* output_ = nullptr;
  void* scratch_ = nullptr;
};

// Bytes of random values for each operand, and what they are when read.
struct Operands {
  Operands(const Call& call, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (const CallTensor& t : call.operands) {
      Values drawn(static_cast<size_t>(Elements(t)));
      for (double& v : drawn) v = normal(random);
      bytes.push_back(Encode(t, drawn));
      values.push_back(Decode(t, bytes.back()));
    }
  }
  std::vector<std::vector<char>> bytes;
  std::vector<Values> values;
};

CallFacts Facts(bool tf32 = false) {
  return {.allow_tf32 = tf32, .operand_alignment = {256, 256}, .result_alignment = {256}};
}

enum class Taken { kSurely, kByOurs, kPerhaps };

// Against the sums in fp64, and that three runs give the same bits. What cuDNN refuses is allowed
// to be nobody's where it is not surely taken.
void Check(Device* device, Op op, const ConvolutionShape& shape, const ConvolutionLayout& layout,
           Taken taken, bool tf32 = false) {
  constexpr uint64_t kSeed = 7;
  const Call call = MakeConvolution(op, shape, layout);
  const std::string what =
      absl::StrCat(Name(op), ", ", shape.Print(), ", ", Name(layout.dtype), " -> ",
                   Name(layout.result), layout.channels_last ? ", channels last" : "");
  INFO(what << ", seed " << kSeed);
  auto loaded = device->Load(call, Facts(tf32));
  INFO(loaded.status());
  if (taken == Taken::kPerhaps && absl::IsUnimplemented(loaded.status())) {
    std::printf("[SKIP] refused: %s\n", std::string(loaded.status().message()).c_str());
    return;
  }
  REQUIRE(loaded.ok());
  INFO((*loaded)->Describe());
  auto& made = static_cast<CudaConvolutionCall&>(**loaded);
  if (taken == Taken::kSurely) CHECK(made.library() != nullptr);
  if (taken == Taken::kByOurs) CHECK_THAT(made.Describe(), ContainsSubstring("kernels of ours"));
  if (made.library() == nullptr) std::printf("%s: %s\n", what.c_str(), made.Describe().c_str());
  const Operands operands(call, kSeed);
  OnDevice run(device, call, *std::move(loaded), operands.bytes);
  const std::vector<char> first = run.Run();
  CHECK(run.Run() == first);
  CHECK(run.Run() == first);
  const Values got = Decode(call.results[0], first);
  const double error =
      Error(got, Expected(op, shape, operands.values[0], operands.values[1], got.size()));
  INFO("error " << error);
  CHECK(error <= Tolerance(layout.result, tf32));
}

void CheckAll(Device* device, const std::vector<ConvolutionShape>& shapes,
              const ConvolutionLayout& layout, Taken taken, bool tf32 = false) {
  for (const ConvolutionShape& shape : shapes) {
    for (const Op op : kOps) Check(device, op, shape, layout, taken, tf32);
  }
}

// Every plan that cuDNN offers against the sums in fp64: which of them is the fastest, and so the
// one that is run, depends on the GPU.
void CheckEveryPlan(Device* device, Op op, const ConvolutionShape& shape,
                    const ConvolutionLayout& layout, const Call& call) {
  auto loaded = device->Load(call, Facts());
  INFO(loaded.status());
  if (absl::IsUnimplemented(loaded.status())) return;
  REQUIRE(loaded.ok());
  const Operands operands(call, 7);
  OnDevice run(device, call, *std::move(loaded), operands.bytes);
  if (run.library() == nullptr) return;
  const Values expected = Expected(op, shape, operands.values[0], operands.values[1],
                                   static_cast<size_t>(Elements(call.results[0])));
  for (size_t plan = 0; plan < run.library()->plans().size(); ++plan) {
    INFO("plan " << plan << " of " << run.library()->Describe());
    REQUIRE(run.library()->Take(plan).ok());
    CHECK(Error(Decode(call.results[0], run.Run()), expected) <=
          PiecesTolerance(layout.result, false));
  }
}

// Of one group.
std::vector<ConvolutionShape> Plain() {
  return {
      SquareConvolution(2, 64, 64, 1, 14, 3, 1, 1),
      SquareConvolution(2, 64, 128, 1, 14, 1, 1, 0),
      SquareConvolution(2, 64, 32, 1, 15, 1, 2, 0),
      SquareConvolution(2, 32, 64, 1, 15, 3, 2, 1),
      SquareConvolution(1, 3, 64, 1, 33, 7, 2, 3),
      SquareConvolution(2, 32, 32, 1, 17, 3, 1, 2, 2),
      SquareConvolution(1, 16, 24, 1, 19, 3, 2, 0, 2),
      SquareConvolution(2, 8, 32, 1, 16, 4, 4, 0),
      SquareConvolution(2, 64, 16, 1, 1, 1, 1, 0),
      SquareConvolution(1, 16, 16, 1, 9, 5, 3, 2),
  };
}

TEST_CASE(
    "on a GPU cuDNN's convolutions and their gradients agree with sums in fp64, to the bit in "
    "each run") {
  const std::unique_ptr<Device> device = Gpu(Alone(ConvolutionBackend::kCudnn));
  if (device == nullptr) return;
  CheckAll(device.get(), Plain(), {}, Taken::kSurely);
  const std::vector<ConvolutionShape> some = {SquareConvolution(2, 64, 64, 1, 14, 3, 1, 1),
                                              SquareConvolution(2, 64, 32, 1, 15, 1, 2, 0),
                                              SquareConvolution(2, 32, 64, 1, 15, 3, 2, 1)};
  CheckAll(device.get(), some, {.dtype = DType::kFp16, .result = DType::kFp16}, Taken::kSurely);
  CheckAll(device.get(), some, {.channels_last = false}, Taken::kPerhaps);
  for (const bool channels_last : {true, false}) {
    const ConvolutionLayout fp32{DType::kFp32, channels_last, DType::kFp32};
    CheckAll(device.get(), some, fp32, Taken::kPerhaps);
    CheckAll(device.get(), {some[0]}, fp32, Taken::kPerhaps, /*tf32=*/true);
  }
}

TEST_CASE("on a GPU every plan of cuDNN is right, in whichever order each tensor lies") {
  // A choice that is remembered has one plan.
  const std::unique_ptr<Device> device = Gpu(Alone(ConvolutionBackend::kCudnn, {.cache = false}));
  if (device == nullptr) return;
  const ConvolutionLayout bf16;
  const std::vector<ConvolutionShape> shapes = {
      SquareConvolution(2, 96, 192, 1, 28, 2, 2, 0), SquareConvolution(2, 64, 64, 1, 14, 3, 1, 1),
      SquareConvolution(2, 64, 32, 1, 15, 1, 2, 0), SquareConvolution(1, 3, 64, 1, 33, 7, 2, 3),
      SquareConvolution(2, 24, 24, 24, 14, 7, 1, 3)};
  for (const ConvolutionShape& shape : shapes) {
    for (const Op op : kOps) {
      for (unsigned orders = 0; orders < 8; ++orders) {
        Call call = MakeConvolution(op, shape, bf16);
        CallTensor* const tensors[] = {&call.operands[0], &call.operands[1], &call.results[0]};
        for (size_t i = 0; i < 3; ++i) {
          *tensors[i] = DenseTensor(tensors[i]->shape, tensors[i]->dtype, (orders >> i & 1) != 0);
        }
        INFO(Name(op) << ", " << shape.Print() << ", channels last by tensor: " << orders);
        CheckEveryPlan(device.get(), op, shape, bf16, call);
      }
    }
  }
}

TEST_CASE("on a GPU a tensor with gaps between its rows goes to the fallback") {
  const std::unique_ptr<Device> device = Gpu(Alone(ConvolutionBackend::kCudnn));
  if (device == nullptr) return;
  const ConvolutionShape shape = SquareConvolution(2, 16, 32, 1, 28, 2, 2, 0);
  const Op op = Op::convolution_weight_gradient;
  Call call = MakeConvolution(op, shape, {});
  call.operands[0].strides = {32 * 14 * 16, 14 * 16, 16, 1};  // rows of 14, 16 apart
  auto loaded = device->Load(call, Facts());
  REQUIRE(loaded.ok());
  CHECK_THAT((*loaded)->Describe(), ContainsSubstring("without gaps"));
  const Operands operands(call, 7);
  OnDevice run(device.get(), call, *std::move(loaded), operands.bytes);
  const Values got = Decode(call.results[0], run.Run());
  CHECK(Error(got, Expected(op, shape, operands.values[0], operands.values[1], got.size())) <=
        Tolerance(DType::kBf16, false));
}

TEST_CASE("on a GPU weight gradients in fp32 of bf16 operands are rounded to nothing narrower") {
  const std::unique_ptr<Device> device = Gpu({});
  if (device == nullptr) return;
  for (const ConvolutionShape& shape : {SquareConvolution(2, 64, 64, 1, 14, 3, 1, 1),
                                        SquareConvolution(2, 64, 128, 1, 14, 1, 1, 0)}) {
    Check(device.get(), Op::convolution_weight_gradient, shape, {.result = DType::kFp32},
          Taken::kPerhaps);
  }
}

TEST_CASE(
    "on a GPU convolutions in groups, depthwise ones and those of 1 and 3 spatial dims agree "
    "with sums in fp64") {
  const std::unique_ptr<Device> device = Gpu({});
  if (device == nullptr) return;
  const std::vector<ConvolutionShape> shapes = {
      SquareConvolution(2, 64, 64, 4, 14, 3, 1, 1),
      SquareConvolution(2, 32, 64, 8, 14, 3, 2, 1),
      SquareConvolution(2, 96, 96, 96, 14, 7, 1, 3),
      SquareConvolution(2, 64, 64, 64, 15, 3, 2, 1),
      SquareConvolution(2, 24, 48, 24, 14, 5, 1, 2),
      {2, 32, 64, 1, {40}, {3}, {2}, {1}, {1}},
      {1, 16, 32, 1, {6, 9, 9}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}},
  };
  CheckAll(device.get(), shapes, {}, Taken::kPerhaps);
  CheckAll(device.get(), {shapes[2]}, {.channels_last = false}, Taken::kPerhaps);
  CheckAll(device.get(), {shapes[2]}, {DType::kFp16, true, DType::kFp16}, Taken::kPerhaps);
}

TEST_CASE("on a GPU our kernels' gradients agree with sums in fp64, to the bit in each run") {
  const std::unique_ptr<Device> device = Gpu(Alone(ConvolutionBackend::kRetrograd));
  if (device == nullptr) return;
  std::vector<ConvolutionShape> shapes = Plain();
  shapes.push_back(SquareConvolution(2, 64, 64, 4, 14, 3, 1, 1));
  shapes.push_back(SquareConvolution(2, 61, 151, 1, 14, 3, 1, 1));
  shapes.push_back(SquareConvolution(2, 96, 96, 96, 14, 7, 1, 3));
  shapes.push_back({2, 32, 64, 1, {40}, {3}, {2}, {1}, {1}});
  shapes.push_back({1, 16, 32, 1, {6, 9, 9}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}});
  for (const ConvolutionShape& shape : shapes) {
    for (const Op op : {Op::convolution_input_gradient, Op::convolution_weight_gradient}) {
      for (const ConvolutionLayout& layout : {ConvolutionLayout{},
                                              {.channels_last = false},
                                              {DType::kFp16, true, DType::kFp16},
                                              {DType::kFp32, true, DType::kFp32}}) {
        Check(device.get(), op, shape, layout, Taken::kByOurs);
      }
    }
  }
}

TEST_CASE("on a GPU tensors that begin inside of their values are found there") {
  const std::unique_ptr<Device> device = Gpu({});
  if (device == nullptr) return;
  const ConvolutionShape shape = SquareConvolution(2, 16, 16, 1, 8, 3, 1, 1);
  Call call = MakeConvolution(Op::convolution_input_gradient, shape, {});
  const Operands operands(call, 7);
  constexpr int64_t kOffset = 64;  // elements
  std::vector<std::vector<char>> bytes = operands.bytes;
  for (size_t i = 0; i < 2; ++i) {
    call.operands[i].offset = kOffset;
    bytes[i].insert(bytes[i].begin(), kOffset * SizeBytes(DType::kBf16), 0x55);
  }
  call.results[0].offset = kOffset;
  auto loaded = device->Load(call, Facts());
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  OnDevice run(device.get(), call, *std::move(loaded), bytes);
  std::vector<char> result = run.Run();
  const auto skipped = result.begin() + kOffset * SizeBytes(DType::kBf16);
  CHECK(std::vector<char>(result.begin(), skipped) ==
        std::vector<char>(kOffset * SizeBytes(DType::kBf16), 0x55));
  result.erase(result.begin(), skipped);
  const Values got = Decode(call.results[0], result);
  CHECK(Error(got, Expected(call.op, shape, operands.values[0], operands.values[1], got.size())) <=
        Tolerance(DType::kBf16, false));
}

TEST_CASE("on a GPU a plan that was found fastest is remembered on disk and gives the same bits") {
  const auto work = WorkDirectory::MakeIn(std::filesystem::temp_directory_path().string());
  REQUIRE(work.ok());
  CudaDeviceOptions options;
  options.cache_dir = work->path();
  const Call call = MakeConvolution(Op::convolution_weight_gradient,
                                    SquareConvolution(2, 64, 64, 1, 14, 3, 1, 1), {});
  const Operands operands(call, 7);
  std::vector<char> results[2];
  for (int again = 0; again < 2; ++again) {
    const std::unique_ptr<Device> device = Gpu(Alone(ConvolutionBackend::kCudnn, options));
    if (device == nullptr) return;
    auto loaded = device->Load(call, Facts());
    INFO(loaded.status());
    REQUIRE(loaded.ok());
    auto& made = static_cast<CudaConvolutionCall&>(**loaded);
    REQUIRE(made.library() != nullptr);
    INFO(made.Describe());
    CHECK((made.library()->plans()[0].name == "restored") == (again == 1));
    OnDevice run(device.get(), call, *std::move(loaded), operands.bytes);
    results[again] = run.Run();
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("on a GPU no plan wants more workspace than is allowed") {
  CudaDeviceOptions options;
  options.cache = false;
  options.time_calls = false;
  options.convolution.cudnn.most_workspace_bytes = 4096;
  const std::unique_ptr<Device> device = Gpu(Alone(ConvolutionBackend::kCudnn, options));
  if (device == nullptr) return;
  for (const Op op : kOps) {
    auto loaded = device->Load(
        MakeConvolution(op, SquareConvolution(8, 64, 64, 1, 28, 3, 1, 1), {}), Facts());
    INFO(loaded.status());
    if (absl::IsUnimplemented(loaded.status())) continue;
    REQUIRE(loaded.ok());
    auto& made = static_cast<CudaConvolutionCall&>(**loaded);
    if (made.library() == nullptr) continue;
    INFO(made.Describe());
    CHECK(made.library()->most_workspace_bytes() <= 4096);
  }
}

}  // namespace
}  // namespace retrograd
