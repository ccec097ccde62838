#include "runtime/ops/convolution/cudnn_convolution.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_frontend_calls.h"

namespace retrograd {
namespace {

constexpr int64_t kMostAlignment = 16;  // bytes; cuDNN's kernels make no use of more
constexpr absl::string_view kWindow[] = {"stride", "padding", "dilation"};

std::string Print(const CallTensor& t) {
  return absl::StrCat(Name(t.dtype), "[", absl::StrJoin(t.shape, ","), "]");
}

// "convolution_input_gradient %7, bf16[8,64,56,56] bf16[64,64,3,3] -> bf16[8,64,56,56], stride 1,1,
// padding 1,1, dilation 1,1"
std::string ShapeOf(const Call& call) {
  std::string text =
      absl::StrCat(Name(call.op), " %", Index(call.node), ", ", Print(call.operands[0]), " ",
                   Print(call.operands[1]), " -> ", Print(call.results[0]));
  for (const absl::string_view name : kWindow) {
    absl::StrAppend(&text, ", ", name, " ", absl::StrJoin(call.attributes.Ints(name), ","));
  }
  return text;
}

std::vector<const CallTensor*> TensorsOf(const Call& call) {
  RG_CHECK(call.operands.size() == 2 && call.results.size() == 1);
  return {&call.operands[0], &call.operands[1], &call.results[0]};
}

// Whether the call's tensors lie with their channels last. Those that tell have several channels
// and several pixels.
bool ChannelsLast(const std::vector<const CallTensor*>& tensors) {
  bool first = false;
  for (const CallTensor* t : tensors) {
    const bool pixels = std::any_of(t->shape.begin() + 2, t->shape.end(),
                                    [](int64_t extent) { return extent > 1; });
    if (t->shape[1] == 1 || !pixels) continue;
    if (t->strides[1] == 1) return true;
    first = true;
  }
  return !first;
}

CudnnDims DimsOf(const CallTensor& t, bool channels_last) {
  CudnnDims d{{t.shape.begin(), t.shape.end()}, t.strides};
  if (d.shape.size() == 3) {
    d.shape.insert(d.shape.begin() + 2, 1);
    d.strides.insert(d.strides.begin() + 2, 1);
  }
  // From the innermost axis on.
  std::vector<size_t> order;
  if (channels_last) order.push_back(1);
  for (size_t axis = d.shape.size() - 1; axis >= 2; --axis) order.push_back(axis);
  if (!channels_last) order.push_back(1);
  order.push_back(0);
  int64_t packed = 1;
  for (const size_t axis : order) {
    if (d.shape[axis] == 1) d.strides[axis] = packed;
    packed = d.strides[axis] * d.shape[axis];
  }
  return d;
}

// Bytes that divide the address of the tensor's first element.
int64_t AlignmentOf(const CallTensor& t, const std::vector<int64_t>& known, size_t place) {
  const int64_t size = SizeBytes(t.dtype);
  const int64_t address = place < known.size() ? known[place] : size;
  return std::gcd(std::gcd(address, t.offset * size), kMostAlignment);
}

// Of the operands, then of the result.
std::vector<int64_t> AlignmentsOf(const Call& call, const CallFacts& facts) {
  return {AlignmentOf(call.operands[0], facts.operand_alignment, 0),
          AlignmentOf(call.operands[1], facts.operand_alignment, 1),
          AlignmentOf(call.results[0], facts.result_alignment, 0)};
}

bool MayRoundToTf32(const Call& call, const CallFacts& facts) {
  return call.operands[0].dtype != DType::kFp32 || facts.allow_tf32;
}

std::string KeyOf(const Call& call, const CallFacts& facts,
                  const CudnnConvolutionOptions& options) {
  std::string key = absl::StrCat(Name(call.op), " ", options.nondeterministic, " ",
                                 options.most_workspace_bytes, " ", MayRoundToTf32(call, facts));
  if (options.most_plans > 0) absl::StrAppend(&key, " of ", options.most_plans, " and the last");
  for (const absl::string_view name : kWindow) {
    absl::StrAppend(&key, " ", absl::StrJoin(call.attributes.Ints(name), ","));
  }
  const std::vector<CudnnDims> dims = CudnnDimsOf(call);
  const std::vector<int64_t> alignments = AlignmentsOf(call, facts);
  const std::vector<const CallTensor*> tensors = TensorsOf(call);
  for (size_t i = 0; i < tensors.size(); ++i) {
    absl::StrAppend(&key, " ", Name(tensors[i]->dtype), "[", absl::StrJoin(dims[i].shape, ","),
                    "]@", tensors[i]->offset, "/", alignments[i], ":",
                    absl::StrJoin(dims[i].strides, ","));
  }
  return key;
}

CudnnStored StoredOf(const CallTensor& t) {
  return {{t.dtype, SpanOf(t)}, t.offset * SizeBytes(t.dtype)};
}

#ifdef RETROGRAD_HAVE_CUDNN

namespace fe = cudnn_frontend;

// One number for each of cuDNN's spatial dims.
std::vector<int64_t> WindowOf(const Call& call, absl::string_view name, int64_t of_one_more) {
  const absl::Span<const int64_t> list = call.attributes.Ints(name);
  std::vector<int64_t> window(list.begin(), list.end());
  if (window.size() == 1) window.insert(window.begin(), of_one_more);
  return window;
}

template <typename Attributes>
Attributes WindowedAttributes(const Call& call) {
  Attributes attributes;
  attributes.set_name(std::string(Name(call.op)))
      .set_padding(WindowOf(call, "padding", 0))
      .set_stride(WindowOf(call, "stride", 1))
      .set_dilation(WindowOf(call, "dilation", 1));
  return attributes;
}

CudnnTensor Convolve(const Call& call, const CudnnTensor& first, const CudnnTensor& second,
                     fe::graph::Graph& graph) {
  switch (call.op) {
    case Op::convolution:
      return graph.conv_fprop(first, second,
                              WindowedAttributes<fe::graph::Conv_fprop_attributes>(call));
    case Op::convolution_input_gradient:
      return graph.conv_dgrad(first, second,
                              WindowedAttributes<fe::graph::Conv_dgrad_attributes>(call));
    default:
      RG_CHECK(call.op == Op::convolution_weight_gradient);
      return graph.conv_wgrad(first, second,
                              WindowedAttributes<fe::graph::Conv_wgrad_attributes>(call));
  }
}

// The graph's tensors and its one operation.
void Describe(const Call& call, const std::vector<int64_t>& alignments, fe::graph::Graph& graph) {
  const std::vector<CudnnDims> dims = CudnnDimsOf(call);
  graph.set_io_data_type(CudnnDataType(call.operands[0].dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  std::vector<CudnnTensor> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    operands.push_back(graph.tensor(fe::graph::Tensor_attributes()
                                        .set_uid(kCudnnFirstOperand + static_cast<int64_t>(i))
                                        .set_dim(dims[i].shape)
                                        .set_stride(dims[i].strides)
                                        .set_alignment(alignments[i])
                                        .set_data_type(CudnnDataType(call.operands[i].dtype))));
  }
  Convolve(call, operands[0], operands[1], graph)
      ->set_output(true)
      .set_uid(kCudnnFirstResult)
      .set_dim(dims[2].shape)
      .set_stride(dims[2].strides)
      .set_alignment(alignments[2])
      .set_data_type(CudnnDataType(call.results[0].dtype));
}

#endif  // RETROGRAD_HAVE_CUDNN

}  // namespace

std::vector<CudnnDims> CudnnDimsOf(const Call& call) {
  const std::vector<const CallTensor*> tensors = TensorsOf(call);
  const bool channels_last = ChannelsLast(tensors);
  std::vector<CudnnDims> dims;
  for (const CallTensor* t : tensors) dims.push_back(DimsOf(*t, channels_last));
  return dims;
}

absl::Status CudnnConvolutionRefusal(const Call& call) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(ShapeOf(call), ": cuDNN ", why));
  };
  const std::vector<const CallTensor*> tensors = TensorsOf(call);
  const DType dtype = call.operands[0].dtype, result = call.results[0].dtype;
  if (dtype != DType::kBf16 && dtype != DType::kFp16 && dtype != DType::kFp32) {
    return refuse("is asked for bf16, fp16 and fp32 only");
  }
  if (call.operands[1].dtype != dtype || (result != dtype && result != DType::kFp32)) {
    return refuse("takes operands of one dtype and makes a result of this dtype or of fp32");
  }
  if (call.previous.has_value() || call.epilogue.has_value()) {
    return refuse("adds to no value and has no epilogue of ours");
  }
  constexpr absl::string_view kNames[] = {"first operand", "second operand", "result"};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CallTensor& t = *tensors[i];
    if (absl::c_linear_search(t.shape, 0)) return refuse("takes no empty tensors");
    if (IsPacked(t.shape, t.strides)) continue;
    return refuse(absl::StrCat("is given tensors without gaps, their channels first or last; the ",
                               kNames[i], " has strides ", absl::StrJoin(t.strides, ",")));
  }
  return absl::OkStatus();
}

CudnnRequest CudnnConvolutionRequest(const Call& call, const CallFacts& facts,
                                     const CudnnConvolutionOptions& options) {
  CudnnRequest request{
      .shape = ShapeOf(call),
      .key = KeyOf(call, facts, options),
      .operands = {StoredOf(call.operands[0]), StoredOf(call.operands[1])},
      .results = {StoredOf(call.results[0])},
      .filter = {.fallback_engines = true,
                 .deterministic = !options.nondeterministic,
                 .full_precision = true,
                 .tensor_cores = MayRoundToTf32(call, facts),
                 .most_workspace_bytes = options.most_workspace_bytes,
                 .most_plans = options.most_plans},
  };
#ifdef RETROGRAD_HAVE_CUDNN
  request.describe = [&call, alignments = AlignmentsOf(call, facts)](fe::graph::Graph& graph) {
    Describe(call, alignments, graph);
  };
#endif
  return request;
}

}  // namespace retrograd
