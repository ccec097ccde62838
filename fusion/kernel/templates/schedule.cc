#include "fusion/kernel/templates/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {

std::string Schedule::Print() const {
  std::string out = absl::StrCat(Name(kind), " threads=", threads);
  if (threads_per_row > 0) absl::StrAppend(&out, " per_row=", threads_per_row);
  if (rows_per_block > 1) absl::StrAppend(&out, " rows=", rows_per_block);
  if (rows_per_thread > 1) absl::StrAppend(&out, " at_once=", rows_per_thread);
  if (turns > 1) absl::StrAppend(&out, " turns=", turns);
  if (vector_width > 1) absl::StrAppend(&out, " vec=", vector_width);
  if (cluster > 1) absl::StrAppend(&out, " cluster=", cluster);
  if (split > 1) absl::StrAppend(&out, " split=", split);
  absl::StrAppend(&out, " blocks=", blocks);
  if (persistent) absl::StrAppend(&out, " persistent");
  if (staged > 0) absl::StrAppend(&out, " staged=", staged);
  if (unrolled) absl::StrAppend(&out, " unrolled");
  return out;
}

bool CanStage(const KernelIr& ir, const RowsAndColumns& shape, int instr, int width) {
  const Instr& load = ir.instrs[instr];
  if (load.kind != InstrKind::kLoad || width <= 1) return false;
  if (!load.guards.empty() || !load.indirect.empty()) return false;
  if ((load.axes & shape.row_axes) == 0) return false;
  const Buffer& buffer = ir.buffers[load.buffer];
  if (ComputeType(buffer.dtype) != ComputeType(load.dtype)) return false;
  const Vectors vectors = VectorsOf(ir, width);
  if ((load.axes >> vectors.axis & 1) == 0 || LaneStride(load.offset, vectors) == 0) return false;
  const LoadForm form = FormOfLoad(ir, instr, vectors);
  return !form.shifted && form.width > 1 && form.width * SizeBytes(buffer.dtype) >= 4;
}

int64_t StagedBytesOfElement(const KernelIr& ir, const RowsAndColumns& shape, int width) {
  int64_t bytes = 0;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (!CanStage(ir, shape, static_cast<int>(i), width)) continue;
    bytes += SizeBytes(ir.buffers[ir.instrs[i].buffer].dtype);
  }
  return bytes;
}

AxisMask FoldedAxes(const KernelIr& ir, const Instr& instr) {
  AxisMask folded = 0;
  if (instr.kind != InstrKind::kReduce) return folded;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if ((instr.reduced >> a & 1) != 0 && ir.extents[a] != 1) folded |= AxisMask{1} << a;
  }
  return folded;
}

DType AccumulatorType(DType dtype) {
  const DType compute = ComputeType(dtype);
  if (IsFloat(compute) || compute == DType::kInt64) return compute;
  return DType::kInt32;
}

std::vector<int64_t> WorkspaceOffsets(const KernelIr& ir, const Classification& shape,
                                      const Schedule& schedule) {
  std::vector<int64_t> offsets(ir.instrs.size(), -1);
  if (schedule.split <= 1) return offsets;
  const bool by_row = TemplateOf(schedule).splits_rows;
  const int64_t lines = by_row ? shape.shape.rows : shape.shape.columns;
  int64_t next = 0;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const AxisMask folded = FoldedAxes(ir, ir.instrs[i]);
    if (folded == 0) continue;
    if (!by_row && (folded & shape.shape.column_axes) != 0) continue;  // finished within its row
    offsets[i] = next;
    const int64_t bytes = lines * schedule.split * SizeBytes(AccumulatorType(ir.instrs[i].dtype));
    next += (bytes + 15) / 16 * 16;
  }
  return offsets;
}

int64_t WorkspaceBytes(const KernelIr& ir, const Schedule& schedule) {
  const KernelTemplate& t = TemplateOf(schedule);
  if (t.workspace_bytes != nullptr) return t.workspace_bytes(ir);
  if (schedule.split <= 1) return 0;
  const Classification shape = Classify(ir);
  const std::vector<int64_t> offsets = WorkspaceOffsets(ir, shape, schedule);
  const int64_t lines = t.splits_rows ? shape.shape.rows : shape.shape.columns;
  int64_t end = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0) continue;
    end = std::max(
        end, offsets[i] + lines * schedule.split * SizeBytes(AccumulatorType(ir.instrs[i].dtype)));
  }
  return end;
}

int64_t SmsForClusters(int64_t sms, int cluster) {
  // SMs come in pairs. A choice: two clusters' worth of them may be left over in all.
  return cluster <= 2 ? sms : std::max<int64_t>(sms - 2 * cluster, cluster);
}

ScheduleLimits ScheduleLimitsOf(const DeviceSpec& device) {
  ScheduleLimits limits;
  limits.warp = static_cast<int>(device.warp);
  limits.sms = static_cast<int>(device.sms);
  limits.max_threads = static_cast<int>(device.max_threads_per_block);
  limits.shared_bytes = device.shared_bytes_per_block;
  limits.staged_bytes = device.staged_bytes_per_block;
  limits.shared_bytes_per_sm = device.shared_bytes_per_sm;
  limits.shared_bytes_reserved = device.shared_bytes_reserved;
  limits.staged_bytes_under_way = device.staged_bytes_under_way;
  limits.max_registers = static_cast<int>(device.max_registers);
  limits.cluster_blocks = static_cast<int>(std::max<int64_t>(device.cluster_blocks, 1));
  limits.row_cluster_blocks =
      static_cast<int>(std::clamp<int64_t>(device.row_cluster_blocks, 1, limits.cluster_blocks));
  return limits;
}

}  // namespace retrograd
