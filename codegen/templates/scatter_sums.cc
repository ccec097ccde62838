// A thread sums a vector of inner columns over the segments of its chunk. It goes through the
// positions in batches: what all columns of them need (rows, places, indices of gathered rows)
// comes first, then the columns of all, then the sums, so that the loads of a batch wait together.
// What is stored of each position is made between the loads and the sums. Positions whose index
// names no row stand last; a thread then goes through those of its chunk, too. Where a chunk has
// several batches, those that are whole are gone through first, without tests of each position.
#include "codegen/templates/scatter_sums.h"

#include <utility>

#include "absl/strings/match.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/point_printer.h"
#include "codegen/templates/position_results.h"
#include "codegen/templates/rows_without_sums.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kMostHeld = 16;  // values that are the same at all positions

class Sums {
 public:
  Sums(const KernelBody& body, Dialect dialect)
      : s_(ScatterTextOf(body)),
        ws_(s_.workspace),
        shares_(body.schedule.staged > 0 && !ws_.empty()),
        at_once_(PositionsAtOnce(s_.threads.fold > 0)),
        shared_(SharedPositionsOf(body.ir, s_.width)),
        sum_blocks_(BlocksOfSums(body.ir, body.schedule)),
        zero_blocks_(CeilDiv(s_.table_vectors(), kScatterThreads * kScatterZeros)),
        launch_(body, dialect, kScatterThreads, sum_blocks_ + zero_blocks_),
        printer_(&launch_, s_.width),
        out_(launch_.out),
        source_(body.ir.scatter->src_instr),
        rows_(body.ir.scatter->row_axes),
        results_(s_.threads, &launch_, &printer_, [this](const PositionResults::AtPosition& at) {
          if (shares_) PrintSharedReads(at.roots);
          PrintPoint(at.roots, Place(), at.reductions, at.stores);
        }) {
    launch_.UseWideIndexAbove(ReachOf(s_, sum_blocks_));
    s_.index = std::string(launch_.index_type());
    s_.table = launch_.BufferName(body.ir.scatter->buffer);
    if (s_.onto) s_.base = launch_.BufferName(body.ir.scatter->base);
    if (!ws_.empty()) s_.words = launch_.BufferName(body.ir.scatter->sorted);
    out_.SetDepth(1);
  }

  Kernel Print() {
    if (ws_.empty()) {
      PrintRowsWithoutSums(s_, sum_blocks_, &launch_);
      return launch_.Finish("zeros");
    }
    if (zero_blocks_ > 0) out_.Open("if (RG_BLOCK < ", Sized(sum_blocks_), ")");
    shares_ ? PrintBlock() : PrintThread();
    if (zero_blocks_ > 0) {
      out_.Else();
      PrintRowsWithoutSums(s_, sum_blocks_, &launch_);
      out_.Close();
    }
    return launch_.Finish("sums");
  }

 private:
  void Unrolled(absl::string_view variable, int64_t trips) {
    out_.Pragma(SpellingOf(launch_.dialect()).unroll);
    out_.Open("for (int ", variable, " = 0; ", variable, " < ", trips, "; ++", variable, ")");
  }

  std::string ClearSum() const {
    return absl::StrCat("for (int j = 0; j < ", s_.width, "; ++j) sum[j] = 0;");
  }
  std::string LastPosition() const { return Sized(ws_.sorted.indices - 1); }

  // A thread that works for itself.
  void PrintThread() {
    const std::string all = Sized(ws_.outer * s_.slice_threads());
    const std::string number =
        absl::StrCat("static_cast<", s_.index, ">(RG_BLOCK) * ", kScatterThreads, " + RG_THREAD");
    if (results_.folds()) {
      out_.Line("const ", s_.index, " number = ", number, ";");
      out_.Line("const ", s_.index, " n = rg_min(number, static_cast<", s_.index, ">(", all,
                ") - 1);");
      PrintWorking(absl::StrCat("number < ", all));
    } else {
      out_.Line("const ", s_.index, " n = ", number, ";");
      out_.Open("if (n < ", all, ")");
    }
    s_.PrintColumnOfThread(out_);
    s_.PrintSplit(ws_.chunks, "c", s_.threads.count(), out_);
    PrintChunk();
    PrintRange();
    DeclareColumns();
    PrintSegments();
    if (!results_.folds()) out_.Close();
  }

  // Whether the thread has a vector of columns, where all threads of a warp go on together.
  void PrintWorking(absl::string_view exists) {
    out_.Line(
        "const bool works = ", exists,
        s_.threads.idle() ? absl::StrCat(" && n % ", s_.threads.team, " < ", s_.threads.fold) : "",
        ";");
  }

  // A block whose threads share their positions: all of them are of one slice.
  void PrintBlock() {
    const int64_t slice_blocks = sum_blocks_ / ws_.outer;
    std::string block = "RG_BLOCK";
    if (ws_.outer > 1) {
      out_.Line("const ", s_.index, " o = RG_BLOCK / ", Sized(slice_blocks), ";");
      block = absl::StrCat("RG_BLOCK % ", Sized(slice_blocks));
    }
    out_.Line("const int first_n = static_cast<int>(", block, ") * ", kScatterThreads, ";");
    out_.Line("const int n = first_n + RG_THREAD;");
    const std::string threads = Sized(s_.threads.count());
    out_.Line("const int first = first_n / ", threads, " * ", Sized(ws_.chunk), ";");
    s_.PrintColumnOfThread(out_);
    out_.Line("const int c = rg_min(n / ", threads, ", ", Sized(ws_.chunks - 1), ");");
    PrintChunk();
    DeclareColumns();
    DeclareShared();
    if (finds_lost()) out_.Line("bool loses = false;");
    if (shared_.rounds() > 1) {
      out_.Open("for (int m0 = 0; m0 < ", shared_.of_thread(), "; m0 += ", shared_.at_once(), ")");
      PrintPairs();
      PrintShared();
      out_.Close();
      PrintRange();
    } else {
      PrintPairs();
      PrintRange();
      PrintShared();
    }
    if (finds_lost()) {
      out_.Line("const unsigned losing = RG_BALLOT(loses);");
      out_.Line("if (RG_THREAD % 32 == 0) shared_lost[RG_THREAD / 32] = static_cast<int>(losing);");
    }
    launch_.Barrier();
    if (finds_lost()) {
      out_.Line("int lost = 0;");
      Unrolled("v", kScatterThreads / 32);
      out_.Line("lost |= shared_lost[v];");
      out_.Close();
    }
    const std::string exists = absl::StrCat("n < ", Sized(s_.slice_threads()));
    if (results_.folds()) {
      PrintWorking(exists);
    } else {
      out_.Open("if (", exists, ")");
    }
    PrintSegments();
    if (!results_.folds()) out_.Close();
  }

  // Positions [begin, end), and the rows that its first and last one name.
  void PrintChunk() {
    out_.Line("const int begin = c * ", Sized(ws_.chunk), ";");
    out_.Line("const int end = rg_min(begin + ", Sized(ws_.chunk), ", ", Sized(ws_.sorted.indices),
              ");");
    out_.Line("const int first_key = ", s_.Key("begin"), ", last_key = ", s_.Key("end - 1"), ";");
  }

  // Positions [from, to) are the thread's: less a short segment that begins before the chunk, and
  // up to the end of the last one if that is short. Indices that name no row stand behind all
  // others; where each position has a result, those of the chunk are the thread's, too.
  void PrintRange() {
    const auto segment = [&](absl::string_view name) {
      out_.Line("const int ", name, "_from = ", s_.Start(absl::StrCat(name, "_key")), ", ", name,
                "_to = ",
                s_.Start(absl::StrCat("rg_min(", name, "_key + 1, ", Sized(s_.table_rows), ")")),
                ";");
      out_.Line("const bool ", name, "_cut = ", name, "_to - ", name, "_from > ", Sized(ws_.chunk),
                ";");
    };
    segment("first");
    segment("last");
    const std::string rows = Sized(s_.table_rows);
    if (results_.stores()) {
      out_.Line("const int from = ",
                OfRange(absl::StrCat("first_cut || first_from >= begin || first_key >= ", rows,
                                     " ? begin : first_to")),
                ";");
      out_.Line("const int to = ",
                OfRange(absl::StrCat("last_key >= ", rows, " || last_cut ? end : last_to")), ";");
    } else {
      out_.Line("const int from = ", OfRange("first_cut || first_from >= begin ? begin : first_to"),
                ";");
      out_.Line(
          "const int to = ",
          OfRange(absl::StrCat("last_key >= ", rows, " ? last_from : last_cut ? end : last_to")),
          ";");
    }
    if (selects()) out_.Line("const int limit = last_cut ? to - 1 : to;");
    if (!results_.folds()) return;
    out_.Line("const int last = rg_max(to - 1, ", OfRange("begin"), ");");
    results_.PrintLongest();
  }

  // Where blocks share their positions a thread counts from the first of the block's.
  std::string OfRange(absl::string_view position) const {
    if (!shares_) return std::string(position);
    const bool single = !absl::StrContains(position, ' ');
    return single ? absl::StrCat(position, " - first") : absl::StrCat("(", position, ") - first");
  }
  // Whether what stands behind a thread's last position is read as it is and left out of the sums,
  // by choices in place of branches.
  bool selects() const { return shares_ && !results_.folds() && shared_.rows_alone; }

  // The number of position u of a batch; of positions behind the thread's last, that one's.
  std::string Position() const { return whole_ || selects() ? "k0 + u" : ClampedPosition(); }
  std::string ClampedPosition() const {
    return results_.folds() ? "rg_min(k0 + u, last)" : "rg_min(k0 + u, to - 1)";
  }
  // Where the source of position u of a batch stands.
  std::string Place() const {
    if (in_order()) return shares_ ? absl::StrCat("first + ", Position()) : Position();
    return shares_ ? "shared_places[at]" : "places[u]";
  }
  // Whether position u is the thread's; "": all of the batch are.
  std::string IsOwn() const {
    if (whole_) return "";
    return results_.folds() ? "works && k0 + u < to" : "k0 + u < to";
  }
  // Whether no position of the thread follows position u of the batch.
  std::string IsLast() const {
    return whole_ ? absl::StrCat("(u == ", at_once_ - 1, " && k0 + ", at_once_, " == to)")
                  : "k0 + u + 1 == to";
  }

  void DeclareColumns() {
    const AxisUse used =
        printer_.UsedAxes(printer_.Needed(Roots()), results_.Stores(), launch_.ir().all_axes());
    printer_.DeclareAxes(ws_.outer_axes, used, "o");
    printer_.DeclareAxes(ws_.inner_axes, used, "i");
    PrintSameForAll();
  }

  // What is made of the positions.
  std::vector<int> Roots() const {
    std::vector<int> roots = results_.Roots();
    roots.push_back(source_);
    return roots;
  }

  // What is the same at all positions, such as a factor of each column, stays in registers.
  void PrintSameForAll() {
    std::vector<int> same;
    int64_t held = 0;
    for (int i : SameForAll()) {
      held += printer_.InLanes(i) ? s_.width : 1;
      if (held <= kMostHeld) same.push_back(i);
    }
    for (int i : same) DeclareArray(i, absl::StrCat("same", i), 1, "");
    PrintPoint(same, "");
    for (int i : same) printer_.SetKnown(i, true);
  }

  std::vector<int> SameForAll() const {
    const std::vector<Instr>& instrs = launch_.ir().instrs;
    std::vector<bool> read(instrs.size(), false);  // by what varies over positions
    std::vector<int> same;
    const std::vector<int> needed = printer_.Needed(Roots());
    for (int i : needed) {
      if ((instrs[i].axes & rows_) == 0) continue;
      for (int o : instrs[i].operands) read[o] = true;
      for (const Indirect& ind : instrs[i].indirect) read[ind.instr] = true;
    }
    for (int i : needed) {
      if (read[i] && (instrs[i].axes & rows_) == 0) same.push_back(i);
    }
    return same;
  }

  // --- what a block shares -----------------------------------------------------------------------

  std::string OfBlock() const {
    return absl::StrCat(shared_.rounds() > 1 ? "(m0 + m)" : "m", " * ", kScatterThreads,
                        " + RG_THREAD");
  }
  static std::string SharedName(int instr) { return absl::StrCat("shared", instr); }
  static std::string OwnName(int instr) { return absl::StrCat("own", instr); }
  DType SharedType(size_t v) const {
    return shared_.rows[v] > 0 ? DType::kInt32 : TypeOf(shared_.values[v]);
  }
  // What the thread stores of its own value.
  std::string Shared(size_t v) const {
    const std::string own = absl::StrCat(OwnName(shared_.values[v]), "[m]");
    if (shared_.rows[v] == 0) return own;
    const std::string rows = Sized(shared_.rows[v]);
    return absl::StrCat(IsLost(v), " ? -1 : static_cast<int>(", own, " < 0 ? ", own, " + ", rows,
                        " : ", own, ")");
  }
  // Whether the thread's own index names no row.
  std::string IsLost(size_t v) const {
    const std::string own = absl::StrCat(OwnName(shared_.values[v]), "[m]");
    const std::string rows = Sized(shared_.rows[v]);
    return absl::StrCat(own, " < -", rows, " || ", own, " >= ", rows);
  }
  DType TypeOf(int instr) const { return ComputeType(launch_.ir().instrs[instr].dtype); }

  void DeclareShared() {
    launch_.Shared(DType::kInt32, "shared_keys", shared_.of_block);
    if (shared_.places) launch_.Shared(DType::kInt32, "shared_places", shared_.of_block);
    for (size_t v = 0; v < shared_.values.size(); ++v) {
      launch_.Shared(SharedType(v), SharedName(shared_.values[v]), shared_.of_block);
    }
    if (finds_lost()) launch_.Shared(DType::kInt32, "shared_lost", kScatterThreads / 32);
  }
  bool in_order() const { return launch_.ir().scatter->in_order; }
  bool finds_lost() const { return shares_ && shared_.finds_lost; }
  // Whether all positions of the batch that is printed name rows, of the table and of what is
  // gathered.
  bool certain() const { return whole_ && finds_lost(); }

  void PrintPairs() {
    out_.Line("int pairs[", 2 * shared_.at_once(), "];");
    Unrolled("m", shared_.at_once());
    const std::string position =
        absl::StrCat("rg_min(first + ", OfBlock(), ", ", LastPosition(), ")");
    out_.Line("rg_load_vec<2>(", s_.words, ", ", s_.Pair(position), ", pairs + 2 * m);");
    if (in_order()) out_.Line("pairs[2 * m + 1] = ", position, ";");
    out_.Close();
  }

  // Values of all positions of a round first, then what it stores: no load passes a store.
  void PrintShared() {
    for (int i : shared_.values) {
      out_.Line(ComputeName(TypeOf(i)), " ", OwnName(i), "[", shared_.at_once(), "];");
      printer_.SetHome(i, {.lane = absl::StrCat(OwnName(i), "[m]")});
    }
    if (!shared_.values.empty()) PrintOwnValues();
    Unrolled("m", shared_.at_once());
    // What stands behind the list is of no row, so that the last segment ends.
    out_.Line(
        "shared_keys[", OfBlock(), "] = ",
        selects() ? absl::StrCat("first + ", OfBlock(), " > ", LastPosition(), " ? -1 : ") : "",
        "pairs[2 * m];");
    if (shared_.places) out_.Line("shared_places[", OfBlock(), "] = pairs[2 * m + 1];");
    for (size_t v = 0; v < shared_.values.size(); ++v) {
      out_.Line(SharedName(shared_.values[v]), "[", OfBlock(), "] = ", Shared(v), ";");
      if (finds_lost() && shared_.rows[v] > 0) out_.Line("loses = loses || ", IsLost(v), ";");
    }
    if (finds_lost() && (results_.stores() || !shared_.keys.empty())) {
      out_.Line("loses = loses || pairs[2 * m] >= ", Sized(s_.table_rows), ";");
    }
    out_.Close();
  }

  void PrintOwnValues() {
    Unrolled("m", shared_.at_once());
    PrintPoint(shared_.values, "pairs[2 * m + 1]");
    out_.Close();
  }

  // The instructions and what they need, at the index that stood at `place`, and what is added up
  // and stored of them.
  void PrintPoint(const std::vector<int>& roots, absl::string_view place,
                  const std::vector<int>& reductions = {}, const std::vector<int>& stores = {}) {
    const std::vector<int> instrs = printer_.Needed(roots);
    const AxisUse used = printer_.UsedAxes(instrs, stores, launch_.ir().all_axes());
    if ((used.axes & rows_) != 0) {
      out_.Line("const int position = ", place, ";");
      printer_.DeclareAxes(rows_, used, "position");
    }
    printer_.Print({.instrs = instrs,
                    .reductions = reductions,
                    .stores = stores,
                    .level = launch_.ir().all_axes()});
  }

  // --- segments ----------------------------------------------------------------------------------

  void PrintSegments() {
    out_.Line(s_.Declare("sum", s_.width));
    out_.Line(ClearSum());
    // Where threads of a warp have no columns they fold together with the others: none is whole.
    const bool apart = HasWholeBatches(ws_.chunk, results_.folds()) && !s_.threads.idle() &&
                       !(shares_ && shared_.rounds() > 1);
    if (apart) PrintWholeBatches();
    out_.Open("for (", apart ? "" : "int k0 = from", "; ",
              results_.folds() ? "k0 - from < longest" : "k0 < to", "; k0 += ", at_once_, ")");
    PrintBatch();
    out_.Close();
    if (!selects()) return;
    out_.Open("if (last_cut)");
    PrintStoreOfPart("last_key == first_key ? 0 : 1");
    out_.Close();
  }

  // Leaves k0 behind them.
  void PrintWholeBatches() {
    const bool folds = results_.folds();
    const PointPrinter::Values values = printer_.values();
    whole_ = true;
    if (folds) {
      results_.PrintWhole(finds_lost() ? "works && lost == 0" : "works");
    } else {
      out_.Line("const int whole = ", finds_lost() ? "lost == 0 ? to - from : 0" : "to - from",
                ";");
    }
    out_.Line("int k0 = from;");
    out_.Open("for (; k0 - from + ", at_once_, " <= whole; k0 += ", at_once_, ")");
    PrintBatch();
    out_.Close();
    whole_ = false;
    printer_.SetValues(values);
  }

  void PrintBatch() {
    PrintKeys();
    PrintValues();
    results_.PrintValues();
    results_.PrintStores(IsOwn());
    PrintSteps();
  }

  // "keys" of the positions from k0 on, and of the one behind them. Positions behind the thread's
  // last are read as that one.
  void PrintKeys() {
    out_.Line("int keys[", at_once_ + 1, "];");
    const bool places = !shares_ && !in_order() && (!IsConstant() || !results_.Roots().empty());
    if (places) out_.Line("int places[", at_once_, "];");
    Unrolled("u", at_once_ + 1);
    // The one behind a whole batch may be nobody's.
    const bool behind = whole_ && !selects();
    if (behind) {
      out_.Line("const int at = u < ", at_once_, " ? k0 + u : ", ClampedPosition(), ";");
    }
    const std::string position = behind ? "at" : Position();
    if (shares_) {
      out_.Line("keys[u] = shared_keys[", position, "];");
    } else {
      out_.Line("int pair[2];");
      out_.Line("rg_load_vec<2>(", s_.words, ", ", s_.Pair(position), ", pair);");
      out_.Line("keys[u] = pair[0];");
      if (places) out_.Line("if (u < ", at_once_, ") places[u] = pair[1];");
    }
    out_.Close();
  }

  bool IsConstant() const { return launch_.ir().instrs[source_].kind == InstrKind::kConstant; }

  // "values" of the positions.
  void PrintValues() {
    if (!IsConstant() || !results_.Roots().empty()) {
      if (shares_) {
        PrintPacks();
      } else {
        PrintValuesOfPositions();
        PrintColumnLoads();
      }
    }
    results_.PrintFolds();
    if (!IsConstant() && !printer_.known(source_)) {
      DeclareForBatch(source_, "values");
      Unrolled("u", at_once_);
      if (shares_) PrintSharedReads({source_});
      PrintPoint({source_}, Place());
      out_.Close();
    }
    value_ = printer_.Ref(source_);
  }

  // The columns of all positions, as they lie in memory, before any of them is widened: else loads
  // of the last positions would wait for those of the first.
  void PrintPacks() {
    for (int i : shared_.values) printer_.SetKnown(i, true);
    for (int i : shared_.keys) printer_.SetKnown(i, true);
    std::vector<int> loads;
    for (int i : printer_.Needed(Roots())) {
      if (printer_.GuardedPackWidth(i) > 0 || WaitsForFolds(i)) loads.push_back(i);
    }
    if (loads.empty()) return;
    for (int i : loads) {
      WaitsForFolds(i) ? DeclareForBatch(i, OwnName(i)) : DeclarePacks(i);
    }
    Unrolled("u", at_once_);
    PrintSharedReads(loads);
    PrintPoint(loads, Place());
    out_.Close();
    for (int i : loads) printer_.SetKnown(i, true);
  }

  // A load of several columns that would follow the shuffles of folds otherwise.
  bool WaitsForFolds(int i) const {
    return results_.folds() && launch_.ir().instrs[i].kind == InstrKind::kLoad &&
           !printer_.InLanes(i);
  }

  void DeclarePacks(int load) {
    const int lanes = printer_.GuardedPackWidth(load), packs = s_.width / lanes;
    const DType stored = launch_.ir().buffers[launch_.ir().instrs[load].buffer].dtype;
    const std::string name = absl::StrCat("packs", load);
    const std::string first = packs > 1 ? absl::StrCat("u * ", packs) : "u";
    out_.Line("rg_pack<", StorageName(stored), ", ", lanes, "> ", name, "[", at_once_ * packs,
              "];");
    printer_.SetHome(load,
                     {.lane = absl::StrCat("rg_lane(", name, "[", first,
                                           packs > 1 ? absl::StrCat(" + j / ", lanes) : "", "], ",
                                           packs > 1 ? absl::StrCat("j % ", lanes) : "j", ")"),
                      .pack = absl::StrCat(name, " + ", first)});
  }

  // An array for the instruction's value at each position of a batch.
  void DeclareForBatch(int instr, const std::string& name) {
    DeclareArray(instr, name, at_once_, "u");
  }

  // The same for so many values, of which `at` says which is meant; "": the only one.
  void DeclareArray(int instr, const std::string& name, int64_t values, absl::string_view at) {
    const bool lanes = printer_.InLanes(instr);
    out_.Line(ComputeName(TypeOf(instr)), " ", name, "[", values * (lanes ? s_.width : 1), "];");
    const std::string vector = at.empty() ? "0" : absl::StrCat(at, " * ", s_.width);
    if (lanes) {
      printer_.SetHome(instr, {.lane = absl::StrCat(name, "[", vector, " + j]"),
                               .base = absl::StrCat(name, " + ", vector)});
    } else {
      printer_.SetHome(instr, {.lane = absl::StrCat(name, "[", at.empty() ? "0" : at, "]")});
    }
  }

  // What the instructions read of what is shared, at position u of the batch.
  void PrintSharedReads(const std::vector<int>& roots) {
    const std::vector<Instr>& instrs = launch_.ir().instrs;
    std::vector<bool> read(instrs.size(), false);
    for (int i : printer_.Needed(roots)) {
      for (int o : instrs[i].operands) read[o] = true;
      for (const Indirect& ind : instrs[i].indirect) read[ind.instr] = true;
    }
    for (int i : roots) read[i] = true;
    out_.Line("[[maybe_unused]] const int at = ", Position(), ";");
    for (int i : shared_.keys) {
      if (!read[i]) continue;
      out_.Line("const int ", OwnName(i), " = ", certain() ? "keys[u]" : RowOfKey("keys[u]"), ";");
      printer_.SetHome(i, {.lane = OwnName(i), .row = true, .certain = certain()});
    }
    for (size_t v = 0; v < shared_.values.size(); ++v) {
      const int i = shared_.values[v];
      if (!read[i]) continue;
      // A row that is not the thread's is loaded as its last one: it stands in a cache.
      const bool clamped = selects() && !whole_ && shared_.rows[v] > 0;
      out_.Line("const ", ComputeName(SharedType(v)), " ", OwnName(i), " = ", SharedName(i), "[",
                clamped ? ClampedPosition() : "at", "];");
      printer_.SetHome(i, {.lane = OwnName(i), .row = shared_.rows[v] > 0, .certain = certain()});
    }
  }

  // What all columns of a position read, of all positions, before any column is loaded.
  void PrintValuesOfPositions() {
    for (int i : shared_.keys) {
      out_.Line("int ", OwnName(i), "[", at_once_, "];");
      Unrolled("u", at_once_);
      out_.Line(OwnName(i), "[u] = ", RowOfKey("keys[u]"), ";");
      out_.Close();
      printer_.SetHome(i, {.lane = absl::StrCat(OwnName(i), "[u]"), .row = true});
      printer_.SetKnown(i, true);
    }
    PrintForBatch(shared_.values);
  }

  // Below 0 where there is no such row.
  std::string RowOfKey(absl::string_view key) const {
    return absl::StrCat(key, " < ", Sized(s_.table_rows), " ? ", key, " : -1");
  }

  // The columns of all positions before anything is computed of them: some computations branch, and
  // no load passes a branch.
  void PrintColumnLoads() {
    if (Roots().size() == 1 && launch_.ir().instrs[source_].kind == InstrKind::kLoad) return;
    std::vector<int> loads;
    for (int i : printer_.Needed(Roots())) {
      if (launch_.ir().instrs[i].kind == InstrKind::kLoad) loads.push_back(i);
    }
    PrintForBatch(loads);
  }

  void PrintForBatch(const std::vector<int>& instrs) {
    if (instrs.empty()) return;
    for (int i : instrs) DeclareForBatch(i, OwnName(i));
    Unrolled("u", at_once_);
    PrintPoint(instrs, Place());
    out_.Close();
    for (int i : instrs) printer_.SetKnown(i, true);
  }

  // Adds the values up, and stores the sum of each segment that ends; of one that goes on in
  // another chunk PrintSegments does.
  void PrintSelectedSteps() {
    Unrolled("u", at_once_);
    out_.Line("const int key = keys[u];");
    if (!whole_) out_.Open("if (", IsOwn(), ")");
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += ", value_, ";");
    if (!whole_) out_.Close();
    const std::string before_last =
        whole_ ? absl::StrCat("(u < ", at_once_ - 1, " || k0 + u < limit)") : "k0 + u < limit";
    out_.Open("if (", before_last, " && keys[u + 1] != key)");
    PrintStoreOfSegment("first_cut && key == first_key", "0");
    out_.Line(ClearSum());
    for (int i = 0; i < 2; ++i) out_.Close();
  }

  // Stores "sum" of the segment of "key" into the workspace where it is cut, else into the table.
  void PrintStoreOfSegment(absl::string_view cut, absl::string_view slot) {
    out_.Open("if (", cut, ")");
    PrintStoreOfPart(slot);
    out_.Else();
    out_.Line(s_.StoreOnto(s_.TableElement()));
    out_.Close();
  }
  void PrintStoreOfPart(absl::string_view slot) {
    out_.Line("const int slot = ", slot, ";");
    out_.Line(s_.StorePartial(launch_.WorkspaceName(StorageName(s_.accumulator)),
                              s_.PartialElement("c", "slot")));
  }

  void PrintSteps() {
    if (selects()) return PrintSelectedSteps();
    Unrolled("u", at_once_);
    if (!whole_) out_.Open("if (", IsOwn(), ")");
    out_.Line("const int key = keys[u];");
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += ", value_, ";");
    const std::string ends = absl::StrCat("(", IsLast(), " || keys[u + 1] != key)");
    // What stands last names no row, and nothing follows it.
    const bool may_be_last = results_.stores() && !certain();
    out_.Open("if (", may_be_last ? absl::StrCat("key < ", Sized(s_.table_rows), " && ") : "",
              may_be_last ? ends : ends.substr(1, ends.size() - 2), ")");
    PrintStoreOfSegment("key == first_key ? first_cut : key == last_key && last_cut",
                        "key == first_key ? 0 : 1");
    out_.Line(ClearSum());
    for (int i = 0; i < (whole_ ? 2 : 3); ++i) out_.Close();
  }

  ScatterText s_;
  const ScatterWorkspace& ws_;
  const bool shares_;
  const int at_once_;  // positions of a batch
  const SharedPositions shared_;
  const int64_t sum_blocks_, zero_blocks_;
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  const int source_;
  const AxisMask rows_;
  PositionResults results_;
  bool whole_ = false;  // of the batch that is printed: all of its positions are the thread's
  std::string value_;
};

}  // namespace

Kernel PrintScatterSums(const KernelBody& body, Dialect dialect) {
  return Sums(body, dialect).Print();
}

}  // namespace retrograd
