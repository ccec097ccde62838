#include "graph/base/data_folder.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

// Of the data that was installed with the library or program that this code is part of; empty where
// it was not installed.
std::string FindInstalled() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&FindInstalled), &info) == 0) return "";
  std::error_code error;
  const std::filesystem::path self = std::filesystem::canonical(info.dli_fname, error);
  // PREFIX/lib or PREFIX/bin, or PREFIX/lib/x86_64-linux-gnu; beside the library in a Python
  // package.
  for (const char* from : {"../share/retrograd", "../../share/retrograd", "share/retrograd"}) {
    const std::filesystem::path folder = self.parent_path() / from;
    if (std::filesystem::is_directory(folder / "fusion/devices", error)) {
      return folder.lexically_normal().string();
    }
  }
  return "";
}

const std::string& Root() {
  static const std::string& root = *new std::string([] {
    const std::string installed = FindInstalled();
    return installed.empty() ? std::string(RETROGRAD_SOURCE_DIR) : installed;
  }());
  return root;
}

}  // namespace

std::string DataFolder(absl::string_view path) {
  const char* root = std::getenv("RETROGRAD_DATA");
  return absl::StrCat(root != nullptr && *root != '\0' ? root : Root().c_str(), "/", path);
}

}  // namespace retrograd
