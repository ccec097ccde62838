// Bundle: recorded inputs and gradients of one graph, in the safetensors format.
//
// "input/<node id>" is the storage of an input node from its first element to its last (one dim);
// "gradient/<output number>" is that output, row-major.
#ifndef RETROGRAD_TOOLS_SUPPORT_SAFETENSORS_H_
#define RETROGRAD_TOOLS_SUPPORT_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

struct BundleTensor {
  std::string name;
  TensorType type;
  uint64_t offset = 0;  // of its bytes in Bundle::data
};

struct Bundle {
  std::vector<BundleTensor> tensors;  // in the order of their names
  std::string data;

  const BundleTensor* Find(absl::string_view name) const;  // nullptr if absent
  absl::string_view Bytes(const BundleTensor& tensor) const;
  // The name must be new and the bytes as many as the type says.
  void Add(absl::string_view name, const TensorType& type, absl::string_view bytes);
};

// Files are not trusted: sizes are checked against the file before anything of that size is
// allocated, tensors may neither overlap nor reach beyond the file, and nothing may follow the
// last.
absl::StatusOr<Bundle> LoadBundle(const std::string& path);
absl::StatusOr<Bundle> ParseBundle(absl::string_view bytes);

// Writes a temporary file beside `path` and renames it.
absl::Status SaveBundle(const Bundle& bundle, const std::string& path);
std::string SerializeBundle(const Bundle& bundle);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_SAFETENSORS_H_
