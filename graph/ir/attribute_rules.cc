#include "graph/ir/attribute_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/malformations.h"
#include "graph/base/near_names.h"
#include "graph/base/status.h"
#include "graph/ir/library_ops.h"

namespace retrograd {
namespace {

constexpr AttrRule kFull[] = {
    {"dtype", AttrKind::kDType}, {"shape", AttrKind::kInts}, {"value", AttrKind::kExtended}};
constexpr AttrRule kIota[] = {{"axis", AttrKind::kInt},
                              {"dtype", AttrKind::kDType},
                              {"shape", AttrKind::kInts},
                              {"start", AttrKind::kInt},
                              {"step", AttrKind::kInt}};
constexpr AttrRule kCast[] = {{"dtype", AttrKind::kDType}};
constexpr AttrRule kReduce[] = {{"axes", AttrKind::kInts}, {"keep", AttrKind::kFlag, false}};
constexpr AttrRule kShape[] = {{"shape", AttrKind::kInts}};
constexpr AttrRule kPerm[] = {{"perm", AttrKind::kInts}};
constexpr AttrRule kSlice[] = {{"axis", AttrKind::kInt},
                               {"start", AttrKind::kInt},
                               {"step", AttrKind::kInt},
                               {"stop", AttrKind::kInt}};
constexpr AttrRule kAxes[] = {{"axes", AttrKind::kInts}};
constexpr AttrRule kPad[] = {
    {"high", AttrKind::kInts}, {"low", AttrKind::kInts}, {"value", AttrKind::kExtended, false}};
constexpr AttrRule kAxis[] = {{"axis", AttrKind::kInt}};
constexpr AttrRule kSegmentAdd[] = {{"axis", AttrKind::kInt},
                                    {"dtype", AttrKind::kDType, false},
                                    {"in_order", AttrKind::kFlag, false}};
constexpr AttrRule kScan[] = {{"axis", AttrKind::kInt}, {"reverse", AttrKind::kFlag, false}};
constexpr AttrRule kRegions[] = {{"shape", AttrKind::kInts}, {"starts", AttrKind::kInts}};

absl::Status CheckValue(const AttrRule& rule, const AttrValue& value) {
  const auto wrong_type = [&] {
    return Malformed(Malformation::kAttrType,
                     absl::StrCat("attribute ", rule.name, " has to be ", Describe(rule.kind)));
  };
  const int64_t* integer = std::get_if<int64_t>(&value);
  const double* number = std::get_if<double>(&value);
  switch (rule.kind) {
    case AttrKind::kInt:
      if (integer == nullptr) return wrong_type();
      break;
    case AttrKind::kFlag:
      if (integer == nullptr) return wrong_type();
      if (*integer != 0 && *integer != 1) {
        return Malformed(Malformation::kAttrRange, absl::StrCat("attribute ", rule.name, " is ",
                                                                *integer, "; it has to be 0 or 1"));
      }
      break;
    case AttrKind::kNumber:
    case AttrKind::kExtended:
      if (integer == nullptr && number == nullptr) return wrong_type();
      if (number != nullptr &&
          (std::isnan(*number) || (rule.kind == AttrKind::kNumber && !std::isfinite(*number)))) {
        return Malformed(Malformation::kNotFinite,
                         absl::StrCat("attribute ", rule.name, " is ", *number));
      }
      break;
    case AttrKind::kDType: {
      const std::string* name = std::get_if<std::string>(&value);
      if (name == nullptr) return wrong_type();
      if (!DTypeByName(*name).has_value()) {
        return Malformed(
            Malformation::kUnknownDType,
            absl::StrCat("attribute ", rule.name, " is no dtype; the dtypes are ",
                         absl::StrJoin(kAllDTypes, ", ", [](std::string* out, DType dtype) {
                           absl::StrAppend(out, Name(dtype));
                         })));
      }
      break;
    }
    case AttrKind::kString:
      if (!std::holds_alternative<std::string>(value)) return wrong_type();
      break;
    case AttrKind::kInts:
      if (!std::holds_alternative<std::vector<int64_t>>(value)) return wrong_type();
      break;
  }
  return absl::OkStatus();
}

absl::Status UnknownAttr(absl::Span<const AttrRule> rules) {
  if (rules.empty()) return Malformed(Malformation::kUnknownAttr, "the op takes no attributes");
  return Malformed(
      Malformation::kUnknownAttr,
      absl::StrCat("an attribute is none of those that the op takes: ",
                   absl::StrJoin(rules, ", ", [](std::string* out, const AttrRule& rule) {
                     absl::StrAppend(out, rule.name);
                   })));
}

}  // namespace

absl::string_view Describe(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return "an integer";
    case AttrKind::kNumber:
    case AttrKind::kExtended: return "a number";
    case AttrKind::kFlag: return "0 or 1";
    case AttrKind::kDType: return "the name of a dtype";
    case AttrKind::kString: return "a string";
    case AttrKind::kInts: return "a list of integers";
  }
  return "";
}

absl::Span<const AttrRule> AttrRules(Op op) {
  if (PatternOf(op) == Pattern::kLibrary) return LibraryOpOf(op).attrs;
  switch (op) {
    case Op::full: return kFull;
    case Op::iota: return kIota;
    case Op::cast: return kCast;
    case Op::sum:
    case Op::amax:
    case Op::amin: return kReduce;
    case Op::reshape:
    case Op::expand: return kShape;
    case Op::permute: return kPerm;
    case Op::slice:
    case Op::slice_scatter: return kSlice;
    case Op::flip: return kAxes;
    case Op::pad: return kPad;
    case Op::cat:
    case Op::index_select:
    case Op::gather:
    case Op::index_add: return kAxis;
    case Op::segment_add: return kSegmentAdd;
    case Op::accumulate: return kRegions;
    case Op::cumsum:
    case Op::cumprod: return kScan;
    default: return {};
  }
}

absl::Status CheckAttrs(Op op, const Attrs& attrs) {
  const absl::Span<const AttrRule> rules = AttrRules(op);
  size_t found = 0;
  for (const AttrRule& rule : rules) {
    const AttrValue* value = attrs.Find(rule.name);
    if (value == nullptr) {
      if (!rule.required) continue;
      return Malformed(
          Malformation::kMissingAttr,
          absl::StrCat("attribute ", rule.name, " is missing; it is ", Describe(rule.kind)));
    }
    ++found;
    RG_RETURN_IF_ERROR(CheckValue(rule, *value));
  }
  if (found != attrs.all().size()) return UnknownAttr(rules);
  return absl::OkStatus();
}

}  // namespace retrograd
