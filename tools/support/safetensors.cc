// The format (github.com/huggingface/safetensors): eight bytes of header length, little-endian, a
// JSON object of that length, then the tensors' bytes. The object maps names to {"dtype", "shape",
// "data_offsets": [begin, end]}, offsets counted from the end of the header.
#include "tools/support/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;  // the format's own limit

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr DTypeName kNames[] = {
    {DType::kBool, "BOOL"}, {DType::kInt8, "I8"},   {DType::kUInt8, "U8"},
    {DType::kInt32, "I32"}, {DType::kInt64, "I64"}, {DType::kFp16, "F16"},
    {DType::kBf16, "BF16"}, {DType::kFp32, "F32"},  {DType::kFp64, "F64"}};

template <typename... Args>
absl::Status Bad(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

// One member of the header, checked against the bytes that follow it.
absl::StatusOr<BundleTensor> ParseTensor(const std::string& name, const Json& entry,
                                         uint64_t data_bytes) {
  BundleTensor tensor{.name = name};
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets") || !entry["dtype"].is_string() ||
      !entry["shape"].is_array() || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    return Bad("tensor \"%s\": its header needs dtype, shape and two data_offsets", name);
  }
  const std::string dtype = entry["dtype"].get<std::string>();
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const DTypeName& n) { return dtype == n.name; });
  if (known == std::end(kNames)) return Bad("tensor \"%s\": unknown dtype %s", name, dtype);
  tensor.type.dtype = known->dtype;
  if (entry["shape"].size() > kMaxRank) {
    return Bad("tensor \"%s\": %d dims, at most %d", name, entry["shape"].size(), kMaxRank);
  }
  for (const Json& extent : entry["shape"]) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{kMaxElements}) {
      return Bad("tensor \"%s\": an extent is no number up to 2^48", name);
    }
    tensor.type.shape.push_back(extent.get<int64_t>());
  }
  const std::optional<int64_t> elements = CheckedElements(tensor.type.shape);
  const Json& offsets = entry["data_offsets"];
  if (!elements || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return Bad("tensor \"%s\": too many elements, or offsets that are no numbers", name);
  }
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    return Bad("tensor \"%s\": offsets %d to %d lie outside the %d bytes of data", name, begin, end,
               data_bytes);
  }
  const uint64_t wanted = static_cast<uint64_t>(*elements * SizeBytes(tensor.type.dtype));
  if (end - begin != wanted) {
    return Bad("tensor \"%s\": %s takes %d bytes, but its offsets span %d", name,
               tensor.type.Print(), wanted, end - begin);
  }
  tensor.offset = begin;
  return tensor;
}

absl::Status CheckDisjoint(const std::vector<BundleTensor>& tensors) {
  std::vector<const BundleTensor*> by_offset;
  for (const BundleTensor& t : tensors) {
    if (t.type.size_bytes() > 0) by_offset.push_back(&t);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const BundleTensor* a, const BundleTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const BundleTensor& before = *by_offset[i - 1];
    if (before.offset + static_cast<uint64_t>(before.type.size_bytes()) > by_offset[i]->offset) {
      return Bad("tensors \"%s\" and \"%s\" share bytes", before.name, by_offset[i]->name);
    }
  }
  return absl::OkStatus();
}

// The tensors that the header describes and where their bytes begin.
absl::StatusOr<uint64_t> ParseHeader(absl::string_view bytes, std::vector<BundleTensor>* tensors) {
  if (bytes.size() < 8) return Bad("%d bytes are no safetensors file", bytes.size());
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  if (length > kMaxHeaderBytes || length > bytes.size() - 8) {
    return Bad("a header of %d bytes does not fit a file of %d", length, bytes.size());
  }
  const absl::string_view text = bytes.substr(8, length);
  // The parser would keep the last of two equal names.
  bool repeated = false;
  std::set<std::string> names;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      repeated = repeated || !names.insert(parsed.get<std::string>()).second;
    }
    return depth <= 8;
  };
  const Json header = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) return Bad("the header is no JSON object");
  if (repeated) return Bad("two tensors have the same name");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    RG_ASSIGN_OR_RETURN(BundleTensor tensor, ParseTensor(name, entry, bytes.size() - 8 - length));
    tensors->push_back(std::move(tensor));
  }
  std::sort(tensors->begin(), tensors->end(),
            [](const BundleTensor& a, const BundleTensor& b) { return a.name < b.name; });
  RG_RETURN_IF_ERROR(CheckDisjoint(*tensors));
  return 8 + length;
}

absl::Status WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "fsync");
}

}  // namespace

const BundleTensor* Bundle::Find(absl::string_view name) const {
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const BundleTensor& t, absl::string_view wanted) { return t.name < wanted; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

absl::string_view Bundle::Bytes(const BundleTensor& tensor) const {
  return absl::string_view(data).substr(tensor.offset,
                                        static_cast<size_t>(tensor.type.size_bytes()));
}

void Bundle::Add(absl::string_view name, const TensorType& type, absl::string_view bytes) {
  RG_CHECK(Find(name) == nullptr && static_cast<int64_t>(bytes.size()) == type.size_bytes());
  BundleTensor tensor{std::string(name), type, data.size()};
  data.append(bytes.data(), bytes.size());
  data.resize((data.size() + 7) / 8 * 8);
  tensors.insert(std::upper_bound(
                     tensors.begin(), tensors.end(), tensor,
                     [](const BundleTensor& a, const BundleTensor& b) { return a.name < b.name; }),
                 std::move(tensor));
}

absl::StatusOr<Bundle> ParseBundle(absl::string_view bytes) {
  Bundle bundle;
  RG_ASSIGN_OR_RETURN(const uint64_t begin, ParseHeader(bytes, &bundle.tensors));
  bundle.data.assign(bytes.data() + begin, bytes.size() - begin);
  return bundle;
}

absl::StatusOr<Bundle> LoadBundle(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the bundle ", path));
  const std::streamoff size = file.tellg();
  if (size < 0) return Bad("%s is no regular file", path);
  std::string bytes(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) return Bad("%s: reading stopped early", path);
  auto bundle = ParseBundle(bytes);
  if (!bundle.ok()) {
    return absl::Status(bundle.status().code(),
                        absl::StrCat(path, ": ", bundle.status().message()));
  }
  return bundle;
}

std::string SerializeBundle(const Bundle& bundle) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "retrograd.bundle.v1"}};
  for (const BundleTensor& t : bundle.tensors) {
    const char* dtype = nullptr;
    for (const DTypeName& n : kNames) {
      if (n.dtype == t.type.dtype) dtype = n.name;
    }
    header[t.name] = {{"dtype", dtype},
                      {"shape", t.type.shape},
                      {"data_offsets", {t.offset, t.offset + t.type.size_bytes()}}};
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors lie aligned in the file
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  return absl::StrCat(bytes, text, bundle.data);
}

absl::Status SaveBundle(const Bundle& bundle, const std::string& path) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", temporary));
  absl::Status status = WriteAll(file, SerializeBundle(bundle));
  if (close(file) != 0 && status.ok()) status = absl::ErrnoToStatus(errno, "close");
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace retrograd
