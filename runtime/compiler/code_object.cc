#include "runtime/compiler/code_object.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace retrograd {
namespace {

// The number before a phrase: 12 for ("...12 bytes spill stores", " bytes spill stores").
int64_t NumberBefore(absl::string_view line, absl::string_view phrase) {
  const size_t at = line.find(phrase);
  if (at == absl::string_view::npos) return 0;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t number = 0;
  return absl::SimpleAtoi(line.substr(begin, at - begin), &number) ? number : 0;
}

template <typename T>
std::optional<T> ReadAt(absl::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Fields of ELF64 that are needed here: offsets in the file header and in a program header.
constexpr uint64_t kProgramHeadersAt = 32, kProgramHeaderSizeAt = 54, kProgramHeaderCountAt = 56;
constexpr uint64_t kSegmentTypeAt = 0, kSegmentOffsetAt = 8, kSegmentSizeAt = 32;
constexpr uint32_t kNoteSegment = 4;
constexpr uint32_t kAmdMetadataNote = 32;  // NT_AMDGPU_METADATA, a MessagePack map

// The metadata note's contents, or empty.
absl::string_view FindMetadata(absl::string_view elf) {
  const auto headers = ReadAt<uint64_t>(elf, kProgramHeadersAt);
  const auto size = ReadAt<uint16_t>(elf, kProgramHeaderSizeAt);
  const auto count = ReadAt<uint16_t>(elf, kProgramHeaderCountAt);
  if (!headers || !size || !count) return "";
  for (uint64_t i = 0; i < *count; ++i) {
    const uint64_t header = *headers + i * *size;
    const auto type = ReadAt<uint32_t>(elf, header + kSegmentTypeAt);
    const auto begin = ReadAt<uint64_t>(elf, header + kSegmentOffsetAt);
    const auto bytes = ReadAt<uint64_t>(elf, header + kSegmentSizeAt);
    if (!type || !begin || !bytes || *type != kNoteSegment || *begin > elf.size()) continue;
    absl::string_view notes = elf.substr(*begin, *bytes);
    while (notes.size() >= 12) {
      const uint64_t name = *ReadAt<uint32_t>(notes, 0), length = *ReadAt<uint32_t>(notes, 4);
      const uint64_t at = 12 + (name + 3) / 4 * 4, next = at + (length + 3) / 4 * 4;
      if (at + length > notes.size()) break;
      if (*ReadAt<uint32_t>(notes, 8) == kAmdMetadataNote) return notes.substr(at, length);
      notes.remove_prefix(std::min<uint64_t>(next, notes.size()));
    }
  }
  return "";
}

int64_t Field(const nlohmann::json& kernel, const char* name) {
  const auto it = kernel.find(name);
  return it != kernel.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

void SortByName(std::vector<KernelResources>* kernels) {
  std::sort(kernels->begin(), kernels->end(),
            [](const KernelResources& a, const KernelResources& b) { return a.name < b.name; });
}

}  // namespace

std::vector<KernelResources> ResourcesFromPtxasLog(absl::string_view log) {
  std::vector<KernelResources> kernels;
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    constexpr absl::string_view kEntry = "Compiling entry function '";
    const size_t entry = line.find(kEntry);
    if (entry != absl::string_view::npos) {
      const absl::string_view rest = line.substr(entry + kEntry.size());
      kernels.push_back({.name = std::string(rest.substr(0, rest.find('\'')))});
    }
    if (kernels.empty()) continue;
    KernelResources& kernel = kernels.back();
    if (line.find("bytes spill stores") != absl::string_view::npos) {
      kernel.stack_bytes = NumberBefore(line, " bytes stack frame");
      kernel.spill_bytes = NumberBefore(line, " bytes spill stores");
    }
    if (line.find("Used ") != absl::string_view::npos) {
      kernel.registers = static_cast<int>(NumberBefore(line, " registers"));
      kernel.shared_bytes = NumberBefore(line, " bytes smem");
    }
  }
  SortByName(&kernels);
  return kernels;
}

std::vector<KernelResources> ResourcesFromAmdObject(absl::string_view code) {
  // A bundle holds host and device objects one after another; the device's is the one with the
  // note.
  absl::string_view metadata;
  constexpr absl::string_view kElf(
      "\x7f"
      "ELF",
      4);
  for (size_t at = code.find(kElf); at != absl::string_view::npos && metadata.empty();
       at = code.find(kElf, at + 1)) {
    metadata = FindMetadata(code.substr(at));
  }
  const nlohmann::json parsed = nlohmann::json::from_msgpack(
      metadata.begin(), metadata.end(), /*strict=*/true, /*allow_exceptions=*/false);
  std::vector<KernelResources> kernels;
  if (!parsed.is_object() || !parsed.contains("amdhsa.kernels")) return kernels;
  for (const nlohmann::json& kernel : parsed["amdhsa.kernels"]) {
    if (!kernel.is_object() || !kernel.contains(".name") || !kernel[".name"].is_string()) continue;
    kernels.push_back({.name = kernel[".name"].get<std::string>(),
                       .registers = static_cast<int>(Field(kernel, ".vgpr_count")),
                       .spill_bytes = 4 * Field(kernel, ".vgpr_spill_count"),
                       .stack_bytes = Field(kernel, ".private_segment_fixed_size"),
                       .shared_bytes = Field(kernel, ".group_segment_fixed_size")});
  }
  SortByName(&kernels);
  return kernels;
}

}  // namespace retrograd
