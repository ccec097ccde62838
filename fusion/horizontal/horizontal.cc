// The groups are walked in an order that their dependencies allow. A small kernel that is ready
// waits for company: everything else goes first, and only when nothing else is ready does the most
// urgent one go, with those of its kind that wait. All that wait at the same time are ready, so
// none depends on another, and since the walk goes on from there, the groups keep a valid order.
#include "fusion/horizontal/horizontal.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/horizontal/group_order.h"
#include "fusion/horizontal/launch_price.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/plan/member_workspaces.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Search bound: of those that wait, this many are tried beside an urgent one, which keeps the
// search linear.
constexpr size_t kMostTried = 64;
// Refused partners that are told: the first ones; the reasons repeat from layer to layer.
constexpr size_t kMostRefusals = 8;

// Kernels that may share a launch are equal in these.
using Kind = std::pair<Template, int>;  // threads of a block

std::optional<Kind> KindOf(const Group& group, const DeviceSpec& device) {
  const KernelBody* kernel = KernelOf(group);
  if (kernel == nullptr || kernel->schedule.split > 1 ||
      !TemplateOf(kernel->schedule).shares_launches || kernel->schedule.cluster > 1 ||
      kernel->spill_bytes > 0) {
    return std::nullopt;
  }
  const Schedule s = WorkingLaunch(kernel->ir, kernel->schedule);
  // Of larger blocks an SM holds fewer than four, and one that waits leaves it idle. The second
  // launch of any waits for the first ones of all: a long one would hold back the others.
  const bool few = s.blocks < device.sms && 4 * s.threads <= device.max_threads_per_sm &&
                   LaunchesOf(kernel->ir, kernel->schedule) == 1;
  const bool small = few || group.read_bytes + group.written_bytes <= device.small_kernel_bytes;
  if (s.blocks < 1 || !small) return std::nullopt;
  return Kind{s.kind, s.threads};
}

// Why kernels cannot share a launch.
struct Obstacle {
  std::string limit, reason;
};

std::optional<Obstacle> BreaksLimit(absl::Span<const LaunchMember* const> members,
                                    const Limits& limits) {
  int64_t ops = 0, operands = 0, stores = 0, reductions = 0;
  for (const LaunchMember* member : members) {
    ops += member->ops;
    operands += member->operands;
    stores += member->stores;
    reductions += member->reductions;
  }
  const std::pair<absl::string_view, int64_t> sums[] = {
      {"ops", ops}, {"operands", operands}, {"stores", stores}, {"reductions", reductions}};
  for (const auto& [name, sum] : sums) {
    const int64_t bound = std::min(limits.Bound(name), kShortOps);  // they are all short
    if (sum <= bound) continue;
    return Obstacle{std::string(name), absl::StrCat(members.size(), " kernels in one launch: ",
                                                    name, " ", sum, ", at most ", bound)};
  }
  return std::nullopt;
}

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

class Sharing {
 public:
  Sharing(std::vector<Group> groups, const GroupPricer& pricer)
      : pricer_(pricer),
        groups_(std::move(groups)),
        successors_(FindSuccessors(pricer.graph(), groups_)),
        shares_(groups_.size()) {}

  SharedLaunches Run() {
    size_t gone = 0;
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      kinds_.push_back(KindOf(groups_[g], pricer_.device()));
      if (successors_.before[g] == 0) Arrive(g);
    }
    while (gone < groups_.size()) {
      std::vector<uint32_t> go = Next();
      gone += go.size();
      for (uint32_t g : go) {
        for (uint32_t after : successors_.after[g]) {
          if (--successors_.before[after] == 0) Arrive(after);
        }
      }
      if (go.size() == 1) {
        result_.groups.push_back(std::move(groups_[go[0]]));
      } else {
        result_.groups.push_back(Merge(std::move(go)));
      }
    }
    return std::move(result_);
  }

 private:
  using Entry = std::pair<uint32_t, uint32_t>;  // last op, group: the order of the graph

  Entry EntryOf(uint32_t g) const { return {Index(groups_[g].nodes.back()), g}; }

  void Arrive(uint32_t g) {
    if (!kinds_[g]) {
      ready_.push(EntryOf(g));
      return;
    }
    waiting_[*kinds_[g]].insert(EntryOf(g));
    all_waiting_.insert(EntryOf(g));
    if (!successors_.after[g].empty()) urgent_.insert(EntryOf(g));
    held_bytes_ += groups_[g].read_bytes;
  }

  // What goes next: one group, or several that share a launch. While small kernels wait, what they
  // read must be kept: no more than the last-level cache holds.
  std::vector<uint32_t> Next() {
    const bool full = held_bytes_ > pricer_.device().cache_bytes;
    if (!ready_.empty() && !full) {
      const uint32_t g = ready_.top().second;
      ready_.pop();
      return {g};
    }
    RG_CHECK(!all_waiting_.empty());
    std::vector<uint32_t> go =
        Company(!full && !urgent_.empty() ? urgent_.begin()->second : all_waiting_.begin()->second);
    for (uint32_t g : go) {
      waiting_[*kinds_[g]].erase(EntryOf(g));
      all_waiting_.erase(EntryOf(g));
      urgent_.erase(EntryOf(g));
      held_bytes_ -= groups_[g].read_bytes;
    }
    return go;
  }

  const LaunchMember& Share(uint32_t g) {
    if (!shares_[g]) shares_[g].emplace(groups_[g], pricer_.device());
    return *shares_[g];
  }

  // The group and those waiting groups of its kind that pay beside it, in the order of the graph
  // but with equal kernels next to each other.
  std::vector<uint32_t> Company(uint32_t first) {
    std::vector<uint32_t> go = {first};
    const std::set<Entry>& waiting = waiting_[*kinds_[first]];
    if (waiting.size() < 2) return go;
    std::vector<const LaunchMember*> members = {&Share(first)};
    int64_t price = members[0]->price_ps;
    std::optional<Decision> refusal;
    size_t tried = 0;
    for (const auto& [last_op, g] : waiting) {
      if (g == first || tried++ == kMostTried) continue;
      members.push_back(&Share(g));
      const SharedLaunchPrice merged = PriceSharedLaunch(members, pricer_.device());
      const int64_t apart = price + members.back()->price_ps;
      std::optional<Obstacle> obstacle = BreaksLimit(members, pricer_.limits());
      if (!obstacle && merged.ps + pricer_.Margin(merged.ps) <= apart) {
        go.push_back(g);
        price = merged.ps;
        continue;
      }
      members.pop_back();
      if (!refusal) refusal = Refusal(go, g, merged.ps, apart, std::move(obstacle));
    }
    if (refusal && go.size() == 1 && refusals_++ < kMostRefusals) {
      result_.decisions.push_back(*std::move(refusal));
    }
    return EqualOnesTogether(std::move(go));
  }

  std::vector<uint32_t> EqualOnesTogether(std::vector<uint32_t> go) {
    std::sort(go.begin(), go.end(),
              [&](uint32_t a, uint32_t b) { return EntryOf(a) < EntryOf(b); });
    std::vector<uint32_t> sorted;
    std::vector<bool> taken(go.size(), false);
    for (size_t i = 0; i < go.size(); ++i) {
      if (taken[i]) continue;
      for (size_t j = i; j < go.size(); ++j) {
        if (taken[j] || !Share(go[j]).SameFunction(Share(go[i]))) continue;
        sorted.push_back(go[j]);
        taken[j] = true;
      }
    }
    return sorted;
  }

  Decision Refusal(const std::vector<uint32_t>& go, uint32_t g, int64_t together_ps,
                   int64_t apart_ps, std::optional<Obstacle> obstacle) const {
    Decision d{.a = groups_[go[0]].nodes, .b = groups_[g].nodes};
    d.apart_ps = apart_ps;
    if (obstacle) {
      d.limit = std::move(obstacle->limit);
      d.reason = std::move(obstacle->reason);
      return d;
    }
    d.together_ps = together_ps;
    d.reason = absl::StrCat("in one launch these independent kernels would take ", Us(together_ps),
                            ", apart ", Us(apart_ps), "; a shared launch must win ",
                            Us(pricer_.Margin(together_ps)));
    return d;
  }

  Group Merge(std::vector<uint32_t> go) {
    std::vector<const LaunchMember*> members;
    for (uint32_t g : go) members.push_back(&Share(g));
    SharedLaunchPrice price = PriceSharedLaunch(members, pricer_.device(), /*explain=*/true);
    Decision decision{.a = groups_[go[0]].nodes, .together = true, .together_ps = price.ps};
    Group merged;
    KernelLaunch body;
    for (uint32_t g : go) {
      Group& group = groups_[g];
      decision.apart_ps += group.price_ps;
      if (g != go[0]) decision.b.insert(decision.b.end(), group.nodes.begin(), group.nodes.end());
      const auto append = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(merged.nodes, group.nodes);
      append(merged.recomputed, group.recomputed);
      append(merged.inputs, group.inputs);
      append(merged.outputs, group.outputs);
      merged.read_bytes += group.read_bytes;
      merged.written_bytes += group.written_bytes;
      KeepInPlace(go, g, &merged);
      body.members.push_back({.kernel = std::move(*KernelOf(group)),
                              .nodes = std::move(group.nodes),
                              .recomputed = std::move(group.recomputed),
                              .price_ps = group.price_ps,
                              .terms = std::move(group.terms)});
    }
    const auto once = [](auto& list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    merged.workspace_bytes = MemberWorkspacesOf(body).bytes;
    once(merged.nodes);
    once(merged.recomputed);
    once(merged.inputs);
    once(merged.outputs);
    std::erase_if(merged.recomputed, [&](NodeId id) {  // another member owns it
      return std::binary_search(merged.nodes.begin(), merged.nodes.end(), id);
    });
    std::sort(decision.b.begin(), decision.b.end());
    decision.reason = absl::StrCat(body.members.size(), " independent ", Name(kinds_[go[0]]->first),
                                   " kernels in one launch: ", Us(price.ps), " instead of ",
                                   Us(decision.apart_ps), " in ", body.members.size(), " launches");
    result_.saved += LaunchesSaved(members);
    result_.won_ps += decision.apart_ps - price.ps;
    result_.decisions.push_back(std::move(decision));
    merged.price_ps = price.ps;
    merged.terms = std::move(price.terms);
    merged.body = std::move(body);
    return merged;
  }

  static int64_t LaunchesSaved(absl::Span<const LaunchMember* const> members) {
    int64_t all = 0, most = 0;
    for (const LaunchMember* member : members) {
      all += member->launches;
      most = std::max(most, member->launches);
    }
    return all - most;
  }

  // An output may take over an input's bytes only if no other member reads the input, which it may
  // do after they are overwritten.
  void KeepInPlace(const std::vector<uint32_t>& go, uint32_t g, Group* merged) const {
    for (const Group::InPlace& pair : groups_[g].in_place) {
      const bool read_elsewhere = std::any_of(go.begin(), go.end(), [&](uint32_t other) {
        const std::vector<ValueId>& inputs = groups_[other].inputs;
        return other != g && std::binary_search(inputs.begin(), inputs.end(), pair.input);
      });
      if (!read_elsewhere) merged->in_place.push_back(pair);
    }
  }

  const GroupPricer& pricer_;
  std::vector<Group> groups_;
  Successors successors_;
  std::vector<std::optional<Kind>> kinds_;           // by group; none: launched alone
  std::vector<std::optional<LaunchMember>> shares_;  // by group, once asked for
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;  // launched alone
  std::map<Kind, std::set<Entry>> waiting_;
  std::set<Entry> all_waiting_;
  std::set<Entry> urgent_;  // those that others wait for
  int64_t held_bytes_ = 0;  // that the waiting ones read
  size_t refusals_ = 0;
  SharedLaunches result_;
};

}  // namespace

SharedLaunches ShareLaunches(std::vector<Group> groups, const GroupPricer& pricer) {
  return Sharing(std::move(groups), pricer).Run();
}

}  // namespace retrograd
