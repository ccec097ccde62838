#include "models/models.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "graph/near_names.h"
#include "graph/proto.h"
#include "graph/status.h"
#include "models/builders.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kGraphSuffix = ".bwd.pb";
constexpr absl::string_view kBundleSuffix = ".safetensors";

absl::Span<const Builder* const> Builders() {
  static const Builder* const kBuilders[] = {
      &MlpBuilder(),
      &NormStackBuilder(),
      &TransformerBuilder(),
  };
  return kBuilders;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// models/graphs of the source tree, or of the place where the program was installed:
// <prefix>/bin/program and <prefix>/share/retrograd/graphs.
std::vector<std::string> GraphFolders() {
  std::vector<std::string> folders = {absl::StrCat(RETROGRAD_SOURCE_DIR, "/models/graphs")};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path prefix = program.parent_path().parent_path();
    folders.push_back((prefix / "share" / "retrograd" / "graphs").string());
  }
  return folders;
}

std::string BundleBeside(absl::string_view graph_path) {
  absl::string_view stem = graph_path;
  if (!absl::ConsumeSuffix(&stem, kGraphSuffix) && !absl::ConsumeSuffix(&stem, ".pb")) {
    absl::ConsumeSuffix(&stem, ".rgt");
  }
  const std::string bundle = absl::StrCat(stem, kBundleSuffix);
  return Exists(bundle) ? bundle : "";
}

std::vector<Model> ScanCaptured(const std::string& folder) {
  std::vector<Model> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (!absl::EndsWith(file, kGraphSuffix)) continue;
    Model model;
    model.name = std::string(absl::StripSuffix(file, kGraphSuffix));
    model.kind = ModelKind::kCaptured;
    model.path = it->path().string();
    model.bundle_path = BundleBeside(model.path);
    model.description = absl::StrCat(
        "captured from PyTorch", absl::EndsWith(model.name, "_h200") ? " on an H200, bf16" : "",
        model.bundle_path.empty() ? ", graph only" : ", with inputs and gradients");
    models.push_back(std::move(model));
  }
  std::sort(models.begin(), models.end(),
            [](const Model& a, const Model& b) { return a.name < b.name; });
  return models;
}

std::vector<Model> CollectModels() {
  std::vector<Model> models;
  for (const Builder* builder : Builders()) {
    models.push_back({std::string(builder->name), ModelKind::kBuilder,
                      std::string(builder->description), builder->parameters, "", ""});
  }
  for (const std::string& folder : GraphFolders()) {
    std::vector<Model> captured = ScanCaptured(folder);
    if (captured.empty()) continue;
    std::move(captured.begin(), captured.end(), std::back_inserter(models));
    break;
  }
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
  return absl::StrContains(text, '/') || absl::EndsWith(text, ".pb") ||
         absl::EndsWith(text, ".rgt") || Exists(std::string(text));
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
