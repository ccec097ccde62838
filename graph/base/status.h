// How errors travel: absl::Status for what a caller can cause, RG_CHECK for our own mistakes.
#ifndef RETROGRAD_GRAPH_BASE_STATUS_H_
#define RETROGRAD_GRAPH_BASE_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RG_STATUS_CONCAT_INNER(a, b) a##b
#define RG_STATUS_CONCAT(a, b) RG_STATUS_CONCAT_INNER(a, b)

// Returns the status from the enclosing function unless it is OK.
#define RG_RETURN_IF_ERROR(expr)           \
  do {                                     \
    ::absl::Status rg_status = (expr);     \
    if (!rg_status.ok()) return rg_status; \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its status.
#define RG_ASSIGN_OR_RETURN(lhs, expr) \
  RG_ASSIGN_OR_RETURN_INNER(RG_STATUS_CONCAT(rg_or_, __LINE__), lhs, expr)
#define RG_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return std::move(tmp).status();  \
  lhs = *std::move(tmp)

// Stops the process when an invariant of our own code is broken: never for a caller's input.
#define RG_CHECK(cond)                                                                       \
  do {                                                                                       \
    if (!(cond)) {                                                                           \
      std::fprintf(stderr, "%s:%d: internal check failed: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

#endif  // RETROGRAD_GRAPH_BASE_STATUS_H_
