// Each number of a device spec has a range: at both of its ends a plan is made whose prices make
// sense, and beyond them the spec is refused by the number's name.
#include "fusion/device/number_ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.h"
#include "fusion/device/device_spec.pb.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Numbers = std::vector<DeviceNumber>;

std::string H200() {
  auto text = ReadDeviceSpec("h200");
  REQUIRE(text.ok());
  return *std::move(text);
}

absl::StatusOr<DeviceSpec> With(const Numbers& numbers) {
  const auto changed = WithDeviceNumbers(H200(), "test", numbers);
  REQUIRE(changed.ok());
  return ParseDeviceSpec(*changed, "test");
}

bool IsPlainNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

// "Message.field" of all numbers of a message and of the rows of its tables.
void CollectNumbers(const Descriptor& type, std::vector<std::string>& found) {
  for (int f = 0; f < type.field_count(); ++f) {
    const FieldDescriptor& field = *type.field(f);
    const Descriptor* inner = field.message_type();
    if (IsPlainNumber(field) || inner == v1::Number::descriptor()) {
      found.push_back(absl::StrCat(type.name(), ".", field.name()));
    } else if (inner != nullptr) {
      CollectNumbers(*inner, found);
    }
  }
}

TEST_CASE("every number that device_spec.proto has has one range, and every range a number") {
  std::vector<std::string> numbers, ranges;
  CollectNumbers(*v1::DeviceSpecProto::descriptor(), numbers);
  for (const NumberRange& range : NumberRanges()) {
    ranges.push_back(absl::StrCat(range.message, ".", range.field));
    INFO(ranges.back());
    CHECK(range.least < range.most);
  }
  CHECK(numbers.size() > 120);
  std::sort(numbers.begin(), numbers.end());
  std::sort(ranges.begin(), ranges.end());
  CHECK(numbers == ranges);
}

TEST_CASE("the ends of a range are held exactly, the least as at least one") {
  struct Held {
    absl::string_view field;
    double scale, least, most;
  };
  constexpr Held kHeld[] = {
#define RG_NUMBER(MEMBER, FIELD, SCALE, LEAST, MOST) {#FIELD, SCALE, LEAST, MOST},
#define RG_CHOICE(MEMBER, FIELD, SCALE, LEAST, MOST)
#include "fusion/device/number_ranges.def"
  };
  for (const Held& h : kHeld) {
    INFO(h.field);
    const double least = h.least * h.scale, most = h.most * h.scale;
    CHECK(std::llround(least) >= 1);
    CHECK(std::abs(least - std::round(least)) < 1e-9 * least);
    CHECK(most < 9e18);
    CHECK(std::abs(most - std::round(most)) < 1e-9 * most);
  }
}

// What else must be changed for a device to have this number: the numbers that it is compared with.
Numbers Beside(const std::string& field, double value) {
  static const std::map<std::string, Numbers> kWithLeast = {
      {"max_threads_per_sm", {{"max_threads_per_block", 256}}},
      {"registers_per_sm", {{"max_threads_per_block", 256}}},
      {"shared_bytes_per_sm",
       {{"shared_bytes_per_block", 49152}, {"staged_bytes_per_block", 49152}}},
      {"staged_bytes_per_block", {{"shared_bytes_per_block", 49152}}},
      {"row_piece_64_bytes", {{"row_piece_32_bytes", 1e-6}}},
      {"cache_lost_share", {{"cache_kept_share", 1e-6}, {"cache_lost_share", 2e-6}}},
      {"overlap_threads",
       {{"least_overlap_threads", 1}, {"no_overlap_threads", 1}, {"overlap_threads", 2}}},
      {"row_batch_four_blocks", {{"row_batch_two_blocks", 1}}}};
  static const std::map<std::string, Numbers> kWithMost = {
      {"warp", {{"register_granule", 512}}},
      {"register_granule", {{"warp", 64}}},
      {"base_registers", {{"max_registers", 4096}, {"registers_per_sm", 1e9}}},
      {"shared_bytes_per_block",
       {{"shared_bytes_per_sm", 4194304}, {"staged_bytes_per_block", 4194304}}},
      {"staged_bytes_per_block", {{"shared_bytes_per_sm", 4194304}}},
      {"row_piece_32_bytes", {{"row_piece_64_bytes", 1}}},
      {"cache_kept_share", {{"cache_kept_share", 9.999999}, {"cache_lost_share", 10}}},
      {"no_overlap_threads", {{"no_overlap_threads", 999999}, {"overlap_threads", 1e6}}},
      {"least_overlap_threads", {{"least_overlap_threads", 999999}, {"overlap_threads", 1e6}}},
      {"row_batch_two_blocks", {{"row_batch_four_blocks", 1000}}}};
  const NumberRange* range = FindNumberRange("DeviceSpecProto", field);
  const auto& beside = value == range->least ? kWithLeast : kWithMost;
  const auto found = beside.find(field);
  Numbers numbers = {{field, value}};
  if (found != beside.end()) {
    numbers.insert(numbers.end(), found->second.begin(), found->second.end());
  }
  return numbers;
}

std::vector<absl::string_view> FieldsOfDevices() {
  std::vector<absl::string_view> fields;
  for (const NumberRange& range : NumberRanges()) {
    if (range.message == "DeviceSpecProto") fields.push_back(range.field);
  }
  return fields;
}

void CheckPrices(const BackwardGraph& graph, const DeviceSpec& device) {
  const auto planned = PlanFusion(graph, device, {.decisions = false});
  REQUIRE(planned.status().ToString() == "OK");
  const FusionPlan& plan = planned->plan;
  for (const Group& group : plan.groups) {
    CHECK(group.price_ps >= 0);
    for (const Term& term : group.terms) {
      INFO(term.name);
      CHECK(term.ps >= 0);
    }
  }
  CHECK(plan.summary.price_ps > 0);
  CHECK(plan.summary.cost_ps > 0);
  CHECK(plan.summary.bound_ps > 0);
  CHECK(plan.summary.bound_ps <= plan.summary.price_ps);
  CHECK(plan.summary.gap_ps >= 0);
  CHECK(plan.summary.unfused_ps > 0);
}

void CheckPricesWith(const BackwardGraph& graph, const std::string& field, double value) {
  INFO(field << " = " << value);
  const auto device = With(Beside(field, value));
  REQUIRE(device.status().ToString() == "OK");
  CheckPrices(graph, *device);
}

TEST_CASE(
    "at both ends of each number's range a transformer is planned, and no price is negative") {
  const auto graph = BuildModel("transformer:layers=1,d=64,tokens=256,heads=4,vocab=300,bias=1");
  REQUIRE(graph.status().ToString() == "OK");
  for (const absl::string_view field : FieldsOfDevices()) {
    const NumberRange* range = FindNumberRange("DeviceSpecProto", field);
    CheckPricesWith(*graph, std::string(field), range->least);
    CheckPricesWith(*graph, std::string(field), range->most);
  }
}

TEST_CASE("kernels far above the bound that share launches leave a bound that is not negative") {
  const auto golf = BuildModel("golf_tiny");
  REQUIRE(golf.ok());
  for (const char* field : {"bytes_in_flight_per_sm", "barrier_us", "no_overlap_threads",
                            "sort_pass_ns", "row_batch_us"}) {
    CheckPricesWith(*golf, field, FindNumberRange("DeviceSpecProto", field)->most);
  }
  for (const char* field : {"sm_bytes_per_s", "efficiency_4_bytes"}) {
    CheckPricesWith(*golf, field, FindNumberRange("DeviceSpecProto", field)->least);
  }
}

// Times at one end of their ranges and rates at the other.
Numbers AllAtOnce(bool slow) {
  Numbers numbers;
  for (const absl::string_view field : FieldsOfDevices()) {
    const NumberRange* range = FindNumberRange("DeviceSpecProto", field);
    const bool time = absl::EndsWith(field, "_us") || absl::EndsWith(field, "_ns");
    const bool rate = absl::StartsWith(field, "rate_") || absl::EndsWith(field, "_per_s") ||
                      absl::EndsWith(field, "_flops") || absl::StartsWith(field, "efficiency_") ||
                      field == "clock_hz" || field == "sms";
    if (time || rate)
      numbers.push_back({std::string(field), time == slow ? range->most : range->least});
  }
  return numbers;
}

// Sums of rows and columns of 2^36 elements, a scatter of 2^24 rows, matmuls.
constexpr char kLarge[] = R"(
%dy = input name="dy" kind=tangent  f32[16777216,4096]
%x = input name="x" kind=saved  f32[16777216,4096]
%index = input name="index" kind=saved  i64[16777216]
%w = input name="w" kind=saved  f32[4096,4096]
%t = tanh %x
%m = mul %dy %t
%rows = sum %m axes=[1] keep=1
%d = div %m %rows
%columns = sum %d axes=[0]
%zeros = full dtype=f32 shape=[50000,4096] value=0.0
%table = index_add %zeros %index %d axis=0
%dx = matmul %dy %w
%e = exp %dx
output %d name="d"
output %columns name="columns"
output %table name="table"
output %e name="e"
)";

TEST_CASE("the slowest and the fastest device of all ranges price large graphs without overflow") {
  const auto large = ParseGraph(kLarge);
  REQUIRE(large.status().ToString() == "OK");
  for (const bool slow : {true, false}) {
    INFO((slow ? "slow" : "fast"));
    const auto device = With(AllAtOnce(slow));
    REQUIRE(device.status().ToString() == "OK");
    CheckPrices(*large, *device);
  }
}

TEST_CASE("rates are priced to the thousandth of a result") {
  const auto graph = ParseGraph(R"(
%dy = input name="dy" kind=tangent  f32[1048576]
%a = exp %dy
%b = exp %a
%c = exp %b
%d = exp %c
output %d name="d"
)");
  REQUIRE(graph.status().ToString() == "OK");
  const auto compute = [&](double rate) -> double {
    const auto device = With({{"rate_exponential", rate}});
    REQUIRE(device.ok());
    const auto planned = PlanFusion(*graph, *device);
    REQUIRE(planned.ok());
    REQUIRE(planned->plan.groups.size() == 1);
    for (const Term& term : planned->plan.groups[0].terms) {
      if (term.name == "compute") return static_cast<double>(term.ps);
    }
    return 0;
  };
  // The rest of the arithmetic takes what is left at a rate that takes no time.
  const double rest = compute(1e6);
  CHECK(std::abs((compute(9.6) - rest) / (compute(10) - rest) - 10 / 9.6) < 1e-3);
  CHECK(std::abs((compute(0.004) - rest) / (compute(0.001) - rest) - 0.25) < 1e-3);
}

TEST_CASE("beyond the ends of a range a number is refused by its name, its value and the range") {
  for (const absl::string_view field : FieldsOfDevices()) {
    const NumberRange* range = FindNumberRange("DeviceSpecProto", field);
    const double beyond[] = {
        std::nextafter(range->least, -1),        std::nextafter(range->most, 1e300),      -1, 1e300,
        std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
    for (const double value : beyond) {
      const auto device = With({{std::string(field), value}});
      REQUIRE_FALSE(device.ok());
      const std::string refusal(device.status().message());
      INFO(refusal);
      CHECK(absl::StrContains(refusal, absl::StrCat(field, " is ", PrintNumber(value))));
      CHECK(absl::StrContains(refusal, absl::StrCat("a number from ", PrintNumber(range->least),
                                                    " to ", PrintNumber(range->most))));
    }
  }
}

TEST_CASE("numbers of a spec's tables are refused out of their ranges, by their row") {
  const auto refusal = [](const std::string& row) {
    return std::string(ParseDeviceSpec(absl::StrCat(H200(), row), "test").status().message());
  };
  const std::string epilogue =
      "matmul_epilogues { name: \"x\" source: \"y\" product_factor: 1 pass_share: 1 "
      "arithmetic_factor: 3 max_stores: 1 tiles { rows: 1000000000 columns: 64 cluster: 1 "
      "factor: 1 source: \"y\" } }";
  CHECK(absl::StrContains(refusal(epilogue),
                          "matmul_epilogues[1].tiles[0].rows is 1e+09: a number from 1 to 1024"));
  const std::string wide = refusal(
      "interference { a: \"kernel\" b: \"matmul\" share_a: 1 share_b: 65 factor: 0.9 source: \"y\" "
      "}");
  CHECK(absl::StrContains(wide, "interference["));
  CHECK(absl::StrContains(wide, "].share_b is 65: a number from 1e-06 to 64"));
}

}  // namespace
}  // namespace retrograd
