// FusionPlan: what runs together. Groups with the KernelIr (or library call) that was priced, the
// terms of each price, and the decisions that shaped it.
//
// Invariants, named in Verify():
//   P1  every op that computes belongs to exactly one group; views, inputs and constants to none
//   P2  groups are convex and the graph of groups has no cycle; groups stand in a valid order
//   P3  a group's inputs are graph inputs or stored by an earlier group
//   P4  every graph output is an input or stored by a group
//   P5  each stored value has one layout, the host's where it is the host's, and each kernel and
//       library call takes it so
//   P6  every element that a kernel or call stores is made of the elements that the graph names
//   P7  a schedule fits its kernel, covers it, and has the workspace that it writes
//   P8  an output reuses an input's bytes only if the point that writes an element is the only one
//       that reads it there, and reads it first
//   P9  each point of an epilogue reads the element of the matmul's result that it stands at
#ifndef RETROGRAD_FUSION_PLAN_PLAN_H_
#define RETROGRAD_FUSION_PLAN_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fusion/kernel/ir/layout.h"
#include "fusion/kernel/templates/schedule.h"
#include "fusion/plan/call.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

enum class GroupId : uint32_t {};
constexpr uint32_t Index(GroupId id) { return static_cast<uint32_t>(id); }

// One named term of a price.
struct Term {
  std::string name;     // "hbm", "compute", "launch", ...
  int64_t ps = 0;       // picoseconds that it contributes or, for a max, would take alone
  bool binds = false;   // it is the largest of the terms that overlap
  std::string formula;  // its inputs as text: "402669568 B / 4.25 TB/s"
  friend bool operator==(const Term&, const Term&) = default;
};

// One kernel, or several that do not depend on each other and share a launch: each runs in a range
// of blocks of its own, in this order. Those of several launches share each of them.
struct KernelLaunch {
  struct Member {
    KernelBody kernel;
    // Of a kernel that shares the launch; where it is alone, the group says them.
    std::vector<NodeId> nodes;       // those of the group's that it computes
    std::vector<NodeId> recomputed;  // and those that it computes again
    int64_t price_ps = 0;            // in a launch of its own
    std::vector<Term> terms;         // of that price
    friend bool operator==(const Member&, const Member&) = default;
  };
  // Members that share a launch have the same template and the same threads, and none has a split
  // whose parts a finalize launch adds up.
  std::vector<Member> members;
  bool shared() const { return members.size() > 1; }
  friend bool operator==(const KernelLaunch&, const KernelLaunch&) = default;
};

// Several library calls that do not depend on each other, made by launches of ours that they share
// (fusion/ops/convolution/shared_products.h, fusion/ops/sort_indices/sort_price.h).
struct CallLaunch {
  struct Member {
    Call call;
    std::vector<NodeId> nodes;  // those of the group's that it computes
    int64_t price_ps = 0;       // alone
    std::vector<Term> terms;    // of that price
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::vector<Member> members;
  friend bool operator==(const CallLaunch&, const CallLaunch&) = default;
};

// A value whose bytes are those of others, side by side: a concat whose parts are stored in place.
// Nothing is launched.
struct Alias {
  struct Part {
    ValueId value;       // stored, behind any views
    int64_t offset = 0;  // elements, of its first element in the whole
    friend bool operator==(const Part&, const Part&) = default;
  };
  ValueId whole;
  std::vector<Part> parts;  // in the order of the concat's operands
  friend bool operator==(const Alias&, const Alias&) = default;
};

struct Group {
  std::vector<NodeId> nodes;       // ascending; every op computed and owned here
  std::vector<NodeId> recomputed;  // cheap ops owned elsewhere and computed here again
  std::vector<ValueId> inputs;     // stored values read, ascending
  std::vector<ValueId> outputs;    // values stored, ascending
  std::variant<KernelLaunch, Call, Alias, CallLaunch> body;
  std::vector<Term> terms;
  int64_t price_ps = 0;
  int64_t workspace_bytes = 0;  // scratch memory while it runs
  int64_t read_bytes = 0, written_bytes = 0;
  // An input whose bytes the output may reuse: the same iteration order, the same element size, and
  // this group reads the input last.
  struct InPlace {
    ValueId input, output;
    friend bool operator==(const InPlace&, const InPlace&) = default;
  };
  std::vector<InPlace> in_place;  // permitted pairs; an accumulating store makes it required
  friend bool operator==(const Group&, const Group&) = default;
};

// A launch of one kernel.
KernelLaunch LaunchOf(KernelBody kernel);

// The kernel of a launch that it has for itself; nullptr for any other group.
const KernelBody* KernelOf(const Group& group);
KernelBody* KernelOf(Group& group);

// The launch that several kernels share; nullptr for any other group.
const KernelLaunch* SharedLaunchOf(const Group& group);
KernelLaunch* SharedLaunchOf(Group& group);

// The call, with or without an epilogue; nullptr for any other group.
const Call* CallOf(const Group& group);
Call* CallOf(Group& group);

// The calls that share launches; nullptr for any other group.
const CallLaunch* SharedCallsOf(const Group& group);
CallLaunch* SharedCallsOf(Group& group);

// The alias; nullptr for any other group.
const Alias* AliasOf(const Group& group);
Alias* AliasOf(Group& group);

// The call that has an epilogue; nullptr for any other group.
const Call* FusedCallOf(const Group& group);

// The kernels of a group's launch, in the order of their blocks: none for calls and aliases.
std::vector<const KernelBody*> KernelsOf(const Group& group);

// What the member of a shared launch would be as a group of its own, with the buffers that it
// reuses beside the others, and the workspace of all.
Group GroupOf(const Group& merged, const KernelLaunch::Member& member);

// What the call would be as a group of its own.
Group GroupOf(const CallLaunch::Member& member);

// The two groups that do what a call with an epilogue does, with the result in memory between them.
std::pair<Group, Group> HalvesOf(const Group& fused);

// The pairs of group.in_place that are no choice: an output is added to what `input` holds.
std::vector<Group::InPlace> RequiredInPlace(const Group& group);

// Why a candidate fusion exists or not.
struct Decision {
  std::vector<NodeId> a, b;  // the two sides: ops that are (or are not) together
  bool together = false;     // what the plan does
  int64_t together_ps = 0;   // price of the region's best plan with them together
  int64_t apart_ps = 0;      // and with them apart; both from the same search
  std::string limit;         // code of the limit if together is infeasible: "registers"
  std::string reason;        // one sentence with numbers
  // The kernels that differ, each with its price terms, under the other choice.
  struct Alternative {
    std::vector<NodeId> nodes;
    Schedule schedule;
    int registers = 0;
    int64_t spill_bytes = 0;
    int64_t price_ps = 0;
    std::vector<Term> terms;
    friend bool operator==(const Alternative&, const Alternative&) = default;
  };
  std::vector<Alternative> alternatives;
  friend bool operator==(const Decision&, const Decision&) = default;
};

struct PlanSummary {
  int64_t ops = 0;             // ops that compute
  int64_t recomputed_ops = 0;  // of them again, in kernels that do not own them
  int64_t kernels = 0;         // launches, finalize phases included
  int64_t price_ps = 0;
  int64_t cost_ps = 0;     // what the search minimised: with margins and the price of memory
  int64_t unfused_ps = 0;  // every op a group of its own
  int64_t bytes = 0, unfused_bytes = 0;
  int64_t bound_ps = 0;          // unavoidable bytes and flops, fewest launches
  int64_t gap_ps = 0;            // to the optimum of the stated objective; 0: proven optimal
  int64_t launches_saved = 0;    // launches that independent kernels save by sharing others
  int64_t shared_launch_ps = 0;  // what that wins; price and bound are both after it
  int64_t peak_bytes = 0;        // of values alive at once, see peak_memory.h
  int64_t regions = 0, distinct_regions = 0, largest_region_atoms = 0;
  friend bool operator==(const PlanSummary&, const PlanSummary&) = default;
};

struct FusionPlan {
  std::string device;
  std::vector<Group> groups;        // in a valid order
  std::vector<GroupId> group_of;    // by node; kNoGroup where the op belongs to none
  std::vector<Layout> layouts;      // by value_index; empty strides where never stored
  std::vector<Decision> decisions;  // the most telling first
  PlanSummary summary;

  absl::Status Verify(const BackwardGraph& graph) const;
  std::string Print(const BackwardGraph& graph) const;
  friend bool operator==(const FusionPlan&, const FusionPlan&) = default;
};
inline constexpr GroupId kNoGroup{0xffffffff};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_PLAN_H_
