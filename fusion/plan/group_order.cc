#include "fusion/plan/group_order.h"

#include <algorithm>
#include <set>

#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr uint32_t kNobody = 0xffffffff;

class Sorter {
 public:
  Sorter(const BackwardGraph& g, std::vector<Group> groups, GroupOrder order, FusionPlan& plan)
      : g_(g),
        groups_(std::move(groups)),
        by_memory_(order == GroupOrder::kLeastMemory),
        plan_(plan) {}

  void Run() {
    FindReaders();
    for (uint32_t i = 0; i < groups_.size(); ++i) {
      if (waiting_[i] == 0) ready_.insert(KeyOf(i));
    }
    plan_.groups.reserve(groups_.size());
    plan_.group_of.assign(g_.num_nodes(), kNoGroup);
    while (!ready_.empty()) {
      const uint32_t i = ready_.begin()->group;
      ready_.erase(ready_.begin());
      Emit(i);
    }
    RG_CHECK(plan_.groups.size() == groups_.size());
  }

 private:
  struct Key {
    int64_t bytes;  // 0 in program order
    uint32_t last_op;
    uint32_t group;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  void FindReaders() {
    std::vector<uint32_t> writer(g_.num_values(), kNobody);
    for (uint32_t i = 0; i < groups_.size(); ++i) {
      for (ValueId v : groups_[i].outputs) writer[g_.value_index(v)] = i;
    }
    users_.resize(groups_.size());
    waiting_.assign(groups_.size(), 0);
    if (by_memory_) readers_.resize(g_.num_values());
    for (uint32_t i = 0; i < groups_.size(); ++i) {
      std::vector<uint32_t> before;
      for (ValueId v : groups_[i].inputs) {
        const uint32_t w = writer[g_.value_index(v)];
        if (by_memory_) readers_[g_.value_index(v)].push_back(i);
        if (w != kNobody && w != i) before.push_back(w);
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      waiting_[i] = static_cast<int>(before.size());
      for (uint32_t w : before) users_[w].push_back(i);
    }
    unread_.resize(readers_.size());
    for (size_t v = 0; v < readers_.size(); ++v) unread_[v] = readers_[v].size();
  }

  // What the group adds to the live values, less what it is the last to read.
  Key KeyOf(uint32_t i) const {
    Key key{.bytes = 0, .last_op = Index(groups_[i].nodes.back()), .group = i};
    if (!by_memory_) return key;
    for (ValueId v : groups_[i].outputs) key.bytes += g_.type(v).size_bytes();
    for (ValueId v : groups_[i].inputs) {
      const bool stays = g_.op(v.node) == Op::input && !g_.node(v.node).input->donated;
      if (unread_[g_.value_index(v)] == 1 && !stays) key.bytes -= g_.type(v).size_bytes();
    }
    return key;
  }

  void Emit(uint32_t i) {
    for (NodeId id : groups_[i].nodes) {
      plan_.group_of[Index(id)] = GroupId{static_cast<uint32_t>(plan_.groups.size())};
    }
    if (by_memory_) {
      for (ValueId v : groups_[i].inputs) MarkRead(g_.value_index(v), i);
    }
    for (uint32_t u : users_[i]) {
      if (--waiting_[u] == 0) ready_.insert(KeyOf(u));
    }
    plan_.groups.push_back(std::move(groups_[i]));
  }

  // When one reader of a value is left, reading it frees it: that reader's key changes.
  void MarkRead(size_t value, uint32_t by) {
    std::vector<uint32_t>& readers = readers_[value];
    std::vector<uint32_t> waiting;
    for (uint32_t r : readers) {
      if (r != by && waiting_[r] == 0 && ready_.erase(KeyOf(r)) > 0) waiting.push_back(r);
    }
    readers.erase(std::find(readers.begin(), readers.end(), by));
    --unread_[value];
    for (uint32_t r : waiting) ready_.insert(KeyOf(r));
  }

  const BackwardGraph& g_;
  std::vector<Group> groups_;
  const bool by_memory_;
  FusionPlan& plan_;
  std::vector<std::vector<uint32_t>> users_;    // groups that read what a group stores
  std::vector<int> waiting_;                    // writers that a group still waits for
  std::vector<std::vector<uint32_t>> readers_;  // by value, those to come (for kLeastMemory)
  std::vector<size_t> unread_;                  // their number
  std::set<Key> ready_;
};

}  // namespace

void OrderGroups(const BackwardGraph& graph, std::vector<Group> groups, GroupOrder order,
                 FusionPlan& plan) {
  Sorter(graph, std::move(groups), order, plan).Run();
}

}  // namespace retrograd
