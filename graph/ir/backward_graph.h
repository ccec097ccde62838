// The backward graph: the one IR of the library. A value, immutable once built.
//
// Storage is flat: nodes, operands and uses lie in vectors in id order, which is what walks need.
// boost_graph.h makes it a graph of Boost.Graph's concepts, for the algorithms. A pass reads one
// graph and builds another; nothing is ever removed or edited in place, so ids stay dense. Graphs
// share the nodes that a pass left as they were.
//
// Invariants, named in the messages of Verify():
//   G1  an operand's node has a smaller id than its user, so id order is a topological order
//   G2  every operand names an existing result of its node
//   G3  every node's result types are what its row of the op table infers from its operands
//   G4  every output names an existing value, and its strides address each element once
//   G5  an input's strides have the rank of its shape and stay within kMaxElements
//   G6  attributes are the ones that the op takes, finite and in range
#ifndef RETROGRAD_GRAPH_IR_BACKWARD_GRAPH_H_
#define RETROGRAD_GRAPH_IR_BACKWARD_GRAPH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/base/tensor_type.h"
#include "graph/ir/op.h"

namespace retrograd {

enum class NodeId : uint32_t {};
constexpr uint32_t Index(NodeId id) { return static_cast<uint32_t>(id); }

// One result of one node.
struct ValueId {
  NodeId node{};
  uint32_t result = 0;
  friend auto operator<=>(const ValueId&, const ValueId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ValueId& v) {
    return H::combine(std::move(h), Index(v.node), v.result);
  }
};

// One use of a value: operand number `operand` of `user`.
struct Use {
  NodeId user{};
  uint32_t operand = 0;
  uint32_t result = 0;  // which result of the producer is read
  friend bool operator==(const Use&, const Use&) = default;
};

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

// Attributes of a node in name order.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<absl::string_view, AttrValue>> attrs);
  void Set(absl::string_view name, AttrValue value);
  const AttrValue* Find(absl::string_view name) const;  // nullptr if absent
  // The attribute as the type, or the fallback when it is absent or of another type.
  int64_t Int(absl::string_view name, int64_t fallback = 0) const;
  double Float(absl::string_view name, double fallback = 0) const;  // an int attribute counts too
  absl::string_view String(absl::string_view name) const;           // "" if absent
  absl::Span<const int64_t> Ints(absl::string_view name) const;     // empty if absent
  absl::Span<const std::pair<std::string, AttrValue>> all() const { return attrs_; }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::vector<std::pair<std::string, AttrValue>> attrs_;
};

enum class InputKind : uint8_t { kSaved = 1, kParameter = 2, kTangent = 3, kConstant = 4 };

struct InputInfo {
  std::string name;
  InputKind kind = InputKind::kSaved;
  std::vector<int64_t> strides;  // in elements; empty: row-major
  int64_t alignment = 0;         // bytes known to divide the address; 0: the element size alone
  bool donated = false;          // its memory may be overwritten after its last use
  friend bool operator==(const InputInfo&, const InputInfo&) = default;
};

// Where a node came from. Display only.
struct Origin {
  std::string op;           // "aten.native_layer_norm_backward", or a composite's name
  int64_t instance = 0;     // numbers the calls; equal for the pieces of one call
  std::string module_path;  // "blocks.0.attn.q"
  std::string source;       // "model.py:33"
  bool recomputed = false;  // a forward op computed again in the backward
  friend bool operator==(const Origin&, const Origin&) = default;
};

// What a node computes, without its place in a graph. Never changed once a graph holds it.
struct Node {
  Op op = Op::input;
  std::vector<TensorType> results;
  Attrs attrs;
  int origin = -1;                         // index into BackwardGraph::origins()
  std::shared_ptr<const InputInfo> input;  // for Op::input alone, never null there
};

struct GraphOutput {
  std::optional<ValueId> value;  // nullopt: the host expects nothing here
  std::string name;              // whose gradient it is
  std::vector<int64_t> strides;  // in elements, as the host requires; empty: row-major
  friend bool operator==(const GraphOutput&, const GraphOutput&) = default;
};

struct Numerics {
  bool allow_tf32 = false;
  bool allow_reduced_precision_reduction = false;
  bool deterministic = true;
  std::string framework;  // "torch 2.11.0"
  friend bool operator==(const Numerics&, const Numerics&) = default;
};

// Fields of a file of a newer minor version, which writing the graph again gives back. A graph that
// a pass has made has none.
struct UnknownFields {
  enum class Of : uint8_t { kGraph, kNumerics, kOrigin, kNode, kInput, kOutput };
  Of of = Of::kGraph;
  uint32_t index = 0;  // of the origin, node or output; of kInput: the input's node
  std::string bytes;   // as they lie in the file
  friend bool operator==(const UnknownFields&, const UnknownFields&) = default;
};

// What a graph holds; read it through BackwardGraph.
struct GraphStorage {
  std::string name;
  std::vector<std::shared_ptr<const Node>> nodes;
  std::vector<Op> ops;  // of the nodes: what looks for an op reads these, and no node
  // Operands of node i are operands[operand_begin[i] .. operand_begin[i + 1]); uses likewise.
  std::vector<uint32_t> operand_begin;
  std::vector<ValueId> operands;
  std::vector<uint32_t> use_begin;
  std::vector<Use> uses;
  std::vector<uint32_t> value_begin;  // dense number of node i's first result; one more at the end
  std::vector<GraphOutput> outputs;
  std::shared_ptr<const std::vector<Origin>> origins;
  Numerics numerics;
  std::vector<UnknownFields> unknown_fields;
};

class BackwardGraph {
 public:
  BackwardGraph();  // empty

  size_t num_nodes() const { return storage_->nodes.size(); }
  const Node& node(NodeId id) const { return *storage_->nodes[Index(id)]; }
  const std::shared_ptr<const Node>& shared_node(NodeId id) const {
    return storage_->nodes[Index(id)];
  }
  Op op(NodeId id) const { return storage_->ops[Index(id)]; }
  Pattern pattern(NodeId id) const { return PatternOf(op(id)); }
  const TensorType& type(ValueId v) const { return node(v.node).results[v.result]; }
  const TensorType& type(NodeId id) const { return node(id).results[0]; }
  // Operands in order; uses in the order of the users' ids.
  absl::Span<const ValueId> operands(NodeId id) const {
    return Row(storage_->operands, storage_->operand_begin, id);
  }
  absl::Span<const Use> uses(NodeId id) const {
    return Row(storage_->uses, storage_->use_begin, id);
  }

  absl::Span<const GraphOutput> outputs() const { return storage_->outputs; }
  absl::Span<const Origin> origins() const { return *storage_->origins; }
  const Origin* origin(NodeId id) const;  // nullptr if none
  const std::string& name() const { return storage_->name; }
  const Numerics& numerics() const { return storage_->numerics; }
  absl::Span<const UnknownFields> unknown_fields() const { return storage_->unknown_fields; }

  // Values have dense numbers: node by node, result by result.
  size_t num_values() const { return storage_->value_begin.back(); }
  size_t value_index(ValueId v) const { return storage_->value_begin[Index(v.node)] + v.result; }
  size_t num_operands() const { return storage_->operands.size(); }  // of all nodes together

  // OK, or the first broken invariant: "G3: node %12 (mul): ...".
  absl::Status Verify() const;

  friend bool operator==(const BackwardGraph& a, const BackwardGraph& b);  // structural

 private:
  friend class GraphBuilder;
  template <typename T>
  static absl::Span<const T> Row(const std::vector<T>& all, const std::vector<uint32_t>& begin,
                                 NodeId id) {
    const uint32_t first = begin[Index(id)];
    return {all.data() + first, begin[Index(id) + 1] - first};
  }
  std::shared_ptr<const GraphStorage> storage_;
};

// The only way to make a graph. Every Add infers and checks; the first error sticks and comes back
// from Build(), so that a model's builder need not check each call.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = "");
  ~GraphBuilder();
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  ValueId Input(TensorType type, InputInfo info);
  ValueId Add(Op op, absl::Span<const ValueId> operands, Attrs attrs = {});
  // The same for nodes that come with their types (files): they must equal the inferred ones.
  absl::StatusOr<NodeId> AddNode(Op op, absl::Span<const ValueId> operands, Attrs attrs,
                                 absl::Span<const TensorType> declared);
  // For passes: the very node of another graph with the same table of origins, not inferred again.
  // Its operands must have the types that they had there.
  NodeId AddShared(std::shared_ptr<const Node> node, absl::Span<const ValueId> operands);
  void Output(ValueId value, std::string name, std::vector<int64_t> strides = {});
  void AbsentOutput(std::string name);

  // Shorthands for what builders and passes write most.
  ValueId Full(double value, DType dtype, Shape shape = {});
  ValueId Cast(ValueId v, DType dtype);  // v itself if it has that dtype
  ValueId Reshape(ValueId v, Shape shape);
  ValueId Permute(ValueId v, std::vector<int64_t> perm);
  ValueId Expand(ValueId v, Shape shape);
  // Places start, start + step, .. before stop of an axis; v itself if that is all of it.
  ValueId Slice(ValueId v, int64_t axis, int64_t start, int64_t stop, int64_t step = 1);
  ValueId Cat(absl::Span<const ValueId> parts, int64_t axis);  // one part: itself
  ValueId Sum(ValueId v, std::vector<int64_t> axes, bool keep = false);
  ValueId MatMul(ValueId a, ValueId b);

  // Origin of the nodes added from here on; nullopt: none. Equal origins are stored once.
  void SetOrigin(std::optional<Origin> origin);
  // The same for passes and files, which carry a whole table over: ShareOrigins takes another
  // graph's, before any origin is added; AddOrigin appends without looking for an equal one,
  // SetOriginIndex chooses by place in the table, -1: none.
  void ShareOrigins(const BackwardGraph& graph);
  int AddOrigin(Origin origin);
  void SetOriginIndex(int index);
  void SetNumerics(Numerics numerics);
  void KeepUnknownFields(UnknownFields fields);
  void Reserve(size_t num_nodes, size_t num_operands = 0);  // room, when the counts are known
  const TensorType& type(ValueId v) const;
  bool HasValue(ValueId v) const;
  size_t num_nodes() const;
  const absl::Status& status() const;

  absl::StatusOr<BackwardGraph> Build();  // leaves the builder empty

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_BACKWARD_GRAPH_H_
