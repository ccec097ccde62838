#include "fusion/device/device_spec.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/device/device_spec.pb.h"
#include "fusion/device/number_ranges.h"
#include "graph/base/data_folder.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr char kFolder[] = "fusion/devices";

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text.empty())
      text = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  std::string text;
};

int64_t Ppm(double share) { return std::llround(share * 1e6); }

RegisterModel ToModel(const v1::RegisterModelProto& p) {
  const double coefficients[kNumRegisterCounts] = {
      p.one(),         p.buffers(),       p.loads(),       p.stores(),        p.instructions(),
      p.live_words(),  p.loaded_vector(), p.loaded_held(), p.stored_vector(), p.carried_held(),
      p.column_sums(), p.column_loads(),  p.row_sums(),    p.guards(),        p.runs(),
      p.split(),       p.staged()};
  RegisterModel model{.spill_margin_ppm = std::llround(p.spill_margin() * 1e6),
                      .staged_spill_margin_ppm = std::llround(p.staged_spill_margin() * 1e6),
                      .spill_guards_milli = std::llround(p.spill_guards() * 1e3),
                      .slack = {Ppm(p.spill_slack()), Ppm(p.spill_chance())},
                      .staged_slack = {Ppm(p.staged_spill_slack()), Ppm(p.staged_spill_chance())},
                      .long_kernels = {.above = p.long_above(),
                                       .one_milli = std::llround(p.long_one() * 1e3),
                                       .stores_milli = std::llround(p.long_stores() * 1e3),
                                       .live_words_milli = std::llround(p.long_live_words() * 1e3)},
                      .source = p.source()};
  for (int i = 0; i < kNumRegisterCounts; ++i) model.milli[i] = std::llround(coefficients[i] * 1e3);
  return model;
}

// One model for each kind of launch, in any order.
absl::Status ReadRegisterModels(const v1::DeviceSpecProto& p, absl::string_view where,
                                DeviceSpec& d) {
  for (const v1::RegisterModelProto& model : p.registers()) {
    const auto* kind = std::find(std::begin(kLaunchKindNames), std::end(kLaunchKindNames),
                                 absl::string_view(model.launch()));
    if (kind == std::end(kLaunchKindNames)) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": registers of '", model.launch(),
                                                     "': the kinds of launches are ",
                                                     absl::StrJoin(kLaunchKindNames, ", ")));
    }
    RegisterModel& slot = d.registers[kind - std::begin(kLaunchKindNames)];
    if (!slot.source.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": registers of ", model.launch(), " are given twice"));
    }
    if (model.source().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": registers of ", model.launch(),
                       " have no source: say where the numbers come from"));
    }
    slot = ToModel(model);
  }
  for (int k = 0; k < kNumLaunchKinds; ++k) {
    if (!d.registers[k].source.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": registers of ", kLaunchKindNames[k],
                     " are missing: take them from a device with the same compiler"));
  }
  return absl::OkStatus();
}

// Why the figures, each in its range, make no tile; empty if they do.
absl::string_view WhyNoTile(const v1::GemmTileProto& p) {
  if (p.cluster() == 3) return "a tile's cluster is 1, 2 or 4 blocks";
  return p.source().empty() ? "a tile needs a source" : "";
}

absl::StatusOr<MatMulEpilogue> ToEpilogue(const v1::MatMulEpilogueProto& p,
                                          absl::string_view where) {
  auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": matmul epilogue '", p.name(), "': ", why));
  };
  if (p.name().empty() || p.source().empty()) return refuse("a name and a source are needed");
  MatMulEpilogue epilogue{.name = p.name(),
                          .product_ppm = std::llround(p.product_factor() * 1e6),
                          .pass_ppm = std::llround(p.pass_share() * 1e6),
                          .arithmetic_ppm = std::llround(p.arithmetic_factor() * 1e6),
                          .operand_wait_ppm = std::llround(p.operand_wait() * 1e6),
                          .max_reads = p.max_reads(),
                          .max_stores = p.max_stores()};
  for (const std::string& name : p.dtypes()) {
    const std::optional<DType> dtype = DTypeByName(name);
    if (!dtype) return refuse(absl::StrCat("'", name, "' is no dtype"));
    epilogue.dtypes.push_back(*dtype);
  }
  for (const v1::GemmTileProto& tile : p.tiles()) {
    if (const absl::string_view why = WhyNoTile(tile); !why.empty()) return refuse(why);
    epilogue.tiles.push_back({.m = tile.rows(),
                              .n = tile.columns(),
                              .cluster = tile.cluster(),
                              .stages = tile.stages(),
                              .factor_ppm = std::llround(tile.factor() * 1e6)});
  }
  return epilogue;
}

// All rows are checked; they count only where their kernels are built.
absl::Status ReadEpilogues(const v1::DeviceSpecProto& p, absl::string_view where, DeviceSpec& d) {
  const double built = p.epilogue_kernels().value();
  if (built != 0 && built != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": epilogue_kernels is ", built, ": 0 (not built) or 1 is needed"));
  }
  for (const v1::MatMulEpilogueProto& row : p.matmul_epilogues()) {
    RG_ASSIGN_OR_RETURN(MatMulEpilogue epilogue, ToEpilogue(row, where));
    if (d.epilogue_kernels == 1) d.matmul_epilogues.push_back(std::move(epilogue));
  }
  return absl::OkStatus();
}

// What schedules and prices take for granted: numbers that are positive and still make no device.
absl::Status CheckSense(const DeviceSpec& d, absl::string_view where) {
  struct Rule {
    bool broken;
    absl::string_view text;
  };
  const Rule rules[] = {
      {d.warp != 32 && d.warp != 64, "warp must be 32 or 64"},
      {d.max_threads_per_sm < d.max_threads_per_block,
       "max_threads_per_sm must be at least max_threads_per_block"},
      {d.register_granule % d.warp != 0, "register_granule must be a multiple of warp"},
      // So that the largest block's threads have a granule each.
      {d.register_granule > 32 * d.warp, "register_granule must be at most 32 times warp"},
      {d.base_registers > d.max_registers, "base_registers must be at most max_registers"},
      {d.registers_per_sm < 32 * d.max_threads_per_block,
       "registers_per_sm must be at least 32 for each thread of a block"},
      {d.shared_bytes_per_sm < d.shared_bytes_per_block,
       "shared_bytes_per_sm must be at least shared_bytes_per_block"},
      {d.staged_bytes_per_block != 0 && d.staged_bytes_per_block < d.shared_bytes_per_block,
       "staged_bytes_per_block must be at least shared_bytes_per_block"},
      {d.shared_bytes_per_sm < d.staged_bytes_per_block,
       "shared_bytes_per_sm must be at least staged_bytes_per_block"},
      {d.cluster_blocks > 1 && d.cluster_barrier_ps == 0,
       "cluster_barrier_us is needed, as there are clusters"},
      {d.cluster_blocks > 1 && d.cluster_exchange_ps == 0,
       "cluster_exchange_us is needed, as there are clusters"},
      {d.row_piece_32_ppm > d.row_piece_64_ppm,
       "row_piece_32_bytes must be at most row_piece_64_bytes"},
      {d.cache_lost_ppm <= d.cache_kept_ppm, "cache_lost_share must be above cache_kept_share"},
      {d.least_overlap_threads >= d.overlap_threads || d.no_overlap_threads >= d.overlap_threads,
       "overlap_threads must be above least_overlap_threads and no_overlap_threads"},
      {d.row_batch_four_blocks_milli - 1000 < 3 * (d.row_batch_two_blocks_milli - 1000),
       "row_batch_four_blocks must be above 1 by at least three times as much as "
       "row_batch_two_blocks"},
      {d.staged_bytes_per_block != 0 &&
           d.registers[static_cast<int>(LaunchKind::kRowColumnPersistent)]
                   .staged_spill_margin_ppm == 0,
       "registers of row_column persistent have no staged_spill_margin, but rows may be staged"},
      {d.staged_bytes_per_block != 0 &&
           d.registers[static_cast<int>(LaunchKind::kHeldColumns)].staged_spill_margin_ppm == 0,
       "registers of held_columns have no staged_spill_margin, but rows may be staged"},
  };
  for (const Rule& rule : rules) {
    if (rule.broken) return absl::InvalidArgumentError(absl::StrCat(where, ": ", rule.text));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceSpec> ParseDeviceSpec(absl::string_view text, absl::string_view where) {
  v1::DeviceSpecProto p;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(text), &p)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", error.text));
  }
  DeviceSpec d;
  d.name = p.name();
  d.vendor = p.vendor();
  d.arch = p.arch();
  d.calibrated = p.calibrated();
  if (d.name.empty() || d.arch.empty() || (d.vendor != "nvidia" && d.vendor != "amd")) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": name, arch and a vendor of nvidia or amd are needed"));
  }
  RG_RETURN_IF_ERROR(CheckNumberRanges(p, where));
#define RG_NUMBER(MEMBER, FIELD, SCALE, LEAST, MOST) \
  d.MEMBER = std::llround(p.FIELD().value() * (SCALE));
#define RG_STAGED(MEMBER, FIELD, SCALE, LEAST, MOST) \
  if (p.has_staged_bytes_per_block()) d.MEMBER = std::llround(p.FIELD().value() * (SCALE));
#include "fusion/device/number_ranges.def"
  RG_RETURN_IF_ERROR(ReadRegisterModels(p, where, d));
  RG_RETURN_IF_ERROR(ReadEpilogues(p, where, d));
  RG_RETURN_IF_ERROR(CheckSense(d, where));
  return d;
}

absl::StatusOr<std::string> ReadDeviceSpec(absl::string_view name_or_path) {
  namespace fs = std::filesystem;
  const bool is_path =
      absl::StrContains(name_or_path, "/") || absl::EndsWith(name_or_path, ".textproto");
  const std::string path = is_path
                               ? std::string(name_or_path)
                               : absl::StrCat(DataFolder(kFolder), "/", name_or_path, ".textproto");
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) {
    return absl::NotFoundError(absl::StrCat(
        "no device spec '", name_or_path, "': the known ones are ",
        absl::StrJoin(DeviceSpecNames(), ", "), "; or give the path of a .textproto file"));
  }
  if (fs::file_size(path, ec) > (1 << 20)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 1 MiB, not a device spec"));
  }
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  return text.str();
}

absl::StatusOr<DeviceSpec> LoadDeviceSpec(absl::string_view name_or_path) {
  RG_ASSIGN_OR_RETURN(const std::string text, ReadDeviceSpec(name_or_path));
  return ParseDeviceSpec(text, name_or_path);
}

std::vector<std::string> DeviceSpecNames() {
  std::vector<std::string> names;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(DataFolder(kFolder), ec)) {
    if (entry.path().extension() == ".textproto") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace retrograd
