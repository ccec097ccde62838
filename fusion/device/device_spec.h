// The numbers of one device, as plain fields. The files in fusion/devices say where each comes
// from.
#ifndef RETROGRAD_FUSION_DEVICE_DEVICE_SPEC_H_
#define RETROGRAD_FUSION_DEVICE_DEVICE_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fusion/device/register_model.h"
#include "graph/base/tensor_type.h"
#include "graph/ir/op.h"

namespace retrograd {

// A tile of such a kernel, and what it costs. Meanings: device_spec.proto.
struct GemmTileFigure {
  int m = 128, n = 128;
  int cluster = 2;  // blocks
  int stages = 0;   // 0: as many as fit
  int64_t factor_ppm = 1'000'000;
};

// A multiplying kernel that takes an epilogue. Meanings: device_spec.proto.
struct MatMulEpilogue {
  std::string name;
  int64_t product_ppm = 0, pass_ppm = 0;  // parts per million
  int64_t arithmetic_ppm = 0, operand_wait_ppm = 0;
  int max_reads = 0, max_stores = 0;
  std::vector<DType> dtypes;
  std::vector<GemmTileFigure> tiles;
};

// Meanings and units: device_spec.proto. Rates in SI units, times in picoseconds, factors and
// shares in parts per million. Ranges: number_ranges.def.
struct DeviceSpec {
  std::string name, vendor, arch;
  bool calibrated = false;

  int64_t sms = 0, warp = 0;
  int64_t max_threads_per_block = 0, max_threads_per_sm = 0, max_blocks_per_sm = 0;
  int64_t registers_per_sm = 0, register_granule = 0, max_registers = 0, base_registers = 0;
  int64_t shared_bytes_per_sm = 0, shared_bytes_per_block = 0;
  int64_t staged_bytes_per_block = 0;        // 0: no loads into shared memory
  int64_t cluster_blocks = 0;                // of a cluster, at most; 0: there are no clusters
  int64_t row_cluster_blocks = 0;            // of a cluster that shares rows; below 2: none does
  int64_t shared_bytes_reserved = 0;         // of each block
  RegisterModel registers[kNumLaunchKinds];  // by LaunchKind
  // Not of the file: whether a plan may count on the models' slack, because one whose kernels spill
  // is made again (PlannedDevice in fusion/planner/planning_context.h).
  bool trusts_slack = false;

  int64_t hbm_bytes_per_s = 0, cache_bytes = 0, cache_bytes_per_s = 0;
  int64_t bytes_in_flight_per_sm = 0, sm_bytes_per_s = 0, sector_bytes = 0, spill_bytes_per_s = 0;
  int64_t efficiency_8_ppm = 0, efficiency_4_ppm = 0, efficiency_2_ppm = 0;
  int64_t row_piece_64_ppm = 0, row_piece_32_ppm = 0;
  int64_t sm_share_ppm = 0, sm_streaming_ppm = 0, sm_streaming_depth_ppm = 0;
  int64_t cache_kept_ppm = 0, cache_lost_ppm = 0, cache_latency_ppm = 0, broadcast_miss_ppm = 0;
  int64_t part_sector_bytes_per_s = 0;
  int64_t burst_bytes = 0, random_access_bytes = 0, random_kept_ppm = 0;
  int64_t held_elements = 0, held_elements_twice = 0;
  int64_t held_beside_sums = 0, held_beside_sums_twice = 0;

  int64_t launch_graph_ps = 0, launch_stream_ps = 0, barrier_ps = 0, library_call_ps = 0;
  int64_t cluster_barrier_ps = 0, cluster_exchange_ps = 0;
  int64_t row_batch_ps = 0, row_batch_staged_ps = 0;
  int64_t sort_pass_ps = 0;  // of one index, by one digit
  int64_t block_ps = 0, column_finalize_ps = 0;
  int64_t next_column_block_ps = 0, next_row_block_ps = 0, next_meeting_block_ps = 0;
  int64_t staged_start_ps = 0, row_narrow_ppm = 0, ragged_row_ppm = 0;

  int64_t clock_hz = 0;
  // Thousandths of results per clock and SM; 0: free.
  int64_t rate_milli[kNumCostClasses] = {};
  int64_t fp64_ppm = 0;
  int64_t int64_steps = 0, warp_sum_steps = 0, block_sum_steps = 0;

  int64_t matmul_bf16_flops = 0, matmul_fp8_flops = 0, matmul_tf32_flops = 0, matmul_fp32_flops = 0;
  int64_t matmul_fp64_flops = 0, attention_flops = 0;
  int64_t matmul_step_ps = 0, matmul_tile_overhead = 0;
  int64_t matmul_split_ps = 0, matmul_split_bytes_per_s = 0;
  int64_t matmul_least_slice = 0, matmul_step_terms = 0, attention_fp32_ppm = 0;
  int64_t matmul_alignment_bytes = 0;
  int64_t matmul_odd_pitch_ppm = 0, matmul_odd_extent_ppm = 0;
  int64_t matmul_pitch_4_ppm = 0, matmul_pitch_8_ppm = 0;
  int64_t matmul_tiles_bf16_flops = 0, matmul_tiles_shift_ppm = 0;
  int64_t matmul_tiles_wait_ps = 0;
  int64_t convolution_gather_ppm = 0, convolution_stride_ppm = 0;
  int64_t convolution_transpose_ppm = 0;  // 0: libraries transpose no row-major images
  int64_t convolution_cycles_ppm = 0, convolution_narrow_ppm = 0;
  int64_t depthwise_row_cycles = 0, depthwise_fp32_ppm = 0, depthwise_row_major_ppm = 0;
  int64_t convolution_boxes_ppm = 0;  // 0: no loads of boxes of pixels

  int64_t overlap_threads = 0, no_overlap_threads = 0, least_overlap_threads = 0;
  int64_t hiding_depth_ppm = 0, balanced_ppm = 0, overlap_blocks = 0, barrier_overlap_blocks = 0;
  int64_t issue_threads = 0;
  int64_t row_batch_two_blocks_milli = 0, row_batch_four_blocks_milli = 0;
  int64_t staged_held_elements = 0, staged_held_elements_twice = 0;
  int64_t staged_pair_ppm = 0, staged_bytes_under_way = 0;
  int64_t shuffles_per_barrier = 0, runs_per_barrier = 0, column_fold_barriers = 0;
  int64_t scatter_batch_ps = 0, sort_launch_ps = 0, sort_visit_ps = 0;

  int64_t margin_ps = 0, margin_ppm = 0;
  int64_t small_kernel_bytes = 0, large_elements = 0, remade_ops = 0;
  int64_t scarce_memory_bytes = 0;
  int64_t stream_worth_ppm = 0, stream_longest_ps = 0;
  int64_t side_products_ppm = 0;  // 0: products share no launches
  int64_t stream_edge_ps = 0, stream_gain_ppm = 0;
  int64_t early_launch_gain_ps = 0;  // 0: there are no such launches
  int64_t early_launch_longest_ps = 0, early_launch_bytes = 0;
  int64_t epilogue_kernels = 0;  // 1: built

  std::vector<MatMulEpilogue> matmul_epilogues;  // empty unless their kernels are built
};

// By name ("h200": a spec that came with the library) or by the path of a .textproto file. Refuses
// a number that is missing or out of its range, naming both.
absl::StatusOr<DeviceSpec> LoadDeviceSpec(absl::string_view name_or_path);

// The text form behind a name or path, not yet parsed.
absl::StatusOr<std::string> ReadDeviceSpec(absl::string_view name_or_path);

// Parses the text form; `where` stands in error messages.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(absl::string_view text, absl::string_view where);

// Names of the specs that came with the library, sorted.
std::vector<std::string> DeviceSpecNames();

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_DEVICE_SPEC_H_
