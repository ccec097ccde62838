// Times the schedules that a convolution's gradients can have as kernels of ours, each alone on a
// device: what the order of schedules is fitted to, and how far the first of them are from the
// best.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/base/status.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/ops/convolution/generated_convolution.h"
#include "runtime/trials/measurement.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/pipeline.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRuns = 16;  // of a schedule in a recording

constexpr char kNote[] = R"(Examples:
  convolution-times bench/data/convolutions.csv --json times.json
  convolution-times bench/data/convolutions.csv --only resnet50 --most 24

The file's columns are model,count,n,c,h,w,k,r,s,stride,pad,dil,groups,needs_dx; tensors are bf16 and
lie channels last. Times are of one run of several in one recording, with warm caches. Operands are
small integers, so that all schedules must give the same bits; one that does not is an error.)";

struct Options {
  std::string shapes, json, only;
  int device = 0, repeat = 7, most = 24;
};

struct NamedConvolution {
  std::string name;
  Shape x, w, y, stride, padding, dilation;
  int64_t groups = 1;
  bool needs_dx = true;
};

absl::StatusOr<Shape> Numbers(absl::string_view text) {
  Shape numbers;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no number"));
    }
  }
  return numbers;
}

// A row of the file.
absl::StatusOr<NamedConvolution> ParseRow(absl::string_view line) {
  const std::vector<std::string> cells = absl::StrSplit(line, ',');
  if (cells.size() != 14) {
    return absl::InvalidArgumentError(absl::StrCat("14 columns are needed: ", line));
  }
  std::vector<Shape> numbers;
  for (size_t i = 2; i < cells.size(); ++i) {
    RG_ASSIGN_OR_RETURN(numbers.emplace_back(), Numbers(cells[i]));
  }
  const auto one = [&](size_t i) { return numbers[i][0]; };
  NamedConvolution c{.name = cells[0],
                     .x = {one(0), one(1), one(2), one(3)},
                     .w = {one(4), one(1) / one(10), one(5), one(6)},
                     .y = {one(0), one(4)},
                     .stride = numbers[7],
                     .padding = numbers[8],
                     .dilation = numbers[9],
                     .groups = one(10),
                     .needs_dx = one(11) == 1};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t window = c.dilation[d] * (c.w[2 + d] - 1) + 1;
    c.y.push_back((c.x[2 + d] + 2 * c.padding[d] - window) / c.stride[d] + 1);
  }
  return c;
}

Call CallOf(const NamedConvolution& c, bool input) {
  Call call{.op = input ? Op::convolution_input_gradient : Op::convolution_weight_gradient};
  call.attributes = {
      {"stride", c.stride}, {"padding", c.padding}, {"dilation", c.dilation}, {"groups", c.groups}};
  input ? call.attributes.Set("input_shape", c.x) : call.attributes.Set("weight_shape", c.w);
  const auto tensor = [](const Shape& shape) {
    return CallTensor{.shape = shape, .strides = ChannelsLastStrides(shape), .dtype = DType::kBf16};
  };
  call.operands = {tensor(c.y), tensor(input ? c.w : c.x)};
  call.results = {tensor(input ? c.x : c.w)};
  return call;
}

// The median of a schedule's times.
absl::StatusOr<double> TimeOf(Device& device, LoadedCall& loaded, const CallPointers& pointers,
                              void* scratch, int repeat) {
  const auto run = [&] { return loaded.Run(0, pointers, scratch); };
  const std::unique_ptr<Recording> row = RecordRow(device, run, kRuns);
  if (row == nullptr) return absl::InternalError("a schedule cannot be recorded");
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    RG_ASSIGN_OR_RETURN(times.emplace_back(), TimeRecorded(device, *row, kRuns));
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[static_cast<size_t>(repeat / 2)];
}

// Integers whose products add up exactly in fp32 in any order, as bf16.
std::vector<uint16_t> SmallIntegers(int64_t elements) {
  constexpr uint16_t kOneToThree[] = {0x3f80, 0x4000, 0x4040};
  std::minstd_rand random(static_cast<uint32_t>(elements));
  std::vector<uint16_t> values(static_cast<size_t>(elements));
  for (uint16_t& v : values) {
    const auto drawn = static_cast<uint32_t>(random() >> 8);
    v = static_cast<uint16_t>(kOneToThree[drawn % 3] | (drawn % 2 << 15));
  }
  return values;
}

// The result of one run. It was full of ones' bits before.
absl::StatusOr<std::vector<uint16_t>> ResultOf(Device& device, LoadedCall& loaded,
                                               const CallPointers& pointers, void* scratch,
                                               int64_t elements) {
  std::vector<uint16_t> bits(static_cast<size_t>(elements), 0xffff);
  const int64_t bytes = elements * SizeBytes(DType::kBf16);
  RG_RETURN_IF_ERROR(device.CopyIn(pointers.results[0], bits.data(), bytes));
  RG_RETURN_IF_ERROR(loaded.Run(0, pointers, scratch));
  RG_RETURN_IF_ERROR(device.Synchronize());
  RG_RETURN_IF_ERROR(device.CopyOut(bits.data(), pointers.results[0], bytes));
  return bits;
}

// The first ones, and the first of those that load no boxes.
absl::StatusOr<std::vector<std::unique_ptr<LoadedCall>>> SchedulesOf(Device& device,
                                                                     const Call& call,
                                                                     const Options& options) {
  const auto most = static_cast<size_t>(options.most);
  RG_ASSIGN_OR_RETURN(auto schedules, LoadGeneratedConvolution(device, call, {}, most));
  RG_ASSIGN_OR_RETURN(auto others,
                      LoadGeneratedConvolution(device, call, {.image_boxes = false}, most));
  for (auto& other : others) {
    const auto same = [&](const auto& s) { return s->Describe() == other->Describe(); };
    if (std::none_of(schedules.begin(), schedules.end(), same)) {
      schedules.push_back(std::move(other));
    }
  }
  return schedules;
}

absl::StatusOr<Json> TimeSchedules(Device& device, const Call& call, const Options& options) {
  RG_ASSIGN_OR_RETURN(const auto schedules, SchedulesOf(device, call, options));
  MeasurementMemory memory(device);
  std::vector<const void*> operands;
  for (const CallTensor& t : call.operands) {
    RG_ASSIGN_OR_RETURN(void* const data, memory.Take(SpanOf(t) * SizeBytes(t.dtype)));
    RG_RETURN_IF_ERROR(
        device.CopyIn(data, SmallIntegers(SpanOf(t)).data(), SpanOf(t) * SizeBytes(t.dtype)));
    operands.push_back(data);
  }
  const CallTensor& result = call.results[0];
  std::vector<void*> results;
  RG_ASSIGN_OR_RETURN(results.emplace_back(),
                      memory.Take(SpanOf(result) * SizeBytes(result.dtype)));
  int64_t most_scratch = 0;
  for (const auto& schedule : schedules) {
    most_scratch = std::max(most_scratch, schedule->scratch_bytes());
  }
  RG_ASSIGN_OR_RETURN(void* const scratch, memory.Take(most_scratch));
  Json times = Json::array();
  std::vector<uint16_t> wanted;
  for (const auto& schedule : schedules) {
    RG_ASSIGN_OR_RETURN(
        const std::vector<uint16_t> bits,
        ResultOf(device, *schedule, {operands, absl::MakeSpan(results)}, scratch, SpanOf(result)));
    if (wanted.empty()) wanted = bits;
    RG_ASSIGN_OR_RETURN(
        const double us,
        TimeOf(device, *schedule, {operands, absl::MakeSpan(results)}, scratch, options.repeat));
    times.push_back(
        {{"schedule", schedule->Describe()}, {"us", us}, {"equal_bits", bits == wanted}});
  }
  return times;
}

absl::Status Run(const Options& options, const std::string& command) {
  RG_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.shapes));
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                      MakeCudaDevice({.ordinal = options.device}));
  bool other_bits = false;
  Json out = {{"command", command}, {"device", device->Describe().model}, {"calls", Json::array()}};
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] == '#' || absl::StartsWith(line, "model,")) continue;
    if (!absl::StrContains(line, options.only)) continue;
    RG_ASSIGN_OR_RETURN(const NamedConvolution convolution, ParseRow(line));
    for (const bool input : {true, false}) {
      if (input && !convolution.needs_dx) continue;
      const Call call = CallOf(convolution, input);
      RG_ASSIGN_OR_RETURN(Json times, TimeSchedules(*device, call, options));
      double least = 1e9;
      for (const Json& t : times) {
        least = std::min(least, t["us"].get<double>());
        if (t["equal_bits"].get<bool>()) continue;
        other_bits = true;
        std::printf("other bits by %s\n", t["schedule"].get<std::string>().c_str());
      }
      std::printf("%s %s: first %.2f us, best %.2f us\n", input ? "dx" : "dw",
                  std::string(line).c_str(), times[0]["us"].get<double>(), least);
      std::fflush(stdout);
      out["calls"].push_back(
          {{"shape", std::string(line)}, {"op", Name(call.op)}, {"times", std::move(times)}});
    }
  }
  if (!options.json.empty()) {
    RG_RETURN_IF_ERROR(WriteTextFile(options.json, out.dump(1) + "\n"));
  }
  if (other_bits) return absl::InternalError("schedules of a gradient give other bits");
  return absl::OkStatus();
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  CLI::App app("Times of the schedules of convolutions' gradients.", "convolution-times");
  app.footer(retrograd::kNote);
  retrograd::Options options;
  app.add_option("shapes", options.shapes, "A file of convolutions")->required();
  app.add_option("--device", options.device, "Number of the CUDA device")->capture_default_str();
  app.add_option("--repeat", options.repeat, "Timed runs; figures are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--most", options.most,
                 "Schedules of a gradient, in the order of their prices, with boxes and without")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--only", options.only, "Rows that hold this text");
  app.add_option("--json", options.json, "Write the times to this file");
  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;
  std::string command = "convolution-times";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&command, " ", argv[i]);
  const absl::Status status = retrograd::Run(options, command);
  return status.ok() ? 0 : retrograd::Report("convolution-times", status);
}
