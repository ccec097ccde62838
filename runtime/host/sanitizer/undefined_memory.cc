#include "runtime/host/sanitizer/undefined_memory.h"

#include <algorithm>
#include <cstring>

namespace retrograd {

template <typename OnPart>
void UndefinedBytes::ForParts(uintptr_t address, int64_t bytes, OnPart on_part) {
  for (int64_t at = 0; at < bytes;) {
    const int64_t offset = static_cast<int64_t>((address + at) % kPageBytes);
    const int64_t part = std::min(bytes - at, kPageBytes - offset);
    on_part((address + at) / kPageBytes, offset, at, part);
    at += part;
  }
}

std::vector<uint8_t>& UndefinedBytes::Page(uint64_t number) {
  std::vector<uint8_t>& page = pages_[number];
  page.resize(kPageBytes);
  return page;
}

void UndefinedBytes::Mark(uintptr_t address, int64_t bytes, bool undefined) {
  if (!undefined && pages_.empty()) return;
  ForParts(address, bytes, [&](uint64_t number, int64_t offset, int64_t, int64_t part) {
    if (undefined) {
      std::memset(Page(number).data() + offset, 1, part);
    } else if (part == kPageBytes) {
      pages_.erase(number);
    } else if (auto it = pages_.find(number); it != pages_.end()) {
      std::memset(it->second.data() + offset, 0, part);
    }
  });
}

bool UndefinedBytes::Any(uintptr_t address, int64_t bytes) const {
  bool any = false;
  if (pages_.empty()) return any;
  ForParts(address, bytes, [&](uint64_t number, int64_t offset, int64_t, int64_t part) {
    auto it = pages_.find(number);
    if (any || it == pages_.end()) return;
    any = std::memchr(it->second.data() + offset, 1, part) != nullptr;
  });
  return any;
}

std::vector<uint8_t> UndefinedBytes::Flags(uintptr_t address, int64_t bytes) const {
  std::vector<uint8_t> flags;
  if (!Any(address, bytes)) return flags;
  flags.resize(bytes);
  ForParts(address, bytes, [&](uint64_t number, int64_t offset, int64_t at, int64_t part) {
    auto it = pages_.find(number);
    if (it != pages_.end()) std::memcpy(flags.data() + at, it->second.data() + offset, part);
  });
  return flags;
}

void UndefinedBytes::SetFlags(uintptr_t address, const std::vector<uint8_t>& flags) {
  ForParts(address, static_cast<int64_t>(flags.size()),
           [&](uint64_t number, int64_t offset, int64_t at, int64_t part) {
             std::vector<uint8_t>& page = Page(number);
             std::memcpy(page.data() + offset, flags.data() + at, part);
             if (std::memchr(page.data(), 1, kPageBytes) == nullptr) pages_.erase(number);
           });
}

}  // namespace retrograd
