#include "fusion/plan/call_key.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace retrograd {
namespace {

std::string TextOf(const AttrValue& value) {
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    return absl::StrJoin(*list, ",");
  if (const auto* number = std::get_if<double>(&value)) return absl::StrFormat("%a", *number);
  if (const auto* text = std::get_if<std::string>(&value)) return absl::CEscape(*text);
  return absl::StrCat(std::get<int64_t>(value));
}

}  // namespace

std::string CallKey(const Call& call) {
  std::string key(Name(call.op));
  for (const std::vector<CallTensor>* list : {&call.operands, &call.results}) {
    for (const CallTensor& t : *list) {
      absl::StrAppend(&key, " ", Name(t.dtype), "[", absl::StrJoin(t.shape, ","), "]",
                      absl::StrJoin(t.strides, ","));
    }
  }
  for (const auto& [name, value] : call.attributes.all()) {
    absl::StrAppend(&key, " ", name, "=", TextOf(value));
  }
  if (call.previous) key += " adds";
  return key;
}

}  // namespace retrograd
