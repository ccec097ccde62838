// A plan's outline out of its JSON, with an error that names the place for whatever is not as
// `plan --format json` writes it.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "tools/explain/explanation.h"
#include "tools/explain/plan_diff.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

// A JSON value and where it stands.
struct Place {
  const Json* json;
  std::string where;

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
  }
  absl::StatusOr<Place> Member(const char* key) const {
    if (!json->is_object()) return Error("not an object");
    const auto it = json->find(key);
    if (it == json->end()) {
      return Error(absl::StrCat("no ", key, "; is it from `fusion-explain plan --format json`?"));
    }
    return Place{&*it, absl::StrCat(where, ".", key)};
  }
  absl::StatusOr<int64_t> Integer(const char* key) const {
    RG_ASSIGN_OR_RETURN(const Place member, Member(key));
    if (!member.json->is_number_integer()) return member.Error("not an integer");
    if (member.json->is_number_unsigned() && member.json->get<uint64_t>() > INT64_MAX) {
      return member.Error("does not fit 64 bits");
    }
    const int64_t value = member.json->get<int64_t>();
    if (value < 0 || value > kMost) return member.Error(absl::StrCat(value, " is out of range"));
    return value;
  }
  absl::StatusOr<std::string> String(const char* key) const {
    RG_ASSIGN_OR_RETURN(const Place member, Member(key));
    if (!member.json->is_string()) return member.Error("not a string");
    return member.json->get<std::string>();
  }
  absl::StatusOr<std::vector<Place>> Array(const char* key) const {
    RG_ASSIGN_OR_RETURN(const Place member, Member(key));
    if (!member.json->is_array()) return member.Error("not an array");
    std::vector<Place> items;
    for (size_t i = 0; i < member.json->size(); ++i) {
      items.push_back({&(*member.json)[i], absl::StrCat(member.where, "[", i, "]")});
    }
    return items;
  }

  // Differences and sums of two stay inside 64 bits: 53 days in picoseconds, 4 EB.
  static constexpr int64_t kMost = int64_t{1} << 62;
};

// An op of a kernel, before it is known how many alike the plan has.
struct NamedOp {
  int64_t node;
  size_t kernel;
  std::string name;
};

std::string Optional(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// "mul 3, sum 2": by count, in order of first appearance.
std::string Count(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& name : names) {
    const auto it = std::find_if(counts.begin(), counts.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == counts.end()) {
      counts.emplace_back(name, 1);
    } else {
      ++it->second;
    }
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name);
    if (count > 1) absl::StrAppend(&text, " ", count);
  }
  return text;
}

// The body without its punctuation: "kernel row_reduction threads 256 ... registers 40".
std::string DescribeBody(const Json& body) {
  std::string text;
  for (const auto& [key, value] : body.items()) {
    if (!text.empty()) text += ' ';
    if (value.is_object()) {
      text += DescribeBody(value);
    } else if (key == "members" &&
               value.is_array()) {  // how each of them runs, not where and what for
      absl::StrAppend(&text, value.size(), " kernels");
      for (const Json& member : value) {
        if (!member.is_object() || !member.contains("schedule")) continue;
        absl::StrAppend(&text, ", ", DescribeBody(member["schedule"]));
      }
    } else if (value.is_string()) {
      text += value.get<std::string>();
    } else {
      absl::StrAppend(&text, key, " ", value.dump(-1, ' ', true, Json::error_handler_t::replace));
    }
  }
  return text;
}

absl::Status ReadKernel(const Place& group, PlanOutline* outline, std::vector<NamedOp>* ops) {
  PlanOutline::Kernel kernel;
  RG_ASSIGN_OR_RETURN(kernel.price_ps, group.Integer("price_ps"));
  RG_ASSIGN_OR_RETURN(const int64_t read, group.Integer("read_bytes"));
  RG_ASSIGN_OR_RETURN(const int64_t written, group.Integer("written_bytes"));
  if (read > Place::kMost - written) return group.Error("read and written bytes are out of range");
  kernel.bytes = read + written;
  RG_ASSIGN_OR_RETURN(const Place body, group.Member("body"));
  if (!body.json->is_object()) return body.Error("not an object");
  kernel.how = DescribeBody(*body.json);
  RG_ASSIGN_OR_RETURN(const std::vector<Place> members, group.Array("ops"));
  std::vector<std::string> names, origins;
  for (const Place& member : members) {
    NamedOp op{.node = 0, .kernel = outline->kernels.size(), .name = ""};
    RG_ASSIGN_OR_RETURN(op.node, member.Integer("node"));
    RG_ASSIGN_OR_RETURN(const std::string name, member.String("op"));
    const std::string origin = Optional(*member.json, "origin");
    const auto instance = member.json->find("instance");
    op.name = absl::StrCat(Optional(*member.json, "module"), "\n", origin, "\n",
                           instance != member.json->end() && instance->is_number_integer()
                               ? instance->get<int64_t>()
                               : 0,
                           "\n", name);
    ops->push_back(std::move(op));
    names.push_back(name);
    if (!origin.empty() && std::find(origins.begin(), origins.end(), origin) == origins.end()) {
      origins.push_back(origin);
    }
  }
  kernel.what = Count(names);
  if (!origins.empty()) absl::StrAppend(&kernel.what, "  from ", Count(origins));
  outline->kernels.push_back(std::move(kernel));
  return absl::OkStatus();
}

// Numbers ops alike in the order of their nodes, and gives each to its kernel.
void NameOps(std::vector<NamedOp> ops, PlanOutline* outline) {
  std::stable_sort(ops.begin(), ops.end(),
                   [](const NamedOp& a, const NamedOp& b) { return a.node < b.node; });
  std::map<std::string, int64_t> seen;
  for (const NamedOp& op : ops) {
    outline->kernels[op.kernel].ops.push_back(absl::StrCat(op.name, "\n", seen[op.name]++));
  }
  for (PlanOutline::Kernel& kernel : outline->kernels) {
    std::sort(kernel.ops.begin(), kernel.ops.end());
  }
}

}  // namespace

absl::StatusOr<PlanOutline> OutlineFromJson(absl::string_view json, absl::string_view name) {
  const Json document = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  const Place root{&document, std::string(name)};
  if (document.is_discarded()) return root.Error("not JSON");
  RG_ASSIGN_OR_RETURN(const std::string format, root.String("format"));
  if (format != "retrograd.explanation") {
    return root.Error(absl::StrCat("format is ", format, ", not retrograd.explanation"));
  }
  RG_ASSIGN_OR_RETURN(const int64_t version, root.Integer("version"));
  if (version != kExplanationVersion) {
    return root.Error(
        absl::StrCat("version ", version, "; this program reads version ", kExplanationVersion));
  }
  PlanOutline outline;
  RG_ASSIGN_OR_RETURN(outline.graph, root.String("graph"));
  RG_ASSIGN_OR_RETURN(outline.device, root.String("device"));
  RG_ASSIGN_OR_RETURN(const Place summary, root.Member("summary"));
  RG_ASSIGN_OR_RETURN(outline.launches, summary.Integer("kernels"));
  RG_ASSIGN_OR_RETURN(outline.price_ps, summary.Integer("price_ps"));
  RG_ASSIGN_OR_RETURN(outline.bytes, summary.Integer("bytes"));
  RG_ASSIGN_OR_RETURN(const Place memory, root.Member("memory"));
  RG_ASSIGN_OR_RETURN(outline.peak_bytes, memory.Integer("peak_bytes"));
  RG_ASSIGN_OR_RETURN(const std::vector<Place> groups, root.Array("groups"));
  std::vector<NamedOp> ops;
  for (const Place& group : groups) RG_RETURN_IF_ERROR(ReadKernel(group, &outline, &ops));
  NameOps(std::move(ops), &outline);
  return outline;
}

}  // namespace retrograd
