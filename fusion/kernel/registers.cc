#include "fusion/kernel/registers.h"

#include <algorithm>

namespace retrograd {
namespace {

int Words(DType dtype) { return SizeBytes(ComputeType(dtype)) > 4 ? 2 : 1; }

bool IsInner(const KernelIr& ir, const Instr& instr, const Classification& shape) {
  switch (shape.kind) {
    case Template::kPointwise:
    case Template::kTranspose:
    case Template::kScatterAdd:
      return instr.axes != 0 || ir.extents.empty();
    default:
      return (instr.axes & shape.shape.row_axes) != 0 && (instr.axes & shape.shape.column_axes) != 0;
  }
}

// Instructions that a stage must evaluate: the operands of its reductions, its stores and what
// those need, back to loads, inside the inner domain.
std::vector<int> NeededInStage(const KernelIr& ir, const KernelProfile& p, int stage) {
  std::vector<bool> need(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kReduce && p.inner[instr.operands[0]] &&
        p.stages.stage[instr.operands[0]] == stage) {
      need[instr.operands[0]] = true;
    }
  }
  for (const Store& s : ir.stores) {
    if (p.inner[s.instr] && p.stages.stage[s.instr] == stage) need[s.instr] = true;
  }
  if (ir.scatter && stage == 0) need[ir.scatter->src_instr] = true;
  std::vector<int> out;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    if (!need[i]) continue;
    out.push_back(static_cast<int>(i));
    if (ir.instrs[i].kind == InstrKind::kReduce) continue;
    for (int operand : ir.instrs[i].operands) {
      if (p.inner[operand]) need[operand] = true;
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Largest number of words live while one element goes through a stage's instructions in order.
int LiveWords(const KernelIr& ir, const std::vector<int>& order) {
  std::vector<int> last_use(ir.instrs.size(), -1);
  for (size_t k = 0; k < order.size(); ++k) {
    for (int operand : ir.instrs[order[k]].operands) last_use[operand] = static_cast<int>(k);
  }
  int live = 0, most = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    live += Words(ir.instrs[order[k]].dtype);
    most = std::max(most, live);
    for (size_t j = 0; j <= k; ++j) {
      if (last_use[order[j]] == static_cast<int>(k)) live -= Words(ir.instrs[order[j]].dtype);
    }
    if (last_use[order[k]] < 0) live -= Words(ir.instrs[order[k]].dtype);
  }
  return most;
}

}  // namespace

KernelProfile ProfileKernel(const KernelIr& ir, const Classification& shape) {
  KernelProfile p;
  p.shape = shape;
  p.stages = AssignStages(ir, shape);
  p.inner.resize(ir.instrs.size());
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    p.inner[i] = IsInner(ir, ir.instrs[i], shape) && !p.stages.finalize[i];
  }
  for (int s = 0; s <= p.stages.row_stages; ++s) {
    p.needed.push_back(NeededInStage(ir, p, s));
    p.live_words = std::max(p.live_words, LiveWords(ir, p.needed.back()));
  }
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kLoad && p.inner[i]) p.loaded_bytes += SizeBytes(instr.dtype);
    if (instr.kind == InstrKind::kReduce) {
      const bool column = (instr.reduced & shape.shape.row_axes) != 0;
      if (column && shape.kind != Template::kRowReduction) {
        ++p.column_sums;
        p.column_sum_words += Words(instr.dtype);
      } else {
        ++p.row_sums;
      }
    }
  }
  for (int i : p.needed[0]) {
    if (ir.instrs[i].kind == InstrKind::kLoad) p.loaded_words += Words(ir.instrs[i].dtype);
  }
  // Carried across a stage: made in an earlier stage, used in a later one.
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (!p.inner[i]) continue;
    bool carried = false;
    for (size_t j = i + 1; j < ir.instrs.size() && !carried; ++j) {
      const Instr& user = ir.instrs[j];
      if (user.kind == InstrKind::kReduce || !p.inner[j]) continue;
      if (p.stages.stage[j] <= p.stages.stage[i]) continue;
      carried = std::find(user.operands.begin(), user.operands.end(), static_cast<int>(i)) !=
                user.operands.end();
    }
    if (carried) p.carried_words += Words(ir.instrs[i].dtype);
  }
  return p;
}

namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements that a thread holds of one row.
int64_t ElementsOfRow(const KernelProfile& p, const Schedule& s) {
  const int64_t lane = int64_t{s.threads_per_row} * s.vector_width;
  const int64_t piece = s.kind == Template::kRowReduction ? CeilDiv(p.shape.shape.columns, s.split)
                                                          : p.shape.shape.columns;
  return CeilDiv(piece, lane) * s.vector_width;
}

int64_t SharedBytes(const KernelIr& ir, const Schedule& s,
                    const DeviceSpec& device) {
  int word = 4;
  for (const Instr& i : ir.instrs) word = std::max(word, 4 * Words(i.dtype));
  switch (s.kind) {
    case Template::kRowReduction:
    case Template::kRowColumn: {
      int64_t bytes = 0;
      if (s.threads_per_row > device.warp) bytes = CeilDiv(s.threads, device.warp) * word * 2;
      if (s.kind == Template::kRowColumn && s.rows_per_block > 1) {
        bytes += int64_t{s.threads} * s.vector_width * word;
      }
      return bytes;
    }
    case Template::kColumnReduction:
      return s.rows_per_block > 1 ? int64_t{s.threads} * s.vector_width * word : 0;
    case Template::kTranspose:
      return 33 * 32 * word;
    default:
      return 0;
  }
}

}  // namespace

Footprint PredictFootprint(const KernelIr& ir, const KernelProfile& p, const Schedule& s,
                           const DeviceSpec& device) {
  Footprint f;
  const int64_t pointers = 2 * static_cast<int64_t>(ir.buffers.size());
  int64_t words = device.base_registers + pointers;
  switch (s.kind) {
    case Template::kRowReduction:
    case Template::kRowColumn: {
      f.elements = s.persistent ? ElementsOfRow(p, s) * s.rows_per_thread
                                : int64_t{s.vector_width} * s.rows_per_thread;
      const int64_t temporaries =
          int64_t{std::max(p.live_words - p.carried_words, 1)} * s.vector_width;
      // A stage's loads are issued together, so that they are in flight together.
      const int64_t kept = std::max(p.carried_words, p.loaded_words);
      words += s.persistent ? kept * f.elements + temporaries
                            : int64_t{p.live_words} * f.elements;
      if (s.kind == Template::kRowColumn) words += p.column_sum_words * ElementsOfRow(p, s);
      f.bytes_in_flight = p.loaded_bytes * f.elements;
      break;
    }
    case Template::kColumnReduction:
      f.elements = s.vector_width;
      words += int64_t{p.live_words + p.column_sum_words} * s.vector_width;
      f.bytes_in_flight = p.loaded_bytes * s.vector_width * 2;  // two rows under way
      break;
    default:
      f.elements = s.vector_width;
      words += int64_t{p.live_words} * s.vector_width;
      f.bytes_in_flight = p.loaded_bytes * s.vector_width;
      break;
  }
  f.registers_wanted = static_cast<int>(std::min<int64_t>(words, 1 << 20));
  const int64_t granule = device.register_granule / device.warp;
  const int64_t cap = std::min(device.max_registers,
                               device.registers_per_sm / std::max(s.threads, 1) / granule * granule);
  f.registers = static_cast<int>(std::min<int64_t>(words, cap));
  f.spill_bytes = 4 * std::max<int64_t>(words - cap, 0);
  f.shared_bytes = SharedBytes(ir, s, device);

  const int64_t warps = CeilDiv(s.threads, device.warp);
  const int64_t warp_registers =
      CeilDiv(f.registers * device.warp, device.register_granule) * device.register_granule;
  f.blocks_per_sm = std::min({device.max_blocks_per_sm, device.max_threads_per_sm / s.threads,
                              device.registers_per_sm / (warp_registers * warps)});
  if (f.shared_bytes > device.shared_bytes_per_block) f.blocks_per_sm = 0;
  if (f.shared_bytes > 0) {
    f.blocks_per_sm = std::min(f.blocks_per_sm, device.shared_bytes_per_sm / f.shared_bytes);
  }
  return f;
}

}  // namespace retrograd
