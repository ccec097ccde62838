#include "fusion/pricing/group_pricer.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/unroll_reductions.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/pricing/epilogue_price.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// A number from a seed and a group, for drawing schedules in tests: splitmix64.
uint64_t Draw(uint64_t seed, absl::Span<const NodeId> ops) {
  uint64_t x = seed;
  for (NodeId id : ops) {
    x += 0x9e3779b97f4a7c15u + Index(id);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return x;
}

// Whether the value of `instr` needs that of `of`, at the same point.
bool DependsOn(const KernelIr& ir, int instr, int of) {
  std::vector<bool> needed(ir.instrs.size(), false);
  needed[instr] = true;
  for (int i = instr; i > of; --i) {
    if (!needed[i]) continue;
    for (int operand : ir.instrs[i].operands) needed[operand] = true;
  }
  return needed[of];
}

// Pairs of an input and an output that may share bytes: each point reads the input where it writes
// the output, and no later stage or other block reads it again. That the stored value is made from
// the loaded one puts the load first: without it, a load that only a later stage needs would find
// the stored value.
std::vector<Group::InPlace> InPlacePairs(const KernelIr& ir, const Classification& shape,
                                         const Schedule& s) {
  std::vector<Group::InPlace> pairs;
  if (!TemplateOf(s).in_place) return pairs;
  // With a single row everything is a column's: thread rows that have no row load it all the same.
  if (shape.shape.rows <= 1 && s.rows_per_block > 1) return pairs;
  const Stages stages = AssignStages(ir, shape);
  const bool rereads = !s.persistent && stages.row_stages > 0;
  for (const Store& store : ir.stores) {
    const Buffer& out = ir.buffers[store.buffer];
    if (rereads || stages.finalize[store.instr] || store.offset.axes() != ir.all_axes()) continue;
    const auto stores = std::count_if(ir.stores.begin(), ir.stores.end(),
                                      [&](const Store& s) { return s.buffer == store.buffer; });
    if (stores > 1) continue;  // of which none walks as all loads do
    for (size_t b = 0; b < ir.buffers.size(); ++b) {
      const Buffer& in = ir.buffers[b];
      if (in.written || SizeBytes(in.dtype) != SizeBytes(out.dtype) ||
          in.elements != out.elements) {
        continue;
      }
      bool same_walk = true;
      for (size_t n = 0; n < ir.instrs.size() && same_walk; ++n) {
        const Instr& i = ir.instrs[n];
        if (i.kind != InstrKind::kLoad || i.buffer != static_cast<int>(b)) continue;
        same_walk = i.offset == store.offset && i.guards.empty() && i.indirect.empty() &&
                    DependsOn(ir, store.instr, static_cast<int>(n));
      }
      if (same_walk) pairs.push_back({in.value, out.value});
    }
  }
  return pairs;
}

// Why a feature that is switched off leaves the kernel without a schedule; empty: it does not. What
// row reductions can do as well has theirs.
std::string SwitchedOff(const KernelIr& ir, const Classification& shape,
                        const PricerOptions& options) {
  if (TemplateOf(shape.kind).tiles && !options.hold_tiles && ReadFolds(ir).sets.size() > 1) {
    return "its reductions fold two axes of tiles, and held_tiles is disabled";
  }
  const int fastest = FastestAxis(ir);
  const bool by_rows = fastest >= 0 && (shape.shape.column_axes >> fastest & 1) != 0;
  if (options.hold_columns || !TemplateOf(shape.kind).holds || by_rows) return "";
  return "the results of its column reductions spread over their rows, and held_columns is "
         "disabled";
}

// A long kernel may spill: what it would store for others in its place may cost more, and its price
// says which.
bool MaySpill(const Limits& limits, const Footprint& f, size_t ops) {
  return static_cast<int64_t>(ops) > kShortOps && !limits.any_tightened() && f.blocks_per_sm >= 1 &&
         f.shared_bytes <= limits.Bound("shared_memory");
}

}  // namespace

GroupPricer::GroupPricer(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                         const Consumers& consumers, const DeviceSpec& device, const Limits& limits,
                         const PricerOptions& options, KernelPrices* known)
    : graph_(graph),
      layouts_(layouts),
      consumers_(consumers),
      device_(device),
      limits_(limits),
      options_(options),
      traffic_(graph, layouts, consumers),
      known_(known) {
  if (known_ == nullptr) {
    own_ = std::make_shared<KernelPrices>();
    known_ = own_.get();
  }
  numbers_ = std::make_shared<NodeNumbers>(graph, layouts, known_->nodes);
  maps_ = std::make_shared<KernelMaps>(graph);
}

KernelOutcome GroupPricer::Build(const GroupOps& group) const {
  return Build(group, consumers_.Stores(group.ops, group.unstored, group.kept));
}

KernelOutcome GroupPricer::Build(const GroupOps& group, absl::Span<const ValueId> stores) const {
  return BuildKernel({.graph = graph_,
                      .layouts = layouts_,
                      .nodes = group.ops,
                      .stores = stores,
                      .unify_branches = options_.unify_branches,
                      .maps = maps_.get()});
}

ScheduleLimits GroupPricer::schedule_limits() const {
  ScheduleLimits limits = ScheduleLimitsOf(device_);
  limits.vectorize = options_.vectorize;
  limits.split = options_.split;
  limits.persistent = options_.persistent;
  if (!options_.stage_rows) limits.staged_bytes = 0;
  limits.rows_at_once = options_.rows_at_once;
  limits.passes_by_rows = options_.passes_by_rows;
  limits.transpose_tiles = options_.transpose_tiles;
  limits.hold_columns = options_.hold_columns;
  limits.hold_tiles = options_.hold_tiles;
  return limits;
}

GroupPrice GroupPricer::Evaluate(const GroupOps& group) const {
  if (!epilogue_roots_.In(group.ops).empty()) return PriceWithEpilogue(*this, group);
  const std::vector<ValueId> stores = consumers_.Stores(group.ops, group.unstored, group.kept);
  if (options_.schedule_salt != 0) return EvaluateNew(group, stores).price;
  std::string signature = KernelSignature(graph_, consumers_, group.ops, stores, *numbers_);
  auto known = known_->of.find(signature);
  if (known != known_->of.end()) return known->second;
  Evaluated evaluated = EvaluateNew(group, stores);
  if (evaluated.built) known_->of.emplace(std::move(signature), evaluated.price);
  return evaluated.price;
}

GroupPricer::Evaluated GroupPricer::EvaluateNew(const GroupOps& group,
                                                absl::Span<const ValueId> stores) const {
  Evaluated out;
  GroupPrice& best = out.price;
  best.work = static_cast<int64_t>(group.ops.size());
  const bool single = group.ops.size() == 1;
  if (Limits::Verdict v = limits_.CheckOps(static_cast<int64_t>(group.ops.size()));
      !single && !v.ok()) {
    best.limit = v.limit, best.reason = v.reason;
    return out;
  }
  const KernelOutcome kernel = Build(group, stores);
  if (!kernel.ir) {
    best.limit = std::string(Name(kernel.refusal->limit)), best.reason = kernel.refusal->reason;
    return out;
  }
  out.built = true;
  best = PriceOf(*kernel.ir, group);
  if (!options_.unroll) return out;
  const std::optional<KernelIr> unrolled = UnrollReductions(*kernel.ir);
  if (!unrolled) return out;
  GroupPrice other = PriceOf(*unrolled, group);
  other.schedule.unrolled = true;
  const int64_t work = best.work + other.work;
  const uint64_t salt = options_.schedule_salt;
  const bool better = salt != 0 ? Draw(salt + 1, group.ops) % 2 == 0 : other.ps < best.ps;
  if (other.feasible && (!best.feasible || better)) best = std::move(other);
  best.work = work;
  return out;
}

// Of a kernel that computes the group.
GroupPrice GroupPricer::PriceOf(const KernelIr& ir, const GroupOps& group) const {
  GroupPrice best;
  const bool single = group.ops.size() == 1;
  const auto work = static_cast<int64_t>(ir.instrs.size());
  best.work = work;
  auto refuse = [&](std::string limit, std::string reason) {
    best.limit = std::move(limit);
    best.reason = std::move(reason);
    return best;
  };
  const Classification shape = Classify(ir);
  if (!shape.feasible) return refuse("template", shape.reason);
  if (std::string off = SwitchedOff(ir, shape, options_); !off.empty()) {
    return refuse("template", std::move(off));
  }
  const KernelProfile profile = ProfileKernel(ir, shape);
  if (Limits::Verdict v = limits_.CheckKernel(ir, profile, static_cast<int64_t>(group.ops.size()));
      !single && !v.ok()) {
    return refuse(v.limit, v.reason);
  }
  const int64_t passed = PassedBytes(ir);
  const uint64_t key = FeedbackKey(ir);
  const KernelPricer pricer(ir, profile, device_);
  struct Candidate {
    const Schedule* schedule;
    int64_t ps;
  };
  std::vector<Candidate> admissible;
  std::optional<Candidate> spilling;  // the least bad, for a single op that fits nowhere
  const std::vector<Schedule> schedules = CandidateSchedules(ir, profile, schedule_limits());
  for (const Schedule& s : schedules) {
    const Footprint footprint = pricer.FootprintOf(s, FindCompiled(key, s));
    const bool allowed =
        limits_.Allows(footprint) || MaySpill(limits_, footprint, group.ops.size());
    if (!allowed && best.limit.empty()) {
      Limits::Verdict v = limits_.CheckSchedule(s, footprint);
      best.limit = std::move(v.limit), best.reason = std::move(v.reason);
    }
    if (!allowed && !single) continue;
    const Candidate candidate{&s, pricer.Of(s, footprint).ps};
    if (allowed) {
      admissible.push_back(candidate);
    } else if (!spilling || candidate.ps < spilling->ps) {
      spilling = candidate;
    }
  }
  std::optional<Candidate> chosen;
  if (admissible.empty()) {
    if (single) chosen = spilling;
  } else if (options_.schedule_salt != 0) {
    chosen = admissible[Draw(options_.schedule_salt, group.ops) % admissible.size()];
  } else {
    chosen = *std::min_element(admissible.begin(), admissible.end(),
                               [](const Candidate& a, const Candidate& b) { return a.ps < b.ps; });
  }
  if (chosen) {
    best = {.feasible = true,
            .schedule = *chosen->schedule,
            .ps = chosen->ps,
            .passed_bytes = passed,
            .work = work};
  }
  return best;
}

bool GroupPricer::Fits(absl::Span<const NodeId> ops) const {
  if (ops.size() == 1) return true;
  if (!epilogue_roots_.In(ops).empty()) return false;  // with an epilogue by price alone
  if (!limits_.CheckOps(static_cast<int64_t>(ops.size())).ok()) return false;
  const GroupOps group = Plain(ops);
  const std::vector<ValueId> stores = consumers_.Stores(ops);
  std::string signature = KernelSignature(graph_, consumers_, ops, stores, *numbers_);
  const auto known = known_->fits.find(signature);
  if (known != known_->fits.end()) return known->second;
  return known_->fits[std::move(signature)] = FitsNew(group, stores);
}

bool GroupPricer::FitsNew(const GroupOps& group, absl::Span<const ValueId> stores) const {
  const KernelOutcome kernel = Build(group, stores);
  if (!kernel.ir) return false;
  if (FitsKernel(*kernel.ir)) return true;
  const std::optional<KernelIr> unrolled =
      options_.unroll ? UnrollReductions(*kernel.ir) : std::nullopt;
  return unrolled && FitsKernel(*unrolled);
}

bool GroupPricer::FitsKernel(const KernelIr& ir) const {
  const Classification shape = Classify(ir);
  if (!shape.feasible || !SwitchedOff(ir, shape, options_).empty()) return false;
  const KernelProfile profile = ProfileKernel(ir, shape);
  if (!limits_.CheckKernel(ir, profile).ok()) return false;
  const std::vector<Schedule> schedules = CandidateSchedules(ir, profile, schedule_limits());
  return std::any_of(schedules.begin(), schedules.end(), [&](const Schedule& s) {
    return limits_.Allows(PredictFootprint(ir, profile, s, device_));
  });
}

int64_t GroupPricer::PassedBytes(const KernelIr& ir) const {
  int64_t bytes = 0;
  for (const Buffer& b : ir.buffers) {
    if (b.written && !consumers_.is_output(b.value.node)) bytes += b.elements * SizeBytes(b.dtype);
  }
  return bytes;
}

absl::StatusOr<Group> GroupPricer::Make(const GroupOps& ops, const Schedule& schedule) const {
  if (!epilogue_roots_.In(ops.ops).empty()) return MakeWithEpilogue(*this, ops, schedule);
  KernelOutcome kernel = Build(ops);
  if (!kernel.ir) {
    return absl::InternalError(
        absl::StrCat("a priced group cannot be built: ", kernel.refusal->reason));
  }
  if (schedule.unrolled) kernel.ir = UnrollReductions(*kernel.ir);
  RG_CHECK(kernel.ir.has_value());
  const Classification shape = Classify(*kernel.ir);
  const KernelProfile profile = ProfileKernel(*kernel.ir, shape);
  Price price =
      KernelPricer(*kernel.ir, profile, device_)
          .Of(schedule, /*explain=*/true, FindCompiled(FeedbackKey(*kernel.ir), schedule));
  Group group;
  group.nodes = ops.ops;
  for (const Buffer& b : kernel.ir->buffers)
    (b.written ? group.outputs : group.inputs).push_back(b.value);
  std::sort(group.inputs.begin(), group.inputs.end());
  std::sort(group.outputs.begin(), group.outputs.end());
  group.terms = std::move(price.terms);
  group.price_ps = price.ps;
  group.workspace_bytes = WorkspaceBytes(*kernel.ir, schedule);
  group.read_bytes = price.read_bytes;
  group.written_bytes = price.written_bytes;
  group.in_place = InPlacePairs(*kernel.ir, shape, schedule);
  group.body = LaunchOf({.ir = std::move(*kernel.ir),
                         .schedule = schedule,
                         .registers = price.footprint.registers_wanted,
                         .spill_bytes = price.footprint.spill_bytes,
                         .resident = static_cast<int>(price.footprint.blocks_per_sm)});
  return group;
}

std::vector<RefusedSchedule> GroupPricer::Refused(const GroupOps& group) const {
  std::vector<RefusedSchedule> refused;
  if (!epilogue_roots_.In(group.ops).empty()) return refused;
  KernelOutcome kernel = Build(group);
  if (!kernel.ir) return refused;
  const Classification shape = Classify(*kernel.ir);
  if (!shape.feasible) return refused;
  const KernelProfile profile = ProfileKernel(*kernel.ir, shape);
  const uint64_t key = FeedbackKey(*kernel.ir);
  const KernelPricer pricer(*kernel.ir, profile, device_);
  for (const Schedule& s : CandidateSchedules(*kernel.ir, profile, schedule_limits())) {
    Price price = pricer.Of(s, /*explain=*/true, FindCompiled(key, s));
    Limits::Verdict v = limits_.CheckSchedule(s, price.footprint);
    if (v.ok()) continue;
    refused.push_back({.schedule = s,
                       .footprint = price.footprint,
                       .price_ps = price.ps,
                       .terms = std::move(price.terms),
                       .limit = std::move(v.limit),
                       .reason = std::move(v.reason)});
  }
  std::stable_sort(refused.begin(), refused.end(), [](const auto& a, const auto& b) {
    return a.footprint.spill_bytes > b.footprint.spill_bytes;
  });
  return refused;
}

uint64_t GroupPricer::FeedbackKey(const KernelIr& ir) const {
  return options_.feedback.empty() ? 0 : FingerprintOf(ir);
}

const CompiledResources* GroupPricer::FindCompiled(uint64_t key, const Schedule& schedule) const {
  return options_.feedback.empty() ? nullptr : options_.feedback.Find(key, schedule);
}

const CompiledResources* GroupPricer::Compiled(const GroupOps& group,
                                               const Schedule& schedule) const {
  if (options_.feedback.empty() || !epilogue_roots_.In(group.ops).empty()) return nullptr;
  const KernelOutcome kernel = Build(group);
  if (!kernel.ir) return nullptr;
  const KernelIr ir = schedule.unrolled ? *UnrollReductions(*kernel.ir) : *kernel.ir;
  return FindCompiled(FingerprintOf(ir), schedule);
}

GroupPricer GroupPricer::WithoutFeedback() const {
  GroupPricer without = *this;
  without.options_.feedback = {};
  without.own_ = std::make_shared<KernelPrices>();
  without.known_ = without.own_.get();
  without.numbers_ = std::make_shared<NodeNumbers>(graph_, layouts_, without.known_->nodes);
  return without;
}

int64_t GroupPricer::LeastPs(MovedBytes bytes) const {
  const int64_t cached = CachedBytes(bytes.fresh, bytes.all, device_);
  return LeastKernelPs(device_) + std::max(TransferPs(bytes.all - cached, device_.hbm_bytes_per_s),
                                           TransferPs(cached, device_.cache_bytes_per_s));
}

// A kernel takes at least what its uncached bytes take, and at least all its bytes over both
// bandwidths added: memory and cache work side by side.
int64_t GroupPricer::LeastPsOfAll(MovedBytes bytes) const {
  return LeastKernelPs(device_) +
         std::max(TransferPs(bytes.uncached, device_.hbm_bytes_per_s),
                  TransferPs(bytes.all, device_.hbm_bytes_per_s + device_.cache_bytes_per_s));
}

int64_t GroupPricer::LeastPsOfAll(absl::Span<const NodeId> ops) const {
  const std::vector<const Group*> products = epilogue_roots_.In(ops);
  if (products.empty()) return LeastPsOfAll(traffic_.LeastBytes(ops, device_));
  int64_t products_ps = 0;
  std::vector<NodeId> rest(ops.begin(), ops.end());
  for (const Group* product : products) {
    products_ps += LeastProductPs(*product, device_);
    std::erase(rest, product->nodes[0]);
  }
  return LeastWithEpiloguePs(products_ps, LeastPsOfAll(traffic_.LeastBytes(rest, device_)),
                             device_);
}

int64_t GroupPricer::Cost(const GroupPrice& price, bool joins) const {
  return price.ps + (joins ? Margin(price.ps) : 0) +
         (price.passed_bytes >> 20) * options_.memory_ps_per_mib;
}

int64_t GroupPricer::Margin(int64_t price_ps) const {
  return std::max(device_.margin_ps, price_ps / 1'000'000 * device_.margin_ppm);
}

}  // namespace retrograd
