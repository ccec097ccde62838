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
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/regular_file.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Json = nlohmann::json;

constexpr int kLengthBytes = 8;                            // of the header's length
constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;  // the format's own limit

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr DTypeName kNames[] = {{DType::kBool, "BOOL"},
                                {DType::kInt8, "I8"},
                                {DType::kUInt8, "U8"},
                                {DType::kInt32, "I32"},
                                {DType::kInt64, "I64"},
                                {DType::kFp16, "F16"},
                                {DType::kBf16, "BF16"},
                                {DType::kFp32, "F32"},
                                {DType::kFp64, "F64"},
                                {DType::kFp8E4M3, "F8_E4M3"},
                                {DType::kFp8E5M2, "F8_E5M2"},
                                {DType::kFp8E4M3Fnuz, "F8_E4M3FNUZ"},
                                {DType::kFp8E5M2Fnuz, "F8_E5M2FNUZ"}};

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

// A look at the header before it is parsed: whether it nests no deeper than headers do, so that
// little text makes no large tree, and whether a name comes twice, of which the parser would keep
// the last. A parser that is watched while it makes the tree would take quadratic time.
class HeaderWatch : public Json::json_sax_t {
 public:
  bool repeated() const { return repeated_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const Json::string_t&) override { return true; }
  bool string(Json::string_t&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(Json::string_t& name) override {
    if (depth_ == 1 && !names_.insert(name).second) repeated_ = true;
    return !repeated_;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  bool Enter() { return ++depth_ <= kMostDepth; }
  bool Leave() {
    --depth_;
    return true;
  }

  static constexpr int kMostDepth = 8;
  int depth_ = 0;
  bool repeated_ = false;
  absl::flat_hash_set<std::string> names_;
};

absl::Status CheckFilled(const std::vector<BundleTensor>& tensors, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const BundleTensor& t : tensors) {
    end = std::max(end, t.offset + static_cast<uint64_t>(t.type.size_bytes()));
  }
  if (end == data_bytes) return absl::OkStatus();
  return Bad("%d bytes follow the last tensor: the file is damaged, or its header another's",
             data_bytes - end);
}

// The length of the header, by the first eight bytes of a file of so many.
absl::StatusOr<uint64_t> HeaderLength(absl::string_view front, uint64_t file_bytes) {
  if (front.size() < kLengthBytes) return Bad("%d bytes are no safetensors file", front.size());
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(front[i]);
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    return Bad("a header of %d bytes does not fit a file of %d", length, file_bytes);
  }
  return length;
}

// The tensors that the header describes, before data of so many bytes.
absl::StatusOr<std::vector<BundleTensor>> ParseHeader(absl::string_view text, uint64_t data_bytes) {
  HeaderWatch watch;
  const bool shallow = Json::sax_parse(text.begin(), text.end(), &watch);
  if (watch.repeated()) return Bad("two tensors have the same name");
  if (!shallow) return Bad("the header is no JSON object");
  const Json header = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) return Bad("the header is no JSON object");
  std::vector<BundleTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    RG_ASSIGN_OR_RETURN(BundleTensor tensor, ParseTensor(name, entry, data_bytes));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const BundleTensor& a, const BundleTensor& b) { return a.name < b.name; });
  RG_RETURN_IF_ERROR(CheckDisjoint(tensors));
  RG_RETURN_IF_ERROR(CheckFilled(tensors, data_bytes));
  return tensors;
}

// The bytes of the data are read once, to where they stay.
absl::StatusOr<Bundle> ReadBundle(RegularFile file) {
  const uint64_t file_bytes = static_cast<uint64_t>(file.bytes());
  RG_ASSIGN_OR_RETURN(const std::string front, file.Read(kLengthBytes));
  RG_ASSIGN_OR_RETURN(const uint64_t length, HeaderLength(front, file_bytes));
  RG_ASSIGN_OR_RETURN(const std::string text, file.Read(static_cast<int64_t>(length)));
  const uint64_t data_bytes = file_bytes - kLengthBytes - length;
  Bundle bundle;
  RG_ASSIGN_OR_RETURN(bundle.tensors, ParseHeader(text, data_bytes));
  RG_ASSIGN_OR_RETURN(bundle.data, file.Read(static_cast<int64_t>(data_bytes)));
  if (bundle.data.size() != data_bytes) return Bad("reading stopped early");
  return bundle;
}

// What stands before the data. In a file tensors lie one behind the other without gaps, which the
// format's own readers refuse.
std::string FrontOf(const Bundle& bundle) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "retrograd.bundle.v1"}};
  int64_t offset = 0;
  for (const BundleTensor& t : bundle.tensors) {
    const char* dtype = nullptr;
    for (const DTypeName& n : kNames) {
      if (n.dtype == t.type.dtype) dtype = n.name;
    }
    header[t.name] = {{"dtype", dtype},
                      {"shape", t.type.shape},
                      {"data_offsets", {offset, offset + t.type.size_bytes()}}};
    offset += t.type.size_bytes();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data lies aligned in the file
  std::string bytes;
  for (int i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  }
  return absl::StrCat(bytes, text);
}

absl::Status WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
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
  data.resize((data.size() + 7) / 8 * 8);
  BundleTensor tensor{std::string(name), type, data.size()};
  data.append(bytes.data(), bytes.size());
  tensors.insert(std::upper_bound(
                     tensors.begin(), tensors.end(), tensor,
                     [](const BundleTensor& a, const BundleTensor& b) { return a.name < b.name; }),
                 std::move(tensor));
}

absl::StatusOr<Bundle> ParseBundle(absl::string_view bytes) {
  RG_ASSIGN_OR_RETURN(const uint64_t length, HeaderLength(bytes, bytes.size()));
  const absl::string_view data = bytes.substr(kLengthBytes + length);
  Bundle bundle;
  RG_ASSIGN_OR_RETURN(bundle.tensors, ParseHeader(bytes.substr(kLengthBytes, length), data.size()));
  bundle.data = std::string(data);
  return bundle;
}

absl::StatusOr<Bundle> LoadBundle(const std::string& path) {
  absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("no bundle: ", file.status().message()));
  }
  absl::StatusOr<Bundle> bundle = ReadBundle(*std::move(file));
  if (!bundle.ok()) {
    return absl::Status(bundle.status().code(),
                        absl::StrCat(path, ": ", bundle.status().message()));
  }
  return bundle;
}

std::string SerializeBundle(const Bundle& bundle) {
  std::string bytes = FrontOf(bundle);
  for (const BundleTensor& t : bundle.tensors) absl::StrAppend(&bytes, bundle.Bytes(t));
  return bytes;
}

absl::Status SaveBundle(const Bundle& bundle, const std::string& path) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", temporary));
  absl::Status status = WriteAll(file, FrontOf(bundle));
  for (const BundleTensor& t : bundle.tensors) {
    if (status.ok()) status = WriteAll(file, bundle.Bytes(t));
  }
  if (status.ok() && fsync(file) != 0) status = absl::ErrnoToStatus(errno, "fsync");
  if (close(file) != 0 && status.ok()) status = absl::ErrnoToStatus(errno, "close");
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace retrograd
