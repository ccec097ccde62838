// The plan checker. It shares no code with the planner: what it needs to know of views, uses and
// layouts it works out again from the graph.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/plan/member_workspaces.h"
#include "fusion/plan/plan.h"
#include "fusion/plan/split_epilogues.h"
#include "fusion/verify/call_check.h"
#include "fusion/verify/concat_in_place_check.h"
#include "fusion/verify/epilogue_check.h"
#include "fusion/verify/kernel_check.h"
#include "fusion/verify/symbolic_value.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class Checker {
 public:
  Checker(const BackwardGraph& g, const FusionPlan& plan) : g_(g), plan_(plan) {}

  absl::Status Run() {
    RG_RETURN_IF_ERROR(CheckMembership());
    RG_RETURN_IF_ERROR(CheckOrder());
    RG_RETURN_IF_ERROR(CheckMerged());
    RG_RETURN_IF_ERROR(CheckReads());
    RG_RETURN_IF_ERROR(CheckOutputs());
    return CheckBodies();
  }

 private:
  template <typename... Args>
  static absl::Status Broken(const Args&... args) {
    return absl::FailedPreconditionError(absl::StrCat(args...));
  }

  bool IsView(NodeId id) const { return g_.pattern(id) == Pattern::kView; }
  bool IsSource(NodeId id) const {
    return g_.pattern(id) == Pattern::kInput ||
           (g_.pattern(id) == Pattern::kPointwise && g_.operands(id).empty());
  }

  // All ops that the group computes: its own and those computed again.
  static std::vector<NodeId> Computed(const Group& group) {
    std::vector<NodeId> ops = group.nodes;
    ops.insert(ops.end(), group.recomputed.begin(), group.recomputed.end());
    return ops;
  }
  static bool Computes(const Group& group, NodeId id) {
    return std::binary_search(group.nodes.begin(), group.nodes.end(), id) ||
           std::binary_search(group.recomputed.begin(), group.recomputed.end(), id);
  }

  // P1: an op computed again is cheap, belongs to another group, and is not stored here.
  absl::Status CheckRecomputed(size_t i) const {
    const Group& group = plan_.groups[i];
    if (!std::is_sorted(group.recomputed.begin(), group.recomputed.end())) {
      return Broken("P1: the recomputed ops of group ", i, " are not ascending");
    }
    for (NodeId id : group.recomputed) {
      if (Index(id) >= g_.num_nodes())
        return Broken("P1: group ", i, " recomputes %", Index(id), ", which does not exist");
      if (g_.pattern(id) != Pattern::kPointwise || IsSource(id)) {
        return Broken("P1: group ", i, " recomputes %", Index(id), " (", Name(g_.op(id)),
                      "), which is not pointwise");
      }
      if (std::binary_search(group.nodes.begin(), group.nodes.end(), id)) {
        return Broken("P1: group ", i, " owns and recomputes %", Index(id));
      }
      if (!IsRead(group, id)) {
        return Broken("P1: group ", i, " recomputes %", Index(id), ", which no op of it reads");
      }
    }
    return absl::OkStatus();
  }

  // Whether an op of the group reads the node's value.
  bool IsRead(const Group& group, NodeId id) const {
    for (NodeId user : Computed(group)) {
      if (Index(user) >= g_.num_nodes()) continue;
      for (ValueId v : g_.operands(user)) {
        while (IsView(v.node)) v = g_.operands(v.node)[0];
        if (v.node == id) return true;
      }
    }
    return false;
  }

  // P1
  absl::Status CheckMembership() {
    if (plan_.group_of.size() != g_.num_nodes()) {
      return Broken("P1: the plan numbers ", plan_.group_of.size(), " ops, the graph has ",
                    g_.num_nodes());
    }
    if (plan_.layouts.size() != g_.num_values()) {
      return Broken("P5: the plan lays out ", plan_.layouts.size(), " values, the graph has ",
                    g_.num_values());
    }
    std::vector<int> owners(g_.num_nodes(), 0);
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      const Group& group = plan_.groups[i];
      if (group.nodes.empty()) return Broken("P1: group ", i, " is empty");
      if (!std::is_sorted(group.nodes.begin(), group.nodes.end())) {
        return Broken("P1: the ops of group ", i, " are not ascending");
      }
      RG_RETURN_IF_ERROR(CheckRecomputed(i));
      for (NodeId id : group.nodes) {
        if (Index(id) >= g_.num_nodes())
          return Broken("P1: group ", i, " holds %", Index(id), ", which does not exist");
        if (IsView(id) || IsSource(id))
          return Broken("P1: group ", i, " holds %", Index(id), " (", Name(g_.op(id)),
                        "), which computes nothing");
        ++owners[Index(id)];
        if (plan_.group_of[Index(id)] != GroupId{static_cast<uint32_t>(i)}) {
          return Broken("P1: group_of says that %", Index(id), " is elsewhere than in group ", i);
        }
      }
    }
    for (uint32_t n = 0; n < g_.num_nodes(); ++n) {
      const bool computes = !IsView(NodeId{n}) && !IsSource(NodeId{n});
      if (computes && owners[n] != 1) {
        return Broken("P1: %", n, " (", Name(g_.op(NodeId{n})), ") is in ", owners[n], " groups");
      }
      if (!computes && plan_.group_of[n] != kNoGroup) {
        return Broken("P1: %", n, " computes nothing and is in a group");
      }
    }
    return absl::OkStatus();
  }

  // P2: every operand, through views, is in the same or an earlier group. With an order that
  // passes, the graph of groups has no cycle and every group is convex.
  absl::Status CheckOrder() {
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      for (NodeId id : Computed(plan_.groups[i])) {
        for (ValueId v : g_.operands(id)) {
          while (IsView(v.node)) v = g_.operands(v.node)[0];
          if (IsSource(v.node) || Computes(plan_.groups[i], v.node)) continue;
          if (Index(plan_.group_of[Index(v.node)]) > i) {
            return Broken("P2: group ", i, " reads %", Index(v.node), " of the later group ",
                          Index(plan_.group_of[Index(v.node)]));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // P2 within a shared launch: its kernels run side by side, so that none may read or overwrite
  // what another one stores or reads.
  absl::Status CheckMerged() const {
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      const Group& group = plan_.groups[i];
      const KernelLaunch* merged = SharedLaunchOf(group);
      if (merged == nullptr) continue;
      std::vector<NodeId> nodes;
      for (const KernelLaunch::Member& m : merged->members)
        nodes.insert(nodes.end(), m.nodes.begin(), m.nodes.end());
      std::sort(nodes.begin(), nodes.end());
      if (merged->members.size() < 2 || nodes != group.nodes)
        return Broken("P1: the kernels of group ", i, " do not make up its ops");
      for (const KernelLaunch::Member& a : merged->members) {
        if (a.kernel.schedule.threads != merged->members[0].kernel.schedule.threads ||
            a.kernel.schedule.split > 1) {
          return Broken("P2: the kernel of %", Index(a.nodes[0]),
                        " cannot share the launch of group ", i);
        }
        for (const KernelLaunch::Member& b : merged->members) {
          if (&a != &b) RG_RETURN_IF_ERROR(CheckApart(i, a, b));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckApart(size_t i, const KernelLaunch::Member& reader,
                          const KernelLaunch::Member& writer) const {
    for (const Buffer& read : reader.kernel.ir.buffers) {
      if (read.written) continue;
      for (const Buffer& b : writer.kernel.ir.buffers) {
        if (b.written && b.value == read.value)
          return Broken("P2: the kernels of group ", i, " share a launch, but one reads %",
                        Index(read.value.node), ", which another stores");
      }
      for (const Group::InPlace& pair : plan_.groups[i].in_place) {
        const std::vector<Buffer>& theirs = writer.kernel.ir.buffers;
        const bool overwrites = std::any_of(theirs.begin(), theirs.end(), [&](const Buffer& b) {
          return b.written && b.value == pair.output;
        });
        if (pair.input == read.value && overwrites)
          return Broken("P2: a kernel of group ", i, " may overwrite %", Index(read.value.node),
                        ", which another kernel of its launch reads");
      }
    }
    return absl::OkStatus();
  }

  // P3
  absl::Status CheckReads() {
    std::vector<bool> stored(g_.num_values(), false);
    for (uint32_t n = 0; n < g_.num_nodes(); ++n) {
      if (g_.pattern(NodeId{n}) != Pattern::kInput) continue;
      const size_t value = g_.value_index({NodeId{n}, 0});
      stored[value] = true;
      const std::vector<int64_t>& host = g_.node(NodeId{n}).input->strides;
      const Shape& shape = g_.type(NodeId{n}).shape;
      if (plan_.layouts[value].strides != (host.empty() ? DenseStrides(shape) : host)) {
        return Broken("P5: input %", n, " does not lie as the host laid it");
      }
    }
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      const Group& group = plan_.groups[i];
      for (ValueId v : group.inputs) {
        if (!Exists(v))
          return Broken("P3: group ", i, " reads %", Index(v.node), ".", v.result,
                        ", which does not exist");
        if (!stored[g_.value_index(v)])
          return Broken("P3: group ", i, " reads %", Index(v.node), ".", v.result,
                        " before anything stores it");
      }
      for (NodeId id : Computed(group)) RG_RETURN_IF_ERROR(CheckOperands(i, id));
      for (ValueId v : group.outputs) {
        if (!Exists(v))
          return Broken("P3: group ", i, " stores %", Index(v.node), ".", v.result,
                        ", which does not exist");
        if (stored[g_.value_index(v)])
          return Broken("P3: group ", i, " stores %", Index(v.node), ".", v.result,
                        " a second time");
        if (plan_.group_of[Index(v.node)] != GroupId{static_cast<uint32_t>(i)})
          return Broken("P3: group ", i, " stores %", Index(v.node), ", which it does not compute");
        stored[g_.value_index(v)] = true;
      }
    }
    return absl::OkStatus();
  }

  // What an op reads from other groups is among its group's inputs.
  absl::Status CheckOperands(size_t i, NodeId id) const {
    const Group& group = plan_.groups[i];
    for (ValueId v : g_.operands(id)) {
      while (IsView(v.node)) v = g_.operands(v.node)[0];
      const bool constant = IsSource(v.node) && g_.pattern(v.node) != Pattern::kInput;
      if (constant || Computes(group, v.node)) continue;
      if (std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) {
        return Broken("P3: %", Index(id), " of group ", i, " reads %", Index(v.node), ".", v.result,
                      ", which is not among the group's inputs");
      }
    }
    return absl::OkStatus();
  }

  // P4
  absl::Status CheckOutputs() const {
    const GraphMeaning places(g_, plan_.layouts, std::vector<bool>(g_.num_nodes(), false), 1);
    for (size_t o = 0; o < g_.outputs().size(); ++o) {
      if (!g_.outputs()[o].value) continue;
      ValueId v = *g_.outputs()[o].value;
      while (IsView(v.node)) v = g_.operands(v.node)[0];
      if (g_.pattern(v.node) == Pattern::kInput) continue;
      const GroupId owner = plan_.group_of[Index(v.node)];
      if (owner == kNoGroup)
        return Broken("P4: output ", o, " (%", Index(v.node),
                      ") is a constant that nothing stores");
      const std::vector<ValueId>& outs = plan_.groups[Index(owner)].outputs;
      if (std::find(outs.begin(), outs.end(), v) == outs.end()) {
        return Broken("P4: output ", o, " (%", Index(v.node), ") is not stored by its group ",
                      Index(owner));
      }
      RG_RETURN_IF_ERROR(CheckHostPlaces(o, places));
    }
    return absl::OkStatus();
  }

  // P5: the host finds each element of an output where its strides say. Each axis is tried alone
  // and all together: places are sums of what each axis adds, or a division shows at the far end.
  absl::Status CheckHostPlaces(size_t o, const GraphMeaning& places) const {
    const GraphOutput& out = g_.outputs()[o];
    const Shape& shape = g_.type(*out.value).shape;
    const std::vector<int64_t> strides = out.strides.empty() ? DenseStrides(shape) : out.strides;
    if (Elements(shape) == 0) return absl::OkStatus();
    std::vector<Coords> tried = {Coords(shape.size(), 0), Coords(shape.size())};
    for (size_t i = 0; i < shape.size(); ++i) tried[1][i] = shape[i] - 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      for (int64_t at : {int64_t{1}, shape[i] / 2, shape[i] - 1}) {
        if (at >= shape[i]) continue;
        tried.push_back(tried[0]);
        tried.back()[i] = at;
      }
    }
    for (const Coords& at : tried) {
      int64_t wanted = 0, address = 0;
      for (size_t i = 0; i < shape.size(); ++i) wanted += at[i] * strides[i];
      ValueId stored;
      if (places.Address(*out.value, at, stored, address) && address == wanted) continue;
      return Broken("P5: output ", o, " (%", Index(out.value->node),
                    ") does not lie as the host requires");
    }
    return absl::OkStatus();
  }

  // P5 to P8
  absl::Status CheckBodies() const {
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      const Group& group = plan_.groups[i];
      for (const std::vector<ValueId>* list : {&group.inputs, &group.outputs}) {
        for (ValueId v : *list) {
          if (!Exists(v) ||
              plan_.layouts[g_.value_index(v)].strides.size() != g_.type(v).shape.size()) {
            return Broken("P5: %", Index(v.node), ".", v.result, " of group ", i, " has no layout");
          }
        }
      }
      if (absl::Status s = CheckBody(group); !s.ok()) {
        const absl::string_view message = s.message();
        const size_t rule = message.size() > 4 && message[2] == ':' ? 4 : 0;  // "P6: ..."
        return Broken(message.substr(0, rule), "group ", i, ": ", message.substr(rule));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckBody(const Group& group) const {
    if (const Call* call = CallOf(group)) return CheckCall(g_, plan_, group, *call);
    if (const Alias* alias = AliasOf(group)) return CheckAlias(g_, plan_, group, *alias);
    if (const KernelLaunch* launch = SharedLaunchOf(group)) return CheckMembers(group, *launch);
    if (const CallLaunch* shared = SharedCallsOf(group)) return CheckCalls(group, *shared);
    if (KernelOf(group) == nullptr) return Broken("P5: launches no kernel");
    const KernelBody& kernel = *KernelOf(group);
    RG_RETURN_IF_ERROR(CheckKernel(g_, plan_, group, kernel));
    RG_RETURN_IF_ERROR(CheckSchedule(group, kernel));
    return CheckInPlace(group, kernel);
  }

  // Each kernel has a part of the workspace that is large enough for it. The kernels are what they
  // should be.
  absl::Status CheckParts(const Group& group, const KernelLaunch& merged) const {
    const MemberWorkspaces workspaces = MemberWorkspacesOf(merged);
    if (group.workspace_bytes < workspaces.bytes) {
      return Broken("P7: its workspace has ", group.workspace_bytes, " of the ", workspaces.bytes,
                    " bytes that its kernels write");
    }
    for (size_t m = 0; m < merged.members.size(); ++m) {
      Group alone = GroupOf(group, merged.members[m]);
      alone.workspace_bytes = workspaces.parts[m].bytes;
      RG_RETURN_IF_ERROR(CheckSchedule(alone, merged.members[m].kernel));
    }
    return absl::OkStatus();
  }

  // Each kernel of a shared launch, and that the group lists what they read and write together.
  absl::Status CheckMembers(const Group& group, const KernelLaunch& merged) const {
    std::vector<ValueId> read, written;
    std::vector<NodeId> recomputed;
    size_t pairs = 0;
    for (const KernelLaunch::Member& member : merged.members) {
      const Group alone = GroupOf(group, member);
      RG_RETURN_IF_ERROR(CheckBody(alone));
      read.insert(read.end(), alone.inputs.begin(), alone.inputs.end());
      written.insert(written.end(), alone.outputs.begin(), alone.outputs.end());
      recomputed.insert(recomputed.end(), alone.recomputed.begin(), alone.recomputed.end());
      pairs += alone.in_place.size();
    }
    if (group.workspace_bytes > 0) RG_RETURN_IF_ERROR(CheckParts(group, merged));
    std::sort(recomputed.begin(), recomputed.end());
    recomputed.erase(std::unique(recomputed.begin(), recomputed.end()), recomputed.end());
    std::erase_if(recomputed, [&](NodeId id) {  // owned by another of the kernels
      return std::binary_search(group.nodes.begin(), group.nodes.end(), id);
    });
    if (recomputed != group.recomputed)
      return Broken("P1: its kernels together recompute other ops than it lists");
    for (std::vector<ValueId>* list : {&read, &written}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    if (read != group.inputs || written != group.outputs) {
      return Broken("P5: its kernels together read or write other values than it lists");
    }
    if (pairs != group.in_place.size())
      return Broken("P8: none of its kernels takes over some bytes");
    return absl::OkStatus();
  }

  // The same of calls: what shares their launches has no op twice and changes nothing in place.
  absl::Status CheckCalls(const Group& group, const CallLaunch& shared) const {
    std::vector<ValueId> read, written;
    std::vector<NodeId> nodes;
    if (shared.members.size() < 2) return Broken("P1: its call shares a launch with no other");
    for (const CallLaunch::Member& member : shared.members) {
      const Group alone = GroupOf(member);
      RG_RETURN_IF_ERROR(CheckCall(g_, plan_, alone, member.call));
      if (member.call.previous) return Broken("P8: one of its calls adds to a value");
      read.insert(read.end(), alone.inputs.begin(), alone.inputs.end());
      written.insert(written.end(), alone.outputs.begin(), alone.outputs.end());
      nodes.insert(nodes.end(), alone.nodes.begin(), alone.nodes.end());
    }
    std::sort(nodes.begin(), nodes.end());
    if (nodes != group.nodes) return Broken("P1: its calls compute other ops than it lists");
    for (std::vector<ValueId>* list : {&read, &written}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    if (read != group.inputs || written != group.outputs) {
      return Broken("P5: its calls together read or write other values than it lists");
    }
    for (ValueId v : written) {
      if (std::binary_search(read.begin(), read.end(), v)) {
        return Broken("P2: one of its calls reads what another one stores");
      }
    }
    return absl::OkStatus();
  }

  bool Exists(ValueId v) const {
    return Index(v.node) < g_.num_nodes() && v.result < g_.node(v.node).results.size();
  }

  const BackwardGraph& g_;
  const FusionPlan& plan_;
};

}  // namespace

absl::Status FusionPlan::Verify(const BackwardGraph& graph) const {
  if (!HasEpilogues(*this)) return Checker(graph, *this).Run();
  // The halves of matmuls with epilogues are checked as any group is.
  for (size_t i = 0; i < groups.size(); ++i) {
    const Call* call = FusedCallOf(groups[i]);
    if (call == nullptr) continue;
    if (absl::Status s = CheckEpilogue(graph, groups[i], *call); !s.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("group ", i, ": ", s.message()));
    }
  }
  if (group_of.size() != graph.num_nodes()) {
    return absl::FailedPreconditionError("P1: the plan numbers other ops than the graph has");
  }
  return Checker(graph, SplitEpilogues(*this)).Run();
}

}  // namespace retrograd
