#include "codegen/preludes/host_prelude.h"

namespace retrograd {
namespace {

constexpr char kText[] =
#include "codegen/preludes/host_simt.inc"
    ;

}  // namespace

absl::string_view HostPrelude() { return absl::string_view(kText, sizeof kText - 1); }

}  // namespace retrograd
