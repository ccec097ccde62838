// Times the ways in which lists of indices can be sorted, each alone on a device, and compares what
// each makes with a sort on the host.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "graph/base/status.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/ops/sort_indices/generated_sort.h"
#include "runtime/trials/measurement.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/pipeline.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRuns = 20;  // of a sort in a recording

constexpr char kNote[] = R"(Examples:
  sort-times bench/data/sorts.csv --json times.json
  sort-times bench/data/sorts.csv --only 200000

The file's columns are indices,rows,kind; indices are int64. Times are of one run of several in one
recording, with warm caches; the way that is taken comes first.)";

struct Options {
  std::string lists, json, only;
  int device = 0, repeat = 7;
};

struct List {
  SortedIndices sorted;
  std::vector<int64_t> indices;
};

absl::StatusOr<std::vector<int64_t>> Drawn(int64_t count, int64_t rows, absl::string_view kind) {
  std::mt19937_64 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  std::vector<double> until;  // the chance of a row up to this one, of zipf
  if (kind == "zipf") {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) until.push_back(sum += 1.0 / static_cast<double>(1 + r));
  }
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    if (kind == "uniform") {
      indices.push_back(below(rows));
    } else if (kind == "equal") {
      indices.push_back(rows / 3);
    } else if (kind == "few") {
      indices.push_back(below(std::min<int64_t>(rows, 64)));
    } else if (kind == "zipf") {
      const double at = std::generate_canonical<double, 53>(random) * until.back();
      indices.push_back(std::lower_bound(until.begin(), until.end(), at) - until.begin());
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", kind, "\": there are uniform, equal, zipf and few"));
    }
  }
  return indices;
}

absl::StatusOr<List> ParseRow(absl::string_view line) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  List list;
  if (cells.size() != 3 || !absl::SimpleAtoi(cells[0], &list.sorted.indices) ||
      !absl::SimpleAtoi(cells[1], &list.sorted.rows) || list.sorted.indices < 0 ||
      list.sorted.rows < 1) {
    return absl::InvalidArgumentError(absl::StrCat("indices,rows,kind are needed: ", line));
  }
  RG_ASSIGN_OR_RETURN(list.indices, Drawn(list.sorted.indices, list.sorted.rows, cells[2]));
  return list;
}

Call CallOf(const SortedIndices& sorted) {
  const auto tensor = [](int64_t elements, DType dtype) {
    return CallTensor{.shape = {elements}, .strides = {1}, .dtype = dtype};
  };
  return {.op = Op::sort_indices,
          .operands = {tensor(sorted.indices, DType::kInt64)},
          .results = {tensor(sorted.elements(), DType::kInt32)},
          .attributes = {{"rows", sorted.rows}}};
}

// What a sort should make, of indices that all name rows.
std::vector<int32_t> Sorted(const List& list) {
  const SortedIndices& s = list.sorted;
  std::vector<int32_t> order(list.indices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return list.indices[a] < list.indices[b]; });
  std::vector<int32_t> made(s.elements(), static_cast<int32_t>(s.indices));
  int64_t position = 0;
  for (int64_t row = 0; row < s.pairs(); ++row) {
    while (position < s.indices && list.indices[order[position]] < row) ++position;
    made[s.starts() + row] = static_cast<int32_t>(position);
  }
  for (int64_t p = 0; p < s.indices; ++p) {
    made[s.key(p)] = static_cast<int32_t>(list.indices[order[p]]);
    made[s.order(p)] = order[p];
  }
  return made;
}

// The median of a way's times.
absl::StatusOr<double> TimeOf(Device& device, LoadedCall& loaded, const CallPointers& pointers,
                              void* scratch, int repeat) {
  const auto run = [&] { return loaded.Run(0, pointers, scratch); };
  const std::unique_ptr<Recording> row = RecordRow(device, run, kRuns);
  if (row == nullptr) return absl::InternalError("a sort cannot be recorded");
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    RG_ASSIGN_OR_RETURN(times.emplace_back(), TimeRecorded(device, *row, kRuns));
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[static_cast<size_t>(repeat / 2)];
}

absl::StatusOr<Json> TimeWays(Device& device, const List& list, int repeat) {
  const Call call = CallOf(list.sorted);
  const std::vector<int32_t> wanted = Sorted(list);
  const auto bytes = static_cast<int64_t>(4 * wanted.size());
  MeasurementMemory memory(device);
  RG_ASSIGN_OR_RETURN(void* const index,
                      memory.Take(8 * std::max<int64_t>(1, list.sorted.indices)));
  RG_ASSIGN_OR_RETURN(void* const result, memory.Take(bytes));
  RG_RETURN_IF_ERROR(device.CopyIn(index, list.indices.data(), 8 * list.sorted.indices));
  const void* operands[] = {index};
  void* results[] = {result};
  Json times = Json::array();
  for (const IndexSort& sort : IndexSortsFor(list.sorted, DType::kInt64)) {
    RG_ASSIGN_OR_RETURN(const auto loaded, LoadGeneratedSort(device, call, sort, /*direct=*/true));
    RG_ASSIGN_OR_RETURN(void* const scratch,
                        memory.Take(std::max<int64_t>(16, loaded->scratch_bytes())));
    const std::vector<int32_t> nothing(wanted.size(), -7);
    RG_RETURN_IF_ERROR(device.CopyIn(result, nothing.data(), bytes));
    RG_ASSIGN_OR_RETURN(
        const double us,
        TimeOf(device, *loaded, {.operands = operands, .results = results}, scratch, repeat));
    std::vector<int32_t> made(wanted.size());
    RG_RETURN_IF_ERROR(device.CopyOut(made.data(), result, bytes));
    times.push_back({{"way", std::string(Name(sort.way))},
                     {"how", Describe(sort)},
                     {"us", us},
                     {"sorted", made == wanted}});
  }
  return times;
}

absl::Status Run(const Options& options, const std::string& command) {
  RG_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.lists));
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                      MakeCudaDevice({.ordinal = options.device}));
  Json out = {{"command", command}, {"device", device->Describe().model}, {"lists", Json::array()}};
  bool all_sorted = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] == '#' || absl::StartsWith(line, "indices,")) continue;
    if (!absl::StrContains(line, options.only)) continue;
    RG_ASSIGN_OR_RETURN(const List list, ParseRow(line));
    RG_ASSIGN_OR_RETURN(Json times, TimeWays(*device, list, options.repeat));
    for (const Json& t : times) {
      all_sorted = all_sorted && t["sorted"].get<bool>();
      std::printf("%-24s %8.2f us  %-10s  %s%s\n", std::string(line).c_str(), t["us"].get<double>(),
                  t["way"].get<std::string>().c_str(), t["how"].get<std::string>().c_str(),
                  t["sorted"].get<bool>() ? "" : "  NOT SORTED");
    }
    std::fflush(stdout);
    out["lists"].push_back({{"list", std::string(line)}, {"ways", std::move(times)}});
  }
  if (!options.json.empty()) {
    RG_RETURN_IF_ERROR(WriteTextFile(options.json, out.dump(1) + "\n"));
  }
  return all_sorted ? absl::OkStatus() : absl::InternalError("a list is not sorted");
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  CLI::App app("Times of the ways to sort lists of indices.", "sort-times");
  app.footer(retrograd::kNote);
  retrograd::Options options;
  app.add_option("lists", options.lists, "A file of lists")->required();
  app.add_option("--device", options.device, "Number of the CUDA device")->capture_default_str();
  app.add_option("--repeat", options.repeat, "Timed runs; figures are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--only", options.only, "Rows that hold this text");
  app.add_option("--json", options.json, "Write the times to this file");
  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;
  std::string command = "sort-times";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&command, " ", argv[i]);
  const absl::Status status = retrograd::Run(options, command);
  return status.ok() ? 0 : retrograd::Report("sort-times", status);
}
