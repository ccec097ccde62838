#include "fusion/device/interference.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/device/device_spec.pb.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr absl::string_view kNames[] = {"kernel", "matmul", "convolution"};  // by WorkKind
constexpr double kMostFactor = 10, kMostShare = 64;

absl::StatusOr<WorkKind> KindByName(const std::string& name, absl::string_view where) {
  for (size_t kind = 0; kind < std::size(kNames); ++kind) {
    if (name == kNames[kind]) return static_cast<WorkKind>(kind);
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ": interference of '", absl::CEscape(name),
                                                 "': there are kernel, matmul and convolution"));
}

// Both shares of the row, seen from a and b; false where it is of other kinds.
bool Oriented(const Interference& row, WorkKind a, WorkKind b, bool swapped, double* share_a,
              double* share_b) {
  if ((swapped ? row.b : row.a) != a || (swapped ? row.a : row.b) != b) return false;
  *share_a = swapped ? row.share_b : row.share_a;
  *share_b = swapped ? row.share_a : row.share_b;
  return true;
}

}  // namespace

absl::string_view Name(WorkKind kind) { return kNames[static_cast<int>(kind)]; }

double InterferenceTable::Factor(WorkKind a, double share_a, WorkKind b, double share_b) const {
  double factor = 1, least = std::numeric_limits<double>::infinity();
  for (const Interference& row : rows_) {
    for (bool swapped : {false, true}) {
      double row_a = 0, row_b = 0;
      if (!Oriented(row, a, b, swapped, &row_a, &row_b)) continue;
      if (row_a < share_a || row_b < share_b || row_a + row_b >= least) continue;
      least = row_a + row_b;
      factor = row.factor;
    }
  }
  return factor;
}

bool InterferenceTable::Pays(WorkKind kind, double share, double factor) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const Interference& row) {
    const bool covered =
        (row.a == kind && row.share_a >= share) || (row.b == kind && row.share_b >= share);
    return covered && row.factor < factor;
  });
}

absl::StatusOr<InterferenceTable> ParseInterference(absl::string_view text,
                                                    absl::string_view where) {
  v1::DeviceSpecProto spec;
  if (!google::protobuf::TextFormat::ParseFromString(std::string(text), &spec)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a device spec"));
  }
  std::vector<Interference> rows;
  for (const v1::InterferenceProto& p : spec.interference()) {
    Interference row{.share_a = p.share_a(), .share_b = p.share_b(), .factor = p.factor()};
    RG_ASSIGN_OR_RETURN(row.a, KindByName(p.a(), where));
    RG_ASSIGN_OR_RETURN(row.b, KindByName(p.b(), where));
    const auto in = [](double v, double most) { return v > 0 && v <= most; };
    if (!in(row.share_a, kMostShare) || !in(row.share_b, kMostShare) ||
        !in(row.factor, kMostFactor)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: interference of %s and %s: shares must be in (0, %.0f] and the factor in (0, %.0f]",
          where, p.a(), p.b(), kMostShare, kMostFactor));
    }
    if (p.source().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": interference has no source: say where the number comes from"));
    }
    rows.push_back(row);
  }
  return InterferenceTable(std::move(rows));
}

std::string PrintInterference(const Interference& row, absl::string_view source) {
  return absl::StrFormat(
      "interference { a: \"%s\" b: \"%s\" share_a: %.4g share_b: %.4g factor: %.3g source: \"%s\" "
      "}",
      Name(row.a), Name(row.b), row.share_a, row.share_b, row.factor, absl::CEscape(source));
}

}  // namespace retrograd
