#include "tools/support/group_variant.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/ops/attention/attention_call.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/matmul/matmul_call.h"
#include "runtime/ops/attention/attention_class.h"
#include "runtime/ops/convolution/convolution_class.h"
#include "runtime/ops/matmul/matmul_class.h"

namespace retrograd {
namespace {

std::string VariantOf(const Schedule& schedule) {
  Schedule compiled = schedule;
  compiled.split = 1;
  compiled.staged = 0;
  compiled.blocks = 1;
  std::string text = compiled.Print();
  constexpr absl::string_view kBlocks = " blocks=1";
  text.erase(text.find(kBlocks.data(), 0, kBlocks.size()), kBlocks.size());
  if (schedule.split > 1) absl::StrAppend(&text, " split");
  if (schedule.staged > 0) absl::StrAppend(&text, " staged");
  return text;
}

std::string ClassOf(const MatMulCall& call) {
  const MatMulCall timed = RepresentativeOf(call);
  const std::string batch =
      timed.batch.empty() ? "" : absl::StrCat(absl::StrJoin(timed.batch, "x"), " of ");
  return absl::StrCat("matmul ", batch, timed.m, "x", timed.n, "x", timed.k, " ",
                      Name(timed.in_dtype), timed.accumulate ? " +=" : "");
}

std::string ClassOf(const AttentionCall& call) {
  const AttentionCall timed = RepresentativeOf(call);
  constexpr size_t kQueries = 1, kKeys = 2;
  return absl::StrCat("attention_backward ", absl::StrJoin(timed.operands[kQueries].shape, "x"),
                      ", keys ", absl::StrJoin(timed.operands[kKeys].shape, "x"), " ",
                      Name(timed.dtype));
}

std::string ClassOf(const Call& call) {
  const CallOp& row = CallOpOf(call.op);
  switch (call.op) {
    case Op::matmul: return ClassOf(MatMulOf(call));
    case Op::attention_backward: return ClassOf(AttentionOf(call));
    case Op::convolution:
    case Op::convolution_input_gradient:
    case Op::convolution_weight_gradient: return row.describe(ConvolutionRepresentativeOf(call));
    default: return std::string(row.name);  // one way for all sizes
  }
}

}  // namespace

std::string VariantOf(const Group& group) {
  if (const KernelLaunch* launch = SharedLaunchOf(group)) {
    return absl::StrCat(launch->members.size(), " kernels in one launch: ",
                        absl::StrJoin(launch->members, "; ",
                                      [](std::string* out, const KernelLaunch::Member& member) {
                                        out->append(VariantOf(member.kernel.schedule));
                                      }));
  }
  if (const KernelBody* kernel = KernelOf(group)) return VariantOf(kernel->schedule);
  if (AliasOf(group) != nullptr) return "no kernel: parts stored side by side";
  if (const CallLaunch* shared = SharedCallsOf(group)) {
    return absl::StrCat(shared->members.size(), " ", CallOpOf(shared->members[0].call.op).together,
                        ": ",
                        absl::StrJoin(shared->members, "; ",
                                      [](std::string* out, const CallLaunch::Member& member) {
                                        out->append(ClassOf(member.call));
                                      }));
  }
  const Call& call = *CallOf(group);
  if (!call.epilogue) return ClassOf(call);
  return absl::StrCat(ClassOf(call), " with an epilogue (", call.epilogue->implementation,
                      ", tiles of ", call.epilogue->tile.Print(), ")");
}

}  // namespace retrograd
