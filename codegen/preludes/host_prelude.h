// The text that every host translation unit starts with: codegen/preludes/host_simt.h, carried by
// the library so that compiling kernels needs no source tree.
#ifndef RETROGRAD_CODEGEN_PRELUDES_HOST_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_HOST_PRELUDE_H_

#include "absl/strings/string_view.h"

namespace retrograd {

absl::string_view HostPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_HOST_PRELUDE_H_
