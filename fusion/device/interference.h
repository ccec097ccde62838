// How pieces of work get on side by side on one device: a measured table, by what they are and by
// the blocks that each has for an SM. Part of a device's spec, for those who schedule streams.
#ifndef RETROGRAD_FUSION_DEVICE_INTERFERENCE_H_
#define RETROGRAD_FUSION_DEVICE_INTERFERENCE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

enum class WorkKind : uint8_t {
  kKernel,       // a generated kernel
  kMatMul,       // a library's
  kConvolution,  // or one of its gradients, whoever makes it
};

absl::string_view Name(WorkKind kind);  // as specs have it

// Meanings: device_spec.proto.
struct Interference {
  WorkKind a = WorkKind::kKernel, b = WorkKind::kKernel;
  double share_a = 1, share_b = 1;
  double factor = 1;
  friend bool operator==(const Interference&, const Interference&) = default;
};

class InterferenceTable {
 public:
  InterferenceTable() = default;
  explicit InterferenceTable(std::vector<Interference> rows) : rows_(std::move(rows)) {}

  bool empty() const { return rows_.empty(); }
  const std::vector<Interference>& rows() const { return rows_; }
  // Of the row with the least shares that are no smaller; 1 where there is none, so that what was
  // never measured is not overlapped.
  double Factor(WorkKind a, double share_a, WorkKind b, double share_b) const;
  // Whether there is anything beside which such work takes less than this.
  bool Pays(WorkKind kind, double share, double factor) const;
  friend bool operator==(const InterferenceTable&, const InterferenceTable&) = default;

 private:
  std::vector<Interference> rows_;
};

// The rows of a spec's text form; `where` leads error messages.
absl::StatusOr<InterferenceTable> ParseInterference(absl::string_view text,
                                                    absl::string_view where);

// One row of the text form, as ParseInterference reads it.
std::string PrintInterference(const Interference& row, absl::string_view source);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_INTERFERENCE_H_
