// Texts that two regions share exactly if they are planned alike (the layers of a model), and two
// kernels if they cost the same.
#ifndef RETROGRAD_FUSION_ANALYSIS_REGION_SIGNATURE_H_
#define RETROGRAD_FUSION_ANALYSIS_REGION_SIGNATURE_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/regions.h"
#include "fusion/kernel/ir/layout.h"

namespace retrograd {

// Numbers that nodes share exactly if they are alike but for their operands. Of one table for all
// versions of a graph; an instance serves one of them.
class NodeNumbers {
 public:
  using Table = absl::flat_hash_map<std::string, int64_t>;
  NodeNumbers(const BackwardGraph& graph, absl::Span<const Layout> layouts, Table& table)
      : graph_(graph), layouts_(layouts), table_(table), computed_(graph.num_nodes(), -1) {}

  int64_t OfComputed(NodeId id);  // op, type, attributes, strides
  int64_t OfRead(ValueId value);  // a value from outside: type, strides, alignment of an input

 private:
  const BackwardGraph& graph_;
  absl::Span<const Layout> layouts_;
  Table& table_;
  std::vector<int64_t> computed_;  // by node; -1: not numbered yet
  absl::flat_hash_map<ValueId, int64_t> read_;
};

// Ops by position, operands by position or by order of first mention, types, layouts, attributes,
// and which results leave the region. Comparable where the numbers are of one table.
std::string RegionSignature(const BackwardGraph& graph, const Consumers& consumers,
                            const Region& region, NodeNumbers& numbers);

// The same without sizes: ops, operands, dtypes, ranks, which extents are 1, and attributes that
// name axes. Two sizes of one graph share it where their nodes are the same; of equal structures
// one partition is legal in both. Comparable between graphs.
std::string RegionStructure(const BackwardGraph& graph, const Consumers& consumers,
                            const Region& region);

// The same of a kernel that computes `ops` and stores `stores` (both ascending), with which of them
// the host waits for.
std::string KernelSignature(const BackwardGraph& graph, const Consumers& consumers,
                            absl::Span<const NodeId> ops, absl::Span<const ValueId> stores,
                            NodeNumbers& numbers);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_REGION_SIGNATURE_H_
