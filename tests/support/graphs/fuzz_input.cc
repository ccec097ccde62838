#include "tests/support/graphs/fuzz_input.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"

namespace retrograd {
namespace {

// One execution has to take milliseconds. Planning is linear in layers and may solve 20,000
// downsets in one region, so that graphs of more nodes are only loaded and printed here; captured
// graphs of thousands of nodes are planned by the other tests. Extents are not limited: planning
// looks at no element.
constexpr size_t kMaxPlannedNodes = 200;
constexpr size_t kMaxPlannedOperands = 600;

[[noreturn]] void Broken(absl::string_view promise, absl::string_view detail) {
  std::fprintf(stderr, "broken promise: %.*s\n%.*s\n", static_cast<int>(promise.size()),
               promise.data(), static_cast<int>(detail.size()), detail.data());
  std::abort();
}

struct PlanVariant {
  absl::string_view device;
  PlanOptions options;
};

const DeviceSpec& Device(absl::string_view name) {
  const auto load = [](absl::string_view spec) {
    absl::StatusOr<DeviceSpec> device = LoadDeviceSpec(spec);
    if (!device.ok()) Broken("device specs load", device.status().message());
    return new DeviceSpec(*std::move(device));
  };
  static const DeviceSpec* h200 = load("h200");
  static const DeviceSpec* mi300x = load("mi300x");
  return name == "h200" ? *h200 : *mi300x;
}

PlanVariant Variant(unsigned number) {
  PlanVariant v{.device = number % 4 == 3 ? "mi300x" : "h200", .options = {}};
  // Cut short, a search of a few atoms goes the ways of a large region, and in milliseconds.
  v.options.search.limits = {.max_downsets = 500, .max_steps = 5'000, .max_work = 10'000};
  switch (number / 4 % 8) {
    case 1: v.options.disable = {"fusion"}; break;
    case 2: v.options.disable = {"first_writer", "cast_pairs"}; break;
    case 3: v.options.disable = {"matmul_accumulate", "cast_absorption", "split_reductions"}; break;
    case 4: v.options.tighten = {"ops", "stores", "registers"}; break;
    case 5: v.options.tighten = {"axes", "mixed_reductions"}; break;
    case 6: v.options.random_schedules = number + 1; break;
    case 7:  // of 16 numbers: each feature is off under one of them
      for (size_t f = number / 32 * 4 + number % 4; f < std::size(kFeatures); f += 16) {
        v.options.disable.insert(std::string(kFeatures[f].name));
      }
      break;
    default: break;
  }
  return v;
}

void CheckRefusal(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument ||
      !absl::StartsWith(status.message(), "RG-G") || status.message().size() > 2000) {
    Broken("a refusal has a code and is short", status.ToString());
  }
}

void CheckRoundTrip(const BackwardGraph& graph) {
  if (absl::Status s = graph.Verify(); !s.ok()) Broken("a loaded graph verifies", s.message());
  const std::string text = Print(graph);
  absl::StatusOr<BackwardGraph> again = ParseGraph(text);
  if (!again.ok()) Broken("the text form reads back", again.status().message());
  // The text form leaves out the fields that this reader does not know.
  const bool same = graph.unknown_fields().empty() ? *again == graph : Print(*again) == text;
  if (!same) Broken("the text form reads back as the same graph", text);
  const std::string bytes = SerializeGraph(graph);
  again = ParseGraphProto(bytes);
  if (!again.ok()) Broken("the file form reads back", again.status().message());
  if (!(*again == graph)) Broken("the file form reads back as the same graph", text);
}

void PlanAndCheck(const BackwardGraph& graph, const PlanVariant& variant) {
  const auto broken = [&](absl::string_view promise, absl::string_view detail) {
    Broken(promise, absl::StrCat(detail, "\n", Print(graph)));
  };
  absl::StatusOr<Planned> planned = PlanFusion(graph, Device(variant.device), variant.options);
  if (!planned.ok()) {
    // Lowering may refuse what a legal graph asks for, in a sentence; our own mistakes are not
    // that.
    if (planned.status().code() == absl::StatusCode::kInternal) {
      broken("planning a legal graph is no internal error", planned.status().message());
    }
    return;
  }
  if (absl::Status s = planned->graph.Verify(); !s.ok()) {
    broken("a lowered graph verifies", s.message());
  }
  if (absl::Status s = planned->plan.Verify(planned->graph); !s.ok()) {
    broken("a plan passes its checker", s.message());
  }
  if (planned->plan.Print(planned->graph).empty()) broken("a plan prints", "nothing");
}

}  // namespace

FuzzOutcome RunFuzzInput(absl::string_view input) {
  if (input.empty()) return FuzzOutcome::kRefused;
  const auto header = static_cast<unsigned char>(input[0]);
  const absl::string_view body = input.substr(1);
  const bool text = (header & 1) == kFuzzText;
  const absl::StatusOr<BackwardGraph> graph = text ? ParseGraph(body) : ParseGraphProto(body);
  if (!graph.ok()) {
    CheckRefusal(graph.status());
    return FuzzOutcome::kRefused;
  }
  CheckRoundTrip(*graph);
  size_t operands = 0;
  for (uint32_t i = 0; i < graph->num_nodes(); ++i) operands += graph->operands(NodeId{i}).size();
  if (graph->num_nodes() > kMaxPlannedNodes || operands > kMaxPlannedOperands) {
    return FuzzOutcome::kTooLarge;
  }
  PlanAndCheck(*graph, Variant(header >> 1));
  return FuzzOutcome::kPlanned;
}

}  // namespace retrograd
