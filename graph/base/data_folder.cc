#include "graph/base/data_folder.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace retrograd {

std::string DataFolder(absl::string_view path) {
  const char* root = std::getenv("RETROGRAD_DATA");
  return absl::StrCat(root != nullptr && *root != '\0' ? root : RETROGRAD_SOURCE_DIR, "/", path);
}

}  // namespace retrograd
