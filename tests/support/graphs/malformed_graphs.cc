#include "tests/support/graphs/malformed_graphs.h"

#include <cmath>
#include <ctime>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

// The extent 4 of the legal graph is a symbol.
void AddSizes(v1::Graph& g) {
  v1::Sizes* sizes = g.mutable_sizes();
  v1::SizeSymbol* symbol = sizes->add_symbols();
  symbol->set_name("rows");
  symbol->set_min(1);
  symbol->set_max(100);
  symbol->set_multiple_of(1);
  symbol->set_hint(4);
  sizes->add_atoms()->set_kind(v1::SIZE_ATOM_SYMBOL);
  v1::SizeTerm* term = sizes->add_polynomials()->add_terms();
  term->set_coefficient(1);
  term->add_atoms(0);
  const auto add = [&](v1::SizeField field, uint32_t owner, uint32_t element) {
    v1::SizePlace* place = sizes->add_places();
    place->set_field(field);
    place->set_owner(owner);
    place->set_element(element);
  };
  add(v1::SIZE_FIELD_DIM, 0, 0);
  add(v1::SIZE_FIELD_DIM, 2, 0);
  add(v1::SIZE_FIELD_DIM, 4, 1);
  add(v1::SIZE_FIELD_DIM, 6, 1);
  add(v1::SIZE_FIELD_OUTPUT_STRIDE, 1, 0);
  v1::SizeFact* fact = sizes->add_facts();
  fact->set_relation(v1::SIZE_RELATION_NOT_ZERO);
}

// A node behind those of the graph.
v1::Node* AppendNode(v1::Graph& g, const std::string& op, const std::vector<uint32_t>& operands) {
  v1::Node* node = g.add_nodes();
  node->set_id(static_cast<uint32_t>(g.nodes_size()) - 1);
  node->set_op(op);
  for (uint32_t operand : operands) node->add_operands()->set_node(operand);
  return node;
}

}  // namespace

v1::Graph LegalMessage() {
  auto g = ParseGraph(R"(graph "legal"
origin @0 op="aten.mul" instance=1
%0 = input name="x" kind=saved strides=[8,1] alignment=16  f32[4,8]
%1 = input name="w" kind=parameter  f32[8]
%2 = mul %0 %1  ; @0
%3 = sum %2 axes=[0]
%4 = permute %2 perm=[1,0]
%5 = input name="i" kind=saved  i64[3]
%6 = index_select %4 %5 axis=0
output %3 name="w"
output %4 name="x" strides=[4,1]
output %6
)");
  REQUIRE(g.status().ToString() == "OK");
  v1::Graph message;
  REQUIRE(message.ParseFromString(SerializeGraph(*g)));
  AddSizes(message);
  return message;
}

v1::Attr* AttributeOf(v1::Node* node, const std::string& name) {
  for (v1::Attr& attr : *node->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  v1::Attr* attr = node->add_attrs();
  attr->set_name(name);
  return attr;
}

void SetInts(v1::Node* node, const std::string& name, const std::vector<int64_t>& values) {
  v1::IntList* list = AttributeOf(node, name)->mutable_ints();
  list->clear_values();
  for (int64_t v : values) list->add_values(v);
}

void SetShape(v1::TensorType* type, const std::vector<int64_t>& dims) {
  type->clear_dims();
  for (int64_t d : dims) type->add_dims(d);
}

const std::vector<MalformedGraph>& MalformedGraphs() {
  using M = Malformation;
  static const auto& cases = *new std::vector<MalformedGraph>{
      {M::kMajorVersion, "no version", "version 0", [](v1::Graph& g) { g.clear_schema_major(); }},
      {M::kMajorVersion, "the next version", "version 2",
       [](v1::Graph& g) { g.set_schema_major(2); }},
      {M::kRequiredFeature, "an unknown required feature", "\"symbolic_dims\"",
       [](v1::Graph& g) { g.add_required_features("symbolic_dims"); }},
      {M::kEmptyFile, "no nodes", "no node", [](v1::Graph& g) { g.clear_nodes(); }},
      {M::kBadString, "a name with a newline", "node %0",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_input()->set_name("a\nb"); }},
      {M::kBadString, "a module path of 201 bytes", "origin 0",
       [](v1::Graph& g) { g.mutable_origins(0)->set_module_path(std::string(201, 'a')); }},
      {M::kBadString, "a graph's name with an escape", "graph's name",
       [](v1::Graph& g) { g.set_name("\x1b[2J"); }},
      {M::kBadString, "an output's name with a C1 control", "output 0",
       [](v1::Graph& g) { g.mutable_outputs(0)->set_name("a\xc2\x9b"); }},
      {M::kIdOrder, "an id left out", "node %2",
       [](v1::Graph& g) { g.mutable_nodes(2)->set_id(3); }},
      {M::kDuplicateId, "an id twice", "node %2", [](v1::Graph& g) { g.mutable_nodes(2)->set_id(1); }},
      {M::kForwardOperand, "a node that reads itself", "node %2",
       [](v1::Graph& g) { g.mutable_nodes(2)->mutable_operands(0)->set_node(2); }},
      {M::kForwardOperand, "a cycle of two", "node %2",
       [](v1::Graph& g) { g.mutable_nodes(2)->mutable_operands(1)->set_node(3); }},
      {M::kDanglingOperand, "an operand beyond the graph", "node %2",
       [](v1::Graph& g) { g.mutable_nodes(2)->mutable_operands(1)->set_node(77); }},
      {M::kOperandResult, "a result that the producer lacks", "node %2",
       [](v1::Graph& g) { g.mutable_nodes(2)->mutable_operands(1)->set_result(1); }},
      {M::kUnknownOp, "an unknown op", "node %2: op \"mull\" is unknown; near it: full, mul",
       [](v1::Graph& g) { g.mutable_nodes(2)->set_op("mull"); }},
      {M::kUnknownOp, "no op", "node %2", [](v1::Graph& g) { g.mutable_nodes(2)->clear_op(); }},
      {M::kOperandCount, "too many operands", "node %2 (mul)",
       [](v1::Graph& g) { g.mutable_nodes(2)->add_operands(); }},
      {M::kOperandCount, "too few operands", "node %2 (mul)",
       [](v1::Graph& g) { g.mutable_nodes(2)->clear_operands(); }},
      {M::kOperandCount, "an input with an operand", "node %1 (input)",
       [](v1::Graph& g) { g.mutable_nodes(1)->add_operands(); }},
      {M::kOperandDType, "operands of two dtypes", "node %2 (mul)",
       [](v1::Graph& g) {
         g.mutable_nodes(1)->mutable_results(0)->set_dtype(v1::DTYPE_BF16);
       }},
      {M::kOperandShape, "shapes that do not broadcast", "node %2 (mul)",
       [](v1::Graph& g) { SetShape(g.mutable_nodes(1)->mutable_results(0), {7}); }},
      {M::kDeclaredType, "a wrong result shape", "node %3 (sum)",
       [](v1::Graph& g) { SetShape(g.mutable_nodes(3)->mutable_results(0), {9}); }},
      {M::kDeclaredType, "a wrong result dtype", "node %3 (sum)",
       [](v1::Graph& g) { g.mutable_nodes(3)->mutable_results(0)->set_dtype(v1::DTYPE_FP64); }},
      {M::kResultCount, "two results of one", "node %2 (mul)",
       [](v1::Graph& g) { *g.mutable_nodes(2)->add_results() = g.nodes(2).results(0); }},
      {M::kResultCount, "no result", "node %2 (mul)",
       [](v1::Graph& g) { g.mutable_nodes(2)->clear_results(); }},
      {M::kResultCount, "an input without a type", "node %0 (input)",
       [](v1::Graph& g) { g.mutable_nodes(0)->clear_results(); }},
      {M::kUnknownDType, "dtype 0", "node %0",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_results(0)->clear_dtype(); }},
      {M::kUnknownDType, "dtype 99", "node %0",
       [](v1::Graph& g) {
         g.mutable_nodes(0)->mutable_results(0)->set_dtype(static_cast<v1::DType>(99));
       }},
      {M::kUnknownDType, "a cast to a dtype nobody knows", "node %7 (cast)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "cast", {0});
         AttributeOf(n, "dtype")->set_s("f31");
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kNegativeExtent, "a negative extent", "node %0",
       [](v1::Graph& g) { SetShape(g.mutable_nodes(0)->mutable_results(0), {4, -8}); }},
      {M::kTooManyElements, "a huge extent", "node %0",
       [](v1::Graph& g) {
         SetShape(g.mutable_nodes(0)->mutable_results(0), {std::numeric_limits<int64_t>::max()});
       }},
      {M::kTooManyElements, "a product that overflows 64 bits", "node %0",
       [](v1::Graph& g) {
         SetShape(g.mutable_nodes(0)->mutable_results(0), {int64_t{1} << 32, int64_t{1} << 32});
       }},
      {M::kTooManyElements, "a product that overflows behind a zero", "node %0",
       [](v1::Graph& g) {
         SetShape(g.mutable_nodes(0)->mutable_results(0),
                  {0, int64_t{1} << 40, int64_t{1} << 40});
       }},
      {M::kRankTooLarge, "13 dims", "node %0",
       [](v1::Graph& g) {
         SetShape(g.mutable_nodes(0)->mutable_results(0), std::vector<int64_t>(13, 1));
       }},
      {M::kMissingAttr, "a reduction without axes", "node %3 (sum)",
       [](v1::Graph& g) { g.mutable_nodes(3)->clear_attrs(); }},
      {M::kUnknownAttr, "an attribute of another op", "node %2 (mul)",
       [](v1::Graph& g) { AttributeOf(g.mutable_nodes(2), "axis")->set_i(0); }},
      {M::kUnknownAttr, "an input with an attribute", "node %0 (input)",
       [](v1::Graph& g) { AttributeOf(g.mutable_nodes(0), "axis")->set_i(0); }},
      {M::kDuplicateAttr, "an attribute twice", "node %3 (sum)",
       [](v1::Graph& g) { *g.mutable_nodes(3)->add_attrs() = g.nodes(3).attrs(0); }},
      {M::kAttrType, "axes as a string", "node %3 (sum)",
       [](v1::Graph& g) { AttributeOf(g.mutable_nodes(3), "axes")->set_s("0"); }},
      {M::kAttrType, "an attribute without a value", "node %3 (sum)",
       [](v1::Graph& g) { AttributeOf(g.mutable_nodes(3), "axes")->clear_value(); }},
      {M::kNotFinite, "a constant that is no number", "node %7 (full)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "full", {});
         AttributeOf(n, "dtype")->set_s("f32");
         SetInts(n, "shape", {});
         AttributeOf(n, "value")->set_f(std::nan(""));
         n->add_results()->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kAttrRange, "a flag of 2", "node %3 (sum)",
       [](v1::Graph& g) { AttributeOf(g.mutable_nodes(3), "keep")->set_i(2); }},
      {M::kAttrRange, "no axes", "node %3 (sum)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(3), "axes", {}); }},
      {M::kAxisRange, "axis 2 of 2 dims", "node %3 (sum)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(3), "axes", {2}); }},
      {M::kAxisRange, "axis -1", "node %6 (index_select)",
       [](v1::Graph& g) { AttributeOf(g.mutable_nodes(6), "axis")->set_i(-1); }},
      {M::kDuplicateAxis, "an axis twice", "node %3 (sum)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(3), "axes", {0, 0}); }},
      {M::kBadPermutation, "an axis twice in perm", "node %4 (permute)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(4), "perm", {1, 1}); }},
      {M::kBadPermutation, "perm of another rank", "node %4 (permute)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(4), "perm", {0}); }},
      {M::kReshapeCount, "a reshape to more elements", "node %7 (reshape)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "reshape", {0});
         SetInts(n, "shape", {4, 9});
         SetShape(n->add_results(), {4, 9});
         n->mutable_results(0)->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kSliceBounds, "a slice beyond its axis", "node %7 (slice)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "slice", {0});
         AttributeOf(n, "axis")->set_i(0);
         AttributeOf(n, "start")->set_i(0);
         AttributeOf(n, "stop")->set_i(5);
         AttributeOf(n, "step")->set_i(1);
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kExpandShape, "an expand of an extent of 8", "node %7 (expand)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "expand", {1});
         SetInts(n, "shape", {16});
         *n->add_results() = g.nodes(1).results(0);
       }},
      {M::kStrideRank, "one stride for two dims", "node %0 (input)",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_input()->mutable_strides()->RemoveLast(); }},
      {M::kStrideRange, "a negative stride", "node %0 (input)",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_input()->set_strides(0, -8); }},
      {M::kStrideRange, "a stride beyond any memory", "node %0 (input)",
       [](v1::Graph& g) {
         g.mutable_nodes(0)->mutable_input()->set_strides(0, std::numeric_limits<int64_t>::max());
       }},
      {M::kStrideOverlap, "an output that overlaps itself", "output 1",
       [](v1::Graph& g) { g.mutable_outputs(1)->set_strides(0, 3); }},
      {M::kStrideOverlap, "an output with a stride of 0", "output 1",
       [](v1::Graph& g) { g.mutable_outputs(1)->set_strides(0, 0); }},
      {M::kStrideRank, "an output with too many strides", "output 1",
       [](v1::Graph& g) { g.mutable_outputs(1)->add_strides(1); }},
      {M::kOutputValue, "an output of a missing node", "output 0",
       [](v1::Graph& g) { g.mutable_outputs(0)->mutable_value()->set_node(99); }},
      {M::kOutputValue, "an output of a missing result", "output 0",
       [](v1::Graph& g) { g.mutable_outputs(0)->mutable_value()->set_result(1); }},
      {M::kOutputValue, "an output that is nothing", "output 2",
       [](v1::Graph& g) { g.mutable_outputs(2)->clear_kind(); }},
      {M::kAlignment, "an alignment of 24", "node %0 (input)",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_input()->set_alignment(24); }},
      {M::kOriginIndex, "an origin beyond the table", "node %2 (mul)",
       [](v1::Graph& g) { g.mutable_nodes(2)->set_origin(2); }},
      {M::kInputInfo, "an input without its description", "node %0 (input)",
       [](v1::Graph& g) { g.mutable_nodes(0)->clear_input(); }},
      {M::kInputInfo, "a description on a mul", "node %2 (mul)",
       [](v1::Graph& g) { g.mutable_nodes(2)->mutable_input(); }},
      {M::kInputKind, "an input of no kind", "node %0 (input)",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_input()->clear_kind(); }},
      {M::kInputKind, "an input of kind 256", "node %0 (input)",
       [](v1::Graph& g) {
         g.mutable_nodes(0)->mutable_input()->set_kind(static_cast<v1::InputKind>(256 + 1));
       }},
      {M::kMatmulShape, "a matmul whose inner extents differ", "node %7 (matmul)",
       [](v1::Graph& g) {
         *AppendNode(g, "matmul", {0, 0})->add_results() = g.nodes(0).results(0);
       }},
      {M::kGroupedMatMulShape, "groups that are no list", "node %8 (grouped_matmul)",
       [](v1::Graph& g) {
         v1::Node* ends = AppendNode(g, "input", {});
         ends->mutable_input()->set_kind(v1::INPUT_SAVED);
         ends->add_results()->set_dtype(v1::DTYPE_INT32);
         SetShape(ends->mutable_results(0), {3, 1});
         *AppendNode(g, "grouped_matmul", {0, 4, 7})->add_results() = g.nodes(0).results(0);
       }},
      {M::kAttentionShape, "attention over two dims", "node %7 (attention_backward)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "attention_backward", {0, 0, 0, 0, 0, 0});
         AttributeOf(n, "scale")->set_f(1);
         for (int i = 0; i < 3; ++i) *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kConvolutionShape, "a convolution of two dims", "node %7 (convolution)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "convolution", {0, 0});
         for (const char* name : {"dilation", "padding", "stride"}) SetInts(n, name, {});
         AttributeOf(n, "groups")->set_i(1);
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kConvolutionShape, "a gradient of another output",
       "node %8 (convolution_weight_gradient)",
       [](v1::Graph& g) {
         v1::Node* x = AppendNode(g, "input", {});
         x->mutable_input()->set_kind(v1::INPUT_SAVED);
         x->add_results()->set_dtype(v1::DTYPE_FP32);
         SetShape(x->mutable_results(0), {2, 3, 5});
         v1::Node* n = AppendNode(g, "convolution_weight_gradient", {7, 7});
         for (const char* name : {"dilation", "stride"}) SetInts(n, name, {1});
         SetInts(n, "padding", {0});
         SetInts(n, "weight_shape", {3, 3, 2});
         AttributeOf(n, "groups")->set_i(1);
         *n->add_results() = x->results(0);
       }},
      {M::kSortedIndex, "a sum by a list that nothing has sorted", "node %8 (segment_add)",
       [](v1::Graph& g) {
         v1::Node* list = AppendNode(g, "input", {});
         list->mutable_input()->set_kind(v1::INPUT_SAVED);
         list->add_results()->set_dtype(v1::DTYPE_INT32);
         SetShape(list->mutable_results(0), {14});
         v1::Node* n = AppendNode(g, "segment_add", {0, 7, 0});
         AttributeOf(n, "axis")->set_i(0);
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kIndexDType, "a floating index", "node %6 (index_select)",
       [](v1::Graph& g) {
         g.mutable_nodes(5)->mutable_results(0)->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kAccumulateRegion, "a contribution that leaves the sum", "node %7 (accumulate)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "accumulate", {1});
         SetInts(n, "shape", {8});
         SetInts(n, "starts", {1});
         *n->add_results() = g.nodes(1).results(0);
       }},
      {M::kAccumulateRegion, "a region at the end of the integers", "node %7 (accumulate)",
       [](v1::Graph& g) {
         v1::Node* n = AppendNode(g, "accumulate", {1});
         SetInts(n, "shape", {8});
         SetInts(n, "starts", {std::numeric_limits<int64_t>::max()});
         *n->add_results() = g.nodes(1).results(0);
       }},
      {M::kEmptyReduction, "the maximum of nothing", "node %8 (amax)",
       [](v1::Graph& g) {
         v1::Node* input = AppendNode(g, "input", {});
         input->mutable_input()->set_kind(v1::INPUT_SAVED);
         input->add_results()->set_dtype(v1::DTYPE_FP32);
         SetShape(input->mutable_results(0), {0});
         v1::Node* n = AppendNode(g, "amax", {7});
         SetInts(n, "axes", {0});
         n->add_results()->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kSizeTable, "a size of a later atom", "atom 1 where 1 stand before",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_polynomials(0)->mutable_terms(0)->add_atoms(1); }},
      {M::kSizeTable, "an atom that is made of itself", "atom 1 where 1 stand before",
       [](v1::Graph& g) {
         v1::SizeAtom* atom = g.mutable_sizes()->add_atoms();
         atom->set_kind(v1::SIZE_ATOM_MAXIMUM);
         atom->mutable_left()->add_terms()->add_atoms(1);
       }},
      {M::kSizeTable, "an atom of an unknown kind", "kind 9",
       [](v1::Graph& g) {
         g.mutable_sizes()->mutable_atoms(0)->set_kind(static_cast<v1::SizeAtomKind>(9));
       }},
      {M::kSizeTable, "an atom of no symbol", "symbol 7 of 1",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_atoms(0)->set_symbol(7); }},
      {M::kSizeTable, "a hint out of its range", "rows (4; 5 to 100)",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_symbols(0)->set_min(5); }},
      {M::kSizeTable, "a hint that is no multiple", "a multiple of 3",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_symbols(0)->set_multiple_of(3); }},
      {M::kSizeTable, "a symbol that is a multiple of nothing", "a multiple of 0",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_symbols(0)->set_multiple_of(0); }},
      {M::kSizeTable, "two symbols of one name", "two symbols are called rows",
       [](v1::Graph& g) { *g.mutable_sizes()->add_symbols() = g.sizes().symbols(0); }},
      {M::kSizeTable, "a symbol without a name", "name",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_symbols(0)->set_name(""); }},
      {M::kSizeTable, "a fact of no relation", "relation 0",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_facts(0)->clear_relation(); }},
      {M::kSizeTable, "a fact of no size", "size 3 of 1",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_facts(0)->set_polynomial(3); }},
      {M::kSizePlace, "a place of no field", "field 0",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_places(0)->clear_field(); }},
      {M::kSizePlace, "a place behind the dims", "dim 2 of result 0 of node %0",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_places(0)->set_element(2); }},
      {M::kSizePlace, "a place of no node", "node %7",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_places(3)->set_owner(7); }},
      {M::kSizePlace, "a place in an attribute that is no number", "attribute 1 of node %4",
       [](v1::Graph& g) {
         v1::SizePlace* place = g.mutable_sizes()->mutable_places(2);
         place->set_field(v1::SIZE_FIELD_ATTR);
         place->set_part(1);
       }},
      {M::kSizePlace, "a stride of what is no input", "stride 1 of node %4",
       [](v1::Graph& g) {
         g.mutable_sizes()->mutable_places(2)->set_field(v1::SIZE_FIELD_STRIDE);
       }},
      {M::kSizePlace, "a stride of no output", "output 3",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_places(4)->set_owner(3); }},
      {M::kSizePlace, "a place that is named twice", "named twice",
       [](v1::Graph& g) { *g.mutable_sizes()->add_places() = g.sizes().places(4); }},
      {M::kSizePlace, "an extent that is a quotient", "dim 0 of result 0 of node %0",
       [](v1::Graph& g) { g.mutable_sizes()->mutable_places(0)->set_divisor(1); }},
      {M::kSizeHint, "a size of another number", "is 4 and at the hints 8",
       [](v1::Graph& g) {
         g.mutable_sizes()->mutable_polynomials(0)->mutable_terms(0)->set_coefficient(2);
       }},
      {M::kSizeHint, "a fact that the hint breaks", "rows = 0",
       [](v1::Graph& g) {
         g.mutable_sizes()->mutable_facts(0)->set_relation(v1::SIZE_RELATION_ZERO);
       }},
      {M::kSizeHint, "a size beyond the integers", "beyond 64-bit",
       [](v1::Graph& g) {
         g.mutable_sizes()->mutable_polynomials(0)->mutable_terms(0)->set_coefficient(
             std::numeric_limits<int64_t>::max());
       }},
      {M::kSizeHint, "a size that is divided by nothing", "divided by 0",
       [](v1::Graph& g) {
         v1::SizeAtom* atom = g.mutable_sizes()->add_atoms();
         atom->set_kind(v1::SIZE_ATOM_FLOOR_DIV);
       }},
  };
  return cases;
}

void CheckRefused(const std::string& bytes, Malformation kind, absl::string_view place) {
  const std::clock_t begin = std::clock();  // of this process: a busy machine does not count
  const absl::StatusOr<BackwardGraph> graph = ParseGraphProto(bytes);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  REQUIRE_FALSE(graph.ok());
  const std::string message(graph.status().message());
  INFO(message);
  CHECK(absl::StartsWith(message, absl::StrCat(Info(kind).code, " (")));
  CHECK_THAT(message, ContainsSubstring(std::string(place)));
  CHECK(message.size() < 1000);
  CHECK(graph.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(seconds < 2);
}

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

std::string Delimited(int field, const std::string& payload) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(payload.size()) + payload;
}

const std::string kVersion1("\x08\x01");

}  // namespace retrograd
