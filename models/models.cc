#include "models/models.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/near_names.h"
#include "graph/base/status.h"
#include "graph/proto/proto.h"
#include "models/builders.h"
#include "models/captured_graphs.h"

namespace retrograd {
namespace {

absl::Span<const Builder* const> Builders() {
  static const Builder* const kBuilders[] = {
      &MlpBuilder(),   &NormStackBuilder(), &TransformerBuilder(), &BertBuilder(), &Gpt2Builder(),
      &LlamaBuilder(), &VitBuilder(),       &ResnetBuilder(),      &MoeBuilder(),
  };
  return kBuilders;
}

std::vector<Model> CollectModels() {
  std::vector<Model> models;
  for (const Builder* builder : Builders()) {
    models.push_back({std::string(builder->name), ModelKind::kBuilder,
                      std::string(builder->description), builder->parameters, "", ""});
  }
  std::vector<Model> captured = CapturedGraphs();
  std::move(captured.begin(), captured.end(), std::back_inserter(models));
  return models;
}

absl::StatusOr<const Model*> FindModel(absl::string_view name) {
  std::vector<absl::string_view> known;
  for (const Model& model : AllModels()) {
    if (model.name == name) return &model;
    known.push_back(model.name);
  }
  std::vector<absl::string_view> near = NearNames(name, known);
  return absl::NotFoundError(
      absl::StrCat("no model and no file '", name.substr(0, 200), "'; ",
                   near.empty() ? absl::StrCat("the models are: ", absl::StrJoin(known, ", "))
                                : absl::StrCat("did you mean ", absl::StrJoin(near, " or "), "?")));
}

bool IsFile(absl::string_view text) {
  std::error_code error;
  return absl::StrContains(text, '/') || absl::EndsWith(text, ".pb") ||
         absl::EndsWith(text, ".rgt") || std::filesystem::is_regular_file(std::string(text), error);
}

}  // namespace

absl::string_view Name(ModelKind kind) {
  return kind == ModelKind::kBuilder ? "builder" : "captured";
}

absl::Span<const Model> AllModels() {
  static const auto* models = new std::vector<Model>(CollectModels());
  return *models;
}

absl::StatusOr<BackwardGraph> BuildModel(absl::string_view model) {
  const size_t colon = model.find(':');
  const absl::string_view name = model.substr(0, colon);
  const absl::string_view sizes = colon == absl::string_view::npos ? "" : model.substr(colon + 1);
  RG_ASSIGN_OR_RETURN(const Model* found, FindModel(name));
  if (found->kind == ModelKind::kCaptured) {
    if (!sizes.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", name, " was captured at one size; leave out ':", sizes, "'"));
    }
    return LoadGraph(found->path);
  }
  const auto builder = std::find_if(Builders().begin(), Builders().end(),
                                    [&](const Builder* b) { return b->name == name; });
  RG_CHECK(builder != Builders().end());
  RG_ASSIGN_OR_RETURN(const Parameters parameters,
                      Parameters::Parse(name, (*builder)->parameters, sizes));
  return (*builder)->build(parameters);
}

absl::StatusOr<BackwardGraph> OpenGraph(absl::string_view file_or_model) {
  // A registry name wins over a file of the working directory that happens to be called so.
  const absl::string_view name = file_or_model.substr(0, file_or_model.find(':'));
  if (FindModel(name).ok() || !IsFile(file_or_model)) return BuildModel(file_or_model);
  return LoadGraph(std::string(file_or_model));
}

std::optional<std::string> RecordedBundle(absl::string_view file_or_model) {
  const absl::StatusOr<const Model*> model = FindModel(file_or_model);
  const std::string bundle = model.ok() ? (*model)->bundle_path : BundleBeside(file_or_model);
  if (bundle.empty()) return std::nullopt;
  return bundle;
}

}  // namespace retrograd
