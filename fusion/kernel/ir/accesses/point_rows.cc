#include "fusion/kernel/ir/accesses/point_rows.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {
namespace {

constexpr int64_t kBankBytes = 4;

// Of the elements between the first and the last one that is read, one of so many must be: a sector
// of 32 bytes holds eight numbers of 4 bytes, so that fewer are cheaper read one by one.
constexpr int64_t kSparsest = 8;

// Rows are copied with the gaps between them if those are at most this share of the pitch: an
// estimate.
constexpr int64_t kMostGap = 8;

// The pitch of an offset that grows with the number of the point; nullopt for others.
std::optional<int64_t> PitchOf(const KernelIr& ir, const IndexExpr& offset) {
  const int fastest = FastestAxis(ir);
  if (fastest < 0 || !offset.is_affine()) return std::nullopt;
  const int64_t pitch = offset.axis_coef(fastest);
  if (pitch < 2) return std::nullopt;
  int64_t points = 1;  // from one position of the axis to the next
  for (int a = static_cast<int>(ir.extents.size()) - 1; a >= 0; --a) {
    if (ir.extents[a] > 1 && offset.axis_coef(a) != pitch * points) return std::nullopt;
    points *= ir.extents[a];
  }
  return pitch;
}

bool IsPlain(const Instr& instr) {
  return instr.kind == InstrKind::kLoad && instr.guards.empty() && instr.indirect.empty();
}

// Whether elements of rows so far apart, the same of each, lie in different banks.
bool Spreads(int64_t stride, int64_t size) {
  return stride % (2 * std::max<int64_t>(kBankBytes / size, 1)) != 0;
}

int64_t SpreadStride(int64_t width, int64_t size) {
  return Spreads(width, size) ? width : width + std::max<int64_t>(kBankBytes / size, 1);
}

// The most elements, a power of two, that one access moves where all of these are multiples.
int WidestPiece(const Buffer& buffer, std::initializer_list<int64_t> multiples) {
  const int64_t size = SizeBytes(buffer.dtype);
  int piece = static_cast<int>(kMaxAccessBytes / size);
  const auto fits = [&] {
    return buffer.alignment % (piece * size) == 0 &&
           std::all_of(multiples.begin(), multiples.end(),
                       [&](int64_t m) { return m % piece == 0; });
  };
  while (piece > 1 && !fits()) piece /= 2;
  return piece;
}

// How the rows lie in shared memory. A run of whole rows begins where its pieces are aligned in
// every block, whose threads are a multiple of any piece.
void Place(const Buffer& buffer, PointRows& rows) {
  const int64_t size = SizeBytes(buffer.dtype);
  rows.whole = Spreads(rows.pitch, size) && (rows.pitch - rows.width) * kMostGap <= rows.pitch;
  if (rows.whole) {
    rows.stride = rows.pitch;
    rows.piece = WidestPiece(buffer, {});
    const int64_t before = rows.first % rows.piece;
    rows.first -= before;
    rows.width += before;
    return;
  }
  rows.stride = SpreadStride(rows.width, size);
  rows.piece = WidestPiece(buffer, {rows.pitch, rows.first, rows.width, rows.stride});
}

// What is known of a buffer's loads.
struct Loads {
  PointRows rows;
  std::set<int64_t> columns;
  bool alike = true;  // all of them read a row of the same pitch
};

void Add(const KernelIr& ir, int instr, Loads& loads) {
  const IndexExpr& offset = ir.instrs[instr].offset;
  const std::optional<int64_t> pitch = PitchOf(ir, offset);
  loads.alike = loads.alike && pitch && (loads.rows.pitch == 0 || *pitch == loads.rows.pitch);
  if (!loads.alike) return;
  loads.rows.pitch = *pitch;
  loads.rows.loads.push_back(instr);
  loads.columns.insert(offset.offset());
}

// Whether the elements lie in one row, and close enough together to be copied.
bool MeasureRow(Loads& loads) {
  if (!loads.alike || loads.columns.size() < 2) return false;
  PointRows& rows = loads.rows;
  rows.first = *loads.columns.begin();
  rows.width = *loads.columns.rbegin() + 1 - rows.first;
  rows.columns = static_cast<int64_t>(loads.columns.size());
  return rows.width <= rows.pitch && rows.width <= rows.columns * kSparsest;
}

}  // namespace

std::vector<PointRows> PointRowsOf(const KernelIr& ir) {
  std::vector<PointRows> all;
  if (ir.Points(ir.all_axes()) < 2) return all;
  std::vector<Loads> by_buffer(ir.buffers.size());
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (IsPlain(ir.instrs[i])) Add(ir, static_cast<int>(i), by_buffer[ir.instrs[i].buffer]);
  }
  for (size_t b = 0; b < by_buffer.size(); ++b) {
    PointRows& rows = by_buffer[b].rows;
    if (!MeasureRow(by_buffer[b])) continue;
    rows.buffer = static_cast<int>(b);
    Place(ir.buffers[b], rows);
    all.push_back(std::move(rows));
  }
  return all;
}

int64_t PlaceInRow(const KernelIr& ir, const PointRows& rows, int load) {
  return ir.instrs[load].offset.offset() - rows.first;
}

int64_t ElementsOf(const PointRows& rows, int64_t points) {
  return (points - 1) * rows.stride + rows.width;
}

}  // namespace retrograd
