#include "runtime/program/commands.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/str_format.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/ops/grouped_matmul/epilogue_product.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "fusion/plan/group_dag.h"
#include "fusion/plan/member_workspaces.h"
#include "graph/base/status.h"
#include "runtime/program/early_launches.h"

namespace retrograd {
namespace {

// An order of the steps that phases, streams and waits allow, drawn from the seed.
std::vector<uint32_t> DrawOrder(const CompiledPlan& compiled, uint64_t seed) {
  const StreamSchedule& schedule = compiled.schedule;
  const uint32_t n = static_cast<uint32_t>(schedule.steps.size());
  std::vector<std::vector<uint32_t>> after(n);
  std::vector<uint32_t> open(n, 0), last(schedule.streams, n), ready, order;
  for (uint32_t i = 0; i < n; ++i) {
    const Step& step = schedule.steps[i];
    std::vector<uint32_t> before = step.waits;
    if (last[step.stream] != n) before.push_back(last[step.stream]);
    last[step.stream] = i;
    for (uint32_t b : before) after[b].push_back(i);
    open[i] = static_cast<uint32_t>(before.size());
    if (open[i] == 0) ready.push_back(i);
  }
  std::mt19937_64 random(seed);
  while (!ready.empty()) {
    const auto first = std::min_element(ready.begin(), ready.end());
    size_t pick = first - ready.begin();
    if (seed != 0) {
      const uint32_t drawn = random() % ready.size();
      const bool now = compiled.memory.PhaseOf(ready[drawn]) == compiled.memory.PhaseOf(*first);
      if (now) pick = drawn;
    }
    const uint32_t step = ready[pick];
    ready[pick] = ready.back();
    ready.pop_back();
    order.push_back(step);
    for (uint32_t a : after[step]) {
      if (--open[a] == 0) ready.push_back(a);
    }
  }
  return order;
}

class Builder {
 public:
  explicit Builder(const CompiledPlan& compiled) : c_(compiled) {
    workspace_.assign(c_.plan.groups.size(), nullptr);
    for (const Workspace& w : c_.memory.workspaces) workspace_[Index(w.group)] = &w;
    ShareWorkspaces();
    list_.slots = static_cast<uint32_t>(c_.memory.placements.size() + c_.memory.workspaces.size() +
                                        list_.parts.size());
    list_.alignment.assign(list_.slots, 1);
  }

  absl::StatusOr<CommandList> Build(uint64_t order_seed) {
    const std::vector<Step>& steps = c_.schedule.steps;
    // Streams join between phases, so that a wait is for a step of the same one.
    const auto waits_of = [&](uint32_t s) {
      std::vector<uint32_t> waits = steps[s].waits;
      std::erase_if(waits, [&](uint32_t wait) { return wait < c_.memory.phases[PhaseOf(s)]; });
      return waits;
    };
    std::vector<bool> waited_for(steps.size(), false);
    for (uint32_t s = 0; s < steps.size(); ++s) {
      for (uint32_t wait : waits_of(s)) waited_for[wait] = true;
    }
    BeginPhase();
    for (uint32_t s : DrawOrder(c_, order_seed)) {
      while (PhaseOf(s) >= list_.phase_begins.size()) {
        JoinStreams();
        BeginPhase();
      }
      const Step& step = steps[s];
      group_ = step.group;
      for (uint32_t wait : waits_of(s)) Add(Command::kWait, step.stream, wait);
      RG_RETURN_IF_ERROR(AddGroup(step));
      if (waited_for[s]) Add(Command::kRecord, step.stream, s);
    }
    JoinStreams();
    for (const OutputCopy& copy : c_.memory.copies) RG_RETURN_IF_ERROR(AddCopy(copy));
    return std::move(list_);
  }

 private:
  void Add(Command::Kind kind, int stream, size_t number) {
    const auto phase = static_cast<uint32_t>(list_.phase_begins.size() - 1);
    list_.commands.push_back({kind, stream, static_cast<uint32_t>(number), group_, phase});
  }

  uint32_t PhaseOf(uint32_t step) const { return c_.memory.PhaseOf(step); }
  void BeginPhase() {
    list_.phase_begins.push_back(list_.commands.size());
    ForkStreams();
  }

  // Stream 0 is the caller's: all others start after what it was given before, and in the end it
  // waits for them. The events of both stand behind those of the steps.
  void ForkStreams() {
    group_ = kNoGroup;
    const size_t events = c_.schedule.steps.size();
    list_.events = static_cast<int>(events) + c_.schedule.streams;
    if (c_.schedule.streams > 1) Add(Command::kRecord, 0, events);
    for (int stream = 1; stream < c_.schedule.streams; ++stream) {
      Add(Command::kWait, stream, events);
    }
  }
  void JoinStreams() {
    group_ = kNoGroup;
    const size_t events = c_.schedule.steps.size();
    for (int stream = 1; stream < c_.schedule.streams; ++stream) {
      Add(Command::kRecord, stream, events + stream);
      Add(Command::kWait, 0, events + stream);
    }
  }

  absl::Status AddGroup(const Step& step) {
    const Group& group = c_.plan.groups[Index(step.group)];
    if (const std::vector<const KernelBody*> kernels = KernelsOf(group); !kernels.empty()) {
      return AddLaunches(step, kernels);
    }
    if (AliasOf(group) != nullptr) return absl::OkStatus();  // nothing runs
    if (const Call* fused = FusedCallOf(group)) {
      const EpilogueProduct product = *EpilogueProductOf(*fused);
      return AddLaunches(step, {&fused->epilogue->kernel}, &product);
    }
    CallCommand command;
    if (const CallLaunch* shared = SharedCallsOf(group)) {
      for (const CallLaunch::Member& member : shared->members) {
        RG_ASSIGN_OR_RETURN(CallFacts facts, AddOperands(member.call, &command));
        command.members.push_back({&member.call, std::move(facts)});
      }
      TakeKeptBytes(command.members);
      command.call = command.members[0].call;
      command.facts = command.members[0].facts;
    } else {
      command.call = CallOf(group);
      RG_ASSIGN_OR_RETURN(command.facts, AddOperands(*command.call, &command));
      command.facts.most_kept_bytes = TakeKeptBytes(*command.call);
    }
    return AddCall(step, std::move(command));
  }

  // The slots of a call's operands and results, behind those that the command has.
  absl::StatusOr<CallFacts> AddOperands(const Call& call, CallCommand* command) {
    CallFacts facts = {.allow_tf32 = c_.graph.numerics().allow_tf32, .image_boxes = c_.image_boxes};
    for (const CallTensor& operand : call.operands) {
      RG_ASSIGN_OR_RETURN(const uint32_t slot, Slot(operand.value));
      command->operands.push_back(slot);
      facts.operand_alignment.push_back(KnownAlignment(slot));
    }
    for (const CallTensor& result : call.results) {
      RG_ASSIGN_OR_RETURN(const uint32_t slot, Slot(result.value));
      command->results.push_back(slot);
      facts.result_alignment.push_back(KnownAlignment(slot));
    }
    return facts;
  }

  absl::Status AddCall(const Step& step, CallCommand command) {
    command.operand_data.resize(command.operands.size());
    command.result_data.resize(command.results.size());
    Add(Command::kCall, step.stream, list_.calls.size());
    list_.calls.push_back(std::move(command));
    return absl::OkStatus();
  }

  // Of what calls may hold, what this one takes: those come first that run first. A list that is no
  // input of the graph's is made of what each run computes.
  int64_t TakeKeptBytes(const Call& call) {
    if (call.op != Op::sort_indices || SharesBytes(call.results[0].value)) return 0;
    if (c_.graph.pattern(call.operands[0].value.node) != Pattern::kInput) return 0;
    const int64_t bytes = KeptBytes(IndexSortOf(call));
    if (bytes > c_.most_kept_bytes - kept_bytes_) return 0;
    kept_bytes_ += bytes;
    return bytes;
  }
  // The same of calls that share launches, which hold all of it or nothing.
  void TakeKeptBytes(std::vector<CallCommand::Member>& members) {
    const int64_t before = kept_bytes_;
    for (CallCommand::Member& member : members) {
      member.facts.most_kept_bytes = TakeKeptBytes(*member.call);
      if (member.facts.most_kept_bytes > 0) continue;
      for (CallCommand::Member& all : members) all.facts.most_kept_bytes = 0;
      kept_bytes_ = before;
      return;
    }
  }
  // Whether another value lies in the value's bytes, or it in those of another.
  bool SharesBytes(ValueId value) const {
    const Placement* own = c_.memory.Find(value);
    if (own == nullptr || own->place != Placement::kArena || own->takes_over || own->inside) {
      return true;
    }
    for (const Placement& p : c_.memory.placements) {
      if (p.takes_over == value || p.inside == value) return true;
    }
    return false;
  }

  // `product`: of a kernel that multiplies first.
  absl::Status AddLaunches(const Step& step, absl::Span<const KernelBody* const> bodies,
                           const EpilogueProduct* product = nullptr) {
    std::vector<uint32_t> touched;  // slots that an earlier launch of the group may have written
    for (const Kernel& kernel : c_.kernels[Index(step.group)].launches) {
      Launch launch{kernel.name, kernel.blocks, kernel.threads, {}, kernel.staged_bytes};
      launch.starts_early = kernel.starts_early;
      for (const KernelArg& arg : kernel.args) {
        RG_ASSIGN_OR_RETURN(LaunchArg bound,
                            arg.kind == KernelArg::kWorkspace
                                ? WorkspaceArg(step.group, arg.member)
                                : ValueArg(arg.value, bodies[arg.member]->ir, product));
        const bool known = std::find(touched.begin(), touched.end(), bound.slot) != touched.end();
        if (known && bound.contents == Contents::kFresh) bound.contents = Contents::kWritten;
        if (!known) touched.push_back(bound.slot);
        list_.alignment[bound.slot] = std::max(list_.alignment[bound.slot], bound.alignment);
        launch.args.push_back(bound);
      }
      if (product != nullptr) {  // its operands are the first arguments
        launch.cluster = kernel.cluster;
        const MatMulCall& c = product->matmul;
        launch.maps = {MapOf(c.a, c.in_dtype, launch.args[0].slot, c.m, c.k),
                       MapOf(c.b, c.in_dtype, launch.args[1].slot, c.k, c.n)};
        if (product->groups) {
          launch.maps[1].heads = product->groups->groups;
          launch.maps[1].head_pitch = product->groups->b.group_stride;
        }
      }
      Add(Command::kLaunch, step.stream, list_.launches.size());
      list_.launches.push_back(std::move(launch));
    }
    return absl::OkStatus();
  }

  static OperandMap MapOf(const MatrixOperand& operand, DType dtype, uint32_t slot, int64_t rows,
                          int64_t cols) {
    const bool by_rows = operand.col_stride == 1;
    return {.slot = slot,
            .dtype = dtype,
            .offset = operand.offset,
            .inner = by_rows ? cols : rows,
            .outer = by_rows ? rows : cols,
            .pitch = by_rows ? operand.row_stride : operand.col_stride};
  }

  // The parts of workspaces that kernels of one launch share.
  void ShareWorkspaces() {
    first_part_.assign(c_.plan.groups.size(), 0);
    for (size_t number = 0; number < c_.memory.workspaces.size(); ++number) {
      const GroupId group = c_.memory.workspaces[number].group;
      const KernelLaunch* shared = SharedLaunchOf(c_.plan.groups[Index(group)]);
      if (shared == nullptr) continue;
      first_part_[Index(group)] = list_.parts.size();
      for (const MemberWorkspaces::Part& part : MemberWorkspacesOf(*shared).parts) {
        list_.parts.push_back({number, part.offset, part.bytes});
      }
    }
  }

  // member: of the kernels that share the group's launch.
  absl::StatusOr<LaunchArg> WorkspaceArg(GroupId group, uint32_t member) const {
    const Workspace* w = workspace_[Index(group)];
    if (w == nullptr) {
      return absl::InternalError(absl::StrFormat(
          "a kernel of group %d wants a workspace, but the plan gives the group none",
          Index(group)));
    }
    const size_t placements = c_.memory.placements.size();
    const size_t number = w - c_.memory.workspaces.data();
    size_t slot = placements + number;
    int64_t bytes = w->bytes;
    if (SharedLaunchOf(c_.plan.groups[Index(group)]) != nullptr) {
      const size_t part = first_part_[Index(group)] + member;
      slot = placements + c_.memory.workspaces.size() + part;
      bytes = list_.parts[part].bytes;
    }
    return LaunchArg{.slot = static_cast<uint32_t>(slot),
                     .bytes = bytes,
                     .alignment = 16,
                     .written = true,
                     .contents = Contents::kFresh};
  }

  absl::StatusOr<LaunchArg> ValueArg(ValueId value, const KernelIr& ir,
                                     const EpilogueProduct* product) const {
    RG_ASSIGN_OR_RETURN(const uint32_t slot, Slot(value));
    LaunchArg arg{.slot = slot};
    const Buffer* found = nullptr;
    for (const Buffer& buffer : ir.buffers) {
      if (buffer.value != value) continue;
      found = &buffer;
      arg.written = arg.written || buffer.written;
      arg.bytes = std::max(arg.bytes, buffer.elements * SizeBytes(buffer.dtype));
      arg.alignment = std::max(arg.alignment, buffer.alignment);
    }
    const bool multiplied = product != nullptr &&
                            (product->matmul.a.value == value || product->matmul.b.value == value);
    const bool ends = product != nullptr && product->groups && product->ends == value;
    if (ends) {
      arg.bytes = c_.memory.placements[slot].bytes;
      arg.alignment = std::max(arg.alignment, SizeBytes(DType::kInt32));
    }
    if (multiplied) {
      arg.bytes = c_.memory.placements[slot].bytes;
      arg.alignment = std::max(arg.alignment, kStoredAlignment);
    }
    if ((found == nullptr && !multiplied && !ends) ||
        arg.bytes > c_.memory.placements[slot].bytes) {
      return absl::InternalError(absl::StrFormat(
          "a kernel's argument %s is no buffer of its IR, or larger than what is stored",
          PrintValue(value)));
    }
    if (c_.graph.pattern(value.node) == Pattern::kInput) {
      arg.contents = Contents::kDefined;
    } else if (arg.written && !c_.memory.placements[slot].takes_over &&
               !c_.memory.placements[slot].inside) {
      arg.contents = Contents::kFresh;
    } else {
      arg.contents = Contents::kWritten;
    }
    return arg;
  }

  absl::Status AddCopy(const OutputCopy& output_copy) {
    const GraphOutput& output = c_.graph.outputs()[output_copy.output];
    const TensorType& type = c_.graph.type(output_copy.value);
    const std::optional<StridedView> view = AsStrided(c_.graph, c_.plan.layouts, output_copy.value);
    if (!view) {
      return absl::InternalError(absl::StrFormat(
          "output %d is %s, a view that no strides describe; the planner must materialise it",
          output_copy.output, PrintValue(output_copy.value)));
    }
    RG_ASSIGN_OR_RETURN(const uint32_t slot, Slot(view->stored));
    Add(Command::kCopy, 0, list_.copies.size());
    list_.copies.push_back({output_copy.output, slot, type.dtype,
                            view->offset * SizeBytes(type.dtype), type.shape, view->strides,
                            output.strides.empty() ? DenseStrides(type.shape) : output.strides});
    return absl::OkStatus();
  }

  // What divides the address of a stored value. A promise about an input's is made a demand, and
  // outputs lie as kernels want them: a library is several times slower where it can't be sure.
  int64_t KnownAlignment(uint32_t slot) {
    const Placement& p = c_.memory.placements[slot];
    if (p.place == Placement::kArena) return std::gcd(p.offset, kArenaAlignment);
    const Node& node = c_.graph.node(p.value.node);
    int64_t promised = p.place == Placement::kOutput ? kStoredAlignment : 0;
    if (node.input && p.place == Placement::kInput) promised = node.input->alignment;
    const int64_t known = std::max(promised, SizeBytes(c_.graph.type(p.value).dtype));
    list_.alignment[slot] = std::max(list_.alignment[slot], known);
    return known;
  }

  absl::StatusOr<uint32_t> Slot(ValueId value) const {
    const Placement* placement = c_.memory.Find(value);
    if (placement == nullptr) {
      return absl::InternalError(
          absl::StrFormat("%s is used by a kernel but stored nowhere", PrintValue(value)));
    }
    return static_cast<uint32_t>(placement - c_.memory.placements.data());
  }

  const CompiledPlan& c_;
  std::vector<const Workspace*> workspace_;  // by group
  std::vector<size_t> first_part_;           // by group: of those whose kernels share a launch
  CommandList list_;
  GroupId group_ = kNoGroup;  // whose commands are being added
  int64_t kept_bytes_ = 0;    // of the calls so far
};

}  // namespace

absl::StatusOr<CommandList> BuildCommands(const CompiledPlan& compiled, uint64_t order_seed) {
  RG_ASSIGN_OR_RETURN(CommandList list, Builder(compiled).Build(order_seed));
  MarkEarlyLaunches(compiled, &list);
  RG_RETURN_IF_ERROR(CheckEarlyLaunches(list));
  return list;
}

}  // namespace retrograd
