// A legal graph as a message, the ways to spoil it so that it is refused, and bytes of the wire
// format.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MALFORMED_GRAPHS_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MALFORMED_GRAPHS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "graph/base/malformations.h"
#include "graph/proto/graph.pb.h"

namespace retrograd {

// %0 input x f32[4,8], %1 input w f32[8], %2 mul x w, %3 sum %2 axes=[0], %4 permute %2,
// %5 input index i64[3], %6 index_select, outputs %3 and %4. Its extent 4 is a symbol.
v1::Graph LegalMessage();

// The legal graph with one fault. Every code that a message can cause has one.
struct MalformedGraph {
  Malformation kind;
  absl::string_view name;
  absl::string_view place;  // what the refusal names
  std::function<void(v1::Graph&)> spoil;
};
const std::vector<MalformedGraph>& MalformedGraphs();

// That the bytes are refused with this code and place, within two seconds of the processor.
void CheckRefused(const std::string& bytes, Malformation kind, absl::string_view place);

// The attribute of this name, made if there is none.
v1::Attr* AttributeOf(v1::Node* node, const std::string& name);
void SetInts(v1::Node* node, const std::string& name, const std::vector<int64_t>& values);
void SetShape(v1::TensorType* type, const std::vector<int64_t>& dims);

// Of the wire format: a number, a field with its length and payload, schema_major: 1.
std::string Varint(uint64_t value);
std::string Delimited(int field, const std::string& payload);
extern const std::string kVersion1;

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MALFORMED_GRAPHS_H_
