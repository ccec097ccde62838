#include "fusion/plan/group_dag.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr uint32_t kNobody = 0xffffffff;

// By value_index: the group that stores the value, or kNobody.
absl::StatusOr<std::vector<uint32_t>> Writers(const BackwardGraph& graph, const FusionPlan& plan) {
  std::vector<uint32_t> writer(graph.num_values(), kNobody);
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    for (ValueId v : plan.groups[g].outputs) {
      uint32_t& w = writer[graph.value_index(v)];
      if (w != kNobody) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s is stored by group %d and by group %d; a value has one writer",
                            PrintValue(v), w, g));
      }
      w = g;
    }
  }
  return writer;
}

absl::Status CheckAcyclic(const GroupDag& dag) {
  std::vector<size_t> open(dag.before.size());
  std::vector<uint32_t> ready;
  for (uint32_t g = 0; g < open.size(); ++g) {
    open[g] = dag.before[g].size();
    if (open[g] == 0) ready.push_back(g);
  }
  size_t done = 0;
  while (!ready.empty()) {
    const uint32_t g = ready.back();
    ready.pop_back();
    ++done;
    for (uint32_t s : dag.after[g]) {
      if (--open[s] == 0) ready.push_back(s);
    }
  }
  if (done == open.size()) return absl::OkStatus();
  const size_t stuck =
      std::find_if(open.begin(), open.end(), [](size_t n) { return n > 0; }) - open.begin();
  return absl::InvalidArgumentError(
      absl::StrFormat("group %d waits for itself through other groups", stuck));
}

}  // namespace

std::vector<ValueId> ValuesRead(const Group& group) {
  std::vector<ValueId> read = group.inputs;
  if (const Call* call = CallOf(group)) {
    for (const CallTensor& operand : call->operands) read.push_back(operand.value);
  }
  for (const Group::InPlace& pair : RequiredInPlace(group)) read.push_back(pair.input);
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  return read;
}

absl::StatusOr<GroupDag> BuildGroupDag(const BackwardGraph& graph, const FusionPlan& plan) {
  RG_ASSIGN_OR_RETURN(const std::vector<uint32_t> writer, Writers(graph, plan));
  const size_t n = plan.groups.size();
  GroupDag dag{std::vector<std::vector<uint32_t>>(n), std::vector<std::vector<uint32_t>>(n)};
  std::vector<std::vector<uint32_t>> readers(graph.num_values());
  for (uint32_t g = 0; g < n; ++g) {
    for (ValueId v : ValuesRead(plan.groups[g])) {
      readers[graph.value_index(v)].push_back(g);
      const uint32_t w = writer[graph.value_index(v)];
      if (w != kNobody && w != g) dag.before[g].push_back(w);
      if (w == kNobody && graph.pattern(v.node) != Pattern::kInput) {
        return absl::InvalidArgumentError(
            absl::StrFormat("group %d reads %s, which is neither an input nor stored by a group", g,
                            PrintValue(v)));
      }
    }
  }
  for (uint32_t g = 0; g < n; ++g) {
    for (const Group::InPlace& pair : RequiredInPlace(plan.groups[g])) {
      for (uint32_t reader : readers[graph.value_index(pair.input)]) {
        if (reader != g) dag.before[g].push_back(reader);
      }
    }
  }
  for (uint32_t g = 0; g < n; ++g) {
    std::vector<uint32_t>& before = dag.before[g];
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (uint32_t p : before) dag.after[p].push_back(g);
  }
  RG_RETURN_IF_ERROR(CheckAcyclic(dag));
  return dag;
}

int64_t StorageBytes(const BackwardGraph& graph, const FusionPlan& plan, ValueId value) {
  const TensorType& type = graph.type(value);
  const std::vector<int64_t>& strides = plan.layouts[graph.value_index(value)].strides;
  const bool known = strides.size() == type.shape.size();
  return SpanElements(type.shape, known ? strides : DenseStrides(type.shape)) *
         SizeBytes(type.dtype);
}

std::string PrintValue(ValueId value) {
  std::string text = absl::StrCat("%", Index(value.node));
  if (value.result != 0) absl::StrAppend(&text, ".", value.result);
  return text;
}

bool ParseValue(absl::string_view text, ValueId* value) {
  if (text.empty() || text[0] != '%') return false;
  text.remove_prefix(1);
  const size_t dot = text.find('.');
  uint32_t node = 0, result = 0;
  if (!absl::SimpleAtoi(text.substr(0, dot), &node)) return false;
  if (dot != absl::string_view::npos && !absl::SimpleAtoi(text.substr(dot + 1), &result)) {
    return false;
  }
  *value = {NodeId{node}, result};
  return true;
}

}  // namespace retrograd
