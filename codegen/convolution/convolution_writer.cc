#include "codegen/convolution/convolution_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "codegen/print/kernel_text.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {

ConvolutionWriter::ConvolutionWriter(const ConvolutionCall& call, Dialect dialect,
                                     absl::string_view what)
    : call_(call),
      dialect_(dialect),
      sum_(ComputeType(call.y.dtype) == DType::kFp64 ? DType::kFp64 : DType::kFp32),
      unroll_(SpellingOf(dialect).unroll) {
  launch_.kernel.direct = true;
  launch_.kernel.function.comment =
      absl::StrCat("// ", Name(dialect), ": ", Name(call.op), ", ", what, "\n");
  out_.SetDepth(1);
}

void ConvolutionWriter::Read(DType dtype, absl::string_view name, ConvolutionSlot slot) {
  Argument(absl::StrCat("const ", StorageName(dtype)), name, slot);
}

void ConvolutionWriter::Write(DType dtype, absl::string_view name, ConvolutionSlot slot) {
  Argument(std::string(StorageName(dtype)), name, slot);
}

void ConvolutionWriter::Argument(std::string type, absl::string_view name, ConvolutionSlot slot) {
  launch_.kernel.function.declarations.push_back({.type = std::move(type),
                                                  .name = std::string(name),
                                                  .at = static_cast<int64_t>(launch_.args.size())});
  launch_.args.push_back(slot);
}

void ConvolutionWriter::Shared(absl::string_view name, int64_t elements) {
  launch_.kernel.threads_meet = true;
  launch_.kernel.shared_bytes += elements * SizeBytes(sum_);
  launch_.kernel.function.declarations.push_back({.kind = Declaration::kShared,
                                                  .type = std::string(ComputeName(sum_)),
                                                  .name = std::string(name),
                                                  .count = elements});
}

void ConvolutionWriter::Staged(DType dtype, absl::string_view name, int64_t elements) {
  launch_.kernel.threads_meet = true;
  launch_.kernel.staged_bytes = std::max(launch_.kernel.staged_bytes, elements * SizeBytes(dtype));
  launch_.kernel.function.declarations.push_back({.kind = Declaration::kStaged,
                                                  .type = std::string(StorageName(dtype)),
                                                  .name = std::string(name),
                                                  .count = elements});
}

void ConvolutionWriter::Constants(const std::vector<Constant>& constants) {
  for (const Constant& c : constants) {
    out_.Line("[[maybe_unused]] constexpr int ", c.name, " = ", c.value, ";");
  }
}

void ConvolutionWriter::Geometry() {
  out_.Line("typedef ", ComputeName(sum_), " sum_t;");
  out_.Line("typedef ", StorageName(call_.y.dtype), " kept_t;");
  for (int d = 0; d < kSpatialDims; ++d) {
    Constants({{absl::StrCat("kIn", d), call_.in[d]},
               {absl::StrCat("kOut", d), call_.out[d]},
               {absl::StrCat("kKernel", d), call_.kernel[d]},
               {absl::StrCat("kStride", d), call_.stride[d]},
               {absl::StrCat("kPadding", d), call_.padding[d]},
               {absl::StrCat("kDilation", d), call_.dilation[d]}});
  }
  Constants({{"kChannels", call_.geometry.in_channels},
             {"kFilters", call_.geometry.out_channels},
             {"kMultiplier", call_.out_channels_of_group()},
             {"kTaps", Product({call_.kernel[0], call_.kernel[1], call_.kernel[2]})}});
  Strides("kX", call_.x);
  Strides("kW", call_.w);
  Strides("kY", call_.y);
}

void ConvolutionWriter::Strides(absl::string_view prefix, const ConvolutionTensor& t) {
  const auto constant = [&](absl::string_view name, int64_t value) {
    return absl::StrCat(prefix, name, " = ", value);
  };
  out_.Line("[[maybe_unused]] constexpr int64_t ", constant("First", t.offset), ", ",
            constant("StrideN", t.strides[0]), ", ", constant("StrideC", t.strides[1]), ", ",
            constant("Stride0", t.strides[2]), ", ", constant("Stride1", t.strides[3]), ", ",
            constant("Stride2", t.strides[4]), ";");
}

void ConvolutionWriter::Text(absl::string_view text) {
  for (absl::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    const absl::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == absl::string_view::npos ? rest.size() : end + 1);
    if (const size_t word = line.find("RG_UNROLL"); word != absl::string_view::npos) {
      out_.Pragma(Unrolled(line.substr(word)));
    } else {
      out_.Pragma(line);
    }
  }
}

std::string ConvolutionWriter::Unrolled(absl::string_view word) const {
  if (unroll_.empty() || !absl::ConsumePrefix(&word, "RG_UNROLL_")) return std::string(unroll_);
  return absl::StrCat(unroll_, " ", word);
}

ConvolutionKernels::Launch ConvolutionWriter::End(int64_t blocks, int64_t threads) {
  Kernel& kernel = launch_.kernel;
  kernel.blocks = blocks;
  kernel.threads = static_cast<int>(threads);
  kernel.arguments = static_cast<int>(launch_.args.size());
  kernel.function.statements = out_.text();
  NameKernel(&kernel);
  return std::move(launch_);
}

}  // namespace retrograd
