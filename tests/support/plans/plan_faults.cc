#include "tests/support/plans/plan_faults.h"

#include <algorithm>

namespace retrograd {
namespace {

class Planter {
 public:
  Planter(const BackwardGraph& g, const FusionPlan& plan, std::mt19937& rng)
      : g_(g), before_(plan), plan_(plan), rng_(rng) {}

  std::optional<FusionPlan> Plant(PlanFault fault) {
    if (plan_.groups.empty() || !Do(fault) || plan_ == before_) return std::nullopt;
    return std::move(plan_);
  }

 private:
  // --- drawing ---
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  T& Any(std::vector<T>& list) {
    return list[Int(0, static_cast<int64_t>(list.size()) - 1)];
  }
  Group& AnyGroup() { return Any(plan_.groups); }
  // A fused kernel, alone or sharing a launch.
  std::pair<Group*, KernelBody*> AnyKernel() {
    std::vector<std::pair<Group*, KernelBody*>> found;
    for (Group& g : plan_.groups) {
      if (KernelBody* kernel = KernelOf(g)) found.push_back({&g, kernel});
      if (KernelLaunch* merged = SharedLaunchOf(g)) {
        for (KernelLaunch::Member& m : merged->members) found.push_back({&g, &m.kernel});
      }
    }
    if (found.empty()) return {nullptr, nullptr};
    return Any(found);
  }
  std::pair<Group*, Call*> AnyCall(Op op) {
    std::vector<Group*> found;
    for (Group& g : plan_.groups) {
      if (const Call* call = CallOf(g); call != nullptr && call->op == op) found.push_back(&g);
    }
    if (found.empty()) return {nullptr, nullptr};
    Group* group = Any(found);
    return {group, CallOf(*group)};
  }
  Instr* AnyInstr(KernelIr& ir, InstrKind kind) {
    std::vector<Instr*> found;
    for (Instr& i : ir.instrs) {
      if (i.kind == kind) found.push_back(&i);
    }
    return found.empty() ? nullptr : Any(found);
  }
  NodeId AnyComputing() {
    const Group& g = AnyGroup();
    return g.nodes[Int(0, static_cast<int64_t>(g.nodes.size()) - 1)];
  }
  static void InsertSorted(std::vector<NodeId>& list, NodeId id) {
    list.insert(std::upper_bound(list.begin(), list.end(), id), id);
  }
  static void InsertSorted(std::vector<ValueId>& list, ValueId v) {
    list.insert(std::upper_bound(list.begin(), list.end(), v), v);
  }
  GroupId& OwnerOf(NodeId id) { return plan_.group_of[Index(id)]; }

  // A non-zero shift of an expression: a constant, one more axis, or a coefficient off by one.
  IndexExpr Shifted(const IndexExpr& e, const KernelIr& ir) {
    const int64_t by = Int(0, 1) == 0 ? 1 : -1;
    if (ir.extents.empty() || Int(0, 2) == 0) return e + IndexExpr::Constant(by);
    const int axis = static_cast<int>(Int(0, static_cast<int64_t>(ir.extents.size()) - 1));
    const int64_t coef = e.axis_coef(axis);
    if (coef != 0 && Int(0, 1) == 0) return e + IndexExpr::Axis(axis) * -coef;
    return e + IndexExpr::Axis(axis) * by;
  }

  bool Do(PlanFault fault) {
    switch (fault) {
      case PlanFault::kOpMissing:
      case PlanFault::kOpTwice:
      case PlanFault::kOpElsewhere:
      case PlanFault::kOwnerWrong: return Membership(fault);
      case PlanFault::kOrderSwapped: return SwapGroups();
      case PlanFault::kInputMissing:
      case PlanFault::kInputInvented:
      case PlanFault::kOutputMissing:
      case PlanFault::kOutputInvented: return Lists(fault);
      case PlanFault::kRecomputeUndeclared:
      case PlanFault::kRecomputeInvented: return Recompute(fault);
      case PlanFault::kLayoutChanged: return ChangeLayout();
      case PlanFault::kTemplateWrong:
      case PlanFault::kBlocksWrong:
      case PlanFault::kThreadsWrong:
      case PlanFault::kWidthWrong:
      case PlanFault::kSplitWrong: return ChangeSchedule(fault);
      case PlanFault::kWorkspaceSmall: return ShrinkWorkspace();
      case PlanFault::kInPlaceIllegal: return InventPair();
      case PlanFault::kMatMulDims:
      case PlanFault::kMatMulStride:
      case PlanFault::kMatMulOffset:
      case PlanFault::kMatMulOperands:
      case PlanFault::kMatMulDType:
      case PlanFault::kMatMulAccumulate: return ChangeMatMul(fault);
      case PlanFault::kAttentionOperands:
      case PlanFault::kAttentionStride:
      case PlanFault::kAttentionScale: return ChangeAttention(fault);
      case PlanFault::kBufferSpan:
      case PlanFault::kBufferDType:
      case PlanFault::kBufferAlignment:
      case PlanFault::kBufferValue: return ChangeBuffer(fault);
      default: return ChangeIr(fault);
    }
  }

  // --- what belongs where ---

  bool Membership(PlanFault fault) {
    const NodeId id = AnyComputing();
    Group& home = plan_.groups[Index(OwnerOf(id))];
    Group& other = AnyGroup();
    if (fault == PlanFault::kOwnerWrong) {
      OwnerOf(id) =
          GroupId{static_cast<uint32_t>(Int(0, static_cast<int64_t>(plan_.groups.size())))};
      return true;
    }
    if (&other == &home && fault != PlanFault::kOpMissing) return false;
    if (fault != PlanFault::kOpTwice) std::erase(home.nodes, id);
    if (fault == PlanFault::kOpMissing) {
      if (Int(0, 1) == 0) OwnerOf(id) = kNoGroup;
      return true;
    }
    InsertSorted(other.nodes, id);
    if (fault == PlanFault::kOpElsewhere || Int(0, 1) == 0) {
      OwnerOf(id) = GroupId{static_cast<uint32_t>(&other - plan_.groups.data())};
    }
    return true;
  }

  bool SwapGroups() {
    const int64_t n = static_cast<int64_t>(plan_.groups.size());
    if (n < 2) return false;
    const int64_t a = Int(0, n - 2), b = Int(0, 1) == 0 ? a + 1 : Int(a + 1, n - 1);
    std::swap(plan_.groups[a], plan_.groups[b]);
    for (int64_t i : {a, b}) {
      for (NodeId id : plan_.groups[i].nodes) OwnerOf(id) = GroupId{static_cast<uint32_t>(i)};
    }
    return true;
  }

  bool Lists(PlanFault fault) {
    Group& group = AnyGroup();
    const bool in = fault == PlanFault::kInputMissing || fault == PlanFault::kInputInvented;
    std::vector<ValueId>& list = in ? group.inputs : group.outputs;
    if (fault == PlanFault::kInputMissing || fault == PlanFault::kOutputMissing) {
      if (list.empty()) return false;
      list.erase(list.begin() + Int(0, static_cast<int64_t>(list.size()) - 1));
      return true;
    }
    // Something real: of this group, or of another.
    const ValueId v{
        Int(0, 1) == 0
            ? AnyComputing()
            : NodeId{static_cast<uint32_t>(Int(0, static_cast<int64_t>(g_.num_nodes()) - 1))},
        0};
    if (std::find(list.begin(), list.end(), v) != list.end()) return false;
    InsertSorted(list, v);
    return true;
  }

  bool Recompute(PlanFault fault) {
    Group& group = AnyGroup();
    if (fault == PlanFault::kRecomputeUndeclared) {
      if (group.recomputed.empty()) return false;
      group.recomputed.erase(group.recomputed.begin() +
                             Int(0, static_cast<int64_t>(group.recomputed.size()) - 1));
      return true;
    }
    const NodeId id = AnyComputing();
    if (std::find(group.recomputed.begin(), group.recomputed.end(), id) != group.recomputed.end())
      return false;
    InsertSorted(group.recomputed, id);
    return true;
  }

  bool ChangeLayout() {
    const Group& group = AnyGroup();
    std::vector<ValueId> values = group.outputs;
    values.insert(values.end(), group.inputs.begin(), group.inputs.end());
    if (values.empty()) return false;
    const ValueId v = Any(values);
    std::vector<int64_t>& strides = plan_.layouts[g_.value_index(v)].strides;
    if (strides.empty()) return false;
    const Shape& shape = g_.type(v).shape;
    const size_t i = Int(0, static_cast<int64_t>(strides.size()) - 1);
    if (shape[i] <= 1) return false;  // a stride that no element takes
    if (Int(0, 1) == 0) {
      strides[i] += Int(0, 1) == 0 ? 1 : -1;
    } else {
      const size_t j = Int(0, static_cast<int64_t>(strides.size()) - 1);
      if (strides[i] == strides[j] || (shape[i] <= 1 && shape[j] <= 1)) return false;
      std::swap(strides[i], strides[j]);
    }
    return true;
  }

  // --- what a kernel computes ---

  bool ChangeIr(PlanFault fault) {
    auto [group, body] = AnyKernel();
    if (body == nullptr) return false;
    KernelIr& ir = body->ir;
    switch (fault) {
      case PlanFault::kStoreMissing:
        if (ir.stores.empty()) return false;
        ir.stores.erase(ir.stores.begin() + Int(0, static_cast<int64_t>(ir.stores.size()) - 1));
        return true;
      case PlanFault::kStoreTwice:
        if (ir.stores.size() < 2) return false;
        ir.stores.push_back(Any(ir.stores));
        ir.stores.back().buffer = Any(ir.stores).buffer;
        return true;
      case PlanFault::kStoreOffset: {
        if (ir.stores.empty()) return false;
        Store& s = Any(ir.stores);
        s.offset = Shifted(s.offset, ir);
        return true;
      }
      case PlanFault::kStoreInstr: {
        if (ir.stores.empty()) return false;
        Any(ir.stores).instr = static_cast<int>(Int(0, static_cast<int64_t>(ir.instrs.size()) - 1));
        return true;
      }
      case PlanFault::kExtentChanged:
        if (ir.extents.empty()) return false;
        Any(ir.extents) += Int(0, 1) == 0 ? 1 : -1;
        return true;
      case PlanFault::kScatterChanged: return ChangeScatter(ir);
      default: return ChangeInstr(fault, ir);
    }
  }

  bool ChangeScatter(KernelIr& ir) {
    if (!ir.scatter) return false;
    Scatter& s = *ir.scatter;
    switch (Int(0, 5)) {
      case 5: s.in_order = !s.in_order; break;
      case 4: {
        Buffer& other = Any(ir.buffers);
        if (other.sorted_by_list) return false;
        other.sorted_by_list = true;
        break;
      }
      case 0:
        s.sorted = static_cast<int>(Int(0, static_cast<int64_t>(ir.buffers.size()) - 1));
        break;
      case 1: s.table_rows += Int(0, 1) == 0 ? 1 : -1; break;
      case 2:
        s.row_axes ^= AxisMask{1} << Int(0, static_cast<int64_t>(ir.extents.size()) - 1);
        break;
      default: s.src_instr = static_cast<int>(Int(0, static_cast<int64_t>(ir.instrs.size()) - 1));
    }
    return true;
  }

  bool ChangeInstr(PlanFault fault, KernelIr& ir) {
    const int at = static_cast<int>(Int(0, static_cast<int64_t>(ir.instrs.size()) - 1));
    Instr& any = ir.instrs[at];
    Instr* load = AnyInstr(ir, InstrKind::kLoad);
    Instr* fold = AnyInstr(ir, InstrKind::kReduce);
    switch (fault) {
      case PlanFault::kLoadOffset:
        if (load == nullptr) return false;
        load->offset = Shifted(load->offset, ir);
        load->axes |= load->offset.axes();
        return true;
      case PlanFault::kLoadBuffer:
        if (load == nullptr) return false;
        load->buffer = static_cast<int>(Int(0, static_cast<int64_t>(ir.buffers.size()) - 1));
        return true;
      case PlanFault::kGuardMoved:
      case PlanFault::kGuardMissing: return ChangeGuard(fault, ir);
      case PlanFault::kFillChanged:
        if (load == nullptr) return false;
        load->fill += 1;
        return true;
      case PlanFault::kConstantChanged: {
        Instr* c = AnyInstr(ir, InstrKind::kConstant);
        if (c == nullptr) return false;
        c->constant += 1;
        return true;
      }
      case PlanFault::kIndexChanged: {
        Instr* c = AnyInstr(ir, InstrKind::kIndex);
        if (c == nullptr) return false;
        (Int(0, 1) == 0 ? c->start : c->step) += 1;
        return true;
      }
      case PlanFault::kOpChanged: return ChangeOp(any);
      case PlanFault::kOperandChanged:
        if (any.operands.empty() || at == 0) return false;
        Any(any.operands) = static_cast<int>(Int(0, at - 1));
        return true;
      case PlanFault::kOperandsSwapped:
        if (any.operands.size() < 2) return false;
        std::swap(any.operands[0], any.operands.back());
        return true;
      case PlanFault::kDTypeChanged:
        any.dtype = kAllDTypes[Int(0, std::size(kAllDTypes) - 1)];
        return true;
      case PlanFault::kRoundMissing:
        if (!any.round) return false;
        any.round = false;
        return true;
      case PlanFault::kFoldChanged:
        if (fold == nullptr || ir.extents.empty()) return false;
        fold->reduced ^= AxisMask{1} << Int(0, static_cast<int64_t>(ir.extents.size()) - 1);
        fold->axes = ir.instrs[fold->operands[0]].axes & ~fold->reduced;
        return true;
      case PlanFault::kLookupChanged:
        if (load == nullptr || load->indirect.empty()) return false;
        switch (Int(0, 3)) {
          case 0: load->indirect[0].stride += Int(0, 1) == 0 ? 1 : -1; break;
          case 1: load->indirect[0].extent += Int(0, 1) == 0 ? 1 : -1; break;
          case 2:
            load->indirect[0].instr = static_cast<int>(Int(0, load - ir.instrs.data()));
            break;
          default: load->indirect.clear();
        }
        return true;
      default: return false;
    }
  }

  bool ChangeGuard(PlanFault fault, KernelIr& ir) {
    std::vector<Instr*> guarded;
    for (Instr& i : ir.instrs) {
      if (!i.guards.empty()) guarded.push_back(&i);
    }
    if (guarded.empty()) return false;
    std::vector<Guard>& guards = Any(guarded)->guards;
    if (fault == PlanFault::kGuardMissing) {
      guards.erase(guards.begin() + Int(0, static_cast<int64_t>(guards.size()) - 1));
      return true;
    }
    Guard& g = Any(guards);
    switch (Int(0, 2)) {
      case 0: g.begin += Int(0, 1) == 0 ? 1 : -1; break;
      case 1: g.end += Int(0, 1) == 0 ? 1 : -1; break;
      default: g.expr = g.expr + IndexExpr::Constant(1);
    }
    return true;
  }

  bool ChangeOp(Instr& instr) {
    const OpInfo& now = Info(instr.op);
    if (instr.kind == InstrKind::kReduce) {
      constexpr Op kFolds[] = {Op::sum, Op::amax, Op::amin};
      instr.op = kFolds[Int(0, 2)];
      return true;
    }
    if (instr.kind != InstrKind::kPointwise) return false;
    for (int attempt = 0; attempt < 50; ++attempt) {
      const OpInfo& info = AllOps()[Int(0, kNumOps - 1)];
      if (info.pattern != Pattern::kPointwise || info.min_operands != now.min_operands) continue;
      instr.op = info.op;
      return true;
    }
    return false;
  }

  bool ChangeBuffer(PlanFault fault) {
    auto [group, body] = AnyKernel();
    if (body == nullptr) return false;
    Buffer& b = Any(body->ir.buffers);
    switch (fault) {
      case PlanFault::kBufferSpan: b.elements += Int(0, 1) == 0 ? 1 : -1; return true;
      case PlanFault::kBufferDType:
        b.dtype = kAllDTypes[Int(0, std::size(kAllDTypes) - 1)];
        return true;
      case PlanFault::kBufferAlignment: b.alignment *= 2 << Int(0, 3); return true;
      default: b.value = {AnyComputing(), 0}; return true;
    }
  }

  // --- how it is walked ---

  bool ChangeSchedule(PlanFault fault) {
    auto [group, body] = AnyKernel();
    if (body == nullptr) return false;
    Schedule& s = body->schedule;
    const bool tiles = s.kind == Template::kHeldTiles;
    const bool rows = s.kind == Template::kRowReduction || s.kind == Template::kRowColumn || tiles;
    const bool exact = s.kind == Template::kColumnReduction || s.kind == Template::kTranspose ||
                       s.kind == Template::kHeldColumns || tiles ||
                       (s.kind == Template::kRowReduction && s.split > 1);
    switch (fault) {
      case PlanFault::kTemplateWrong: {
        const Template kind = static_cast<Template>(Int(0, 5));
        // A transposition may also be walked point by point, and on a kernel without a transposed
        // load nothing says that its tiles are wrong but their number.
        const auto plain = [](Template t) {
          return t == Template::kPointwise || t == Template::kTranspose;
        };
        if (plain(s.kind) && plain(kind)) return false;
        if (tiles && kind == Template::kRowReduction) return false;  // of one fold both are walks
        s.kind = kind;
        return true;
      }
      case PlanFault::kBlocksWrong:  // loops over points or rows take any number
        if (!exact) return false;
        s.blocks = Int(0, 1) == 0 ? s.blocks - 1 : s.blocks / 2;
        return true;
      case PlanFault::kThreadsWrong:
        if (Int(0, 3) == 0) {
          s.threads = Int(0, 1) == 0 ? 0 : 2048;
        } else if (rows && Int(0, 1) == 0) {
          s.threads_per_row = s.threads_per_row == 1 ? 2 : s.threads_per_row - 1;
        } else if (rows) {
          s.rows_per_block += 1;
        } else {
          return false;
        }
        return true;
      case PlanFault::kWidthWrong: {
        int64_t fastest = 1;
        for (int64_t e : body->ir.extents) fastest = e > 1 ? e : fastest;
        const int width = 1 << Int(1, 3);
        if (fastest % width == 0 || s.kind == Template::kHeldColumns || tiles) return false;
        // These walk rows with ends; any longer row fits any width.
        const bool ends = s.kind == Template::kPointwise || s.kind == Template::kRowReduction;
        if (ends && fastest >= width) return false;
        s.vector_width = width;
        return true;
      }
      default:
        if (s.kind == Template::kPointwise || s.kind == Template::kTranspose ||
            s.kind == Template::kScatterAdd) {
          return false;
        }
        s.split += 1;
        return true;
    }
  }

  bool ShrinkWorkspace() {
    Group& group = AnyGroup();
    if (group.workspace_bytes <= 0) return false;
    // By less than the padding that the last part may end with nothing would be lost.
    group.workspace_bytes = Int(0, 1) == 0 ? 0 : group.workspace_bytes - 16;
    return true;
  }

  bool InventPair() {
    auto [group, body] = AnyKernel();
    if (body == nullptr || group->inputs.empty() || group->outputs.empty()) return false;
    const Group::InPlace pair{Any(group->inputs), Any(group->outputs)};
    if (std::find(group->in_place.begin(), group->in_place.end(), pair) != group->in_place.end())
      return false;
    group->in_place.push_back(pair);
    return true;
  }

  // --- library calls ---

  bool ChangeMatMul(PlanFault fault) {
    auto [group, call] = AnyCall(Op::matmul);
    if (call == nullptr) return false;
    CallTensor* tensors[] = {&call->operands[0], &call->operands[1], &call->results[0]};
    CallTensor& t = *tensors[Int(0, 2)];
    const size_t rank = t.shape.size();
    const int64_t by = Int(0, 1) == 0 ? 1 : -1;
    switch (fault) {
      case PlanFault::kMatMulDims:
        if (Int(0, 2) == 0 && t.shape[rank - 1] != t.shape[rank - 2]) {
          std::swap(t.shape[rank - 1], t.shape[rank - 2]);
        } else {
          Any(t.shape) += by;
        }
        return true;
      case PlanFault::kMatMulStride:
        if (rank > 2 && Int(0, 2) == 0) {
          t.strides[Int(0, static_cast<int64_t>(rank) - 3)] += by;
        } else if (Int(0, 1) == 0) {
          std::swap(t.strides[rank - 1], t.strides[rank - 2]);
        } else {
          t.strides[rank - 1 - static_cast<size_t>(Int(0, 1))] += by;
        }
        return true;
      case PlanFault::kMatMulOffset: t.offset += by; return true;
      case PlanFault::kMatMulOperands:
        switch (Int(0, 2)) {
          case 0: std::swap(call->operands[0], call->operands[1]); break;
          case 1: std::swap(call->operands[0].value, call->operands[1].value); break;
          default: t.value = {AnyComputing(), 0};
        }
        return true;
      case PlanFault::kMatMulDType:
        t.dtype = t.dtype == DType::kFp32 ? DType::kBf16 : DType::kFp32;
        return true;
      default:
        if (call->previous && Int(0, 1) == 0) {
          call->previous = ValueId{AnyComputing(), 0};
        } else if (call->previous) {
          call->previous.reset();
        } else {
          call->previous = ValueId{};
        }
        return true;
    }
  }

  bool ChangeAttention(PlanFault fault) {
    auto [group, call] = AnyCall(Op::attention_backward);
    if (call == nullptr) return false;
    std::vector<CallTensor>& list = Int(0, 1) == 0 ? call->operands : call->results;
    switch (fault) {
      case PlanFault::kAttentionOperands: std::swap(Any(list), Any(list)); return true;
      case PlanFault::kAttentionStride: {
        CallTensor& t = Any(list);
        const size_t i = Int(0, static_cast<int64_t>(t.strides.size()) - 1);
        if (t.shape[i] <= 1) return false;
        if (Int(0, 1) == 0)
          t.offset += 1;
        else
          t.strides[i] += 1;
        return true;
      }
      default:
        switch (Int(0, 3)) {
          case 3: call->tf32 = !call->tf32; break;
          case 0: call->attributes.Set("scale", call->attributes.Float("scale", 1) * 2); break;
          case 1: call->attributes.Set("causal", 1 - call->attributes.Int("causal")); break;
          default: {
            CallTensor& t = Any(list);
            t.dtype = t.dtype == DType::kFp32 ? DType::kBf16 : DType::kFp32;
          }
        }
        return true;
    }
  }

  const BackwardGraph& g_;
  const FusionPlan& before_;
  FusionPlan plan_;
  std::mt19937& rng_;
};

}  // namespace

const char* Name(PlanFault fault) {
  constexpr const char* kNames[] = {
      "op missing",           "op twice",           "op elsewhere",
      "order swapped",        "owner wrong",        "input missing",
      "input invented",       "output missing",     "output invented",
      "recompute undeclared", "recompute invented", "layout changed",
      "store missing",        "store twice",        "store offset",
      "store instruction",    "load offset",        "load buffer",
      "guard moved",          "guard missing",      "fill changed",
      "constant changed",     "index changed",      "op changed",
      "operand changed",      "operands swapped",   "dtype changed",
      "rounding missing",     "fold changed",       "extent changed",
      "lookup changed",       "scatter changed",    "buffer span",
      "buffer dtype",         "buffer alignment",   "buffer value",
      "template wrong",       "blocks wrong",       "threads wrong",
      "width wrong",          "split wrong",        "workspace small",
      "in place illegal",     "matmul dims",        "matmul stride",
      "matmul offset",        "matmul operands",    "matmul dtype",
      "matmul accumulate",    "attention operands", "attention stride",
      "attention scale"};
  static_assert(std::size(kNames) == static_cast<size_t>(PlanFault::kCount));
  return kNames[static_cast<size_t>(fault)];
}

std::optional<FusionPlan> PlantFault(const BackwardGraph& graph, const FusionPlan& plan,
                                     PlanFault fault, std::mt19937& rng) {
  return Planter(graph, plan, rng).Plant(fault);
}

}  // namespace retrograd
