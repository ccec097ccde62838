// UndefinedBytes: which bytes of the process's memory hold nothing meaningful, by address. What it
// was never told about is defined.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_UNDEFINED_MEMORY_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_UNDEFINED_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace retrograd {

class UndefinedBytes {
 public:
  void Mark(uintptr_t address, int64_t bytes, bool undefined);
  bool Any(uintptr_t address, int64_t bytes) const;

  // One flag a byte of the range, 1 for undefined; empty if none is.
  std::vector<uint8_t> Flags(uintptr_t address, int64_t bytes) const;
  void SetFlags(uintptr_t address, const std::vector<uint8_t>& flags);

 private:
  static constexpr int64_t kPageBytes = 4096;
  // Calls on_part(page number, offset in the page, offset in the range, bytes) for each page.
  template <typename OnPart>
  static void ForParts(uintptr_t address, int64_t bytes, OnPart on_part);
  std::vector<uint8_t>& Page(uint64_t number);

  absl::flat_hash_map<uint64_t, std::vector<uint8_t>> pages_;  // flags, absent: all defined
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_SANITIZER_UNDEFINED_MEMORY_H_
