#include "graph/ir/op.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/near_names.h"

namespace retrograd {
namespace {

constexpr OpInfo kTable[] = {
#define RG_OP(NAME, MIN, MAX, PATTERN, RULE, COST, ...) \
  OpInfo{.op = Op::NAME,                                \
         .name = #NAME,                                 \
         .min_operands = MIN,                           \
         .max_operands = MAX,                           \
         .pattern = Pattern::PATTERN,                   \
         .type_rule = TypeRule::RULE,                   \
         .cost = CostClass::COST __VA_OPT__(, ) __VA_ARGS__},
#include "graph/ir/ops.def"
#undef RG_OP
};

}  // namespace

absl::string_view Name(Pattern pattern) {
  constexpr absl::string_view kNames[] = {"input",      "pointwise", "reduction", "library",
                                          "view",       "join",      "gather",    "scatter",
                                          "accumulate", "scan",      "composite"};
  return kNames[static_cast<int>(pattern)];
}

const OpInfo& Info(Op op) { return kTable[static_cast<int>(op)]; }

absl::Span<const OpInfo> AllOps() { return kTable; }

std::optional<Op> OpByName(absl::string_view name) {
  static const auto& by_name = *[] {
    auto* map = new absl::flat_hash_map<absl::string_view, Op>;
    for (const OpInfo& info : kTable) map->emplace(info.name, info.op);
    return map;
  }();
  auto it = by_name.find(name);
  if (it == by_name.end()) return std::nullopt;
  return it->second;
}

std::string NearOpNames(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const OpInfo& info : kTable) names.push_back(info.name);
  return absl::StrJoin(NearNames(name, names), ", ");
}

}  // namespace retrograd
