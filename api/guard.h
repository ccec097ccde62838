// Guard: what stands between the C interface and everything behind it. Statuses become codes with a
// message for the thread; exceptions of libraries become statuses.
#ifndef RETROGRAD_API_GUARD_H_
#define RETROGRAD_API_GUARD_H_

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "include/retrograd/retrograd.h"

namespace retrograd {

// The code of the status, which the thread remembers if it is a failure. Allocates nothing if it is
// none.
rg_code ReportStatus(const absl::Status& status);

// Of what `work` does.
rg_code Guarded(absl::FunctionRef<absl::Status()> work);

// InvalidArgument, naming the parameter, where the address is null.
absl::Status NotNull(const void* address, absl::string_view parameter);

// A struct that a caller filled in, of the size that the caller knows: missing fields are 0.
// InvalidArgument where struct_size is not set, or larger than this library knows.
template <typename T>
absl::StatusOr<T> Taken(const T* given, absl::string_view type) {
  T taken{};
  taken.struct_size = sizeof(T);
  if (given == nullptr) return taken;
  if (given->struct_size < sizeof(size_t) || given->struct_size > sizeof(T)) {
    return absl::InvalidArgumentError(absl::StrCat(type, ".struct_size is ", given->struct_size,
                                                   ": it must be sizeof(", type, "), which is ",
                                                   sizeof(T), " in this library"));
  }
  std::memcpy(&taken, given, given->struct_size);
  return taken;
}

// The reverse: fills in what the caller knows of the struct.
template <typename T>
absl::Status Give(const T& made, T* to, absl::string_view type) {
  if (to == nullptr) return NotNull(to, type);
  const absl::StatusOr<T> known = Taken(to, type);
  if (!known.ok()) return known.status();
  const size_t size = to->struct_size;
  std::memcpy(to, &made, size);
  to->struct_size = size;
  return absl::OkStatus();
}

// A copy for the caller, terminated by zero, that rg_free frees.
absl::StatusOr<char*> CallersCopy(absl::string_view bytes);

}  // namespace retrograd

#endif  // RETROGRAD_API_GUARD_H_
