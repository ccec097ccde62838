#include "tools/execute/device_tensors.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "graph/reference/reference.h"
#include "tools/execute/random_inputs.h"

namespace retrograd {

absl::StatusOr<void*> Buffers::Allocate(int64_t bytes) {
  RG_ASSIGN_OR_RETURN(void* p, device_->Allocate(std::max<int64_t>(bytes, 1)));
  all_.push_back(p);
  return p;
}

std::vector<int64_t> StridesOr(const std::vector<int64_t>& strides, const Shape& shape) {
  return strides.empty() ? DenseStrides(shape) : strides;
}

absl::StatusOr<std::vector<const void*>> UploadInputs(const BackwardGraph& graph,
                                                      const Bundle& bundle, Device* device,
                                                      Buffers* buffers) {
  std::vector<const void*> inputs;
  for (NodeId id : InputNodes(graph)) {
    const Node& node = graph.node(id);
    const TensorType& type = node.results[0];
    const std::string name = absl::StrCat("input/", Index(id));
    const BundleTensor* tensor = bundle.Find(name);
    const int64_t span = SpanElements(type.shape, StridesOr(node.input->strides, type.shape));
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the bundle has no \"%s\" (%s); was it recorded for this graph?", name,
                          node.input->name));
    }
    if (tensor->type.elements() != span || tensor->type.dtype != type.dtype) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "\"%s\" of the bundle is %s, but the graph's input %s spans %d elements of %s", name,
          tensor->type.Print(), node.input->name, span, Name(type.dtype)));
    }
    const int64_t bytes = span * SizeBytes(type.dtype);
    RG_ASSIGN_OR_RETURN(void* data, buffers->Allocate(bytes));
    RG_RETURN_IF_ERROR(device->CopyIn(data, bundle.Bytes(*tensor).data(), bytes));
    inputs.push_back(data);
  }
  return inputs;
}

absl::StatusOr<std::vector<const void*>> DrawInputs(const BackwardGraph& graph, uint64_t seed,
                                                    Device* device, Buffers* buffers) {
  std::vector<const void*> inputs;
  for (NodeId id : InputNodes(graph)) {
    const TensorType& type = graph.type(id);
    const int64_t bytes =
        SpanElements(type.shape, StridesOr(graph.node(id).input->strides, type.shape)) *
        SizeBytes(type.dtype);
    RG_ASSIGN_OR_RETURN(void* const data, buffers->Allocate(bytes));
    const std::string pattern = RandomPattern(graph, id, seed);
    const int64_t period = static_cast<int64_t>(pattern.size());
    for (int64_t at = 0; at < bytes; at += period) {
      RG_RETURN_IF_ERROR(device->CopyIn(static_cast<char*>(data) + at, pattern.data(),
                                        std::min(period, bytes - at)));
    }
    inputs.push_back(data);
  }
  return inputs;
}

absl::StatusOr<std::vector<void*>> AllocateOutputs(const BackwardGraph& graph, Buffers* buffers) {
  std::vector<void*> outputs;
  for (const GraphOutput& output : graph.outputs()) {
    outputs.push_back(nullptr);
    if (!output.value) continue;
    const TensorType& type = graph.type(*output.value);
    const int64_t span = SpanElements(type.shape, StridesOr(output.strides, type.shape));
    RG_ASSIGN_OR_RETURN(outputs.back(), buffers->Allocate(span * SizeBytes(type.dtype)));
  }
  return outputs;
}

}  // namespace retrograd
