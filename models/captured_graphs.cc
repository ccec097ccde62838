#include "models/captured_graphs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/base/data_folder.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kGraphSuffix = ".bwd.pb";
constexpr absl::string_view kBundleSuffix = ".safetensors";

constexpr absl::string_view kOnCpu = "fp32 on a CPU";
constexpr absl::string_view kOnH200 = "bf16 autocast on an H200";
constexpr absl::string_view kH200Suffix = "_h200";

// What a reader wants to know of a capture. A name that ends in _h200 is the same model captured
// on that device; a file without a row is listed all the same.
struct Note {
  absl::string_view name, model, where;
};
constexpr Note kNotes[] = {
    {"golf_tiny", "RMSNorm transformer, grouped heads, blocks run twice: 2 blocks, width 64",
     kOnCpu},
    {"bert_tiny", "BERT for masked tokens: 2 layers, width 64", kOnCpu},
    {"gpt2_tiny", "GPT-2: 2 layers, width 64", kOnCpu},
    {"llama_tiny", "Llama: 2 layers, width 64", kOnCpu},
    {"golf_plain_b48", "34M-parameter golf, norms without weights: 11 blocks, 48 x 2048 tokens",
     kOnH200},
    {"golf_gpt_34m_b32", "34M-parameter golf: 11 blocks, 32 x 2048 tokens", kOnH200},
};

std::string Describe(absl::string_view name) {
  absl::string_view base = name;
  const bool h200 = absl::ConsumeSuffix(&base, kH200Suffix);
  for (const Note& note : kNotes) {
    if (note.name == base) return absl::StrCat(note.model, "; ", h200 ? kOnH200 : note.where);
  }
  return "captured from PyTorch";
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

std::string BundleBeside(absl::string_view graph_path) {
  absl::string_view stem = graph_path;
  if (!absl::ConsumeSuffix(&stem, kGraphSuffix) && !absl::ConsumeSuffix(&stem, ".pb")) {
    absl::ConsumeSuffix(&stem, ".rgt");
  }
  const std::string bundle = absl::StrCat(stem, kBundleSuffix);
  return Exists(bundle) ? bundle : "";
}

std::vector<Model> CapturedGraphs() {
  std::vector<Model> models;
  std::error_code error;
  for (fs::directory_iterator it(DataFolder("models/graphs"), error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (!absl::EndsWith(file, kGraphSuffix)) continue;
    Model model;
    model.name = std::string(absl::StripSuffix(file, kGraphSuffix));
    model.kind = ModelKind::kCaptured;
    model.description = Describe(model.name);
    model.path = it->path().string();
    model.bundle_path = BundleBeside(model.path);
    models.push_back(std::move(model));
  }
  std::sort(models.begin(), models.end(),
            [](const Model& a, const Model& b) { return a.name < b.name; });
  return models;
}

}  // namespace retrograd
