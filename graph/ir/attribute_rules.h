// Which attributes each op takes, of which type; ranges are checked with the shapes.
#ifndef RETROGRAD_GRAPH_IR_ATTRIBUTE_RULES_H_
#define RETROGRAD_GRAPH_IR_ATTRIBUTE_RULES_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

enum class AttrKind : uint8_t {
  kInt,
  kNumber,    // int or double, finite
  kExtended,  // int or double; infinities too, but no NaN
  kFlag,      // int, 0 or 1
  kDType,     // string, a dtype's name
  kString,
  kInts,
};

struct AttrRule {
  absl::string_view name;
  AttrKind kind;
  bool required = true;
};

absl::string_view Describe(AttrKind kind);  // "an integer"
absl::Span<const AttrRule> AttrRules(Op op);

// OK if `attrs` has every required attribute, no unknown one, and each of its type.
absl::Status CheckAttrs(Op op, const Attrs& attrs);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_ATTRIBUTE_RULES_H_
