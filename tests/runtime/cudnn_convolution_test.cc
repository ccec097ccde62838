// What cuDNN is told of a convolution, and who makes those that it does not take. No GPU is needed.
#include "runtime/ops/convolution/cudnn_convolution.h"

#include <memory>
#include <string>
#include <vector>

#include "runtime/gpu/cuda/cudnn_library.h"
#include "runtime/gpu/cuda/cudnn_plans.h"
#include "runtime/ops/convolution/cuda_convolution.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/plans/convolutions.h"

namespace retrograd {
namespace {

using Ints = std::vector<int64_t>;

TEST_CASE("cuDNN is told of a convolution's tensors as they lie in memory") {
  const ConvolutionShape shape = SquareConvolution(2, 16, 32, 1, 8, 3, 2, 1);
  for (const bool channels_last : {true, false}) {
    const Call call = MakeConvolution(Op::convolution, shape, {.channels_last = channels_last});
    const std::vector<CudnnDims> dims = CudnnDimsOf(call);
    REQUIRE(dims.size() == 3);
    CHECK(dims[0].shape == Ints{2, 16, 8, 8});
    CHECK(dims[1].shape == Ints{32, 16, 3, 3});
    CHECK(dims[2].shape == Ints{2, 32, 4, 4});
    CHECK(dims[0].strides == (channels_last ? Ints{1024, 1, 128, 16} : Ints{1024, 64, 8, 1}));
    CHECK(dims[1].strides == (channels_last ? Ints{144, 1, 48, 16} : Ints{144, 9, 3, 1}));
    CHECK(dims[2].strides == (channels_last ? Ints{512, 1, 128, 32} : Ints{512, 16, 4, 1}));
  }
}

TEST_CASE("of cuDNN's plans the first are built, and the last of its list") {
  using Plans = std::vector<size_t>;
  CHECK(PlansToBuild(0, std::vector<bool>(3)) == Plans{0, 1, 2});
  CHECK(PlansToBuild(8, std::vector<bool>(4)) == Plans{0, 1, 2, 3});
  CHECK(PlansToBuild(4, std::vector<bool>(9)) == Plans{0, 1, 7, 8});
  CHECK(PlansToBuild(1, std::vector<bool>(9)) == Plans{0});
  CHECK(PlansToBuild(4, {}).empty());
  // The next ones stand in for those that failed.
  CHECK(PlansToBuild(4, {true, false, true, false, false, false, false}) == Plans{1, 3, 5, 6});
  CHECK(PlansToBuild(4, {false, false, false, false, false, true, true}) == Plans{0, 1});
  CHECK(PlansToBuild(1, {true, true, false, false}) == Plans{2});
  CHECK(PlansToBuild(4, std::vector<bool>(6, true)).empty());
}

TEST_CASE("a convolution of one spatial dim is one of two with H = 1") {
  const ConvolutionShape shape{2, 16, 32, 1, {10}, {3}, {2}, {1}, {1}};
  std::vector<CudnnDims> dims = CudnnDimsOf(MakeConvolution(Op::convolution, shape, {}));
  CHECK(dims[0].shape == Ints{2, 16, 1, 10});
  CHECK(dims[0].strides == Ints{160, 1, 160, 16});
  dims = CudnnDimsOf(MakeConvolution(Op::convolution, shape, {.channels_last = false}));
  CHECK(dims[0].strides == Ints{160, 10, 10, 1});
  CHECK(dims[1].shape == Ints{32, 16, 1, 3});
}

TEST_CASE("three spatial dims keep their order") {
  const ConvolutionShape shape{2, 4, 8, 1, {3, 5, 6}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
  const std::vector<CudnnDims> dims = CudnnDimsOf(MakeConvolution(Op::convolution, shape, {}));
  CHECK(dims[0].shape == Ints{2, 4, 3, 5, 6});
  CHECK(dims[0].strides == Ints{360, 1, 120, 24, 4});
}

TEST_CASE("axes of extent 1 get the strides of the order that the other tensors tell") {
  // A depthwise weight, whose channels are one a group, and an output of one pixel.
  const ConvolutionShape shape = SquareConvolution(2, 16, 16, 16, 7, 7, 1, 0);
  for (const bool channels_last : {true, false}) {
    Call call = MakeConvolution(Op::convolution, shape, {.channels_last = channels_last});
    for (CallTensor* t : {&call.operands[0], &call.operands[1], &call.results[0]}) {
      for (size_t axis = 0; axis < 4; ++axis) {
        if (t->shape[axis] == 1) t->strides[axis] = 12345;
      }
    }
    const std::vector<CudnnDims> dims = CudnnDimsOf(call);
    CHECK(dims[1].strides == (channels_last ? Ints{49, 1, 7, 1} : Ints{49, 49, 7, 1}));
    CHECK(dims[2].strides == (channels_last ? Ints{16, 1, 16, 16} : Ints{16, 1, 1, 1}));
  }
}

TEST_CASE("where no tensor tells, channels are taken to be last") {
  const ConvolutionShape shape = SquareConvolution(2, 16, 32, 1, 1, 1, 1, 0);
  const Call call = MakeConvolution(Op::convolution, shape, {.channels_last = false});
  const std::vector<CudnnDims> dims = CudnnDimsOf(call);
  CHECK(dims[0].strides == Ints{16, 1, 16, 16});
  CHECK(dims[1].strides == Ints{16, 1, 16, 16});
}

TEST_CASE("what cuDNN is not asked for is refused with the call's shape and the reason") {
  const ConvolutionShape shape = SquareConvolution(2, 16, 32, 1, 8, 3, 2, 1);
  const auto refusal = [](const Call& call) {
    return std::string(CudnnConvolutionRefusal(call).message());
  };
  for (const Op op :
       {Op::convolution, Op::convolution_input_gradient, Op::convolution_weight_gradient}) {
    CHECK(refusal(MakeConvolution(op, shape, {})).empty());
    CHECK(refusal(MakeConvolution(op, shape, {.result = DType::kFp32})).empty());
  }
  CHECK(refusal(MakeConvolution(Op::convolution_weight_gradient, shape,
                                {.dtype = DType::kFp64, .result = DType::kFp64})) ==
        "convolution_weight_gradient %0, f64[2,32,4,4] f64[2,16,8,8] -> f64[32,16,3,3], stride "
        "2,2, padding 1,1, dilation 1,1: cuDNN is asked for bf16, fp16 and fp32 only");
  CHECK_THAT(refusal(MakeConvolution(Op::convolution, shape, {.result = DType::kFp16})),
             ContainsSubstring("a result of this dtype or of fp32"));
  Call call = MakeConvolution(Op::convolution_input_gradient, shape, {});
  call.operands[0].strides = {32, 1, 0, 0};
  CHECK_THAT(refusal(call),
             ContainsSubstring("is given tensors without gaps, their channels first or last; the "
                               "first operand has strides 32,1,0,0"));
  // Rows of 4 pixels, 8 apart; channels amid the pixels.
  for (const std::vector<int64_t>& strides : {Ints{1024, 32, 8, 1}, Ints{512, 4, 128, 1}}) {
    call.operands[0].strides = strides;
    CHECK_THAT(refusal(call), ContainsSubstring("is given tensors without gaps"));
  }
  call = MakeConvolution(Op::convolution, shape, {});
  call.previous = ValueId{};
  CHECK_THAT(refusal(call), ContainsSubstring("adds to no value"));
  call = MakeConvolution(Op::convolution, shape, {});
  call.operands[0].shape[0] = call.results[0].shape[0] = 0;
  CHECK_THAT(refusal(call), ContainsSubstring("takes no empty tensors"));
}

TEST_CASE("plans are shared by calls that differ in nothing but where their values lie") {
  const ConvolutionShape shape = SquareConvolution(2, 16, 32, 1, 8, 3, 2, 1);
  const auto key = [](const Call& call, const CallFacts& facts = {},
                      const CudnnConvolutionOptions& options = {}) {
    return CudnnConvolutionRequest(call, facts, options).key;
  };
  const Call call = MakeConvolution(Op::convolution, shape, {});
  Call other = call;
  other.operands[0].value = ValueId{NodeId{7}, 0};
  other.node = NodeId{9};
  CHECK(key(other) == key(call));
  other.operands[0].offset = 8;
  CHECK(key(other) != key(call));
  CHECK(key(MakeConvolution(Op::convolution, shape, {.channels_last = false})) != key(call));
  CHECK(key(call, {}, {.nondeterministic = true}) != key(call));
  CHECK(key(call, {}, {.most_workspace_bytes = 0}) != key(call));
  CHECK(key(call, {}, {.most_plans = 4}) != key(call));
  CHECK(key(call, {.operand_alignment = {16, 16}}) != key(call));
  // More than cuDNN's kernels make use of is as good as that.
  CHECK(key(call, {.operand_alignment = {256, 32}}) == key(call, {.operand_alignment = {16, 16}}));
  // TF32 is fp32's alone.
  CHECK(key(call, {.allow_tf32 = true}) == key(call));
  const Call fp32 =
      MakeConvolution(Op::convolution, shape, {.dtype = DType::kFp32, .result = DType::kFp32});
  CHECK(key(fp32, {.allow_tf32 = true}) != key(fp32));
}

TEST_CASE("by default no plan is asked for that may give other bits or rounds its operands") {
  const ConvolutionShape shape = SquareConvolution(2, 16, 32, 1, 8, 3, 2, 1);
  const Call call =
      MakeConvolution(Op::convolution, shape, {.dtype = DType::kFp32, .result = DType::kFp32});
  const auto filter = [&](const CallFacts& facts, const CudnnConvolutionOptions& options) {
    return CudnnConvolutionRequest(call, facts, options).filter;
  };
  CHECK(filter({}, {}).deterministic);
  CHECK(filter({}, {}).full_precision);
  CHECK_FALSE(filter({}, {}).tensor_cores);
  CHECK(filter({.allow_tf32 = true}, {}).tensor_cores);
  CHECK_FALSE(filter({}, {.nondeterministic = true}).deterministic);
  CHECK(filter({}, {}).most_plans == 8);
  CHECK(filter({}, {.most_plans = 4}).most_plans == 4);
}

#if defined(RETROGRAD_FAKE_CUDA)

// Makes every call, does nothing.
class Idle : public CallLoader {
 public:
  class Call : public LoadedCall {
   public:
    explicit Call(int* runs) : LoadedCall(64), runs_(runs) {}
    absl::Status Run(int stream, const CallPointers&, void*) override {
      *runs_ += stream + 1;
      return absl::OkStatus();
    }
    std::string Describe() const override { return "an idle call"; }

   private:
    int* runs_;
  };

  explicit Idle(int* runs) : runs_(runs) {}
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const retrograd::Call&,
                                                   const CallFacts&) override {
    return std::make_unique<Call>(runs_);
  }

 private:
  int* runs_;
};

// Where cuDNN alone may make gradients, and is switched off.
CudaConvolutionOptions CudnnAlone() {
  CudaConvolutionOptions options;
  options.allow_cudnn = false;
  options.backends = {.input = {ConvolutionBackend::kCudnn},
                      .weight = {ConvolutionBackend::kCudnn}};
  return options;
}

TEST_CASE(
    "without cuDNN the fallback makes convolutions, and says why; without one it is refused") {
  const Vendor& cuda = kVendors[1];
  REQUIRE(cuda.cuda());
  const FakeDriver driver(cuda);
  const auto made = MakeDevice(FakeOptions(cuda));
  INFO(made.status());
  REQUIRE(made.ok());
  auto& device = dynamic_cast<GpuDevice&>(**made);
  const Call call = MakeConvolution(Op::convolution_input_gradient,
                                    SquareConvolution(2, 16, 32, 1, 8, 3, 2, 1), {});
  int runs = 0;
  const auto loader =
      MakeCudaConvolutionLoader(device, 90, CudnnAlone(), std::make_unique<Idle>(&runs));
  auto loaded = loader->Load(call, {});
  REQUIRE(loaded.ok());
  CHECK((*loaded)->Describe() == "an idle call, because cuDNN is switched off");
  CHECK((*loaded)->scratch_bytes() == 64);
  CHECK(static_cast<CudaConvolutionCall&>(**loaded).library() == nullptr);
  REQUIRE((*loaded)->Run(2, {}, nullptr).ok());
  CHECK(runs == 3);

  // What cuDNN is not asked for says so, whether there is a cuDNN or not.
  Call broadcast = call;
  broadcast.operands[0].strides = {32, 1, 0, 0};
  loaded = loader->Load(broadcast, {});
  REQUIRE(loaded.ok());
  CHECK_THAT((*loaded)->Describe(), ContainsSubstring("is given tensors without gaps"));

  const auto alone = MakeCudaConvolutionLoader(device, 90, CudnnAlone(), nullptr);
  CHECK(absl::IsUnavailable(alone->Load(call, {}).status()));
  CHECK(absl::IsUnimplemented(alone->Load(broadcast, {}).status()));
}

#endif  // RETROGRAD_FAKE_CUDA

}  // namespace
}  // namespace retrograd
