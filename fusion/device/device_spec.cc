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

// Copies numbers out of the message; the first one that is missing or out of range is remembered.
class Reader {
 public:
  explicit Reader(absl::string_view where) : where_(where) {}

  int64_t Scaled(const v1::Number& n, absl::string_view field, double scale) {
    const double v = n.value() * scale;
    if (status_.ok() && !(v > 0 && v < 9e18)) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(where_, ": ", field, " is ", n.value(), ": a positive number is needed"));
    }
    if (status_.ok() && n.source().empty()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(where_, ": ", field, " has no source: say where the number comes from"));
    }
    return status_.ok() ? std::llround(v) : 0;
  }

  // A number that prices count or divide with: of a range that a device could have.
  int64_t Within(const v1::Number& n, absl::string_view field, double scale, double least,
                 double most) {
    if (status_.ok() && !(n.value() >= least && n.value() <= most)) {
      status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", field, " is ", n.value(),
                                                        ": a number from ", least, " to ", most,
                                                        " is needed"));
    }
    return Scaled(n, field, scale);
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::string_view where_;
  absl::Status status_;
};

// A coefficient of a register model: not negative, and nothing that could overflow a sum.
absl::Status CheckRegisterNumbers(const v1::RegisterModelProto& p, absl::string_view where) {
  const google::protobuf::Descriptor* type = p.GetDescriptor();
  for (int f = 0; f < type->field_count(); ++f) {
    const google::protobuf::FieldDescriptor* field = type->field(f);
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) continue;
    const double v = p.GetReflection()->GetDouble(p, field);
    if (v >= 0 && v <= 1000) continue;
    return absl::InvalidArgumentError(absl::StrCat(where, ": registers of ", p.launch(), ": ",
                                                   field->name(), " is ", v,
                                                   ": a number from 0 to 1000 is needed"));
  }
  return absl::OkStatus();
}

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
    RG_RETURN_IF_ERROR(CheckRegisterNumbers(model, where));
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

// Why the figures make no tile; empty if they do.
absl::string_view WhyNoTile(const v1::GemmTileProto& p) {
  if (p.rows() < 1 || p.columns() < 1) return "a tile needs rows and columns";
  if (p.cluster() != 1 && p.cluster() != 2 && p.cluster() != 4) {
    return "a tile's cluster is 1, 2 or 4 blocks";
  }
  if (p.stages() < 0) return "a tile's stages must not be negative";
  if (!(p.factor() >= 0.1 && p.factor() <= 100)) return "a tile's factor must be from 0.1 to 100";
  return p.source().empty() ? "a tile needs a source" : "";
}

absl::StatusOr<MatMulEpilogue> ToEpilogue(const v1::MatMulEpilogueProto& p,
                                          absl::string_view where) {
  auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": matmul epilogue '", p.name(), "': ", why));
  };
  if (p.name().empty() || p.source().empty()) return refuse("a name and a source are needed");
  if (!(p.product_factor() >= 1 && p.product_factor() <= 100)) {
    return refuse("product_factor must be from 1 to 100");
  }
  if (!(p.pass_share() > 0 && p.pass_share() <= 1)) return refuse("pass_share must be in (0, 1]");
  if (!(p.arithmetic_factor() > 0 && p.arithmetic_factor() <= 100)) {
    return refuse("arithmetic_factor must be in (0, 100]");
  }
  if (!(p.operand_wait() >= 0 && p.operand_wait() <= 100)) {
    return refuse("operand_wait must be from 0 to 100");
  }
  if (p.max_reads() < 0 || p.max_stores() < 1) {
    return refuse("max_reads must not be negative and max_stores at least 1");
  }
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
    if (built == 1) d.matmul_epilogues.push_back(std::move(epilogue));
  }
  return absl::OkStatus();
}

// What schedules and prices take for granted: numbers that are positive and still make no device.
absl::Status CheckSense(const DeviceSpec& d, absl::string_view where) {
  struct Rule {
    bool broken;
    absl::string_view text;
  };
  constexpr int64_t kLeastThreads = 256;  // of a block of any template
  const Rule rules[] = {
      {d.warp != 32 && d.warp != 64, "warp must be 32 or 64"},
      {d.max_threads_per_block < kLeastThreads, "max_threads_per_block must be at least 256"},
      {d.max_threads_per_sm < d.max_threads_per_block,
       "max_threads_per_sm must be at least max_threads_per_block"},
      {d.register_granule % d.warp != 0, "register_granule must be a multiple of warp"},
      {d.registers_per_sm < 32 * d.max_threads_per_block,
       "registers_per_sm must be at least 32 for each thread of a block"},
      {d.max_registers < 32, "max_registers must be at least 32"},
      {d.shared_bytes_per_block < 16384, "shared_bytes_per_block must be at least 16384"},
      {d.shared_bytes_per_sm < d.shared_bytes_per_block,
       "shared_bytes_per_sm must be at least shared_bytes_per_block"},
      {d.staged_bytes_per_block != 0 && d.staged_bytes_per_block < d.shared_bytes_per_block,
       "staged_bytes_per_block must be at least shared_bytes_per_block"},
      {d.shared_bytes_per_sm < d.staged_bytes_per_block,
       "shared_bytes_per_sm must be at least staged_bytes_per_block"},
      {std::min({d.hbm_bytes_per_s, d.cache_bytes_per_s, d.sm_bytes_per_s, d.spill_bytes_per_s}) <
           1'000'000'000,
       "hbm_bytes_per_s, cache_bytes_per_s, sm_bytes_per_s and spill_bytes_per_s must be at least "
       "1e9"},
      {std::min({d.matmul_bf16_flops, d.matmul_tf32_flops, d.matmul_fp32_flops, d.matmul_fp64_flops,
                 d.attention_flops}) < 1'000'000'000,
       "every matmul_*_flops and attention_flops must be at least 1e9"},
      {d.matmul_split_bytes_per_s < 1'000'000'000, "matmul_split_bytes_per_s must be at least 1e9"},
      {d.clock_hz < 1'000'000, "clock_hz must be at least 1e6"},
      {std::max({d.efficiency_8_ppm, d.efficiency_4_ppm, d.efficiency_2_ppm}) > 1'000'000,
       "efficiencies are at most 1"},
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
  Reader r(where);
#define RG_NUMBER(FIELD, PROTO_FIELD, SCALE) \
  d.FIELD = r.Scaled(p.PROTO_FIELD(), #PROTO_FIELD, SCALE)
#define RG_WITHIN(FIELD, PROTO_FIELD, SCALE, LEAST, MOST) \
  d.FIELD = r.Within(p.PROTO_FIELD(), #PROTO_FIELD, SCALE, LEAST, MOST)
  RG_NUMBER(sms, sms, 1);
  RG_NUMBER(warp, warp, 1);
  RG_NUMBER(max_threads_per_block, max_threads_per_block, 1);
  RG_NUMBER(max_threads_per_sm, max_threads_per_sm, 1);
  RG_NUMBER(max_blocks_per_sm, max_blocks_per_sm, 1);
  RG_NUMBER(registers_per_sm, registers_per_sm, 1);
  RG_NUMBER(register_granule, register_granule, 1);
  RG_NUMBER(max_registers, max_registers, 1);
  RG_NUMBER(base_registers, base_registers, 1);
  RG_NUMBER(shared_bytes_per_sm, shared_bytes_per_sm, 1);
  RG_NUMBER(shared_bytes_per_block, shared_bytes_per_block, 1);
  RG_NUMBER(hbm_bytes_per_s, hbm_bytes_per_s, 1);
  RG_NUMBER(cache_bytes, cache_bytes, 1);
  RG_NUMBER(cache_bytes_per_s, cache_bytes_per_s, 1);
  RG_NUMBER(bytes_in_flight_per_sm, bytes_in_flight_per_sm, 1);
  RG_NUMBER(sm_bytes_per_s, sm_bytes_per_s, 1);
  RG_NUMBER(sector_bytes, sector_bytes, 1);
  RG_NUMBER(spill_bytes_per_s, spill_bytes_per_s, 1);
  RG_NUMBER(efficiency_8_ppm, efficiency_8_bytes, 1e6);
  RG_NUMBER(efficiency_4_ppm, efficiency_4_bytes, 1e6);
  RG_NUMBER(efficiency_2_ppm, efficiency_2_bytes, 1e6);
  RG_NUMBER(launch_graph_ps, launch_graph_us, 1e6);
  RG_NUMBER(launch_stream_ps, launch_stream_us, 1e6);
  RG_NUMBER(barrier_ps, barrier_us, 1e6);
  RG_NUMBER(row_batch_ps, row_batch_us, 1e6);
  if (p.has_staged_bytes_per_block()) {
    RG_NUMBER(staged_bytes_per_block, staged_bytes_per_block, 1);
    RG_NUMBER(row_batch_staged_ps, row_batch_staged_us, 1e6);
    RG_WITHIN(staged_held_elements, staged_held_elements, 1, 1, 1e6);
    RG_WITHIN(staged_held_elements_twice, staged_held_elements_twice, 1, 1, 1e6);
    RG_WITHIN(staged_pair_ppm, staged_pair_factor, 1e6, 1, 100);
    RG_WITHIN(staged_bytes_under_way, staged_bytes_under_way, 1, 1024, 1e9);
  }
  RG_NUMBER(library_call_ps, library_call_us, 1e6);
  RG_NUMBER(sort_pass_ps, sort_pass_ns, 1e3);
  RG_NUMBER(clock_hz, clock_hz, 1);
  RG_NUMBER(rate[static_cast<int>(CostClass::kSimple)], rate_simple, 1);
  RG_NUMBER(rate[static_cast<int>(CostClass::kDivide)], rate_divide, 1);
  RG_NUMBER(rate[static_cast<int>(CostClass::kSpecial)], rate_special, 1);
  RG_NUMBER(rate[static_cast<int>(CostClass::kErf)], rate_erf, 1);
  RG_NUMBER(fp64_ppm, fp64_factor, 1e6);
  RG_NUMBER(matmul_bf16_flops, matmul_bf16_flops, 1);
  RG_NUMBER(matmul_tf32_flops, matmul_tf32_flops, 1);
  RG_NUMBER(matmul_fp32_flops, matmul_fp32_flops, 1);
  RG_NUMBER(matmul_fp64_flops, matmul_fp64_flops, 1);
  RG_NUMBER(attention_flops, attention_flops, 1);
  RG_NUMBER(matmul_step_ps, matmul_step_ns, 1e3);
  RG_NUMBER(matmul_tile_overhead, matmul_tile_overhead, 1);
  RG_NUMBER(matmul_split_ps, matmul_split_us, 1e6);
  RG_NUMBER(matmul_split_bytes_per_s, matmul_split_bytes_per_s, 1);
  RG_NUMBER(margin_ps, margin_us, 1e6);
  RG_NUMBER(margin_ppm, margin_fraction, 1e6);
  RG_WITHIN(shared_bytes_reserved, shared_bytes_reserved, 1, 1, 16384);
  RG_WITHIN(sm_share_ppm, sm_share_factor, 1e6, 1, 1000);
  RG_WITHIN(sm_streaming_ppm, sm_streaming_factor, 1e6, 1, 100);
  RG_WITHIN(sm_streaming_depth_ppm, sm_streaming_depth, 1e6, 1, 1000);
  RG_WITHIN(cache_kept_ppm, cache_kept_share, 1e6, 1e-6, 10);
  RG_WITHIN(cache_lost_ppm, cache_lost_share, 1e6, 1e-6, 10);
  RG_WITHIN(broadcast_miss_ppm, broadcast_miss_share, 1e6, 1e-6, 1);
  RG_WITHIN(held_elements, held_elements, 1, 1, 1e6);
  RG_WITHIN(held_elements_twice, held_elements_twice, 1, 1, 1e6);
  RG_WITHIN(held_beside_sums, held_beside_sums, 1, 1, 1e6);
  RG_WITHIN(held_beside_sums_twice, held_beside_sums_twice, 1, 1, 1e6);
  RG_WITHIN(block_ps, block_us, 1e6, 1e-6, 1e6);
  RG_WITHIN(column_finalize_ps, column_finalize_us, 1e6, 1e-6, 1e6);
  RG_WITHIN(int64_steps, int64_steps, 1, 1, 1000);
  RG_WITHIN(warp_sum_steps, warp_sum_steps, 1, 1, 10000);
  RG_WITHIN(block_sum_steps, block_sum_steps, 1, 1, 10000);
  RG_WITHIN(matmul_least_slice, matmul_least_slice, 1, 1, 1e6);
  RG_WITHIN(matmul_step_terms, matmul_step_terms, 1, 1, 65536);
  RG_WITHIN(matmul_alignment_bytes, matmul_alignment_bytes, 1, 1, 4096);
  RG_WITHIN(matmul_odd_pitch_ppm, matmul_odd_pitch_factor, 1e6, 1, 100);
  RG_WITHIN(matmul_odd_extent_ppm, matmul_odd_extent_factor, 1e6, 1, 100);
  RG_WITHIN(attention_fp32_ppm, attention_fp32_factor, 1e6, 1e-3, 100);
  RG_WITHIN(overlap_threads, overlap_threads, 1, 1, 1e6);
  RG_WITHIN(no_overlap_threads, no_overlap_threads, 1, 1, 1e6);
  RG_WITHIN(least_overlap_threads, least_overlap_threads, 1, 1, 1e6);
  RG_WITHIN(overlap_blocks, overlap_blocks, 1, 1, 1024);
  RG_WITHIN(barrier_overlap_blocks, barrier_overlap_blocks, 1, 1, 1024);
  RG_WITHIN(row_batch_two_blocks_milli, row_batch_two_blocks, 1e3, 1, 100);
  RG_WITHIN(row_batch_four_blocks_milli, row_batch_four_blocks, 1e3, 1, 1000);
  RG_WITHIN(shuffles_per_barrier, shuffles_per_barrier, 1, 1, 1000);
  RG_WITHIN(runs_per_barrier, runs_per_barrier, 1, 1, 1000);
  RG_WITHIN(column_fold_barriers, column_fold_barriers, 1, 1, 10000);
  RG_WITHIN(scatter_batch_ps, scatter_batch_us, 1e6, 1e-6, 1e6);
  RG_WITHIN(sort_far_passes, sort_far_factor, 1, 1, 1000);
  RG_WITHIN(small_kernel_bytes, small_kernel_bytes, 1, 1, 1e12);
  RG_WITHIN(large_elements, large_elements, 1, 1, 1e12);
  RG_WITHIN(remade_ops, remade_ops, 1, 1, 64);
  RG_WITHIN(stream_worth_ppm, stream_worth_factor, 1e6, 1e-3, 1);
  RG_WITHIN(stream_longest_ps, stream_longest_us, 1e6, 1e-6, 1e6);
#undef RG_WITHIN
#undef RG_NUMBER
  RG_RETURN_IF_ERROR(r.status());
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
