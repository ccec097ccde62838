// A pass of the sort is one launch. A block owns a few values of the digit and goes through all
// indices twice: its threads, each over a run of them, first count how many have each of the
// values, in a table [value][thread] in shared memory, and how many lie below the block's values.
// Sums over the table tell every thread where its indices go; the second time it puts them there.
// Neighbouring threads read neighbouring packs of four indices, since the list was dealt to them
// so.
#include "codegen/templates/scatter_sort.h"

#include "codegen/print/point_printer.h"

namespace retrograd {
namespace {

constexpr int kThreads = 256;

struct Pass {
  int number = 0;
  bool last = false;
};

// The dealt list's word for the index at position `at`.
std::string DealtPlace(const ScatterSort& sort, absl::string_view at) {
  const int64_t run = sort.packs * 4;
  return absl::StrCat("(", at, " % ", run, " / 4 * ", sort.threads, " + ", at, " / ", run,
                      ") * 4 + ", at, " % 4");
}

// "key": the wrapped index at `position`; the number of table rows if it names none.
void PrintKey(const KernelIr& ir, PointPrinter& printer, SourceWriter& out) {
  const Scatter& s = *ir.scatter;
  const std::vector<int> instrs = printer.Needed({s.index_instr});
  printer.DeclareAxes(s.row_axes, printer.UsedAxes(instrs, {}, s.row_axes), "position");
  printer.Print(
      {.instrs = instrs, .reductions = {}, .stores = {}, .level = s.row_axes, .keep = true});
  out.Line("int64_t wrapped = ", printer.Ref(s.index_instr), ";");
  out.Line("if (wrapped < 0) wrapped += ", s.table_rows, ";");
  out.Line("if (wrapped < 0 || wrapped >= ", s.table_rows, ") wrapped = ", s.table_rows, ";");
  out.Line("key[n] = static_cast<int>(wrapped);");
}

// A thread deals a pack. What lies behind the last index is no index in any list.
Kernel EmitKeys(const ScatterWorkspace& ws, const KernelBody& body, Dialect dialect) {
  const ScatterSort& sort = ws.sort;
  const int64_t packs = sort.packs * sort.threads;
  LaunchText launch(body, dialect, kThreads, (packs + kThreads - 1) / kThreads);
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  out.SetDepth(1);
  out.Line("const int pack = RG_BLOCK * ", kThreads, " + RG_THREAD;");
  out.Open("if (pack < ", packs, ")");
  out.Line("const int first = pack % ", sort.threads, " * ", sort.packs * 4, " + pack / ",
           sort.threads, " * 4;");
  out.Line("int key[4];");
  out.Pragma(SpellingOf(dialect).unroll);
  out.Open("for (int n = 0; n < 4; ++n)");
  out.Line("const int position = first + n;");
  out.Line("key[n] = -1;");
  out.Open("if (position < ", ws.rows, ")");
  PrintKey(body.ir, printer, out);
  out.Close();
  out.Close();
  out.Line("rg_store_vec<4>(", w, ", ", ws.dealt_keys[0] / 4, " + pack * 4, key);");
  if (sort.passes > 1) {
    out.Open("if (first + 3 >= ", ws.rows, ")");
    out.Line("rg_store_vec<4>(", w, ", ", ws.dealt_keys[1] / 4, " + pack * 4, key);");
    out.Close();
  }
  out.Close();
  return launch.Finish("keys");
}

// Its place in the table: ScatterCounters.
std::string Counter(absl::string_view entry) {
  return absl::StrCat("counts[", entry, " + (", entry, ") / 32]");
}

// A pass over all indices of a thread, `each` once for every one: "key", "value" (of its digit,
// from the block's first on), "i" (the pack) and "n" (the place in it).
template <typename Each>
void PrintPacks(const ScatterWorkspace& ws, const Pass& pass, const std::string& w,
                const Each& each, LaunchText* launch) {
  const ScatterSort& sort = ws.sort;
  SourceWriter& out = launch->out;
  const int64_t from = ws.dealt_keys[pass.number % 2] / 4;
  out.Open("for (int i0 = 0; i0 < ", sort.packs, "; i0 += ", sort.at_once, ")");
  out.Line("int keys[", sort.at_once * 4, "];");
  out.Pragma(SpellingOf(launch->dialect()).unroll);
  out.Open("for (int m = 0; m < ", sort.at_once, "; ++m)");
  out.Line("rg_load_vec<4>(", w, ", ", from, " + ((i0 + m) * ", sort.threads,
           " + RG_THREAD) * 4, keys + m * 4);");
  out.Close();
  out.Pragma(SpellingOf(launch->dialect()).unroll);
  out.Open("for (int m = 0; m < ", sort.at_once * 4, "; ++m)");
  out.Line("const int key = keys[m];");
  const int shift = pass.number * sort.digit_bits;
  const std::string shifted = shift == 0 ? "key" : absl::StrCat("(key >> ", shift, ")");
  const std::string digit =
      pass.last ? shifted
                : absl::StrCat("(", shifted, " & ", (int64_t{1} << sort.digit_bits) - 1, ")");
  out.Line("const int value = ", digit, " - low;");
  each();
  out.Close();
  out.Close();
}

// sums and below: over the threads up to this one.
void PrintScan(int64_t threads, LaunchText* launch) {
  SourceWriter& out = launch->out;
  out.Line("sums[RG_THREAD] = sum;");
  out.Line("lower[RG_THREAD] = below;");
  launch->Barrier();
  out.Open("for (int step = 1; step < ", threads, "; step *= 2)");
  out.Line("const int more = RG_THREAD >= step ? sums[RG_THREAD - step] : 0;");
  out.Line("const int more_lower = RG_THREAD >= step ? lower[RG_THREAD - step] : 0;");
  launch->Barrier();
  out.Line("sums[RG_THREAD] += more;");
  out.Line("lower[RG_THREAD] += more_lower;");
  launch->Barrier();
  out.Close();
}

Kernel EmitPlace(const ScatterWorkspace& ws, const Pass& pass, const KernelBody& body,
                 Dialect dialect) {
  const ScatterSort& sort = ws.sort;
  const int64_t threads = sort.threads, own = sort.own_digits;
  LaunchText launch(body, dialect, static_cast<int>(threads), (sort.digits + own - 1) / own);
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  launch.Shared(DType::kInt32, "counts", ScatterCounters(sort));
  launch.Shared(DType::kInt32, "sums", threads);
  launch.Shared(DType::kInt32, "lower", threads);
  out.SetDepth(1);
  out.Line("const int low = RG_BLOCK * ", own, ";");
  // Each thread its own.
  out.Line("for (int n = RG_THREAD; n < ", threads * own, "; n += ", threads, ") ", Counter("n"),
           " = 0;");
  out.Line("int below = 0;");
  const std::string mine =
      absl::StrCat("value >= 0 && value < ", own, pass.last ? "" : " && key >= 0");
  const std::string entry = absl::StrCat("value * ", threads, " + RG_THREAD");
  PrintPacks(
      ws, pass, w,
      [&] {
        out.Line("below += key >= 0 && value < 0 ? 1 : 0;");
        out.Line("if (", mine, ") ", Counter(entry), " += 1;");
      },
      &launch);
  launch.Barrier();
  out.Line("int sum = 0;");
  out.Line("for (int n = 0; n < ", own,
           "; ++n) sum += ", Counter(absl::StrCat("RG_THREAD * ", own, " + n")), ";");
  PrintScan(threads, &launch);
  out.Line("int place = lower[", threads - 1, "] + sums[RG_THREAD] - sum;");
  out.Open("for (int n = 0; n < ", own, "; ++n)");
  const std::string slot = Counter(absl::StrCat("RG_THREAD * ", own, " + n"));
  out.Line("const int here = ", slot, ";");
  out.Line(slot, " = place;");
  out.Line("place += here;");
  out.Close();
  launch.Barrier();
  if (sort.passes == 1) {
    out.Line("if (RG_THREAD < ", own, " && low + RG_THREAD < ", sort.digits, ") rg_store(", w, ", ",
             ws.starts / 4, " + low + RG_THREAD, static_cast<int>(",
             Counter(absl::StrCat("RG_THREAD * ", threads)), "));");
    launch.Barrier();
  }
  PrintPacks(
      ws, pass, w,
      [&] {
        out.Open("if (", mine, ")");
        out.Line("const int to = ", Counter(entry), ";");
        out.Line(Counter(entry), " = to + 1;");
        if (pass.number == 0) {
          out.Line("const int position = RG_THREAD * ", sort.packs * 4, " + i0 * 4 + m;");
        } else {
          out.Line("const int position = rg_load(", w, ", ", ws.dealt_order[pass.number % 2] / 4,
                   " + ((i0 + m / 4) * ", threads, " + RG_THREAD) * 4 + m % 4);");
        }
        const int next = (pass.number + 1) % 2;
        const std::string at = pass.last ? "to" : DealtPlace(sort, "to");
        out.Line("rg_store(", w, ", ", (pass.last ? ws.keys : ws.dealt_keys[next]) / 4, " + ", at,
                 ", key);");
        out.Line("rg_store(", w, ", ", (pass.last ? ws.order : ws.dealt_order[next]) / 4, " + ", at,
                 ", position);");
        out.Close();
      },
      &launch);
  return launch.Finish("place");
}

// starts[r]: the first sorted position whose key is at least r.
Kernel EmitStarts(const ScatterWorkspace& ws, const KernelBody& body, Dialect dialect) {
  const int64_t table_rows = body.ir.scatter->table_rows;
  LaunchText launch(body, dialect, kThreads, (table_rows + kThreads) / kThreads);
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  out.SetDepth(1);
  out.Line("const int r = RG_BLOCK * ", kThreads, " + RG_THREAD;");
  out.Open("if (r <= ", table_rows, ")");
  out.Line("int low = 0, high = ", ws.rows, ";");
  out.Open("while (low < high)");
  out.Line("const int middle = low + (high - low) / 2;");
  out.Open("if (rg_load(", w, ", ", ws.keys / 4, " + middle) < r)");
  out.Line("low = middle + 1;");
  out.Else();
  out.Line("high = middle;");
  out.Close();
  out.Close();
  out.Line("rg_store(", w, ", ", ws.starts / 4, " + r, low);");
  out.Close();
  return launch.Finish("starts");
}

}  // namespace

std::vector<Kernel> EmitScatterSort(const ScatterWorkspace& ws, const KernelBody& body,
                                    Dialect dialect) {
  std::vector<Kernel> launches = {EmitKeys(ws, body, dialect)};
  for (int number = 0; number < ws.sort.passes; ++number) {
    launches.push_back(EmitPlace(ws, {number, number + 1 == ws.sort.passes}, body, dialect));
  }
  if (ws.sort.passes > 1) launches.push_back(EmitStarts(ws, body, dialect));
  return launches;
}

}  // namespace retrograd
