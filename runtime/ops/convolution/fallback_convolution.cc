#include "runtime/ops/convolution/fallback_convolution.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/print/dialect.h"
#include "codegen/print/source_writer.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kThreads = 128;

class Writer {
 public:
  explicit Writer(const ConvolutionCall& call)
      : c_(call), sum_(ComputeType(call.y.dtype) == DType::kFp64 ? "double" : "float") {
    out_.SetDepth(1);
  }

  std::string Statements() {
    const ConvolutionTensor& result = Result();
    out_.Line("const int64_t i = static_cast<int64_t>(RG_BLOCK) * ", kThreads, " + RG_THREAD;");
    out_.Open(absl::StrCat("if (i < int64_t(", ElementsOf(result), "))"));
    out_.Line("int64_t rest = i;");
    for (size_t d = result.shape.size(); d-- > 0;) {
      out_.Line("const int64_t i", d, " = rest % ", result.shape[d], ";");
      out_.Line("rest /= ", result.shape[d], ";");
    }
    out_.Line(sum_, " sum = 0;");
    switch (c_.op) {
      case Op::convolution_input_gradient: SumForInput(); break;
      case Op::convolution_weight_gradient: SumForWeight(); break;
      default: SumForOutput();
    }
    out_.Line("rg_store(d, ", At(result, {"i0", "i1", "i2", "i3", "i4"}), ", static_cast<",
              ComputeName(result.dtype), ">(sum));");
    out_.Close();
    return out_.text();
  }

  static int64_t ElementsOf(const ConvolutionTensor& t) {
    int64_t elements = 1;
    for (int64_t extent : t.shape) elements *= extent;
    return elements;
  }

  const ConvolutionTensor& Result() const {
    return c_.op == Op::convolution_input_gradient    ? c_.x
           : c_.op == Op::convolution_weight_gradient ? c_.w
                                                      : c_.y;
  }
  const ConvolutionTensor& First() const { return c_.op == Op::convolution ? c_.x : c_.y; }
  const ConvolutionTensor& Second() const {
    return c_.op == Op::convolution_weight_gradient ? c_.x : c_.w;
  }

 private:
  static std::string At(const ConvolutionTensor& t, const std::vector<std::string>& coords) {
    std::string text = absl::StrCat("int64_t(", t.offset, ")");
    for (size_t d = 0; d < coords.size(); ++d) {
      if (t.strides[d] != 0)
        absl::StrAppend(&text, " + ", coords[d], " * int64_t(", t.strides[d], ")");
    }
    return text;
  }

  void Loop(absl::string_view name, int64_t extent) {
    out_.Open(
        absl::StrCat("for (int64_t ", name, " = 0; ", name, " < ", extent, "; ++", name, ")"));
  }

  // sum += first * second at these places.
  void Add(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    out_.Line("sum += static_cast<", sum_, ">(rg_load(a, ", At(First(), first), ")) * static_cast<",
              sum_, ">(rg_load(b, ", At(Second(), second), "));");
  }

  // Declares `name`, the input pixel that tap `tap` of output pixel `pixel` reads, and goes on to
  // the next one where it is none.
  void ReadPixel(int d, absl::string_view name, absl::string_view pixel, absl::string_view tap) {
    out_.Line("const int64_t ", name, " = ", pixel, " * ", c_.stride[d], " + ", tap, " * ",
              c_.dilation[d], " - ", c_.padding[d], ";");
    out_.Line("if (", name, " < 0 || ", name, " >= ", c_.in[d], ") continue;");
  }

  // Declares `name`, the output pixel whose tap `tap` reads input pixel `pixel`.
  void WrittenPixel(int d, absl::string_view name, absl::string_view pixel, absl::string_view tap) {
    out_.Line("const int64_t ", name, "s = ", pixel, " + ", c_.padding[d], " - ", tap, " * ",
              c_.dilation[d], ";");
    out_.Line("if (", name, "s < 0 || ", name, "s % ", c_.stride[d], " != 0) continue;");
    out_.Line("const int64_t ", name, " = ", name, "s / ", c_.stride[d], ";");
    out_.Line("if (", name, " >= ", c_.out[d], ") continue;");
  }

  void Close(int loops) {
    for (int i = 0; i < loops; ++i) out_.Close();
  }

  void SumForOutput() {
    const int64_t channels = c_.in_channels_of_group();
    out_.Line("const int64_t c0 = i1 / ", c_.out_channels_of_group(), " * ", channels, ";");
    Loop("c", channels);
    for (int d = 0; d < kSpatialDims; ++d) {
      Loop(absl::StrCat("r", d), c_.kernel[d]);
      ReadPixel(d, absl::StrCat("h", d), absl::StrCat("i", d + 2), absl::StrCat("r", d));
    }
    Add({"i0", "(c0 + c)", "h0", "h1", "h2"}, {"i1", "c", "r0", "r1", "r2"});
    Close(1 + kSpatialDims);
  }

  void SumForInput() {
    const int64_t channels = c_.in_channels_of_group(), filters = c_.out_channels_of_group();
    out_.Line("const int64_t k0 = i1 / ", channels, " * ", filters, ";");
    out_.Line("const int64_t c = i1 % ", channels, ";");
    Loop("k", filters);
    for (int d = 0; d < kSpatialDims; ++d) {
      Loop(absl::StrCat("r", d), c_.kernel[d]);
      WrittenPixel(d, absl::StrCat("p", d), absl::StrCat("i", d + 2), absl::StrCat("r", d));
    }
    Add({"i0", "(k0 + k)", "p0", "p1", "p2"}, {"(k0 + k)", "c", "r0", "r1", "r2"});
    Close(1 + kSpatialDims);
  }

  void SumForWeight() {
    out_.Line("const int64_t c = i0 / ", c_.out_channels_of_group(), " * ",
              c_.in_channels_of_group(), " + i1;");
    Loop("n", c_.geometry.batch);
    for (int d = 0; d < kSpatialDims; ++d) {
      Loop(absl::StrCat("p", d), c_.out[d]);
      ReadPixel(d, absl::StrCat("h", d), absl::StrCat("p", d), absl::StrCat("i", d + 2));
    }
    Add({"n", "i0", "p0", "p1", "p2"}, {"n", "c", "h0", "h1", "h2"});
    Close(1 + kSpatialDims);
  }

  const ConvolutionCall& c_;
  const std::string sum_;
  SourceWriter out_;
};

class FallbackConvolutionCall : public LoadedCall {
 public:
  FallbackConvolutionCall(Device& device, std::unique_ptr<LoadedKernels> kernel)
      : LoadedCall(0), device_(device), kernel_(std::move(kernel)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void*) override {
    void* const table[] = {const_cast<void*>(pointers.operands[0]),
                           const_cast<void*>(pointers.operands[1]), pointers.results[0]};
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernel_, table));
    return device_.Launch(stream, *kernel_, 0);
  }
  std::string Describe() const override { return "a kernel of ours"; }

 private:
  Device& device_;
  std::unique_ptr<LoadedKernels> kernel_;
};

class FallbackConvolutionLoader : public CallLoader {
 public:
  explicit FallbackConvolutionLoader(Device& device) : device_(device) {}

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call, const CallFacts&) override {
    const ConvolutionCall convolution = ConvolutionOf(call);
    RG_ASSIGN_OR_RETURN(const Kernel kernel, FallbackConvolution(convolution, device_.dialect()));
    const auto arg = [&](uint32_t slot, const CallTensor& t, bool written) {
      return LaunchArg{.slot = slot,
                       .bytes = SpanOf(t) * SizeBytes(t.dtype),
                       .alignment = SizeBytes(t.dtype),
                       .written = written};
    };
    const std::vector<LaunchArg> args = {arg(0, call.operands[0], false),
                                         arg(1, call.operands[1], false),
                                         arg(2, call.results[0], true)};
    RG_ASSIGN_OR_RETURN(
        std::unique_ptr<LoadedKernels> loaded,
        device_.Load({kernel}, {{kernel.name, kernel.blocks, kernel.threads, args}}));
    return std::make_unique<FallbackConvolutionCall>(device_, std::move(loaded));
  }

 private:
  Device& device_;
};

}  // namespace

absl::StatusOr<Kernel> FallbackConvolution(const ConvolutionCall& call, Dialect dialect) {
  Writer writer(call);
  for (const ConvolutionTensor* t : {&call.x, &call.w, &call.y}) {
    if (IsFloat(t->dtype)) continue;
    return absl::UnimplementedError(
        absl::StrFormat("%s in %s: only floating types", Name(call.op), Name(t->dtype)));
  }
  const int64_t elements = Writer::ElementsOf(writer.Result());
  const int64_t blocks = (elements + kThreads - 1) / kThreads;
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return absl::UnimplementedError(
        absl::StrFormat("%s: %d elements are more than a launch takes", Name(call.op), elements));
  }
  const auto type = [](const ConvolutionTensor& t) { return std::string(StorageName(t.dtype)); };
  Kernel kernel{
      .name = "rg_fallback_convolution", .blocks = blocks, .threads = kThreads, .arguments = 3};
  kernel.function = {
      .comment = absl::StrCat("// ", Name(dialect), ": ", Name(call.op), "\n"),
      .declarations = {{.type = "const " + type(writer.First()), .name = "a", .at = 0},
                       {.type = "const " + type(writer.Second()), .name = "b", .at = 1},
                       {.type = type(writer.Result()), .name = "d", .at = 2}},
      .statements = writer.Statements()};
  return kernel;
}

std::unique_ptr<CallLoader> MakeFallbackConvolutionLoader(Device& device) {
  return std::make_unique<FallbackConvolutionLoader>(device);
}

}  // namespace retrograd
