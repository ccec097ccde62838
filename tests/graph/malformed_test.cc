// Files that are not graphs: each is refused with its code, its node named, quickly and in little
// memory. Every code that a file can cause has a case here.
#include <malloc.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/malformations.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

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

// %0 input x f32[4,8], %1 input w f32[8], %2 mul x w, %3 sum %2 axes=[0], %4 permute %2,
// %5 input index i64[3], %6 index_select, outputs %3 and %4.
v1::Graph Legal() {
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

v1::Attr* Attribute(v1::Node* node, const std::string& name) {
  for (v1::Attr& attr : *node->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  v1::Attr* attr = node->add_attrs();
  attr->set_name(name);
  return attr;
}

void SetInts(v1::Node* node, const std::string& name, const std::vector<int64_t>& values) {
  v1::IntList* list = Attribute(node, name)->mutable_ints();
  list->clear_values();
  for (int64_t v : values) list->add_values(v);
}

// A node behind the legal ones.
v1::Node* Append(v1::Graph& g, const std::string& op, const std::vector<uint32_t>& operands) {
  v1::Node* node = g.add_nodes();
  node->set_id(static_cast<uint32_t>(g.nodes_size()) - 1);
  node->set_op(op);
  for (uint32_t operand : operands) node->add_operands()->set_node(operand);
  return node;
}

struct Case {
  Malformation kind;
  absl::string_view name;
  absl::string_view place;  // what the message names
  std::function<void(v1::Graph&)> spoil;
};

void SetShape(v1::TensorType* type, const std::vector<int64_t>& dims) {
  type->clear_dims();
  for (int64_t d : dims) type->add_dims(d);
}

const std::vector<Case>& Cases() {
  using M = Malformation;
  static const auto& cases = *new std::vector<Case>{
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
         v1::Node* n = Append(g, "cast", {0});
         Attribute(n, "dtype")->set_s("f31");
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
       [](v1::Graph& g) { Attribute(g.mutable_nodes(2), "axis")->set_i(0); }},
      {M::kUnknownAttr, "an input with an attribute", "node %0 (input)",
       [](v1::Graph& g) { Attribute(g.mutable_nodes(0), "axis")->set_i(0); }},
      {M::kDuplicateAttr, "an attribute twice", "node %3 (sum)",
       [](v1::Graph& g) { *g.mutable_nodes(3)->add_attrs() = g.nodes(3).attrs(0); }},
      {M::kAttrType, "axes as a string", "node %3 (sum)",
       [](v1::Graph& g) { Attribute(g.mutable_nodes(3), "axes")->set_s("0"); }},
      {M::kAttrType, "an attribute without a value", "node %3 (sum)",
       [](v1::Graph& g) { Attribute(g.mutable_nodes(3), "axes")->clear_value(); }},
      {M::kNotFinite, "a constant that is no number", "node %7 (full)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "full", {});
         Attribute(n, "dtype")->set_s("f32");
         SetInts(n, "shape", {});
         Attribute(n, "value")->set_f(std::nan(""));
         n->add_results()->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kAttrRange, "a flag of 2", "node %3 (sum)",
       [](v1::Graph& g) { Attribute(g.mutable_nodes(3), "keep")->set_i(2); }},
      {M::kAttrRange, "no axes", "node %3 (sum)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(3), "axes", {}); }},
      {M::kAxisRange, "axis 2 of 2 dims", "node %3 (sum)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(3), "axes", {2}); }},
      {M::kAxisRange, "axis -1", "node %6 (index_select)",
       [](v1::Graph& g) { Attribute(g.mutable_nodes(6), "axis")->set_i(-1); }},
      {M::kDuplicateAxis, "an axis twice", "node %3 (sum)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(3), "axes", {0, 0}); }},
      {M::kBadPermutation, "an axis twice in perm", "node %4 (permute)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(4), "perm", {1, 1}); }},
      {M::kBadPermutation, "perm of another rank", "node %4 (permute)",
       [](v1::Graph& g) { SetInts(g.mutable_nodes(4), "perm", {0}); }},
      {M::kReshapeCount, "a reshape to more elements", "node %7 (reshape)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "reshape", {0});
         SetInts(n, "shape", {4, 9});
         SetShape(n->add_results(), {4, 9});
         n->mutable_results(0)->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kSliceBounds, "a slice beyond its axis", "node %7 (slice)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "slice", {0});
         Attribute(n, "axis")->set_i(0);
         Attribute(n, "start")->set_i(0);
         Attribute(n, "stop")->set_i(5);
         Attribute(n, "step")->set_i(1);
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kExpandShape, "an expand of an extent of 8", "node %7 (expand)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "expand", {1});
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
         *Append(g, "matmul", {0, 0})->add_results() = g.nodes(0).results(0);
       }},
      {M::kGroupedMatMulShape, "groups that are no list", "node %8 (grouped_matmul)",
       [](v1::Graph& g) {
         v1::Node* ends = Append(g, "input", {});
         ends->mutable_input()->set_kind(v1::INPUT_SAVED);
         ends->add_results()->set_dtype(v1::DTYPE_INT32);
         SetShape(ends->mutable_results(0), {3, 1});
         *Append(g, "grouped_matmul", {0, 4, 7})->add_results() = g.nodes(0).results(0);
       }},
      {M::kAttentionShape, "attention over two dims", "node %7 (attention_backward)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "attention_backward", {0, 0, 0, 0, 0, 0});
         Attribute(n, "scale")->set_f(1);
         for (int i = 0; i < 3; ++i) *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kConvolutionShape, "a convolution of two dims", "node %7 (convolution)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "convolution", {0, 0});
         for (const char* name : {"dilation", "padding", "stride"}) SetInts(n, name, {});
         Attribute(n, "groups")->set_i(1);
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kConvolutionShape, "a gradient of another output",
       "node %8 (convolution_weight_gradient)",
       [](v1::Graph& g) {
         v1::Node* x = Append(g, "input", {});
         x->mutable_input()->set_kind(v1::INPUT_SAVED);
         x->add_results()->set_dtype(v1::DTYPE_FP32);
         SetShape(x->mutable_results(0), {2, 3, 5});
         v1::Node* n = Append(g, "convolution_weight_gradient", {7, 7});
         for (const char* name : {"dilation", "stride"}) SetInts(n, name, {1});
         SetInts(n, "padding", {0});
         SetInts(n, "weight_shape", {3, 3, 2});
         Attribute(n, "groups")->set_i(1);
         *n->add_results() = x->results(0);
       }},
      {M::kSortedIndex, "a sum by a list that nothing has sorted", "node %8 (segment_add)",
       [](v1::Graph& g) {
         v1::Node* list = Append(g, "input", {});
         list->mutable_input()->set_kind(v1::INPUT_SAVED);
         list->add_results()->set_dtype(v1::DTYPE_INT32);
         SetShape(list->mutable_results(0), {14});
         v1::Node* n = Append(g, "segment_add", {0, 7, 0});
         Attribute(n, "axis")->set_i(0);
         *n->add_results() = g.nodes(0).results(0);
       }},
      {M::kIndexDType, "a floating index", "node %6 (index_select)",
       [](v1::Graph& g) {
         g.mutable_nodes(5)->mutable_results(0)->set_dtype(v1::DTYPE_FP32);
       }},
      {M::kAccumulateRegion, "a contribution that leaves the sum", "node %7 (accumulate)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "accumulate", {1});
         SetInts(n, "shape", {8});
         SetInts(n, "starts", {1});
         *n->add_results() = g.nodes(1).results(0);
       }},
      {M::kAccumulateRegion, "a region at the end of the integers", "node %7 (accumulate)",
       [](v1::Graph& g) {
         v1::Node* n = Append(g, "accumulate", {1});
         SetInts(n, "shape", {8});
         SetInts(n, "starts", {std::numeric_limits<int64_t>::max()});
         *n->add_results() = g.nodes(1).results(0);
       }},
      {M::kEmptyReduction, "the maximum of nothing", "node %8 (amax)",
       [](v1::Graph& g) {
         v1::Node* input = Append(g, "input", {});
         input->mutable_input()->set_kind(v1::INPUT_SAVED);
         input->add_results()->set_dtype(v1::DTYPE_FP32);
         SetShape(input->mutable_results(0), {0});
         v1::Node* n = Append(g, "amax", {7});
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

// Refused with the code, quickly.
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

TEST_CASE("every malformed graph is refused with its code and its place") {
  REQUIRE(ParseGraphProto(Legal().SerializeAsString()).status().ToString() == "OK");
  for (const Case& c : Cases()) {
    INFO(std::string(c.name));
    v1::Graph g = Legal();
    c.spoil(g);
    CheckRefused(g.SerializeAsString(), c.kind, c.place);
  }
}

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

std::string Delimited(int field, const std::string& payload) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(payload.size()) + payload;
}

const std::string kVersion1 = std::string("\x08\x01", 2);  // schema_major: 1

TEST_CASE("bytes that are no graph are refused by their frame") {
  using M = Malformation;
  const std::string legal = Legal().SerializeAsString();
  CheckRefused("", M::kEmptyFile, "empty");
  CheckRefused("PK\x03\x04 a zip file, say", M::kNotAGraph, "not a graph file");
  CheckRefused("hello, world", M::kNotAGraph, "not a graph file");
  CheckRefused(std::string(100, '\xff'), M::kNotAGraph, "ten bytes");
  CheckRefused(std::string(1, '\0'), M::kNotAGraph, "number 0");
  CheckRefused(kVersion1 + "\x3f", M::kNotAGraph, "wire type 7");
  CheckRefused(kVersion1 + "\x38\x01", M::kNotAGraph, "nodes has wire type 0");
  CheckRefused(legal.substr(0, legal.size() - 1), M::kTruncated, "truncated");
  // 8 GiB claimed for a node, in a file of a kilobyte.
  CheckRefused(kVersion1 + "\x3a" + Varint(uint64_t{8} << 30) + std::string(1000, '\0'),
               M::kLengthClaim, "8589934592");
  CheckRefused(kVersion1 + "\x3a" + Varint(1 << 30) + std::string(1000, '\0'), M::kTruncated,
               "1073741824");
  CheckRefused(kVersion1 + Delimited(7,
                                     "\x12\x7f"
                                     "mul"),
               M::kTruncated, "node %0");
}

TEST_CASE("every cut of a legal file is refused or a graph with fewer outputs or no symbols") {
  const std::string legal = Legal().SerializeAsString();
  for (size_t length = 0; length < legal.size(); ++length) {
    INFO("length " << length);
    auto g = ParseGraphProto(legal.substr(0, length));
    if (g.ok()) CHECK((g->outputs().size() < 3 || SymbolsOf(*g)->empty()));
  }
}

// Peak resident memory in bytes since the last call; -1 where the system does not tell.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  int64_t peak = -1;
  while (std::getline(status, line)) {
    int64_t kib;
    if (absl::StartsWith(line, "VmHWM:") &&
        absl::SimpleAtoi(absl::string_view(line).substr(6, line.find("kB") - 6), &kib)) {
      peak = kib * 1024;
    }
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return peak;
}

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST_CASE("files that swell when they are read are refused within 8 times their size + 64 MiB") {
  using M = Malformation;
  struct Bomb {
    absl::string_view name;
    Malformation kind;
    std::string bytes;
  };
  std::string names_nothing;  // legal inputs, as many as may be, then one that is not
  for (uint32_t id = 0; id < (1u << 18) - 1; ++id) {
    v1::Node node;
    node.set_id(id);
    node.set_op("input");
    node.add_results()->set_dtype(v1::DTYPE_FP32);
    node.mutable_input()->set_kind(v1::INPUT_SAVED);
    names_nothing += Delimited(7, node.SerializeAsString());
  }
  names_nothing += Delimited(7, "");
  v1::Node first;
  first.set_op("input");
  first.add_results()->set_dtype(v1::DTYPE_FP32);
  first.mutable_input()->set_kind(v1::INPUT_SAVED);
  const std::string input = first.SerializeAsString();
  const std::string type = Delimited(4, "");
  const Bomb bombs[] = {
      {"empty nodes", M::kTooMany, kVersion1 + Repeat(Delimited(7, ""), 5'000'000)},
      {"empty origins", M::kTooMany,
       kVersion1 + Repeat(Delimited(6, ""), 5'000'000) + Delimited(7, "")},
      {"empty outputs", M::kTooMany,
       kVersion1 + Repeat(Delimited(8, ""), 5'000'000) + Delimited(7, "")},
      {"empty operands", M::kTooMany,
       kVersion1 + Delimited(7, Repeat(Delimited(3, ""), 5'000'000))},
      {"empty types", M::kTooMany, kVersion1 + Delimited(7, Repeat(type, 5'000'000))},
      {"empty attributes", M::kTooMany,
       kVersion1 + Delimited(7, Repeat(Delimited(5, ""), 5'000'000))},
      {"unknown fields", M::kTooMany,
       kVersion1 + Delimited(7, Repeat(std::string("\xa0\x06\x01", 3), 5'000'000))},
      {"a long list", M::kTooMany,
       kVersion1 +
           Delimited(7, Delimited(5, Delimited(5, Delimited(1, Repeat("\x01", 20'000'000)))))},
      {"many dims", M::kRankTooLarge,
       kVersion1 + Delimited(7, Delimited(4, Delimited(2, Repeat("\x01", 20'000'000))))},
      {"a long name", M::kBadString,
       kVersion1 + Delimited(7, Delimited(2, Repeat("a", 20'000'000)))},
      {"empty symbols", M::kTooMany,
       kVersion1 + Delimited(7, input) + Delimited(9, Repeat(Delimited(1, ""), 5'000'000))},
      {"sizes of many terms", M::kTooMany,
       kVersion1 + Delimited(7, input) +
           Delimited(9, Repeat(Delimited(3, Repeat(Delimited(1, ""), 200'000)), 20))},
      {"a full graph whose last node is empty", M::kUnknownOp, kVersion1 + names_nothing},
  };
  for (const Bomb& bomb : bombs) {
    INFO(std::string(bomb.name) << ", " << bomb.bytes.size() << " bytes");
    malloc_trim(0);  // what was freed before must not hide what is taken now
    PeakBytes();
    const int64_t before = PeakBytes();
    CheckRefused(bomb.bytes, bomb.kind, "");
    const int64_t peak = PeakBytes();
    if (before < 0) continue;
    INFO("peak " << peak - before << " bytes");
    // The bytes themselves are the test's.
    CHECK(peak - before <= 7 * static_cast<int64_t>(bomb.bytes.size()) + (int64_t{64} << 20));
  }
}

// Not run by default: malformed_test "[.corpus]" writes what the fuzzer starts from, one file a
// malformation and small random graphs in both forms. The first byte is the fuzzer's own
// (tests/support/graphs/fuzz_input.h).
TEST_CASE("writes the corpus of the fuzzer", "[.corpus]") {
  const std::string folder = RETROGRAD_SOURCE_DIR "/tests/fuzz/corpus/";
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + name, std::ios::binary) << bytes;
  };
  int number = 0;
  for (const Case& c : Cases()) {
    v1::Graph g = Legal();
    c.spoil(g);
    write(absl::StrCat("malformed_", number++, "_", Info(c.kind).code),
          std::string(1, '\0') + g.SerializeAsString());
  }
  const std::string legal = Legal().SerializeAsString();
  write("malformed_truncated", std::string(1, '\0') + legal.substr(0, legal.size() - 1));
  write("malformed_length_claim",
        std::string(1, '\0') + kVersion1 + "\x3a" + Varint(uint64_t{8} << 30) + "abc");
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const BackwardGraph g = RandomGraph(seed, {.min_ops = 2, .max_ops = 6});
    const char header = static_cast<char>(2 * (seed * 5 % 128));
    write(absl::StrCat("random_", seed), header + SerializeGraph(g));
    if (seed < 6) write(absl::StrCat("text_", seed), static_cast<char>(header | 1) + Print(g));
  }
}

TEST_CASE("each malformation is refused within 64 MiB") {
  for (const Case& c : Cases()) {
    INFO(std::string(c.name));
    v1::Graph g = Legal();
    c.spoil(g);
    const std::string bytes = g.SerializeAsString();
    malloc_trim(0);
    PeakBytes();
    const int64_t before = PeakBytes();
    CheckRefused(bytes, c.kind, c.place);
    const int64_t peak = PeakBytes();
    if (before < 0) continue;
    CHECK(peak - before <= 8 * static_cast<int64_t>(bytes.size()) + (int64_t{64} << 20));
  }
}

// A node of one operand, as SerializeGraph writes it.
std::string Unary(uint32_t id, const std::string& op, uint32_t operand, const v1::TensorType& type,
                  const std::function<void(v1::Node*)>& attributes = nullptr) {
  v1::Node node;
  node.set_id(id);
  node.set_op(op);
  node.add_operands()->set_node(operand);
  *node.add_results() = type;
  if (attributes) attributes(&node);
  return Delimited(7, node.SerializeAsString());
}

std::string InputBytes(const v1::TensorType& type) {
  v1::Node node;
  node.set_op("input");
  *node.add_results() = type;
  node.mutable_input()->set_kind(v1::INPUT_SAVED);
  return Delimited(7, node.SerializeAsString());
}

// Graphs as large as are allowed, which are legal: nothing but their size is suspicious.
struct Large {
  std::string name, bytes;
};

std::vector<Large> LargeGraphs() {
  constexpr uint32_t kNodes = 1u << 18;
  v1::TensorType type;
  type.set_dtype(v1::DTYPE_FP32);
  SetShape(&type, {4, 8});
  v1::TensorType huge = type;
  SetShape(&huge, {int64_t{1} << 24, int64_t{1} << 24});
  const auto chain = [&](const std::string& op, const v1::TensorType& of,
                         const std::function<void(v1::Node*)>& attributes) {
    std::string bytes = kVersion1 + InputBytes(of);
    for (uint32_t id = 1; id < kNodes; ++id) bytes += Unary(id, op, id - 1, of, attributes);
    v1::Output output;
    output.mutable_value()->set_node(kNodes - 1);
    return bytes + Delimited(8, output.SerializeAsString());
  };
  std::vector<Large> graphs;
  graphs.push_back({"a chain as deep as can be", chain("relu", type, nullptr)});
  graphs.push_back({"a chain of views as deep as can be",
                    chain("flip", type, [](v1::Node* node) { SetInts(node, "axes", {1}); })});
  graphs.push_back({"huge tensors", chain("relu", huge, nullptr)});
  graphs.push_back({"long names", chain("relu", type, nullptr) +
                                      Repeat(Delimited(6,
                                                       [] {
                                                         v1::Origin origin;
                                                         origin.set_module_path(
                                                             std::string(200, 'm'));
                                                         return origin.SerializeAsString();
                                                       }()),
                                             100'000)});
  std::string fan = kVersion1 + InputBytes(type);
  for (uint32_t id = 1; id < kNodes; ++id) fan += Unary(id, "relu", 0, type);
  graphs.push_back({"one value that all others read", fan});
  return graphs;
}

TEST_CASE("the largest legal graphs load within two seconds and 8 times their size + 64 MiB") {
  for (const Large& large : LargeGraphs()) {
    INFO(large.name << ", " << large.bytes.size() << " bytes");
    malloc_trim(0);
    PeakBytes();
    const int64_t before = PeakBytes();
    const std::clock_t begin = std::clock();
    const absl::StatusOr<BackwardGraph> graph = ParseGraphProto(large.bytes);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const int64_t peak = PeakBytes();
    REQUIRE(graph.status().ToString() == "OK");
    INFO(seconds << " s, " << peak - before << " bytes");
    CHECK(seconds < 2);
    if (before < 0) continue;
    CHECK(peak - before <= 7 * static_cast<int64_t>(large.bytes.size()) + (int64_t{64} << 20));
  }
}

TEST_CASE("spoiled bytes never crash the reader, and what it accepts verifies") {
  int accepted = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const std::string bytes = SerializeGraph(RandomGraph(seed % 20));
    for (int trial = 0; trial < 20; ++trial) {
      std::string spoiled = bytes;
      for (uint32_t i = 0; i <= rng() % 3; ++i) {
        const size_t at = rng() % spoiled.size();
        switch (rng() % 3) {
          case 0: spoiled[at] = static_cast<char>(rng()); break;
          case 1: spoiled.erase(at, 1 + rng() % 4); break;
          default: spoiled.insert(at, 1, static_cast<char>(rng())); break;
        }
        if (spoiled.empty()) break;
      }
      auto g = ParseGraphProto(spoiled);
      if (!g.ok()) {
        CHECK(absl::StartsWith(g.status().message(), "RG-G"));
        continue;
      }
      ++accepted;
      CHECK(g->Verify().ok());
      auto back = ParseGraphProto(SerializeGraph(*g));
      REQUIRE(back.ok());
      CHECK(*back == *g);
    }
  }
  CHECK(accepted > 0);  // some spoil a name or an unread number
}

TEST_CASE("spoiled text never crashes the parser") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const std::string text = Print(RandomGraph(seed % 20));
    for (int trial = 0; trial < 20; ++trial) {
      std::string spoiled = text;
      for (int i = 0; i < 3; ++i) {
        const size_t at = rng() % spoiled.size();
        if (rng() % 2 == 0) {
          spoiled[at] = "%=[],.;@\"\\x0-9e\n"[rng() % 16];
        } else {
          spoiled.erase(at, 1 + rng() % 5);
        }
      }
      auto g = ParseGraph(spoiled);
      if (g.ok()) {
        CHECK(g->Verify().ok());
      } else {
        CHECK(absl::StartsWith(g.status().message(), "RG-G"));
      }
    }
  }
}

TEST_CASE("codes are unique, ascend, and each has a case or a reason to have none") {
  std::set<Malformation> covered = {// Of bytes, above.
                                    Malformation::kNotAGraph, Malformation::kTruncated,
                                    Malformation::kLengthClaim, Malformation::kTooMany,
                                    // Of text: text_test.cc. A file beyond 2 GiB is not made here.
                                    Malformation::kTextSyntax, Malformation::kUndefinedName,
                                    Malformation::kFileTooLarge};
  for (const Case& c : Cases()) covered.insert(c.kind);
  constexpr int kFree = 22;  // of a rule that there is none of; a code never means another one
  int number = 0;
  for (const MalformationInfo& info : AllMalformations()) {
    INFO(std::string(info.code));
    if (++number == kFree) ++number;
    CHECK(info.code == absl::StrFormat("RG-G%03d", number));
    CHECK(covered.count(info.kind) == 1);
    CHECK_FALSE(info.rule.empty());
  }
}

TEST_CASE("docs/malformations.md is the table") {
  std::ifstream file(RETROGRAD_SOURCE_DIR "/docs/malformations.md");
  REQUIRE(file.good());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const MalformationInfo& info : AllMalformations()) {
    CHECK_THAT(text, ContainsSubstring(absl::StrCat("| ", info.code, " | ", info.invariant, " | ",
                                                    info.rule, " |\n")));
  }
}

}  // namespace
}  // namespace retrograd
