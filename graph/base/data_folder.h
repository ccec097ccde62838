// Where the files lie that come with the binaries: captured graphs and device specs.
#ifndef RETROGRAD_GRAPH_BASE_DATA_FOLDER_H_
#define RETROGRAD_GRAPH_BASE_DATA_FOLDER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

// `path` ("models/graphs") inside the folder that the environment variable RETROGRAD_DATA names, or
// else inside the source tree that the binary was built from.
std::string DataFolder(absl::string_view path);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_DATA_FOLDER_H_
