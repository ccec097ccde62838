#include "graph/ir/node_rules.h"

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/structural_ops.h"

namespace retrograd {
namespace {

constexpr int64_t kMaxAlignment = int64_t{1} << 20;

// Length in bytes of the UTF-8 sequence at the start of `text`, 0 if it is none.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(1) > 0x9F;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    const bool overlong = lead == 0xF0 && byte(1) < 0x90;
    const bool beyond = lead == 0xF4 && byte(1) > 0x8F;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

}  // namespace

absl::Status CheckString(absl::string_view text, absl::string_view what) {
  if (text.size() > kMaxStringBytes) {
    return Malformed(Malformation::kBadString,
                     absl::StrCat(what, " has ", text.size(), " bytes; at most ", kMaxStringBytes,
                                  " are allowed"));
  }
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte < 0x7F) {  // nearly all of nearly every string
      ++i;
      continue;
    }
    const size_t length = Utf8Length(text.substr(i));
    // C0 controls and DEL; C1 controls are U+0080 to U+009F, the two bytes C2 80 to C2 9F.
    const bool control =
        byte < 0x20 || byte == 0x7F ||
        (byte == 0xC2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xA0);
    if (length == 0 || control) {
      return Malformed(Malformation::kBadString,
                       absl::StrCat(what, " has ",
                                    length == 0 ? "bytes that are no UTF-8" : "a control character",
                                    " at byte ", i));
    }
    i += length;
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const TensorType& type, const InputInfo& info) {
  RG_RETURN_IF_ERROR(CheckShape(type.shape));
  RG_RETURN_IF_ERROR(CheckString(info.name, "the input's name"));
  if (info.kind < InputKind::kSaved || info.kind > InputKind::kConstant) {
    return Malformed(Malformation::kInputKind,
                     absl::StrCat("input kind ", static_cast<int>(info.kind), " is unknown"));
  }
  if (info.alignment < 0 || info.alignment > kMaxAlignment ||
      (info.alignment & (info.alignment - 1)) != 0) {
    return Malformed(Malformation::kAlignment,
                     absl::StrCat("alignment ", info.alignment, " is no power of two up to 2^20"));
  }
  return CheckStrides(type.shape, info.strides, /*distinct=*/false);
}

absl::Status CheckOrigin(const Origin& origin) {
  RG_RETURN_IF_ERROR(CheckString(origin.op, "an origin's op"));
  RG_RETURN_IF_ERROR(CheckString(origin.module_path, "an origin's module path"));
  return CheckString(origin.source, "an origin's source");
}

std::string NodeName(size_t id, absl::string_view op) {
  return absl::StrCat("node %", id, " (", op, ")");
}

}  // namespace retrograd
