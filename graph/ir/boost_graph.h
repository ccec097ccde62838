// A BackwardGraph as Boost.Graph sees it: the functions that its VertexListGraph and
// BidirectionalGraph concepts ask for, over the graph's own operand and use lists. So Boost's
// algorithms run on a graph as it is, without a copy. The one header that includes Boost; include
// it only in a .cc file that runs an algorithm (it costs a translation unit 1.6 s).
#ifndef RETROGRAD_GRAPH_IR_BOOST_GRAPH_H_
#define RETROGRAD_GRAPH_IR_BOOST_GRAPH_H_

#include <boost/graph/graph_traits.hpp>
#include <boost/graph/properties.hpp>
#include <boost/iterator/counting_iterator.hpp>
#include <boost/iterator/iterator_facade.hpp>
#include <boost/property_map/property_map.hpp>
#include <utility>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// From a producer to a user: result number `result` is its operand number `operand`. A vertex is a
// node's number.
struct OperandEdge {
  size_t source = 0;
  size_t target = 0;
  uint32_t result = 0;
  uint32_t operand = 0;
  friend auto operator<=>(const OperandEdge&, const OperandEdge&) = default;
};

// The edges out of a node, by its uses, or into it, by its operands.
template <bool kOut>
class OperandEdgeIterator
    : public boost::iterator_facade<OperandEdgeIterator<kOut>, OperandEdge,
                                    boost::random_access_traversal_tag, OperandEdge> {
 public:
  OperandEdgeIterator() = default;
  OperandEdgeIterator(const BackwardGraph& graph, size_t vertex, size_t at)
      : graph_(&graph), vertex_(vertex), at_(at) {}

 private:
  friend class boost::iterator_core_access;
  OperandEdge dereference() const {
    const NodeId id{static_cast<uint32_t>(vertex_)};
    if constexpr (kOut) {
      const Use& use = graph_->uses(id)[at_];
      return {vertex_, Index(use.user), use.result, use.operand};
    } else {
      const ValueId v = graph_->operands(id)[at_];
      return {Index(v.node), vertex_, v.result, static_cast<uint32_t>(at_)};
    }
  }
  bool equal(const OperandEdgeIterator& other) const { return at_ == other.at_; }
  void increment() { ++at_; }
  void decrement() { --at_; }
  void advance(std::ptrdiff_t n) { at_ += n; }
  std::ptrdiff_t distance_to(const OperandEdgeIterator& other) const {
    return static_cast<std::ptrdiff_t>(other.at_) - static_cast<std::ptrdiff_t>(at_);
  }

  const BackwardGraph* graph_ = nullptr;
  size_t vertex_ = 0;
  size_t at_ = 0;
};

}  // namespace retrograd

template <>
struct boost::graph_traits<retrograd::BackwardGraph> {
  using vertex_descriptor = size_t;
  using edge_descriptor = retrograd::OperandEdge;
  using vertex_iterator = boost::counting_iterator<size_t>;
  using out_edge_iterator = retrograd::OperandEdgeIterator<true>;
  using in_edge_iterator = retrograd::OperandEdgeIterator<false>;
  using directed_category = boost::bidirectional_tag;
  using edge_parallel_category = boost::allow_parallel_edge_tag;
  struct traversal_category : boost::bidirectional_graph_tag, boost::vertex_list_graph_tag {};
  using vertices_size_type = size_t;
  using edges_size_type = size_t;
  using degree_size_type = size_t;
  static constexpr size_t null_vertex() { return static_cast<size_t>(-1); }
};

template <>
struct boost::property_map<retrograd::BackwardGraph, boost::vertex_index_t> {
  using type = boost::typed_identity_property_map<size_t>;
  using const_type = type;
};

namespace retrograd {

using BoostTraits = boost::graph_traits<BackwardGraph>;

inline size_t num_vertices(const BackwardGraph& g) { return g.num_nodes(); }
inline size_t num_edges(const BackwardGraph& g) { return g.num_operands(); }
inline std::pair<BoostTraits::vertex_iterator, BoostTraits::vertex_iterator> vertices(
    const BackwardGraph& g) {
  return {BoostTraits::vertex_iterator(0), BoostTraits::vertex_iterator(g.num_nodes())};
}
inline size_t source(const OperandEdge& e, const BackwardGraph&) { return e.source; }
inline size_t target(const OperandEdge& e, const BackwardGraph&) { return e.target; }
inline size_t out_degree(size_t v, const BackwardGraph& g) {
  return g.uses(NodeId{static_cast<uint32_t>(v)}).size();
}
inline size_t in_degree(size_t v, const BackwardGraph& g) {
  return g.operands(NodeId{static_cast<uint32_t>(v)}).size();
}
inline size_t degree(size_t v, const BackwardGraph& g) {
  return in_degree(v, g) + out_degree(v, g);
}
inline std::pair<BoostTraits::out_edge_iterator, BoostTraits::out_edge_iterator> out_edges(
    size_t v, const BackwardGraph& g) {
  return {{g, v, 0}, {g, v, out_degree(v, g)}};
}
inline std::pair<BoostTraits::in_edge_iterator, BoostTraits::in_edge_iterator> in_edges(
    size_t v, const BackwardGraph& g) {
  return {{g, v, 0}, {g, v, in_degree(v, g)}};
}
inline boost::typed_identity_property_map<size_t> get(boost::vertex_index_t, const BackwardGraph&) {
  return {};
}

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_BOOST_GRAPH_H_
