// The C interface's graphs: read, written, looked at.
#include <algorithm>
#include <string>
#include <utility>

#include "api/graph.h"
#include "api/guard.h"
#include "api/handles.h"
#include "graph/base/status.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"

namespace retrograd {

rg_tensor TensorOf(const TensorType& type, const std::vector<int64_t>& strides) {
  static_assert(RG_MAX_RANK == kMaxRank);
  rg_tensor made = RG_INIT(rg_tensor);
  made.dtype = static_cast<rg_dtype>(type.dtype);
  made.rank = static_cast<uint32_t>(type.rank());
  const std::vector<int64_t> actual = strides.empty() ? DenseStrides(type.shape) : strides;
  std::copy(type.shape.begin(), type.shape.end(), made.shape);
  std::copy(actual.begin(), actual.end(), made.strides);
  made.bytes = SpanElements(type.shape, actual) * SizeBytes(type.dtype);
  made.present = 1;
  made.name = "";
  return made;
}

rg_graph* NewGraph(BackwardGraph graph) {
  std::vector<NodeId> inputs = InputNodes(graph);
  auto made = std::make_unique<rg_graph>();
  absl::StatusOr<GraphBinder> binder = GraphBinder::Of(graph);
  if (binder.ok() && !binder->symbols().empty()) {
    made->symbols = binder->symbols();
    made->patterns = std::make_shared<SizedPatterns>(graph, made->symbols);
    made->binder = *std::move(binder);
  }
  made->graph = std::move(graph);
  made->inputs = std::move(inputs);
  return made.release();
}

namespace {

// Into *to what `read` reads.
rg_code ReadInto(rg_graph** to, const void* from, absl::string_view from_name,
                 absl::FunctionRef<absl::StatusOr<BackwardGraph>()> read) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(from, from_name));
    RG_RETURN_IF_ERROR(NotNull(to, "graph"));
    RG_ASSIGN_OR_RETURN(BackwardGraph graph, read());
    *to = NewGraph(std::move(graph));
    return absl::OkStatus();
  });
}

absl::Status InRange(size_t index, size_t count, absl::string_view what) {
  if (index < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no ", what, " ", index, ": the graph has ", count));
}

}  // namespace
}  // namespace retrograd

using retrograd::Guarded;
using retrograd::NotNull;

rg_code rg_graph_load(const char* path, rg_graph** graph) {
  return retrograd::ReadInto(graph, path, "path", [&] { return retrograd::LoadGraph(path); });
}

rg_code rg_graph_parse(const char* text, size_t size, rg_graph** graph) {
  return retrograd::ReadInto(graph, text, "text", [&] {
    return retrograd::ParseGraph({text, size});
  });
}

rg_code rg_graph_deserialize(const void* bytes, size_t size, rg_graph** graph) {
  return retrograd::ReadInto(graph, bytes, "bytes", [&] {
    return retrograd::ParseGraphProto({static_cast<const char*>(bytes), size});
  });
}

rg_code rg_graph_save(const rg_graph* graph, const char* path) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(NotNull(path, "path"));
    return retrograd::SaveGraph(graph->graph, path);
  });
}

rg_code rg_graph_print(const rg_graph* graph, char** text) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(NotNull(text, "text"));
    RG_ASSIGN_OR_RETURN(*text, retrograd::CallersCopy(retrograd::Print(graph->graph)));
    return absl::OkStatus();
  });
}

rg_code rg_graph_serialize(const rg_graph* graph, void** bytes, size_t* size) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(NotNull(bytes, "bytes"));
    RG_RETURN_IF_ERROR(NotNull(size, "size"));
    const std::string serialized = retrograd::SerializeGraph(graph->graph);
    RG_ASSIGN_OR_RETURN(*bytes, retrograd::CallersCopy(serialized));
    *size = serialized.size();
    return absl::OkStatus();
  });
}

void rg_graph_destroy(rg_graph* graph) { delete graph; }

size_t rg_graph_num_inputs(const rg_graph* graph) {
  return graph == nullptr ? 0 : graph->inputs.size();
}

size_t rg_graph_num_outputs(const rg_graph* graph) {
  return graph == nullptr ? 0 : graph->graph.outputs().size();
}

rg_code rg_graph_input(const rg_graph* graph, size_t index, rg_tensor* tensor) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(retrograd::InRange(index, graph->inputs.size(), "input"));
    const retrograd::NodeId id = graph->inputs[index];
    const retrograd::InputInfo& info = *graph->graph.node(id).input;
    rg_tensor made = retrograd::TensorOf(graph->graph.type(id), info.strides);
    made.name = info.name.c_str();
    made.kind = static_cast<rg_input_kind>(info.kind);
    made.alignment = info.alignment;
    return retrograd::Give(made, tensor, "tensor");
  });
}

rg_code rg_graph_output(const rg_graph* graph, size_t index, rg_tensor* tensor) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(retrograd::InRange(index, graph->graph.outputs().size(), "output"));
    const retrograd::GraphOutput& output = graph->graph.outputs()[index];
    rg_tensor made = RG_INIT(rg_tensor);
    if (output.value) made = retrograd::TensorOf(graph->graph.type(*output.value), output.strides);
    made.name = output.name.c_str();
    return retrograd::Give(made, tensor, "tensor");
  });
}

size_t rg_graph_num_symbols(const rg_graph* graph) {
  return graph == nullptr ? 0 : graph->symbols.size();
}

rg_code rg_graph_symbol(const rg_graph* graph, size_t index, rg_symbol* symbol) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(retrograd::InRange(index, graph->symbols.size(), "symbol"));
    const retrograd::SizeSymbol& of = graph->symbols[index];
    rg_symbol made = RG_INIT(rg_symbol);
    made.name = of.name.c_str();
    made.min = of.min;
    made.max = of.max;
    made.multiple_of = of.multiple_of;
    made.hint = of.hint;
    return retrograd::Give(made, symbol, "symbol");
  });
}

rg_code rg_graph_bind(const rg_graph* graph, const rg_binding* bindings, size_t num_bindings,
                      rg_graph** bound) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_RETURN_IF_ERROR(NotNull(bound, "bound"));
    if (num_bindings > 0) RG_RETURN_IF_ERROR(NotNull(bindings, "bindings"));
    std::vector<retrograd::SizeBinding> sizes;
    for (size_t i = 0; i < num_bindings; ++i) {
      RG_RETURN_IF_ERROR(NotNull(bindings[i].name, absl::StrCat("bindings[", i, "].name")));
      sizes.push_back({bindings[i].name, bindings[i].value});
    }
    RG_ASSIGN_OR_RETURN(
        retrograd::BackwardGraph made,
        graph->binder ? graph->binder->Bind(sizes) : retrograd::BindGraph(graph->graph, sizes));
    rg_graph* numbers = retrograd::NewGraph(std::move(made));
    numbers->patterns = graph->patterns;
    numbers->sizes = std::move(sizes);
    *bound = numbers;
    return absl::OkStatus();
  });
}
