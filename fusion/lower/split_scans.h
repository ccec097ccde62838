// Scans of few long rows in pieces, so that more blocks have work than there are rows.
//
// The sum of each piece is made, the sums of a row's pieces are scanned, and each piece is scanned
// and has the sum of the pieces before added: three kernels, of which two read the operand.
// Products are not cut: behind a factor of 0 they are 0, and a piece's own product may be infinite
// there.
//
// Before sums are collected and ordered: the pieces' sums are added like any others.
#ifndef RETROGRAD_FUSION_LOWER_SPLIT_SCANS_H_
#define RETROGRAD_FUSION_LOWER_SPLIT_SCANS_H_

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Each cumsum of rows that are fewer than fill the device and long enough for pieces. Sums of
// floats are made in the compute dtype and rounded once.
absl::StatusOr<BackwardGraph> SplitScans(const BackwardGraph& graph, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_SPLIT_SCANS_H_
