#include "tests/support/golden/golden_stages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/attention/emit_tiled_attention.h"
#include "codegen/attention/emit_warp_attention.h"
#include "codegen/emit.h"
#include "codegen/gemm/emit_fused_matmul.h"
#include "codegen/translation_unit.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/ops/attention/attention_call.h"
#include "fusion/planner/planning_context.h"
#include "graph/base/status.h"
#include "graph/passes/expand.h"
#include "graph/text/text.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {
namespace {

using Text = absl::StatusOr<std::string>;

std::string Label(const BackwardGraph& graph, NodeId id) {
  return absl::StrCat("%", Index(id), " ", Name(graph.op(id)));
}

std::string Labels(const BackwardGraph& graph, absl::Span<const NodeId> ids) {
  return absl::StrJoin(
      ids, ", ", [&](std::string* out, NodeId id) { absl::StrAppend(out, Label(graph, id)); });
}

// --- expand, lower, layouts, regions

Text Expand(const GoldenRun&, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph expanded, ExpandComposites(graph));
  return Print(expanded);
}

Text LowerStage(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph lowered,
                      Lower(graph, LowerOptionsOf(run.options, run.device)));
  return Print(lowered);
}

// ", inside %9 cat from element 128" for a part of a concat in place.
std::string InsideOf(const PlanningContext& context, ValueId value) {
  for (const Alias& alias : context.placed_concats) {
    for (const Alias::Part& part : alias.parts) {
      if (part.value != value) continue;
      return absl::StrCat(", inside ", Label(context.graph, alias.whole.node), " from element ",
                          part.offset);
    }
  }
  return "";
}

// A line for each stored value: its type and the strides of its dims, in elements.
Text Layouts(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph lowered,
                      Lower(graph, LowerOptionsOf(run.options, run.device)));
  RG_ASSIGN_OR_RETURN(const auto context, PlanningContext::Make(lowered, run.device, run.options));
  std::string text = absl::StrCat(Print(lowered), "\n");
  for (uint32_t i = 0; i < lowered.num_nodes(); ++i) {
    const NodeId id{i};
    for (uint32_t r = 0; r < lowered.node(id).results.size(); ++r) {
      const ValueId value{id, r};
      const Layout& layout = context->layouts[lowered.value_index(value)];
      if (lowered.pattern(id) == Pattern::kView || IsConstant(lowered, id)) continue;
      absl::StrAppend(&text, Label(lowered, id), r > 0 ? absl::StrCat(".", r) : "", " ",
                      lowered.type(value).Print(), " strides=[", absl::StrJoin(layout.strides, ","),
                      "]", InsideOf(*context, value), "\n");
    }
  }
  return text;
}

// The regions, then the library calls and aliases, each with its barrier depth: a call has that of
// what reads its results.
Text Regions(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph lowered,
                      Lower(graph, LowerOptionsOf(run.options, run.device)));
  RG_ASSIGN_OR_RETURN(const auto context, PlanningContext::Make(lowered, run.device, run.options));
  std::vector<bool> taken(lowered.num_nodes(), false);
  for (const Group& call : context->library_calls) {
    for (NodeId id : call.nodes) taken[Index(id)] = !IsBarrier(lowered, id);
  }
  const std::vector<int> depths = BarrierDepths(lowered, context->consumers, taken);
  std::string text = absl::StrCat(Print(lowered), "\n");
  for (size_t r = 0; r < context->regions.size(); ++r) {
    const std::vector<NodeId>& ops = context->regions[r].ops;
    absl::StrAppend(&text, "region ", r, " depth=", depths[Index(ops[0])], ": ",
                    Labels(lowered, ops), "\n");
  }
  for (const Group& call : context->library_calls) {
    absl::StrAppend(&text, AliasOf(call) != nullptr ? "alias" : "call",
                    " depth=", depths[Index(call.nodes[0])], ": ", Labels(lowered, call.nodes),
                    "\n");
  }
  return text;
}

// --- plan, refusal

absl::StatusOr<Planned> PlanOf(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(Planned planned, PlanFusion(graph, run.device, run.options));
  RG_RETURN_IF_ERROR(planned.plan.Verify(planned.graph));
  return planned;
}

// The lines of a printed plan that tell of decisions. limit: of those alone that it made.
std::vector<std::string> DecisionLines(const Planned& planned, absl::string_view limit) {
  std::vector<std::string> lines = absl::StrSplit(planned.plan.Print(planned.graph), '\n');
  const std::string code = absl::StrCat("[", limit, "]: ");
  std::erase_if(lines, [&](const std::string& line) {
    const bool decision = absl::StartsWith(line, "yes ") || absl::StartsWith(line, "no ");
    return !decision || (!limit.empty() && !absl::StrContains(line, code));
  });
  return lines;
}

absl::Status RefusesNothing(const GoldenRun& run, const Planned& planned) {
  return absl::NotFoundError(absl::StrCat("the limit ", run.limit, " refuses nothing:\n",
                                          planned.plan.Print(planned.graph)));
}

// The groups alone, without prices; every decision's sides and limit, without its figures.
Text PlanStage(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const Planned planned, PlanOf(run, graph));
  if (!run.limit.empty() && DecisionLines(planned, run.limit).empty()) {
    return RefusesNothing(run, planned);
  }
  std::string text = absl::StrCat(Print(planned.graph), "\n");
  const std::string printed = planned.plan.Print(planned.graph);
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (!absl::StartsWith(line, "group ")) continue;
    std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    std::erase_if(words, [](absl::string_view w) {
      return absl::StartsWith(w, "price=") || absl::StartsWith(w, "registers=");
    });
    absl::StrAppend(&text, absl::StrJoin(words, " "), "\n");
  }
  for (const std::string& line : DecisionLines(planned, "")) {
    absl::StrAppend(&text, line.substr(0, line.find(':')), "\n");
  }
  return text;
}

// A refused schedule's sentence ends with its time and that of the one that was chosen.
std::string WithoutTimes(const std::string& line) {
  const size_t against = line.find(" us against ");
  return against == std::string::npos ? line : line.substr(0, line.rfind(", ", against));
}

// The decisions that the limit made; or why two ops that must share a kernel cannot.
Text Refusal(const GoldenRun& run, const BackwardGraph& graph) {
  if (run.limit.empty()) return absl::InvalidArgumentError("a refusal wants limit=NAME");
  RG_ASSIGN_OR_RETURN(const BackwardGraph lowered,
                      Lower(graph, LowerOptionsOf(run.options, run.device)));
  const absl::StatusOr<Planned> planned = PlanOf(run, graph);
  if (!planned.ok()) {
    const absl::string_view message = planned.status().message();
    if (!absl::StrContains(message, absl::StrCat(": ", run.limit, ": "))) return planned.status();
    return absl::StrCat(Print(lowered), "\n", message, "\n");
  }
  const std::vector<std::string> lines = DecisionLines(*planned, run.limit);
  if (lines.empty()) return RefusesNothing(run, *planned);
  std::string text = absl::StrCat(Print(lowered), "\n");
  for (const std::string& line : lines) absl::StrAppend(&text, WithoutTimes(line), "\n");
  return text;
}

// --- kernels

bool Has(const Schedule& schedule, const std::vector<std::string>& words) {
  const std::string text = schedule.Print();
  const std::vector<std::string> has = absl::StrSplit(text, ' ');
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(has.begin(), has.end(), word) != has.end();
  });
}

absl::StatusOr<KernelBody> WholeKernel(const GoldenRun& run, const BackwardGraph& graph) {
  const std::vector<Layout> layouts = AssignLayouts(graph).of;
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (Computes(graph, NodeId{i})) nodes.push_back(NodeId{i});
  }
  const std::vector<ValueId> stores = Consumers(graph).Stores(nodes);
  KernelOutcome kernel = BuildKernel({graph, layouts, nodes, stores});
  if (!kernel.ir) return absl::FailedPreconditionError(kernel.refusal->reason);
  const Classification shape = Classify(*kernel.ir);
  if (!shape.feasible) return absl::FailedPreconditionError(shape.reason);
  std::string others;
  for (const Schedule& s : CandidateSchedules(*kernel.ir, shape, ScheduleLimitsOf(run.device))) {
    if (Has(s, run.schedule)) return KernelBody{.ir = *std::move(kernel.ir), .schedule = s};
    absl::StrAppend(&others, "\n", s.Print());
  }
  return absl::NotFoundError(absl::StrCat("no such schedule; there are", others));
}

std::vector<Kernel> KernelsOfCall(const GoldenRun& run, const Call& call, Dialect dialect) {
  if (call.epilogue) return EmitFusedMatMul(call, dialect).launches;
  if (call.op != Op::attention_backward) return {};
  std::vector<DType> dtypes;
  for (const CallTensor& operand : call.operands) dtypes.push_back(operand.dtype);
  const AttentionCall attention = AttentionOf(call);
  const std::optional<WarpAttentionTiles> tiles =
      ChooseWarpAttentionTiles(attention, run.device.staged_bytes_per_block);
  const AttentionKernels made =
      run.implementation == "tensor_cores"
          ? EmitTiledAttention(attention, dtypes, ChooseAttentionTiles(attention, run.device.sms))
      : tiles.has_value() ? EmitWarpAttention(attention, dtypes, /*alignment=*/{}, *tiles, dialect,
                                              dialect == Dialect::kHip ? 64 : 32)
                          : EmitAttention(attention, dtypes, dialect);
  std::vector<Kernel> kernels;
  for (const AttentionKernels::Launch& launch : made.launches) kernels.push_back(launch.kernel);
  return kernels;
}

absl::StatusOr<std::vector<Kernel>> KernelsIn(const GoldenRun& run, const BackwardGraph& graph,
                                              Dialect dialect) {
  if (!run.schedule.empty()) {
    RG_ASSIGN_OR_RETURN(const BackwardGraph lowered,
                        Lower(graph, LowerOptionsOf(run.options, run.device)));
    RG_ASSIGN_OR_RETURN(const KernelBody body, WholeKernel(run, lowered));
    return EmitGroup(body, dialect).launches;
  }
  RG_ASSIGN_OR_RETURN(const Planned planned, PlanOf(run, graph));
  std::vector<Kernel> kernels;
  for (const Group& group : planned.plan.groups) {
    const Call* call = CallOf(group);
    for (Kernel& kernel : call != nullptr ? KernelsOfCall(run, *call, dialect)
                                          : EmitGroup(group, dialect).launches) {
      kernels.push_back(std::move(kernel));
    }
  }
  return kernels;
}

// Kernels are named by digests of their texts; here by their numbers.
absl::StatusOr<std::string> Source(const GoldenRun& run, const BackwardGraph& graph,
                                   Dialect dialect) {
  RG_ASSIGN_OR_RETURN(std::vector<Kernel> kernels, KernelsIn(run, graph, dialect));
  if (kernels.empty()) return absl::NotFoundError("no kernel is generated");
  for (size_t i = 0; i < kernels.size(); ++i) kernels[i].name = absl::StrCat("kernel_", i);
  return std::string(absl::StripPrefix(PrintKernels(kernels), "\n"));
}

std::string WithoutUnrolling(absl::string_view source) {
  std::vector<absl::string_view> lines = absl::StrSplit(source, '\n');
  std::erase(lines, "#pragma unroll");
  return absl::StrJoin(lines, "\n");
}

// What another dialect's text is, told by that of the one before it.
std::string ByComparison(absl::string_view text, absl::string_view before) {
  constexpr size_t kFewLines = 4;
  if (text == before) return "the same text\n";
  if (text == WithoutUnrolling(before)) return "the same text without #pragma unroll\n";
  const std::vector<absl::string_view> is = absl::StrSplit(text, '\n');
  const std::vector<absl::string_view> was = absl::StrSplit(before, '\n');
  std::string lines;
  size_t differ = 0;
  for (size_t i = 0; is.size() == was.size() && i < is.size(); ++i) {
    if (is[i] == was[i]) continue;
    absl::StrAppend(&lines, "-", was[i], "\n+", is[i], "\n");
    ++differ;
  }
  if (differ > 0 && differ <= kFewLines) return absl::StrCat("the same text but for\n", lines);
  return absl::StrCat("another text\n", text);
}

// The source in CUDA, then how each other dialect differs from the one before.
Text Kernels(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(std::string before, Source(run, graph, Dialect::kCuda));
  std::string text = before;
  if (run.implementation == "tensor_cores") return text;  // in CUDA alone
  for (Dialect dialect : {Dialect::kHip, Dialect::kHost}) {
    RG_ASSIGN_OR_RETURN(std::string source, Source(run, graph, dialect));
    absl::StrAppend(&text, "\n==== ", Name(dialect), ": ", ByComparison(source, before));
    before = std::move(source);
  }
  return text;
}

// --- schedule, memory

// The groups with what they read and store, without their schedules, which prices choose.
std::string GroupLines(const FusionPlan& plan, const BackwardGraph& graph) {
  std::string text;
  const std::string printed = plan.Print(graph);
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (!absl::StartsWith(line, "group ")) continue;
    const size_t outputs_end = line.find("] ", line.find(" out=[")) + 2;
    absl::StrAppend(&text, line.substr(0, line.find(' ', outputs_end)), "\n");
  }
  return text;
}

// The steps without their times: "2 s1 group 3 wait 0".
std::string StepLines(const StreamSchedule& schedule) {
  std::string text;
  const std::string printed = schedule.Print();
  for (absl::string_view line : absl::StrSplit(printed, '\n', absl::SkipEmpty())) {
    std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    std::erase_if(words, [](absl::string_view w) {
      return w == "ps" || absl::StrContains(w, "..") || absl::StartsWith(w, "makespan=");
    });
    absl::StrAppend(&text, absl::StrJoin(words, " "), "\n");
  }
  return text;
}

absl::StatusOr<StreamSchedule> ScheduleOf(const GoldenRun& run, const Planned& planned) {
  RG_ASSIGN_OR_RETURN(StreamSchedule schedule,
                      ScheduleStreams(planned.graph, planned.plan,
                                      {.streams = run.streams, .chip_blocks = run.device.sms}));
  RG_RETURN_IF_ERROR(schedule.Verify(planned.graph, planned.plan));
  return schedule;
}

Text ScheduleStage(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const Planned planned, PlanOf(run, graph));
  RG_ASSIGN_OR_RETURN(const StreamSchedule schedule, ScheduleOf(run, planned));
  return absl::StrCat(GroupLines(planned.plan, planned.graph), "\n", StepLines(schedule));
}

Text MemoryStage(const GoldenRun& run, const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const Planned planned, PlanOf(run, graph));
  RG_ASSIGN_OR_RETURN(const StreamSchedule schedule, ScheduleOf(run, planned));
  RG_ASSIGN_OR_RETURN(const MemoryPlan memory,
                      PlanMemory(planned.graph, planned.plan, schedule, {}));
  RG_RETURN_IF_ERROR(memory.Verify(planned.graph, planned.plan, schedule));
  return absl::StrCat(GroupLines(planned.plan, planned.graph), "\n", StepLines(schedule), "\n",
                      memory.Print());
}

struct Stage {
  absl::string_view name;
  Text (*text)(const GoldenRun& run, const BackwardGraph& graph);
};

// In the order of the pipeline.
constexpr Stage kStages[] = {
    {"expand", Expand},   {"lower", LowerStage},       {"layouts", Layouts},
    {"regions", Regions}, {"plan", PlanStage},         {"refusal", Refusal},
    {"kernels", Kernels}, {"schedule", ScheduleStage}, {"memory", MemoryStage},
};

const Stage* FindStage(absl::string_view name) {
  for (const Stage& stage : kStages) {
    if (stage.name == name) return &stage;
  }
  return nullptr;
}

}  // namespace

Text TextOfStage(const GoldenRun& run, absl::string_view graph) {
  const Stage* stage = FindStage(run.stage);
  if (stage == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no stage '", run.stage, "'"));
  }
  const absl::StatusOr<BackwardGraph> parsed = ParseGraph(graph);
  if (!parsed.ok()) return absl::StrCat(parsed.status().message(), "\n");
  return stage->text(run, *parsed);
}

}  // namespace retrograd
