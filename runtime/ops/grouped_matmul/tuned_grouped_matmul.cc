#include "runtime/ops/grouped_matmul/tuned_grouped_matmul.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "fusion/plan/call_key.h"
#include "graph/base/status.h"
#include "runtime/gpu/kernels_digest.h"
#include "runtime/ops/grouped_matmul/generated_grouped_matmul.h"
#include "runtime/ops/grouped_matmul/grouped_matmul_launch.h"
#include "runtime/trials/autotune.h"

namespace retrograd {
namespace {

// The call by each of some tiles, which are compiled when they are first chosen.
class Tiles : public Implementations {
 public:
  Tiles(GpuDevice& device, const Call& call, const CallFacts& facts,
        const std::vector<GemmTile>& tiles)
      : device_(device), call_(call), facts_(facts), tiles_(tiles), loaded_(tiles.size()) {}

  int count() const override { return static_cast<int>(tiles_.size()); }
  std::string Name(int tile) const override { return tiles_[static_cast<size_t>(tile)].Print(); }
  int64_t most_workspace_bytes() const override { return 0; }

  absl::Status Choose(int tile) override {
    chosen_ = static_cast<size_t>(tile);
    if (loaded_[chosen_] != nullptr) return absl::OkStatus();
    RG_ASSIGN_OR_RETURN(const GroupedMatMulLaunch made,
                        LaunchByWarpgroups(call_, facts_, tiles_[chosen_]));
    RG_ASSIGN_OR_RETURN(loaded_[chosen_], LoadGroupedMatMulLaunch(device_, made));
    return absl::OkStatus();
  }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    return loaded_[chosen_]->Run(0, pointers, workspace);
  }
  absl::Status Fill(const CallPointers& pointers) override {
    const GroupedMatMulCall grouped = GroupedMatMulOf(call_);
    const std::vector<int32_t> ends =
        EvenEnds(grouped.sums_in_groups ? grouped.k : grouped.m, grouped.groups);
    return device_.CopyIn(const_cast<void*>(pointers.operands[kGroupedEnds]), ends.data(),
                          static_cast<int64_t>(ends.size() * sizeof(int32_t)));
  }

 private:
  GpuDevice& device_;
  const Call& call_;
  const CallFacts& facts_;
  const std::vector<GemmTile>& tiles_;
  std::vector<std::unique_ptr<LoadedCall>> loaded_;
  size_t chosen_ = 0;
};

CallMemory MemoryOf(const Call& call) {
  CallMemory memory;
  AddMemoryOf(call, memory);
  return memory;
}

std::vector<std::string> NamesOfTiles(const std::vector<GemmTile>& tiles) {
  std::vector<std::string> names;
  for (const GemmTile& tile : tiles) names.push_back(tile.Print());
  return names;
}

// The schedule, its time, and a line for each tile that was not chosen.
std::string Told(absl::string_view how, const Choice& choice) {
  std::string text(how);
  absl::StrAppendFormat(&text, ": %.1f us", choice.us());
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    const TimedCandidate& c = choice.candidates[i];
    if (i != choice.chosen) absl::StrAppendFormat(&text, "\n  %s: %.1f us", c.name, c.us);
  }
  return text;
}

class TunedGroupedMatMulLoader : public CallLoader {
 public:
  explicit TunedGroupedMatMulLoader(GpuDevice& device) : device_(device) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    if (Elements(call.results[0].shape) == 0) return {};
    const std::vector<GemmTile> tiles = GroupedTilesOn(call, facts, device_);
    auto made = tiles.empty() ? LaunchGroupedMatMul(call, facts, device_)
                              : LaunchByWarpgroups(call, facts, tiles[0]);
    if (!made.ok()) return {};
    return {std::move(made->kernel)};
  }

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    const std::vector<GemmTile> tiles = GroupedTilesOn(call, facts, device_);
    if (tiles.size() < 2 || Elements(call.results[0].shape) == 0) {
      return LoadGeneratedGroupedMatMul(device_, call, facts);
    }
    RG_ASSIGN_OR_RETURN(const Choice choice, Choose(call, facts, tiles));
    const size_t chosen = choice.timed() ? choice.chosen : 0;
    RG_ASSIGN_OR_RETURN(GroupedMatMulLaunch made, LaunchByWarpgroups(call, facts, tiles[chosen]));
    if (choice.timed()) {
      made.us = choice.us();
      made.how = Told(made.how, choice);
    }
    return LoadGroupedMatMulLaunch(device_, made);
  }

 private:
  absl::StatusOr<Choice> Choose(const Call& call, const CallFacts& facts,
                                const std::vector<GemmTile>& tiles) {
    Tuner& tuner = device_.tuner();
    RG_ASSIGN_OR_RETURN(const GroupedMatMulLaunch usual, LaunchByWarpgroups(call, facts, tiles[0]));
    const ChoiceKey key = tuner.Key(
        "grouped_matmul 1",
        absl::StrCat(device_.Compiler(), ", kernel ",
                     KernelsDigest(device_.dialect(), {usual.kernel})),
        absl::StrCat(CallKey(call), " aligned ", absl::StrJoin(facts.operand_alignment, " "), " /",
                     absl::StrJoin(facts.result_alignment, " ")));
    const std::vector<std::string> names = NamesOfTiles(tiles);
    const std::optional<Choice> known =
        tuner.Recall(key, [&](const Choice& choice) { return choice.HasNames(names); });
    if (known || !tuner.TimesTiles()) return known.value_or(Choice{});
    Tiles implementations(device_, call, facts, tiles);
    return tuner.ChooseFastest(key, MemoryOf(call), implementations);
  }

  GpuDevice& device_;
};

}  // namespace

std::vector<int32_t> EvenEnds(int64_t places, int64_t groups) {
  std::vector<int32_t> ends;
  for (int64_t g = 1; g <= groups; ++g) {
    ends.push_back(static_cast<int32_t>(places * g / groups));
  }
  return ends;
}

std::unique_ptr<CallLoader> MakeTunedGroupedMatMulLoader(GpuDevice& device) {
  return std::make_unique<TunedGroupedMatMulLoader>(device);
}

}  // namespace retrograd
