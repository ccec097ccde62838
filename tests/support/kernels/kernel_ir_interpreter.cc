#include "tests/support/kernels/kernel_ir_interpreter.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {
namespace {

class Interpreter {
 public:
  Interpreter(const KernelIr& ir, BufferValues buffers, bool magnitudes,
              const std::vector<std::vector<double>>* values)
      : ir_(ir), buffers_(std::move(buffers)), magnitudes_(magnitudes), exact_(values) {}

  BufferValues Run() {
    for (size_t i = 0; i < ir_.instrs.size(); ++i) EvaluateInstr(static_cast<int>(i));
    for (const Store& s : ir_.stores) RunStore(s);
    if (ir_.scatter.has_value()) RunScatter();
    return std::move(buffers_);
  }
  std::vector<std::vector<double>> TakeValues() { return std::move(values_); }

 private:
  // Calls fn(position) at every point of the axes in `mask`, row-major, the others at 0.
  template <typename Fn>
  void EveryPoint(AxisMask mask, Fn fn) {
    std::vector<int64_t> at(ir_.extents.size(), 0);
    const int64_t points = ir_.Points(mask);
    for (int64_t p = 0; p < points; ++p) {
      int64_t rest = p;
      for (int a = static_cast<int>(at.size()) - 1; a >= 0; --a) {
        if ((mask >> a & 1) == 0) continue;
        at[a] = rest % ir_.extents[a];
        rest /= ir_.extents[a];
      }
      fn(at);
    }
  }

  int64_t Position(AxisMask mask, const std::vector<int64_t>& at) const {
    int64_t p = 0;
    for (size_t a = 0; a < at.size(); ++a) {
      if (mask >> a & 1) p = p * ir_.extents[a] + at[a];
    }
    return p;
  }

  double Value(int instr, const std::vector<int64_t>& at) const {
    return values_[instr][Position(ir_.instrs[instr].axes, at)];
  }

  // The true value, which decides indices and comparisons when magnitudes are evaluated.
  double Exact(int instr, const std::vector<int64_t>& at) const {
    const auto& values = exact_ != nullptr ? *exact_ : values_;
    return values[instr][Position(ir_.instrs[instr].axes, at)];
  }

  bool Holds(const Instr& instr, const std::vector<int64_t>& at) const {
    for (const Guard& g : instr.guards) {
      const int64_t v = g.expr.Evaluate(at);
      if (v < g.begin || v >= g.end) return false;
    }
    return true;
  }

  double Load(const Instr& instr, const std::vector<int64_t>& at) const {
    if (!Holds(instr, at)) return instr.fill;
    int64_t offset = instr.offset.Evaluate(at);
    for (const Indirect& ind : instr.indirect) {
      int64_t row = static_cast<int64_t>(Exact(ind.instr, at));
      if (row < 0) row += ind.extent;
      if (row < 0 || row >= ind.extent) return instr.fill;
      offset += row * ind.stride;
    }
    RG_CHECK(offset >= 0 && offset < static_cast<int64_t>(buffers_[instr.buffer].size()));
    return buffers_[instr.buffer][offset];
  }

  double Pointwise(const Instr& instr, const std::vector<int64_t>& at) const {
    double x[3] = {0, 0, 0}, m[3] = {0, 0, 0};
    for (size_t o = 0; o < instr.operands.size(); ++o) {
      x[o] = Exact(instr.operands[o], at);
      m[o] = Value(instr.operands[o], at);
    }
    if (magnitudes_) {
      switch (instr.op) {
        case Op::add:
        case Op::sub: return m[0] + m[1];
        case Op::mul: return m[0] * m[1];
        case Op::fma: return m[0] * m[1] + m[2];
        case Op::neg:
        case Op::cast:
        case Op::copy: return m[0];
        case Op::where: return x[0] != 0 ? m[1] : m[2];
        default: break;
      }
      double sum = std::fabs(Info(instr.op).reference(x));
      for (size_t o = 0; o < instr.operands.size(); ++o) sum += m[o];
      return sum;
    }
    if (instr.op == Op::cast) return Cast(instr.dtype, x[0]);
    return Info(instr.op).reference(x);
  }

  double Scan(const Instr& instr, std::vector<int64_t> at) const {
    const int axis = std::countr_zero(instr.reduced);
    const int64_t here = at[axis];
    double sum = 0;
    for (int64_t place = instr.reverse ? here : 0;
         place < (instr.reverse ? ir_.extents[axis] : here + 1); ++place) {
      at[axis] = place;
      sum += Value(instr.operands[0], at);
    }
    return sum;
  }

  static double Cast(DType dtype, double v) {
    if (dtype == DType::kBool) return v != 0;
    return IsFloat(dtype) ? v : std::trunc(v);
  }

  double Fold(const Instr& instr, const std::vector<int64_t>& at) {
    double acc = magnitudes_ || instr.op == Op::sum ? 0 : Info(instr.op).identity;
    for (int operand : instr.operands) {
      const double x[2] = {acc, Value(operand, at)};
      acc = magnitudes_ ? x[0] + std::fabs(x[1]) : Info(instr.op).reference(x);
    }
    return acc;
  }

  void EvaluateInstr(int i) {
    const Instr& instr = ir_.instrs[i];
    std::vector<double> out(ir_.Points(instr.axes));
    if (instr.kind == InstrKind::kReduce) {
      const bool sums = magnitudes_ || instr.op == Op::sum;
      out.assign(out.size(), sums ? 0 : Info(instr.op).identity);
      const int operand = instr.operands[0];
      EveryPoint(instr.axes | instr.reduced, [&](const std::vector<int64_t>& at) {
        double& acc = out[Position(instr.axes, at)];
        const double x[2] = {acc, Value(operand, at)};
        acc = magnitudes_ ? x[0] + std::fabs(x[1]) : Info(instr.op).reference(x);
      });
    } else {
      EveryPoint(instr.axes, [&](const std::vector<int64_t>& at) {
        double v = 0;
        switch (instr.kind) {
          case InstrKind::kLoad: v = Load(instr, at); break;
          case InstrKind::kConstant: v = instr.constant; break;
          case InstrKind::kIndex:
            v = instr.start + instr.step * static_cast<double>(instr.offset.Evaluate(at));
            break;
          case InstrKind::kPointwise: v = Pointwise(instr, at); break;
          case InstrKind::kSelect: v = Value(instr.operands[Holds(instr, at) ? 0 : 1], at); break;
          case InstrKind::kScan: v = Scan(instr, at); break;
          case InstrKind::kFold: v = Fold(instr, at); break;
          case InstrKind::kReduce: break;
        }
        out[Position(instr.axes, at)] = magnitudes_ ? std::fabs(v) : v;
      });
    }
    if (instr.round && !magnitudes_) {
      for (double& v : out) v = RoundTo(instr.dtype, v);
    }
    values_.push_back(std::move(out));
  }

  void RunStore(const Store& store) {
    const AxisMask axes = ir_.instrs[store.instr].axes;
    EveryPoint(axes, [&](const std::vector<int64_t>& at) {
      double& element = buffers_[store.buffer][store.offset.Evaluate(at)];
      const double before = store.mode == StoreMode::kAdd ? element : 0;
      element = before + Value(store.instr, at);
    });
  }

  void RunScatter() {
    const Scatter& s = *ir_.scatter;
    AxisMask outer = 0, inner = 0;
    for (size_t a = 0; a < ir_.extents.size(); ++a) {
      const AxisMask bit = AxisMask{1} << a;
      if ((s.row_axes & bit) == 0) ((s.row_axes & (bit - 1)) == 0 ? outer : inner) |= bit;
    }
    std::vector<double>& table = buffers_[s.buffer];
    const int64_t width = ir_.Points(inner);
    table.assign(ir_.Points(outer) * s.table_rows * width, 0);
    const SortedIndices sorted{.rows = s.table_rows, .indices = ir_.Points(s.row_axes)};
    const std::vector<double>& list = buffers_[s.sorted];
    std::vector<int64_t> row_of(sorted.indices, s.table_rows);
    for (int64_t k = 0; k < sorted.indices; ++k) {
      const double at = s.in_order ? static_cast<double>(k) : list[sorted.order(k)];
      if (!(at >= 0 && at < static_cast<double>(sorted.indices))) continue;  // no such list
      row_of[static_cast<size_t>(at)] = static_cast<int64_t>(list[sorted.key(k)]);
    }
    EveryPoint(ir_.all_axes(), [&](const std::vector<int64_t>& at) {
      const int64_t row = row_of[Position(s.row_axes, at)];
      if (row < 0 || row >= s.table_rows) return;
      table[(Position(outer, at) * s.table_rows + row) * width + Position(inner, at)] +=
          Value(s.src_instr, at);
    });
  }

  const KernelIr& ir_;
  BufferValues buffers_;
  bool magnitudes_;
  const std::vector<std::vector<double>>* exact_;
  std::vector<std::vector<double>> values_;  // by instruction, over its own axes
};

}  // namespace

BufferValues InterpretKernel(const KernelIr& ir, BufferValues buffers) {
  return Interpreter(ir, std::move(buffers), false, nullptr).Run();
}

BufferValues InterpretMagnitudes(const KernelIr& ir, const BufferValues& buffers) {
  Interpreter exact(ir, buffers, false, nullptr);
  exact.Run();
  const std::vector<std::vector<double>> values = exact.TakeValues();
  BufferValues sizes = buffers;
  for (std::vector<double>& b : sizes) {
    for (double& v : b) v = std::fabs(v);
  }
  return Interpreter(ir, std::move(sizes), true, &values).Run();
}

}  // namespace retrograd
