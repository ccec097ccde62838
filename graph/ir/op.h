// The op table: every op's name, arity, pattern, expression, price class and reference, from the
// rows of ops.def. Later stages switch on the pattern and never on the op.
#ifndef RETROGRAD_GRAPH_IR_OP_H_
#define RETROGRAD_GRAPH_IR_OP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

// How an op walks its tensors: what every stage after the graph dispatches on.
enum class Pattern : uint8_t {
  kInput,
  kPointwise,  // result[i] = f(operands[i]), operands broadcast like numpy; no operand: a constant
  kReduction,  // folds some axes of its one operand
  kLibrary,    // stays whole for a library call (graph/ir/library_ops.h)
  kView,     // result[i] = operand[g(i)], or a fill where g(i) falls outside; moves no data itself
  kJoin,     // result[i] = the one of several operands whose region holds i (cat, slice_scatter)
  kGather,   // result[i] = operand[.., index[..], ..]
  kScatter,  // result[.., index[..], ..] += operand[i]
  kAccumulate,  // result = sum of contributions, each in its region; zero where none
  kScan,        // result[i] folds the elements up to i along one axis
  kComposite,   // expands to the others before planning
};
absl::string_view Name(Pattern pattern);

// How the result's dtype follows from the operands'.
enum class TypeRule : uint8_t {
  kSame,        // all operands and the result share one dtype
  kFloat,       // the same, and it is a floating type
  kCompare,     // operands share one dtype, the result is bool
  kLogical,     // operands and result are bool
  kSelect,      // (bool, T, T) -> T
  kCast,        // any -> attribute "dtype"
  kConstant,    // no operand: attribute "dtype"
  kStructural,  // structural_ops.cc says
};

// What one evaluation costs; a DeviceSpec prices each class.
enum class CostClass : uint8_t {
  kFree,         // constants, indices
  kSimple,       // add, mul, compare, select, convert
  kDivide,       // div, reciprocal, sqrt
  kExponential,  // exp, exp2, rsqrt: a special-function instruction and one or two more
  kSpecial,      // log, tanh, sin, sigmoid: such instructions and several more
  kErf,          // polynomial evaluations: erf, pow, fmod
};
inline constexpr int kNumCostClasses = 6;

enum class Op : uint8_t {
#define RG_OP(NAME, ...) NAME,
#include "graph/ir/ops.def"
#undef RG_OP
};
inline constexpr int kNumOps = 0
#define RG_OP(NAME, ...) +1
#include "graph/ir/ops.def"
#undef RG_OP
    ;

// The arithmetic of a pointwise op or the combiner of a reduction, in double.
using ReferenceFn = double (*)(const double* operands);

struct OpInfo {
  Op op;
  absl::string_view name;
  int min_operands;
  int max_operands;  // -1: any number
  Pattern pattern;
  TypeRule type_rule;
  CostClass cost = CostClass::kFree;
  // The result in terms of $0, $1, ...: C operators and the rg_ functions of the dialect prelude,
  // which are overloaded for each compute type. For a reduction: $0 accumulator, $1 element.
  absl::string_view expr = "";
  ReferenceFn reference = nullptr;  // the same arithmetic in double, written apart from expr
  double identity = 0;              // reductions: the accumulator's start
  // Composites: the definition as text in terms of the named operands, see composites.h.
  absl::string_view expand = "";
  // What it computes, where expr does not say it: a line of docs/ops.md.
  absl::string_view meaning = "";
};

const OpInfo& Info(Op op);
inline absl::string_view Name(Op op) { return Info(op).name; }
inline constexpr Pattern kPatterns[] = {
#define RG_OP(NAME, MIN, MAX, PATTERN, ...) Pattern::PATTERN,
#include "graph/ir/ops.def"
#undef RG_OP
};
inline Pattern PatternOf(Op op) { return kPatterns[static_cast<int>(op)]; }
std::optional<Op> OpByName(absl::string_view name);
std::string NearOpNames(absl::string_view name);  // "mul, div", for error messages; may be empty
absl::Span<const OpInfo> AllOps();

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_OP_H_
