// A team of threads goes along a row chunk by chunk; the sum of all chunks before is carried. Where
// places are neighbours in memory a thread has a vector of them: groups of lanes add up by
// shuffles, and the groups of a row by shared memory. The last lane has the first places, so that a
// shuffle down brings the sum of earlier places. Else neighbouring threads have neighbouring rows:
// a thread adds up several places, and the threads of a row meet in shared memory.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/point_printer.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/templates/scan_walk.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kLanes = 32;  // of a group: no device has fewer in a warp

class ScanText {
 public:
  ScanText(const KernelBody& body, Dialect dialect)
      : ir_(body.ir),
        shape_(Classify(body.ir)),
        team_(body.schedule.threads_per_row),
        rows_(body.schedule.rows_per_block),
        along_(ScansNeighbours(shape_.shape)),
        places_(PlacesOfThread(shape_.shape, body.schedule)),
        launch_(body, dialect, body.schedule.threads, body.schedule.blocks),
        printer_(&launch_, along_ ? places_ : 1),
        out_(launch_.out) {
    RG_CHECK(shape_.feasible && team_ * rows_ == launch_.threads());
    while (ir_.instrs[scan_].kind != InstrKind::kScan) ++scan_;
    sum_ = AccumulatorName(scan().dtype);
  }

  GroupKernels Run() {
    const int64_t points = ir_.Points(ir_.all_axes());
    launch_.UseWideIndexAbove(std::max(points, launch_.blocks() * rows_) + 2 * team_ * places_);
    const absl::string_view index = launch_.index_type();
    out_.SetDepth(1);
    PrintRow(index);
    out_.Line(sum_, " carry = ", printer_.Identity(scan()), ";");
    out_.Open(absl::StrCat("for (", index, " first = 0; first < ", Sized(shape_.shape.columns),
                           "; first += ", team_ * places_, ")"));
    if (along_) {
      PrintChunkAlong(index);
    } else {
      PrintChunkAcross(index);
    }
    out_.Close();
    return {.launches = {launch_.Finish("")}};
  }

 private:
  const Instr& scan() const { return ir_.instrs[scan_]; }

  std::string Folded(absl::string_view before, absl::string_view value) const {
    return printer_.Folded(scan(), before, value);
  }

  void PrintRow(absl::string_view index) {
    const bool alone = team_ == 1;
    if (!alone)
      out_.Line("const int lane = RG_THREAD ", along_ ? "% " : "/ ", along_ ? team_ : rows_, ";");
    out_.Line("const ", index, " row = static_cast<", index, ">(RG_BLOCK) * ", rows_,
              " + RG_THREAD",
              alone    ? ""
              : along_ ? absl::StrCat(" / ", team_)
                       : absl::StrCat(" % ", rows_),
              ";");
  }

  void PrintChunkAlong(absl::string_view index) {
    const std::string times = places_ > 1 ? absl::StrCat(" * ", places_) : "";
    PrintPlace(index, team_ > 1 ? absl::StrCat(" + (", team_ - 1, " - lane)", times) : "");
    PrintVector();
    PrintSums();
    out_.Line("const ", sum_, " others = ", Folded("carry", "before"), ";");
    out_.Line("carry = ", Folded("carry", "chunk"), ";");
    if (launch_.dialect() != Dialect::kHost) out_.Line("#pragma unroll");
    out_.Line("for (int j = 0; j < ", places_,
              "; ++j) values[j] = ", OfUses(Folded("others", "sums[j]")), ";");
    PrintUses({.lane = places_ > 1 ? "values[j]" : "values[0]", .base = "values"});
  }

  // `sums` of the thread's places up to each, and `sum` of all of them.
  void PrintVector() {
    const std::string last = absl::StrCat(places_ - 1);
    out_.Line(sum_, " sums[", places_, "];");
    out_.Line(ComputeName(scan().dtype), " values[", places_, "];");
    if (launch_.dialect() != Dialect::kHost) out_.Line("#pragma unroll");
    out_.Line("for (int j = 0; j < ", places_, "; ++j) sums[j] = ", printer_.Identity(scan()), ";");
    out_.Open("if (inside)");
    const std::vector<int> instrs = printer_.Needed({scan().operands[0]});
    DeclareAxes(instrs, {});
    printer_.SetAccumulator(scan_, places_ > 1 ? "sums[j]" : "sums[0]");
    printer_.Print({.instrs = instrs, .reductions = {scan_}, .stores = {}});
    out_.Close();
    if (places_ > 1) {
      if (launch_.dialect() != Dialect::kHost) out_.Line("#pragma unroll");
      if (scan().reverse) {
        out_.Line("for (int j = ", places_ - 2,
                  "; j >= 0; --j) sums[j] = ", Folded("sums[j + 1]", "sums[j]"), ";");
      } else {
        out_.Line("for (int j = 1; j < ", places_,
                  "; ++j) sums[j] = ", Folded("sums[j - 1]", "sums[j]"), ";");
      }
    }
    out_.Line(sum_, " sum = sums[", scan().reverse ? "0" : last, "];");
  }

  // `sums` of the thread's places up to each, then what the threads before it have.
  void PrintChunkAcross(absl::string_view index) {
    out_.Line(sum_, " sums[", places_, "], own = ", printer_.Identity(scan()), ";");
    OpenPlaces(index);
    PrintOperand();
    out_.Line("own = ", Folded("own", "sum"), ";");
    out_.Line("sums[n] = own;");
    out_.Close();
    out_.Line(sum_, " before = carry;");
    if (team_ == 1) {
      out_.Line("carry = ", Folded("carry", "own"), ";");
    } else {
      PrintTeam();
    }
    OpenPlaces(index);
    out_.Line(sum_, " sum = ", Folded("before", "sums[n]"), ";");
    PrintUses({.lane = OfUses("sum"), .base = ""});
    out_.Close();
  }

  // What stands behind the scan computes in the compute type.
  std::string OfUses(const std::string& sum) const {
    if (AccumulatorType(scan().dtype) == ComputeType(scan().dtype)) return sum;
    return absl::StrCat("static_cast<", ComputeName(scan().dtype), ">(", sum, ")");
  }

  void OpenPlaces(absl::string_view index) {
    const std::string first = team_ > 1 ? absl::StrCat(" + lane * ", places_) : "";
    if (launch_.dialect() != Dialect::kHost) out_.Line("#pragma unroll");
    out_.Open(absl::StrCat("for (int n = 0; n < ", places_, "; ++n)"));
    PrintPlace(index, absl::StrCat(first, " + n"));
  }

  // `before` and `carry` of the threads that share a row, from what each has of the chunk.
  void PrintTeam() {
    launch_.SetThreadsMeet();
    const std::string shared =
        launch_.Shared(AccumulatorType(scan().dtype), "parts", launch_.threads());
    out_.Line(shared, "[RG_THREAD] = own;");
    launch_.Barrier();
    out_.Open(absl::StrCat("for (int other = 0; other < ", team_, "; ++other)"));
    out_.Line("if (other == lane) before = carry;");
    out_.Line(
        "carry = ",
        Folded("carry", absl::StrCat(shared, "[other * ", rows_, " + RG_THREAD % ", rows_, "]")),
        ";");
    out_.Close();
    // The next chunk writes the parts again.
    if (shape_.shape.columns > team_ * places_) launch_.Barrier();
  }

  void PrintPlace(absl::string_view index, absl::string_view in_chunk) {
    out_.Line("const ", index, " place = first", in_chunk, ";");
    const int vector = along_ ? places_ : 1;
    const std::string last = Sized(shape_.shape.columns - vector);
    out_.Line("const ", index,
              " column = ", scan().reverse ? absl::StrCat(last, " - place") : "place", ";");
    out_.Line("const bool inside = row < ", Sized(shape_.shape.rows), " && place < ",
              Sized(shape_.shape.columns), ";");
  }

  void DeclareAxes(const std::vector<int>& instrs, const std::vector<int>& stores) {
    const AxisUse used = printer_.UsedAxes(instrs, stores, ir_.all_axes());
    printer_.DeclareAxes(shape_.shape.row_axes, used, "row");
    printer_.DeclareAxes(shape_.shape.column_axes, used, "column");
  }

  void PrintOperand() {
    const int operand = scan().operands[0];
    const std::vector<int> instrs = printer_.Needed({operand});
    out_.Line(sum_, " sum = ", printer_.Identity(scan()), ";");
    out_.Open("if (inside)");
    DeclareAxes(instrs, {});
    printer_.Print({.instrs = instrs, .reductions = {}, .stores = {}});
    const bool same = ComputeType(ir_.instrs[operand].dtype) == AccumulatorType(scan().dtype);
    const std::string value = printer_.Ref(operand);
    out_.Line("sum = ", same ? value : absl::StrCat("static_cast<", sum_, ">(", value, ")"), ";");
    out_.Close();
  }

  // `before`: of the chunk's places before those of the thread; `chunk`: of all of them.
  void PrintSums() {
    if (team_ == 1) {
      out_.Line("const ", sum_, " before = ", printer_.Identity(scan()), ", chunk = sum;");
      return;
    }
    launch_.SetThreadsMeet();
    const int lanes = std::min(team_, kLanes);
    if (team_ <= kLanes) {
      out_.Line(sum_, " chunk = sum;");
      out_.Open(absl::StrCat("for (int n = 1; n < ", lanes, "; n *= 2)"));
      out_.Line("chunk = ", Folded("chunk", "RG_SHUFFLE_XOR(chunk, n)"), ";");
      out_.Close();
    }
    out_.Open(absl::StrCat("for (int n = 1; n < ", lanes, "; n *= 2)"));
    out_.Line("const ", sum_, " earlier = RG_SHUFFLE_DOWN(sum, n);");
    out_.Line("if (lane % ", lanes, " + n < ", lanes, ") sum = ", Folded("earlier", "sum"), ";");
    out_.Close();
    out_.Line(sum_, " before = RG_SHUFFLE_DOWN(sum, 1);");
    out_.Line("if (lane % ", lanes, " == ", lanes - 1, ") before = ", printer_.Identity(scan()),
              ";");
    if (team_ > kLanes) PrintGroups();
  }

  void PrintGroups() {
    const int groups = team_ / kLanes;
    const std::string of_groups =
        launch_.Shared(AccumulatorType(scan().dtype), "groups", launch_.threads() / kLanes);
    out_.Line("if (lane % ", kLanes, " == 0) ", of_groups, "[RG_THREAD / ", kLanes, "] = sum;");
    launch_.Barrier();
    out_.Line(sum_, " chunk = ", printer_.Identity(scan()), ";");
    out_.Open(absl::StrCat("for (int g = ", groups - 1, "; g >= 0; --g)"));
    out_.Line("if (g == lane / ", kLanes, ") before = ", Folded("chunk", "before"), ";");
    const std::string of_group =
        absl::StrCat(of_groups, "[RG_THREAD / ", team_, " * ", groups, " + g]");
    out_.Line("chunk = ", Folded("chunk", of_group), ";");
    out_.Close();
    // The next chunk writes the groups' sums again.
    if (shape_.shape.columns > team_ * places_) launch_.Barrier();
  }

  // `home`: of the scan's values.
  void PrintUses(Home home) {
    std::vector<int> roots, stores(ir_.stores.size());
    std::iota(stores.begin(), stores.end(), 0);
    for (const Store& s : ir_.stores) roots.push_back(s.instr);
    printer_.SetHome(scan_, std::move(home));
    printer_.SetKnown(scan_, true);
    const std::vector<int> instrs = printer_.Needed(roots);
    out_.Open("if (inside)");
    DeclareAxes(instrs, stores);
    printer_.Print({.instrs = instrs, .reductions = {}, .stores = stores, .level = ir_.all_axes()});
    out_.Close();
  }

  const KernelIr& ir_;
  const Classification shape_;
  const int team_, rows_;
  const bool along_;
  const int places_;  // of a thread in a chunk; along a row, those of a vector
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  int scan_ = 0;
  absl::string_view sum_;
};

}  // namespace

GroupKernels EmitScan(const KernelBody& body, Dialect dialect) {
  return ScanText(body, dialect).Run();
}

}  // namespace retrograd
