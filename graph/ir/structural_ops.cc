#include "graph/ir/structural_ops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/attribute_rules.h"
#include "graph/ir/composites.h"
#include "graph/ir/library_ops.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {
namespace {

using Types = std::vector<TensorType>;
using Operands = absl::Span<const TensorType* const>;

std::string Print(absl::Span<const int64_t> list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

std::string PrintOperands(Operands operands) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < operands.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", operands[i]->Print());
  }
  if (operands.size() > kShown) absl::StrAppend(&text, ", ...");
  return text;
}

absl::Status BadDType(Operands operands, absl::string_view rule) {
  return Malformed(Malformation::kOperandDType,
                   absl::StrCat("operands ", PrintOperands(operands), ": ", rule));
}

absl::Status BadShape(Operands operands, absl::string_view rule) {
  return Malformed(Malformation::kOperandShape,
                   absl::StrCat("operands ", PrintOperands(operands), ": ", rule));
}

absl::StatusOr<TensorType> Checked(DType dtype, Shape shape) {
  RG_RETURN_IF_ERROR(CheckShape(shape));
  return TensorType{dtype, std::move(shape)};
}

absl::StatusOr<Types> One(DType dtype, Shape shape) {
  RG_ASSIGN_OR_RETURN(TensorType type, Checked(dtype, std::move(shape)));
  Types types;
  types.push_back(std::move(type));
  return types;
}

Shape Ints(const Attrs& attrs, absl::string_view name) {
  const absl::Span<const int64_t> list = attrs.Ints(name);
  return Shape(list.begin(), list.end());
}

bool SameDType(Operands operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [&](const TensorType* type) { return type->dtype == operands[0]->dtype; });
}

absl::StatusOr<int64_t> CheckedAxis(const Attrs& attrs, int rank) {
  const int64_t axis = attrs.Int("axis");
  if (axis >= 0 && axis < rank) return axis;
  return Malformed(Malformation::kAxisRange,
                   absl::StrCat("axis ", axis, " of a tensor with ", rank, " dims"));
}

absl::StatusOr<std::vector<bool>> CheckedAxes(absl::Span<const int64_t> axes, int rank) {
  std::vector<bool> chosen(rank);
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= rank) {
      return Malformed(Malformation::kAxisRange,
                       absl::StrCat("axis ", axis, " of a tensor with ", rank, " dims"));
    }
    if (axis <= last) {
      return Malformed(Malformation::kDuplicateAxis,
                       absl::StrCat("axis ", axis, " follows axis ", last,
                                    "; axes have to ascend without repeats"));
    }
    last = axis;
    chosen[axis] = true;
  }
  return chosen;
}

// --- pointwise -----------------------------------------------------------------------------------

absl::StatusOr<DType> PointwiseDType(const OpInfo& info, Operands operands, const Attrs& attrs) {
  switch (info.type_rule) {
    case TypeRule::kCast:
    case TypeRule::kConstant: return *DTypeByName(attrs.String("dtype"));
    case TypeRule::kSelect:
      if (operands[0]->dtype != DType::kBool || !SameDType(operands.subspan(1))) {
        return BadDType(operands, "the first has to be bool, the others of one dtype");
      }
      return operands[1]->dtype;
    case TypeRule::kLogical:
      if (operands[0]->dtype != DType::kBool || !SameDType(operands)) {
        return BadDType(operands, "all have to be bool");
      }
      return DType::kBool;
    default: break;
  }
  if (!SameDType(operands)) {
    return BadDType(operands, "all have to be of one dtype; a cast is explicit");
  }
  const DType dtype = operands[0]->dtype;
  if (info.type_rule == TypeRule::kCompare) return DType::kBool;
  if (info.type_rule == TypeRule::kFloat && !IsFloat(dtype)) {
    return BadDType(operands, "the op takes floating dtypes alone");
  }
  if (info.type_rule == TypeRule::kSame && dtype == DType::kBool && info.op != Op::copy) {
    return BadDType(operands,
                    "the op takes numbers; logical_and, logical_or and logical_not take bool");
  }
  return dtype;
}

absl::StatusOr<Types> InferPointwise(const OpInfo& info, Operands operands, const Attrs& attrs) {
  RG_ASSIGN_OR_RETURN(const DType dtype, PointwiseDType(info, operands, attrs));
  if (info.type_rule == TypeRule::kConstant) {
    Shape shape = Ints(attrs, "shape");
    if (info.op == Op::iota) {
      RG_RETURN_IF_ERROR(CheckedAxis(attrs, static_cast<int>(shape.size())).status());
      if (dtype == DType::kBool) {
        return Malformed(Malformation::kAttrRange, "attribute dtype is bool, which cannot count");
      }
    }
    return One(dtype, std::move(shape));
  }
  Shape shape = operands[0]->shape;
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i]->shape == shape) continue;
    std::optional<Shape> both = BroadcastShapes(shape, operands[i]->shape);
    if (!both.has_value()) return BadShape(operands, "extents differ and neither is 1");
    shape = *std::move(both);
  }
  return One(dtype, std::move(shape));
}

// --- reductions ----------------------------------------------------------------------------------

absl::StatusOr<Types> InferReduction(const OpInfo& info, Operands operands, const Attrs& attrs) {
  const TensorType& x = *operands[0];
  if (x.dtype == DType::kBool) return BadDType(operands, "a reduction takes numbers");
  if (attrs.Ints("axes").empty()) {
    return Malformed(Malformation::kAttrRange, "attribute axes is empty; leave the reduction out");
  }
  RG_ASSIGN_OR_RETURN(const std::vector<bool> reduced, CheckedAxes(attrs.Ints("axes"), x.rank()));
  const bool keep = attrs.Int("keep") == 1;
  Shape shape;
  bool folds_nothing = false;
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[i]) {
      shape.push_back(x.shape[i]);
    } else {
      folds_nothing |= x.shape[i] == 0;
      if (keep) shape.push_back(1);
    }
  }
  if (folds_nothing && info.op != Op::sum) {
    return Malformed(Malformation::kEmptyReduction,
                     absl::StrCat(info.name, " over axes ", Print(attrs.Ints("axes")), " of ",
                                  x.Print(), " folds no element"));
  }
  return One(x.dtype, std::move(shape));
}

// --- views ---------------------------------------------------------------------------------------

absl::StatusOr<Types> InferReshape(const TensorType& x, const Attrs& attrs) {
  Shape shape = Ints(attrs, "shape");
  RG_RETURN_IF_ERROR(CheckShape(shape));
  if (Elements(shape) != x.elements()) {
    return Malformed(Malformation::kReshapeCount,
                     absl::StrCat("operand ", x.Print(), " has ", x.elements(), " elements, shape ",
                                  Print(shape), " has ", Elements(shape)));
  }
  return One(x.dtype, std::move(shape));
}

absl::StatusOr<Types> InferPermute(const TensorType& x, const Attrs& attrs) {
  const absl::Span<const int64_t> perm = attrs.Ints("perm");
  std::vector<bool> seen(x.rank());
  bool legal = static_cast<int>(perm.size()) == x.rank();
  for (size_t i = 0; legal && i < perm.size(); ++i) {
    legal = perm[i] >= 0 && perm[i] < x.rank() && !seen[perm[i]];
    if (legal) seen[perm[i]] = true;
  }
  if (!legal) {
    return Malformed(
        Malformation::kBadPermutation,
        absl::StrCat("perm ", Print(perm), " does not hold every axis of ", x.Print(), " once"));
  }
  Shape shape;
  for (int64_t axis : perm) shape.push_back(x.shape[axis]);
  return One(x.dtype, std::move(shape));
}

absl::StatusOr<Types> InferExpand(const TensorType& x, const Attrs& attrs) {
  Shape shape = Ints(attrs, "shape");
  RG_RETURN_IF_ERROR(CheckShape(shape));
  bool legal = shape.size() >= x.shape.size();
  const size_t shift = legal ? shape.size() - x.shape.size() : 0;
  for (size_t i = 0; legal && i < x.shape.size(); ++i) {
    legal = x.shape[i] == shape[i + shift] || x.shape[i] == 1;
  }
  if (!legal) {
    return Malformed(Malformation::kExpandShape,
                     absl::StrCat("operand ", x.Print(), " does not expand to ", Print(shape)));
  }
  return One(x.dtype, std::move(shape));
}

// The shape of x[.., start:stop:step, ..].
absl::StatusOr<Shape> SliceShape(const TensorType& x, const Attrs& attrs) {
  RG_ASSIGN_OR_RETURN(const int64_t axis, CheckedAxis(attrs, x.rank()));
  const int64_t start = attrs.Int("start"), stop = attrs.Int("stop"), step = attrs.Int("step");
  if (start < 0 || start > stop || stop > x.shape[axis] || step < 1) {
    return Malformed(Malformation::kSliceBounds,
                     absl::StrCat("start ", start, ", stop ", stop, ", step ", step, " on axis ",
                                  axis, " of ", x.Print()));
  }
  Shape shape = x.shape;
  const int64_t span = stop - start;
  shape[axis] = span / step + (span % step != 0 ? 1 : 0);
  return shape;
}

absl::StatusOr<Types> InferPad(const TensorType& x, const Attrs& attrs) {
  const absl::Span<const int64_t> low = attrs.Ints("low"), high = attrs.Ints("high");
  if (low.size() != x.shape.size() || high.size() != x.shape.size()) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("low ", Print(low), " and high ", Print(high),
                                  " need one number per dim of ", x.Print()));
  }
  Shape shape = x.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (low[i] < 0 || high[i] < 0 || low[i] > kMaxElements || high[i] > kMaxElements) {
      return Malformed(Malformation::kAttrRange,
                       absl::StrCat("low ", Print(low), " and high ", Print(high),
                                    " hold numbers outside 0 to 2^48"));
    }
    shape[i] += low[i] + high[i];
  }
  return One(x.dtype, std::move(shape));
}

absl::StatusOr<Types> InferView(Op op, Operands operands, const Attrs& attrs) {
  const TensorType& x = *operands[0];
  switch (op) {
    case Op::reshape: return InferReshape(x, attrs);
    case Op::permute: return InferPermute(x, attrs);
    case Op::expand: return InferExpand(x, attrs);
    case Op::pad: return InferPad(x, attrs);
    case Op::slice: {
      RG_ASSIGN_OR_RETURN(Shape shape, SliceShape(x, attrs));
      return One(x.dtype, std::move(shape));
    }
    default: {
      RG_CHECK(op == Op::flip);
      RG_RETURN_IF_ERROR(CheckedAxes(attrs.Ints("axes"), x.rank()).status());
      return Types{x};
    }
  }
}

// --- joins, indexed ops, accumulate, scans -------------------------------------------------------

absl::StatusOr<Types> InferCat(Operands operands, const Attrs& attrs) {
  if (!SameDType(operands)) return BadDType(operands, "all have to be of one dtype");
  Shape shape = operands[0]->shape;
  RG_ASSIGN_OR_RETURN(const int64_t axis, CheckedAxis(attrs, operands[0]->rank()));
  for (const TensorType* type : operands.subspan(1)) {
    bool fits = type->rank() == operands[0]->rank();
    for (int i = 0; fits && i < type->rank(); ++i) fits = i == axis || type->shape[i] == shape[i];
    if (!fits) {
      return BadShape(operands, absl::StrCat("all dims but axis ", axis, " have to be equal"));
    }
    shape[axis] += type->shape[axis];
    RG_RETURN_IF_ERROR(CheckShape(shape));
  }
  return One(operands[0]->dtype, std::move(shape));
}

absl::StatusOr<Types> InferSliceScatter(Operands operands, const Attrs& attrs) {
  if (!SameDType(operands)) return BadDType(operands, "both have to be of one dtype");
  RG_ASSIGN_OR_RETURN(const Shape region, SliceShape(*operands[0], attrs));
  if (operands[1]->shape != region) {
    return BadShape(operands,
                    absl::StrCat("the region that is replaced has the shape ", Print(region)));
  }
  return Types{*operands[0]};
}

absl::Status CheckIndex(Operands operands) {
  if (operands[1]->dtype == DType::kInt32 || operands[1]->dtype == DType::kInt64) {
    return absl::OkStatus();
  }
  return Malformed(
      Malformation::kIndexDType,
      absl::StrCat("operand 1, the index, is ", operands[1]->Print(), "; it has to be i32 or i64"));
}

absl::StatusOr<Shape> SelectedShape(Operands operands, const Attrs& attrs) {
  RG_RETURN_IF_ERROR(CheckIndex(operands));
  const Shape& x = operands[0]->shape;
  const Shape& index = operands[1]->shape;
  RG_ASSIGN_OR_RETURN(const int64_t axis, CheckedAxis(attrs, operands[0]->rank()));
  Shape shape(x.begin(), x.begin() + axis);
  shape.insert(shape.end(), index.begin(), index.end());
  shape.insert(shape.end(), x.begin() + axis + 1, x.end());
  return shape;
}

absl::StatusOr<Types> InferGather(Op op, Operands operands, const Attrs& attrs) {
  if (op == Op::index_select) {
    RG_ASSIGN_OR_RETURN(Shape shape, SelectedShape(operands, attrs));
    return One(operands[0]->dtype, std::move(shape));
  }
  RG_RETURN_IF_ERROR(CheckIndex(operands));
  const TensorType& x = *operands[0];
  const TensorType& index = *operands[1];
  RG_ASSIGN_OR_RETURN(const int64_t axis, CheckedAxis(attrs, x.rank()));
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index.shape[i] <= x.shape[i];
  if (!fits) {
    return BadShape(operands, absl::StrCat("the index has the operand's rank and, but for axis ",
                                           axis, ", no larger extents"));
  }
  return One(x.dtype, index.shape);
}

absl::StatusOr<Types> InferIndexAdd(Operands operands, const Attrs& attrs) {
  if (operands[0]->dtype != operands[2]->dtype || operands[0]->dtype == DType::kBool) {
    return BadDType(operands, "base and source have to be numbers of one dtype");
  }
  RG_ASSIGN_OR_RETURN(const Shape source, SelectedShape(operands, attrs));
  if (operands[2]->shape != source) {
    return BadShape(operands, absl::StrCat("the source needs the shape ", Print(source)));
  }
  return Types{*operands[0]};
}

absl::StatusOr<Types> InferSegmentAdd(Operands operands, const Attrs& attrs) {
  const TensorType& base = *operands[0];
  const DType src = operands[2]->dtype;
  const auto widened = [](DType narrow, DType wide) {
    return narrow == wide ||
           (IsFloat(narrow) && IsFloat(wide) && SizeBytes(narrow) < SizeBytes(wide));
  };
  DType result = base.dtype;
  if (attrs.Find("dtype") != nullptr) result = *DTypeByName(attrs.String("dtype"));
  if (base.dtype == DType::kBool || !widened(base.dtype, result) || !widened(result, src)) {
    return BadDType(operands,
                    "base, result and source have to be numbers of one dtype, or each of a wider "
                    "one than the one before");
  }
  RG_ASSIGN_OR_RETURN(const int64_t axis, CheckedAxis(attrs, base.rank()));
  Shape source = base.shape;
  if (operands[2]->rank() == base.rank()) source[axis] = operands[2]->shape[axis];
  if (operands[2]->shape != source) {
    return BadShape(operands, absl::StrCat("but for axis ", axis, " the source needs the shape ",
                                           Print(base.shape)));
  }
  const SortedIndices sorted{.rows = base.shape[axis], .indices = source[axis]};
  if (*operands[1] != TensorType{DType::kInt32, {sorted.elements()}}) {
    return Malformed(
        Malformation::kSortedIndex,
        absl::StrCat(sorted.indices, " indices into ", sorted.rows, " rows are ", sorted.elements(),
                     " numbers of i32, not ", operands[1]->Print()));
  }
  return Types{{result, base.shape}};
}

absl::StatusOr<Types> InferAccumulate(Operands operands, const Attrs& attrs) {
  if (!SameDType(operands) || operands[0]->dtype == DType::kBool) {
    return BadDType(operands, "contributions have to be numbers of one dtype");
  }
  Shape shape = Ints(attrs, "shape");
  RG_RETURN_IF_ERROR(CheckShape(shape));
  const absl::Span<const int64_t> starts = attrs.Ints("starts");
  const size_t rank = shape.size();
  if (starts.size() != rank * operands.size()) {
    return Malformed(
        Malformation::kAccumulateRegion,
        absl::StrCat("starts has ", starts.size(), " numbers; ", operands.size(),
                     " contributions to ", Print(shape), " need ", rank * operands.size()));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const absl::Span<const int64_t> start = starts.subspan(i * rank, rank);
    bool inside = operands[i]->shape.size() == rank;
    for (size_t d = 0; inside && d < rank; ++d) {
      inside = start[d] >= 0 && start[d] <= shape[d] - operands[i]->shape[d];
    }
    if (!inside) {
      return Malformed(Malformation::kAccumulateRegion,
                       absl::StrCat("contribution ", i, ", ", operands[i]->Print(), " at ",
                                    Print(start), ", leaves the shape ", Print(shape)));
    }
  }
  return One(operands[0]->dtype, std::move(shape));
}

absl::StatusOr<Types> InferScan(Operands operands, const Attrs& attrs) {
  if (operands[0]->dtype == DType::kBool) return BadDType(operands, "a scan takes numbers");
  RG_RETURN_IF_ERROR(CheckedAxis(attrs, operands[0]->rank()).status());
  return Types{*operands[0]};
}

// --- composites ----------------------------------------------------------------------------------

absl::StatusOr<Types> InferComposite(const OpInfo& info, Operands operands) {
  if (!SameDType(operands) || !IsFloat(operands[0]->dtype)) {
    return BadDType(operands, "all have to be of one floating dtype");
  }
  Types types;
  std::vector<ValueId> ids;
  const auto append = [&](TensorType type) {
    types.push_back(std::move(type));
    return ValueId{NodeId{static_cast<uint32_t>(types.size()) - 1}, 0};
  };
  for (const TensorType* type : operands) ids.push_back(append(*type));
  const auto add = [&](Op op, absl::Span<const ValueId> args,
                       const Attrs& attrs) -> absl::StatusOr<ValueId> {
    std::vector<const TensorType*> arg_types;
    for (ValueId arg : args) arg_types.push_back(&types[Index(arg.node)]);
    RG_ASSIGN_OR_RETURN(Types inferred, InferTypes(op, arg_types, attrs));
    return append(std::move(inferred[0]));
  };
  const auto type = [&](ValueId v) -> const TensorType& { return types[Index(v.node)]; };
  RG_ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                      WalkDefinition(DefinitionOf(info.op), ids, add, type));
  Types result_types;
  for (ValueId v : results) result_types.push_back(type(v));
  return result_types;
}

absl::Status CheckCount(const OpInfo& info, size_t count) {
  const auto minimum = static_cast<size_t>(info.min_operands);
  const auto maximum = static_cast<size_t>(info.max_operands);
  if (count >= minimum && (info.max_operands < 0 || count <= maximum)) return absl::OkStatus();
  std::string expected = absl::StrCat(minimum);
  if (info.max_operands < 0) {
    absl::StrAppend(&expected, " or more");
  } else if (maximum != minimum) {
    absl::StrAppend(&expected, " to ", maximum);
  }
  return Malformed(Malformation::kOperandCount,
                   absl::StrCat(count, " operands; ", info.name, " takes ", expected));
}

}  // namespace

absl::StatusOr<std::vector<TensorType>> InferTypes(Op op, Operands operands, const Attrs& attrs) {
  const OpInfo& info = Info(op);
  RG_RETURN_IF_ERROR(CheckCount(info, operands.size()));
  RG_RETURN_IF_ERROR(CheckAttrs(op, attrs));
  switch (info.pattern) {
    case Pattern::kInput: break;
    case Pattern::kPointwise: return InferPointwise(info, operands, attrs);
    case Pattern::kReduction: return InferReduction(info, operands, attrs);
    case Pattern::kLibrary: return LibraryOpOf(op).infer(operands, attrs);
    case Pattern::kView: return InferView(op, operands, attrs);
    case Pattern::kJoin:
      return op == Op::cat ? InferCat(operands, attrs) : InferSliceScatter(operands, attrs);
    case Pattern::kGather: return InferGather(op, operands, attrs);
    case Pattern::kScatter:
      return op == Op::index_add ? InferIndexAdd(operands, attrs)
                                 : InferSegmentAdd(operands, attrs);
    case Pattern::kAccumulate: return InferAccumulate(operands, attrs);
    case Pattern::kScan: return InferScan(operands, attrs);
    case Pattern::kComposite: return InferComposite(info, operands);
  }
  return Malformed(Malformation::kInputInfo, "an input's type is given, not inferred");
}

}  // namespace retrograd
