// Cancelled: how a caller takes back what takes long. Asked at short intervals, from any thread
// that works for it.
#ifndef RETROGRAD_GRAPH_BASE_CANCELLED_H_
#define RETROGRAD_GRAPH_BASE_CANCELLED_H_

#include <functional>

#include "absl/status/status.h"

namespace retrograd {

// Empty: never. Must not throw, and may be called from several threads at once.
using Cancelled = std::function<bool()>;

// Cancelled where it is; else OK.
inline absl::Status CheckCancelled(const Cancelled& cancelled) {
  if (cancelled && cancelled()) return absl::CancelledError("cancelled by the caller");
  return absl::OkStatus();
}

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_CANCELLED_H_
