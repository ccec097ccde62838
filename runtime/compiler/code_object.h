// What AMD code objects and the CUDA assembler's log say about each kernel's resources.
#ifndef RETROGRAD_RUNTIME_COMPILER_CODE_OBJECT_H_
#define RETROGRAD_RUNTIME_COMPILER_CODE_OBJECT_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/compiler/rtc.h"

namespace retrograd {

// From the lines that `ptxas -v` prints. Empty where it printed none.
std::vector<KernelResources> ResourcesFromPtxasLog(absl::string_view log);

// From the metadata note of an AMD code object (ELF, or a bundle that holds one). Empty where the
// bytes are something else.
std::vector<KernelResources> ResourcesFromAmdObject(absl::string_view code);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_CODE_OBJECT_H_
