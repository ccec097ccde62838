#include "fusion/analysis/consumers.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

// Without recursion: a file may stack views as deep as it has nodes.
void CollectUsers(const BackwardGraph& g, NodeId id, std::vector<NodeId>& out) {
  absl::InlinedVector<NodeId, 16> seen_through = {id};
  while (!seen_through.empty()) {
    const NodeId at = seen_through.back();
    seen_through.pop_back();
    for (const Use& use : g.uses(at)) {
      if (g.pattern(use.user) == Pattern::kView) {
        seen_through.push_back(use.user);
      } else {
        out.push_back(use.user);
      }
    }
  }
}

}  // namespace

Consumers::Consumers(const BackwardGraph& g) : output_(g.num_nodes()) {
  first_.reserve(g.num_nodes() + 1);
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    first_.push_back(static_cast<uint32_t>(users_.size()));
    if (g.pattern(NodeId{i}) == Pattern::kView) continue;
    CollectUsers(g, NodeId{i}, users_);
    std::sort(users_.begin() + first_[i], users_.end());
    users_.erase(std::unique(users_.begin() + first_[i], users_.end()), users_.end());
  }
  first_.push_back(static_cast<uint32_t>(users_.size()));
  for (const GraphOutput& out : g.outputs()) {
    if (out.value) output_[Index(BehindViews(g, *out.value).node)] = true;
  }
}

std::vector<ValueId> Consumers::Stores(absl::Span<const NodeId> ops,
                                       absl::Span<const NodeId> unstored,
                                       absl::Span<const NodeId> kept) const {
  std::vector<ValueId> stores;
  for (NodeId id : ops) {
    if (std::binary_search(unstored.begin(), unstored.end(), id)) continue;
    absl::Span<const NodeId> users = of(id);
    const bool outside = is_output(id) || std::binary_search(kept.begin(), kept.end(), id) ||
                         std::any_of(users.begin(), users.end(), [&](NodeId user) {
                           return !std::binary_search(ops.begin(), ops.end(), user);
                         });
    if (outside) stores.push_back({id, 0});
  }
  return stores;
}

}  // namespace retrograd
