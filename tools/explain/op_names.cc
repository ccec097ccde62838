#include "tools/explain/op_names.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "graph/text/text.h"

namespace retrograd {
namespace {

constexpr size_t kMostCandidates = 8;

struct ParsedName {
  std::string module;  // empty: any
  std::string op;      // empty: any
  std::optional<int64_t> instance;
};

ParsedName Parse(absl::string_view name) {
  ParsedName parsed;
  const size_t colon = name.rfind(':');
  if (colon != absl::string_view::npos) {
    parsed.module = std::string(name.substr(0, colon));
    name.remove_prefix(colon + 1);
  }
  const size_t hash = name.rfind('#');
  int64_t instance = 0;
  if (hash != absl::string_view::npos && absl::SimpleAtoi(name.substr(hash + 1), &instance)) {
    parsed.instance = instance;
    name = name.substr(0, hash);
  }
  parsed.op = std::string(name);
  return parsed;
}

bool Matches(const BackwardGraph& g, NodeId id, const ParsedName& name) {
  const Origin* origin = g.origin(id);
  if (!name.module.empty()) {
    if (origin == nullptr) return false;
    const std::string& path = origin->module_path;
    if (path != name.module && !absl::StartsWith(path, name.module + ".")) return false;
  }
  if (name.instance.has_value() && (origin == nullptr || origin->instance != *name.instance)) {
    return false;
  }
  if (name.op.empty()) return true;
  const bool original =
      origin != nullptr && (origin->op == name.op || origin->op == absl::StrCat("aten.", name.op));
  return original || (!name.instance.has_value() && Name(g.op(id)) == name.op);
}

std::vector<NodeId> Matching(const BackwardGraph& g, const ParsedName& name) {
  std::vector<NodeId> ops;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (Computes(g, NodeId{i}) && Matches(g, NodeId{i}, name)) ops.push_back(NodeId{i});
  }
  return ops;
}

// The calls that the ops came from, each by its first op.
std::vector<NodeId> Calls(const BackwardGraph& g, const std::vector<NodeId>& ops) {
  std::vector<NodeId> calls;
  for (NodeId id : ops) {
    const Origin* origin = g.origin(id);
    const bool known = std::any_of(calls.begin(), calls.end(), [&](NodeId call) {
      const Origin* other = g.origin(call);
      return origin != nullptr && other != nullptr && origin->op == other->op &&
             origin->instance == other->instance;
    });
    if (!known) calls.push_back(id);
  }
  return calls;
}

absl::StatusOr<std::vector<NodeId>> ByNumber(const BackwardGraph& g, absl::string_view name,
                                             uint32_t number) {
  if (number < g.num_nodes()) return std::vector<NodeId>{NodeId{number}};
  return absl::NotFoundError(
      absl::StrCat("no op ", name, ": the lowered graph has %0 to %", g.num_nodes() - 1));
}

std::vector<NodeId> StoredReads(const BackwardGraph& g, NodeId id) {
  std::vector<NodeId> nodes;
  for (ValueId v : StoredOperands(g, id)) nodes.push_back(v.node);
  return nodes;
}

// 0: one reads the other; 1: both read a tensor; 2: neither.
int Distance(const BackwardGraph& g, NodeId a, NodeId b) {
  const std::vector<NodeId> of_a = StoredReads(g, a), of_b = StoredReads(g, b);
  const auto has = [](const std::vector<NodeId>& list, NodeId id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  if (has(of_a, b) || has(of_b, a)) return 0;
  return std::any_of(of_a.begin(), of_a.end(), [&](NodeId id) { return has(of_b, id); }) ? 1 : 2;
}

}  // namespace

std::string DescribeOp(const BackwardGraph& g, NodeId id) {
  std::string text = absl::StrCat("%", Index(id), " ", Name(g.op(id)), " ", g.type(id).Print());
  const Origin* origin = g.origin(id);
  if (origin == nullptr) return text;
  if (!origin->op.empty()) absl::StrAppend(&text, " from ", origin->op, "#", origin->instance);
  if (!origin->module_path.empty()) absl::StrAppend(&text, " in ", origin->module_path);
  if (!origin->source.empty()) absl::StrAppend(&text, " (", origin->source, ")");
  return text;
}

absl::StatusOr<std::vector<NodeId>> FindOps(const BackwardGraph& g, absl::string_view name) {
  uint32_t number = 0;
  absl::string_view digits = name;
  if (absl::StartsWith(digits, "%")) digits.remove_prefix(1);
  if (digits.find_first_not_of("0123456789") == absl::string_view::npos &&
      absl::SimpleAtoi(digits, &number)) {
    return ByNumber(g, name, number);
  }
  std::vector<NodeId> ops = Matching(g, Parse(name));
  if (ops.empty()) ops = Matching(g, {.module = std::string(name)});
  if (ops.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no op that computes is called ", Quote(name),
        ": give a number of the lowered graph (%123), an original op (aten.mul#7), a module "
        "(blocks.3.attn.q) or both (blocks.3.attn.q:aten.mul#7)"));
  }
  const std::vector<NodeId> calls = Calls(g, ops);
  if (calls.size() == 1) return ops;
  std::vector<std::string> shown;
  for (NodeId call : calls) {
    if (shown.size() == kMostCandidates) break;
    shown.push_back(DescribeOp(g, call));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Quote(name), " names ", calls.size(), " calls; say which, by #N or by number: ",
                   absl::StrJoin(shown, "; "), calls.size() > shown.size() ? "; ..." : ""));
}

absl::StatusOr<std::pair<NodeId, NodeId>> FindPair(const BackwardGraph& g, absl::string_view a,
                                                   absl::string_view b) {
  RG_ASSIGN_OR_RETURN(const std::vector<NodeId> as, FindOps(g, a));
  RG_ASSIGN_OR_RETURN(const std::vector<NodeId> bs, FindOps(g, b));
  std::optional<std::tuple<int, int64_t, NodeId, NodeId>> best;
  for (NodeId x : as) {
    for (NodeId y : bs) {
      if (x == y) continue;
      const int64_t apart = std::abs(int64_t{Index(x)} - int64_t{Index(y)});
      const std::tuple<int, int64_t, NodeId, NodeId> pair(Distance(g, x, y), apart, x, y);
      if (!best.has_value() || pair < *best) best = pair;
    }
  }
  if (best.has_value()) return std::pair(std::get<2>(*best), std::get<3>(*best));
  return absl::InvalidArgumentError(
      absl::StrCat(Quote(a), " and ", Quote(b), " are the same op: ", DescribeOp(g, as[0])));
}

}  // namespace retrograd
