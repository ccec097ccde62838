// Attributes: a short sorted vector; nodes have at most a handful.
#include <algorithm>

#include "graph/ir/backward_graph.h"

namespace retrograd {

Attrs::Attrs(std::initializer_list<std::pair<absl::string_view, AttrValue>> attrs) {
  attrs_.reserve(attrs.size());
  for (const auto& [name, value] : attrs) Set(name, value);
}

void Attrs::Set(absl::string_view name, AttrValue value) {
  auto it = std::lower_bound(attrs_.begin(), attrs_.end(), name,
                             [](const auto& attr, absl::string_view n) { return attr.first < n; });
  if (it != attrs_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    attrs_.emplace(it, std::string(name), std::move(value));
  }
}

const AttrValue* Attrs::Find(absl::string_view name) const {
  for (const auto& [key, value] : attrs_) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t Attrs::Int(absl::string_view name, int64_t fallback) const {
  const AttrValue* value = Find(name);
  const int64_t* integer = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  return integer == nullptr ? fallback : *integer;
}

double Attrs::Float(absl::string_view name, double fallback) const {
  const AttrValue* value = Find(name);
  if (value == nullptr) return fallback;
  if (const double* number = std::get_if<double>(value)) return *number;
  const int64_t* integer = std::get_if<int64_t>(value);
  return integer == nullptr ? fallback : static_cast<double>(*integer);
}

absl::string_view Attrs::String(absl::string_view name) const {
  const AttrValue* value = Find(name);
  const std::string* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? absl::string_view() : absl::string_view(*text);
}

absl::Span<const int64_t> Attrs::Ints(absl::string_view name) const {
  const AttrValue* value = Find(name);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  return list == nullptr ? absl::Span<const int64_t>() : absl::MakeConstSpan(*list);
}

}  // namespace retrograd
