#include "fusion/cost/device_report.h"

#include <bit>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr absl::string_view kHeader = "retrograd device report 1";

// No thread has more: a larger number is a mistake, and sums of several stay in range.
constexpr int64_t kMostResource = int64_t{1} << 30;
// Nor takes a call longer than some seconds: sums over a graph stay in range.
constexpr int64_t kMostPs = 10 * kPsPerSecond;

// Numbers fed one after the other, mixed as splitmix64 does. Stable from run to run.
class Mixer {
 public:
  void Add(uint64_t x) {
    state_ += 0x9e3779b97f4a7c15u + x;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
  }
  template <typename T>
  requires std::is_enum_v<T>
  void Add(T x) { Add(static_cast<uint64_t>(x)); }
  void Add(double x) { Add(std::bit_cast<uint64_t>(x)); }
  void Add(const IndexExpr& e) {
    Add(static_cast<uint64_t>(e.offset()));
    Add(e.terms().size());
    for (const IndexTerm& t : e.terms()) {
      Add(t.kind);
      Add(static_cast<uint64_t>(t.coef));
      if (t.kind == IndexTerm::kAxis) {
        Add(static_cast<uint64_t>(t.axis));
      } else {
        Add(static_cast<uint64_t>(t.divisor));
        Add(*t.inner);
      }
    }
  }
  void Add(const Instr& i) {
    Add(i.kind);
    // The op of a load or constant says nothing.
    Add(i.kind == InstrKind::kPointwise || i.kind == InstrKind::kReduce ||
                i.kind == InstrKind::kFold || i.kind == InstrKind::kScan
            ? static_cast<uint64_t>(i.op)
            : uint64_t{0});
    Add(i.dtype);
    Add(static_cast<uint64_t>(i.round));
    Add(static_cast<uint64_t>(i.axes));
    Add(i.operands.size());
    for (int o : i.operands) Add(static_cast<uint64_t>(o));
    Add(static_cast<uint64_t>(i.buffer));
    Add(i.offset);
    Add(i.indirect.size());
    for (const Indirect& n : i.indirect) {
      Add(static_cast<uint64_t>(n.instr));
      Add(static_cast<uint64_t>(n.stride));
      Add(static_cast<uint64_t>(n.extent));
    }
    Add(i.guards.size());
    for (const Guard& g : i.guards) {
      Add(g.expr);
      Add(static_cast<uint64_t>(g.begin));
      Add(static_cast<uint64_t>(g.end));
    }
    for (double d : {i.fill, i.constant, i.start, i.step}) Add(d);
    Add(static_cast<uint64_t>(i.reduced));
    if (i.reverse) Add(uint64_t{1});
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// "kernel 8f14e45fceea167a registers 64 spill_bytes 0 shared_bytes 2048"
absl::Status ParseKernel(absl::string_view line, DeviceReport& report) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  constexpr absl::string_view kNames[] = {"registers", "spill_bytes", "shared_bytes"};
  uint64_t key = 0;
  if (words.size() != 8 || words[1].size() != 16 || !absl::SimpleHexAtoi(words[1], &key)) {
    return absl::InvalidArgumentError(
        "a kernel's line is 'kernel', 16 hexadecimal digits, and registers, spill_bytes and "
        "shared_bytes with a number each");
  }
  int64_t numbers[3] = {};
  for (int n = 0; n < 3; ++n) {
    const absl::string_view name = words[2 + 2 * n], text = words[3 + 2 * n];
    if (name != kNames[n]) {
      return absl::InvalidArgumentError(absl::StrCat("'", kNames[n], "' is expected"));
    }
    if (!absl::SimpleAtoi(text, &numbers[n]) || numbers[n] < 0 || numbers[n] > kMostResource) {
      return absl::InvalidArgumentError(
          absl::StrCat(kNames[n], " must be a number from 0 to ", kMostResource));
    }
  }
  const CompiledResources resources{
      .registers = numbers[0], .spill_bytes = numbers[1], .shared_bytes = numbers[2]};
  if (!report.kernels.emplace(key, resources).second) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", words[1], " is given twice"));
  }
  return absl::OkStatus();
}

// "call 12500000 matmul bf16[512,512]512,1 ..."
absl::Status ParseCall(absl::string_view line, DeviceReport& report) {
  absl::ConsumePrefix(&line, "call ");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 1));
  int64_t ps = 0;
  if (!absl::SimpleAtoi(parts.first, &ps) || ps <= 0 || ps > kMostPs || parts.second.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a call's line is 'call', picoseconds from 1 to ", kMostPs, ", and the call's key"));
  }
  if (!report.calls.emplace(parts.second, ps).second) {
    return absl::InvalidArgumentError(absl::StrCat("the call '", parts.second, "' is given twice"));
  }
  return absl::OkStatus();
}

absl::Status ParseLine(absl::string_view line, DeviceReport& report) {
  if (absl::ConsumePrefix(&line, "compiler ")) {
    report.compiler = std::string(line.substr(0, 64));
  } else if (absl::ConsumePrefix(&line, "arch ")) {
    report.arch = std::string(line.substr(0, 64));
  } else if (absl::StartsWith(line, "kernel ")) {
    return ParseKernel(line, report);
  } else if (absl::StartsWith(line, "call ")) {
    return ParseCall(line, report);
  } else {
    return absl::InvalidArgumentError("a line begins with compiler, arch, kernel or call");
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t FingerprintOf(const KernelIr& ir) {
  Mixer m;
  m.Add(ir.extents.size());
  for (int64_t e : ir.extents) m.Add(static_cast<uint64_t>(e));
  m.Add(ir.buffers.size());
  for (const Buffer& b : ir.buffers) {
    m.Add(b.dtype);
    m.Add(static_cast<uint64_t>(b.elements));
    m.Add(static_cast<uint64_t>(b.alignment));
    m.Add(static_cast<uint64_t>(b.written));
    if (b.sorted_by_list) m.Add(uint64_t{1});
  }
  m.Add(ir.instrs.size());
  for (const Instr& i : ir.instrs) m.Add(i);
  m.Add(ir.stores.size());
  for (const Store& s : ir.stores) {
    m.Add(static_cast<uint64_t>(s.instr));
    m.Add(static_cast<uint64_t>(s.buffer));
    m.Add(s.offset);
    m.Add(s.mode);
  }
  if (ir.scatter.has_value()) {
    m.Add(static_cast<uint64_t>(ir.scatter->sorted));
    m.Add(static_cast<uint64_t>(ir.scatter->src_instr));
    m.Add(static_cast<uint64_t>(ir.scatter->buffer));
    m.Add(static_cast<uint64_t>(ir.scatter->row_axes));
    m.Add(static_cast<uint64_t>(ir.scatter->table_rows));
    m.Add(static_cast<uint64_t>(ir.scatter->in_order));
    if (ir.scatter->base >= 0) m.Add(static_cast<uint64_t>(ir.scatter->base) + 1);
  }
  return m.value();
}

uint64_t FingerprintOf(uint64_t ir, const Schedule& s) {
  Mixer m;
  m.Add(ir);
  m.Add(s.kind);
  for (int64_t n : {int64_t{s.threads}, int64_t{s.vector_width}, int64_t{s.threads_per_row},
                    int64_t{s.rows_per_block}, int64_t{s.rows_per_thread},
                    int64_t{s.persistent} + 2 * int64_t{s.staged}, s.split, s.blocks}) {
    m.Add(static_cast<uint64_t>(n));
  }
  if (s.cluster > 1) m.Add(static_cast<uint64_t>(s.cluster));
  if (s.turns > 1) {  // no cluster shares points
    m.Add(uint64_t{0});
    m.Add(static_cast<uint64_t>(s.turns));
  }
  return m.value();
}

const CompiledResources* DeviceReport::Find(uint64_t ir, const Schedule& schedule) const {
  const auto it = kernels.find(FingerprintOf(ir, schedule));
  return it == kernels.end() ? nullptr : &it->second;
}

void DeviceReport::Update(const DeviceReport& more) {
  if (more.empty()) return;
  compiler = more.compiler;
  arch = more.arch;
  for (const auto& [key, resources] : more.kernels) kernels.insert_or_assign(key, resources);
  for (const auto& [key, ps] : more.calls) calls.insert_or_assign(key, ps);
}

std::string DeviceReport::Print() const {
  std::string out = absl::StrCat(kHeader, "\ncompiler ", compiler, "\narch ", arch, "\n");
  for (const auto& [key, r] : kernels) {
    absl::StrAppendFormat(&out, "kernel %016x registers %d spill_bytes %d shared_bytes %d\n", key,
                          r.registers, r.spill_bytes, r.shared_bytes);
  }
  for (const auto& [key, ps] : calls) absl::StrAppend(&out, "call ", ps, " ", key, "\n");
  return out;
}

absl::StatusOr<DeviceReport> ParseDeviceReport(absl::string_view text, absl::string_view where) {
  DeviceReport report;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripTrailingAsciiWhitespace(line);
    absl::Status status;
    if (number == 1) {
      if (line != kHeader) {
        status = absl::InvalidArgumentError(
            absl::StrCat("no device report: the first line must be '", kHeader, "'"));
      }
    } else if (!line.empty()) {
      status = ParseLine(line, report);
    }
    if (status.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", line ", number, ": ", status.message()));
  }
  return report;
}

}  // namespace retrograd
