// The command line: what it prints, when it fails and how.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tools/execute/gradient_errors.h"
#include "tools/execute/gradient_roundings.h"
#include "tools/execute/step_times.h"
#include "tools/execute/tuned_file.h"
#include "tools/explain/explanation.h"
#include "tools/support/safetensors.h"

namespace retrograd {
namespace {

struct Output {
  int status = -1;
  std::string out, err;
};

// Trusted text of this file, through the shell.
Output RunCommandLine(const std::string& line) {
  const std::string errors =
      (std::filesystem::temp_directory_path() / absl::StrCat("tools_test_", getpid())).string();
  const std::string command = absl::StrCat(line, " 2>", errors);
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Output output;
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    output.out.append(buffer.data(), n);
  output.status = WEXITSTATUS(pclose(pipe));
  if (FILE* file = fopen(errors.c_str(), "r")) {
    while (size_t n = fread(buffer.data(), 1, buffer.size(), file)) {
      output.err.append(buffer.data(), n);
    }
    fclose(file);
  }
  std::filesystem::remove(errors);
  return output;
}

// Runs one of our binaries.
Output RunTool(const std::string& arguments) {
  return RunCommandLine(absl::StrCat(RETROGRAD_BIN_DIR, "/", arguments));
}

bool HaveBinaries() {
  return std::filesystem::exists(absl::StrCat(RETROGRAD_BIN_DIR, "/retrograd")) &&
         std::filesystem::exists(absl::StrCat(RETROGRAD_BIN_DIR, "/fusion-explain"));
}

int64_t Lines(absl::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

// Without what a slow machine reports of its progress: lines that end in " ...".
int64_t MessageLines(absl::string_view text) {
  int64_t lines = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines += !absl::EndsWith(line, " ...");
  }
  return lines;
}

// A graph without a recorded bundle, small enough to plan at once.
constexpr char kSmall[] = "mlp:layers=2,tokens=64,in=16,hidden=32,out=16,dtype=fp32";

TEST_CASE("mistakes on the command line are one line on stderr that says what to do") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const struct {
    const char* arguments;
    const char* says;
  } kMistakes[] = {
      {"retrograd run golf_tinny --check", "golf_tiny"},
      {"retrograd run /no/such/file.bwd.pb", "/no/such/file.bwd.pb"},
      {"retrograd run mlp --inputs /no/such.safetensors", "/no/such.safetensors"},
      {"retrograd run mlp --inputs /tmp", "/tmp is no regular file"},
      {"retrograd run mlp", "--inputs"},
      {"retrograd run golf_tiny --device tpu", "cuda"},
      {"retrograd run golf_tiny --device cuda:x", "cuda:N"},
      {"retrograd run golf_tiny --device cuda --sanitize", "host"},
      {"retrograd run golf_tiny --spec h2000", "h200"},
      {"retrograd run golf_tiny --disable vectorisation", "vectorization"},
      {"retrograd run golf_tiny --tighten register", "registers"},
      {"retrograd run golf_tiny --streams 99", "1 to 16"},
      {"retrograd kernels golf_tiny --dialect metal", "cuda, hip and host"},
      {"retrograd dump golf_tiny --stage plans", "plan"},
      {"fusion-explain plan golf_tiny --format xml", "text, json and html"},
  };
  for (const auto& mistake : kMistakes) {
    const Output output = RunTool(mistake.arguments);
    INFO(mistake.arguments << "\n" << output.err);
    CHECK(output.status == 1);
    CHECK(output.out.empty());
    CHECK(MessageLines(output.err) == 1);
    CHECK_THAT(output.err, ContainsSubstring(mistake.says));
  }
  CHECK(RunTool("retrograd").status != 0);
  CHECK(RunTool("retrograd frobnicate").status != 0);
}

TEST_CASE("seeds beyond their range are refused with the range, those at its ends are taken") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const std::string run = absl::StrCat("retrograd run ", kSmall, " ");
  for (const std::string option : {"--seed", "--random-plan", "--random-inputs"}) {
    const std::string range =
        absl::StrCat("not in range ", option == "--seed" ? 0 : 1, " to 18446744073709551615");
    for (const char* value : {"-1", "18446744073709551616", "99999999999999999999999", "0.5"}) {
      const Output output = RunTool(absl::StrCat(run, option, "=", value));
      INFO(option << " " << value << "\n" << output.err);
      CHECK(output.status == 2);
      CHECK_THAT(output.err, ContainsSubstring(absl::StrCat("Value ", value, " ", range)));
    }
    if (option != "--seed") CHECK(RunTool(absl::StrCat(run, option, "=0")).status == 2);
  }
  const Output most = RunTool(
      run + "--seed 18446744073709551615 --random-plan 18446744073709551615 --random-inputs 1");
  INFO(most.err);
  CHECK(most.status == 0);
}

TEST_CASE("every tool tells its version") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  for (const std::string tool : {"retrograd", "fusion-explain"}) {
    const Output version = RunTool(tool + " --version");
    CHECK(version.status == 0);
    CHECK(version.out == tool + " 0.1.0\n");
  }
}

TEST_CASE("help has examples and states the tolerance with its reason") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  CHECK_THAT(RunTool("retrograd --help").out, ContainsSubstring("Examples:"));
  CHECK_THAT(RunTool("fusion-explain --help").out, ContainsSubstring("Examples:"));
  CHECK_THAT(RunTool("retrograd run --help").out, ContainsSubstring("2e-2"));
}

TEST_CASE("models lists every graph of the registry") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const Output output = RunTool("retrograd models");
  CHECK(output.status == 0);
  for (const Model& model : AllModels()) CHECK_THAT(output.out, ContainsSubstring(model.name));
}

TEST_CASE("kernels prints sources in each dialect, dump each stage under its name") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  for (const char* dialect : {"cuda", "hip", "host"}) {
    const Output output =
        RunTool(absl::StrCat("retrograd kernels ", kSmall, " --dialect ", dialect));
    CHECK(output.status == 0);
    CHECK_THAT(output.out, ContainsSubstring("RG_KERNEL(rg_"));
  }
  const Output dump = RunTool(absl::StrCat("retrograd dump ", kSmall));
  CHECK(dump.status == 0);
  for (const char* head : {"graph ", "schedule streams=", "memory arena=", " launch rg_"}) {
    CHECK_THAT(dump.out, ContainsSubstring(head));
  }
}

TEST_CASE("kernels that multiply by warpgroups are compiled for what they are made of") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  const std::string graph =
      (std::filesystem::temp_directory_path() / absl::StrCat("tools_test_", getpid(), ".rgt"))
          .string();
  std::ofstream(graph) << R"(graph "relu_square"
%dy = input name="dy" kind=tangent alignment=16  bf16[8192,2048]
%w = input name="w" kind=parameter alignment=16  bf16[2048,4096]
%u = input name="u" kind=saved alignment=16  bf16[8192,4096]
%dh = matmul %dy %w
%positive = relu %u
%du = mul %dh %positive
output %du name="du"
)";
  const Output printed = RunTool(absl::StrCat("retrograd kernels ", graph, " --spec h100"));
  const Output compiled =
      RunTool(absl::StrCat("retrograd kernels ", graph, " --spec h100 --compile"));
  std::filesystem::remove(graph);
  CHECK(absl::StrContains(printed.out, "RG_MULTIPLIER"));
  INFO(compiled.err);
  CHECK(compiled.status == 0);
  CHECK(absl::StrContains(compiled.out, "sm_90a: 1 kernels"));
}

TEST_CASE("captured gradients agree with the framework's, by the best plan and by any other") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const std::string model = GENERATE(as<std::string>{}, "golf_tiny", "golf_tiny_h200", "bert_tiny",
                                     "gpt2_tiny", "llama_tiny_h200");
  // Seed 7 once drew a plan in which a kernel overwrote an input that its second stage still read.
  for (const char* way : {"", "--random-plan 7", "--streams 3 --seed 2 --no-memory-reuse"}) {
    const Output output = RunTool(absl::StrCat("retrograd run ", model, " --check ", way));
    INFO(model << " " << way << "\n" << output.out << output.err);
    CHECK(output.status == 0);
    CHECK_THAT(output.out, ContainsSubstring("ok"));
  }
}

TEST_CASE("a recorded gradient of another dtype is refused by its name, not compared") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const auto recorded = LoadBundle(RETROGRAD_SOURCE_DIR "/models/graphs/golf_tiny.safetensors");
  REQUIRE(recorded.ok());
  Bundle other;
  for (const BundleTensor& tensor : recorded->tensors) {
    TensorType type = tensor.type;
    if (tensor.name == "gradient/4") type.dtype = DType::kInt32;
    other.Add(tensor.name, type, recorded->Bytes(tensor));
  }
  const std::string path = (std::filesystem::temp_directory_path() /
                            absl::StrCat("tools_test_", getpid(), ".safetensors"))
                               .string();
  REQUIRE(SaveBundle(other, path).ok());
  const Output output = RunTool(absl::StrCat("retrograd run golf_tiny --check --inputs ", path));
  std::filesystem::remove(path);
  CHECK(output.status == 1);
  CHECK_THAT(output.err, ContainsSubstring("\"gradient/4\" of the bundle is i32["));
}

TEST_CASE("an explanation is at most 60 lines of 120 columns, and complete as JSON") {
  for (const char* model : {kSmall, "golf_tiny", "golf_plain_b48"}) {
    INFO(model);
    Progress progress;
    auto graph = OpenAndPlan({.graph = model}, &progress);
    INFO(graph.status());
    REQUIRE(graph.ok());
    auto memory = PeakMemoryOf(*graph);
    REQUIRE(memory.ok());
    const std::string text = ExplainAsText(*graph, *memory, model);
    CHECK(Lines(text) <= 60);
    for (absl::string_view line : absl::StrSplit(text, '\n')) CHECK(line.size() <= 120);
    const nlohmann::json json =
        nlohmann::json::parse(ExplainAsJson(*graph, *memory, model), nullptr, false);
    REQUIRE(json.is_object());
    CHECK(json["version"] == kExplanationVersion);
    CHECK(json["groups"].size() == graph->planned.plan.groups.size());
    CHECK(json["decisions"].size() == graph->planned.plan.decisions.size());
    CHECK(json["summary"]["price_ps"] == graph->planned.plan.summary.price_ps);
  }
}

TEST_CASE("a full-size plan spills nowhere and says which fat schedules it refused") {
  Progress progress;
  auto graph = OpenAndPlan({.graph = "golf_plain_b48"}, &progress);
  INFO(graph.status());
  REQUIRE(graph.ok());
  for (const Group& group : graph->planned.plan.groups) {
    for (const KernelBody* kernel : KernelsOf(group)) CHECK(kernel->spill_bytes == 0);
  }
  auto memory = PeakMemoryOf(*graph);
  REQUIRE(memory.ok());
  const std::string text = ExplainAsText(*graph, *memory, "golf_plain_b48");
  CHECK_THAT(text, ContainsSubstring("refused schedule"));
  CHECK_THAT(text, ContainsSubstring("spilled"));
}

TEST_CASE("errors are relative to each gradient, or to the floor where it is mathematically zero") {
  const std::vector<Gradient> gradients = {
      {"weight", {3.00003, 4}, {3, 4}},
      {"zero", {1e-9, 0}, {0, 1e-12}},
      {"exact", {0}, {0}},
  };
  const std::vector<GradientError> errors = GradientErrors(gradients, 1e-5);
  CHECK(errors[0].error == Approx(6e-6).epsilon(1e-3));
  CHECK(errors[0].ok);
  CHECK_FALSE(errors[0].below_floor);
  CHECK(errors[1].below_floor);
  CHECK(errors[1].error == Approx(1e-9 / 5e-5).epsilon(0.01));
  CHECK_FALSE(errors[1].ok);
  CHECK(errors[2].error == 0);
  CHECK(errors[2].ok);
}

TEST_CASE("a gradient whose terms cancel is right within what rounding may add, and no further") {
  Gradient cancelled{
      .name = "bias before batch norm", .computed = {3e-6, 0}, .recorded = {0, 2e-6}};
  CHECK_FALSE(GradientErrors({cancelled}, 1e-5)[0].ok);
  cancelled.rounding = 4e-6;
  const GradientError within = GradientErrors({cancelled}, 1e-5)[0];
  CHECK(within.ok);
  CHECK(within.rounding);
  cancelled.rounding = 3e-6;
  CHECK_FALSE(GradientErrors({cancelled}, 1e-5)[0].ok);
  CHECK_FALSE(GradientErrors({{"exact", {1}, {1}, 1}}, 1e-5)[0].rounding);
}

TEST_CASE("what rounding may add to a gradient is that of its terms, which may cancel") {
  // sum(x - mean(x)) is 0 for any x; sum(x) is not.
  const auto graph = ParseGraph(R"(
%0 = input name="x" kind=saved  f32[2,4]
%1 = sum %0 axes=[1] keep=1
%2 = full value=0.25 shape=[] dtype=f32
%3 = mul %1 %2
%4 = sub %0 %3
%5 = sum %4 axes=[0,1]
%6 = sum %0 axes=[0,1]
output %5 name="zero"
output %6 name="sum"
)");
  INFO(graph.status());
  REQUIRE(graph.ok());
  const std::vector<float> x = {1, -2, 3, -4, 5, -6, 7, -8};
  Bundle bundle;
  bundle.Add("input/0", {DType::kFp32, {8}},
             absl::string_view(reinterpret_cast<const char*>(x.data()), 32));
  const auto roundings = GradientRoundings(*graph, bundle);
  INFO(roundings.status());
  REQUIRE(roundings.ok());
  CHECK((*roundings)[0] == Approx(4 * 0x1p-24 * 2 * 36));
  CHECK((*roundings)[1] == Approx(4 * 0x1p-24 * 36));
  CHECK_FALSE(GradientRoundings(*graph, {}).ok());
}

TEST_CASE("a wrong or missing number is never within the tolerance") {
  const double nan = std::nan("");
  CHECK_FALSE(GradientErrors({{"g", {nan, 1}, {1, 1}}}, 1e-5)[0].ok);
  CHECK_FALSE(GradientErrors({{"g", {1, 1}, {nan, 1}}}, 1e-5)[0].ok);
  CHECK_FALSE(GradientErrors({{"g", {INFINITY, 1}, {1, 1}}}, 1e-5)[0].ok);
  CHECK_FALSE(GradientErrors({{"g", {1.001, 1}, {1, 1}}}, 1e-5)[0].ok);
  CHECK_FALSE(GradientErrors({{"g", {nan, 1}, {1, 1}, 1}}, 1e-5)[0].ok);
  CHECK_FALSE(GradientErrors({{"g", {1, 1}, {1, 1}, nan}, {"h", {2}, {1}, nan}}, 1e-5)[1].ok);
}

TEST_CASE("the tolerance is wide only for graphs with narrow values") {
  GraphBuilder wide("wide"), narrow("narrow");
  wide.Output(wide.Add(Op::neg, {wide.Input({DType::kFp32, {2}}, {.name = "x"})}), "y");
  narrow.Output(narrow.Cast(narrow.Input({DType::kFp32, {2}}, {.name = "x"}), DType::kBf16), "y");
  CHECK(ToleranceFor(*wide.Build()) == 1e-5);
  CHECK(ToleranceFor(*narrow.Build()) == 2e-2);
}

TEST_CASE("check says what a graph holds, and what is wrong with one") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const std::string retrograd = RETROGRAD_BIN_DIR "/retrograd";
  Output output = RunCommandLine(retrograd + " check golf_tiny mlp:layers=1");
  CHECK(output.status == 0);
  CHECK_THAT(output.out, ContainsSubstring("golf_tiny: legal; "));
  CHECK_THAT(output.out, ContainsSubstring("mlp:layers=1: legal; "));
  CHECK_THAT(output.out, ContainsSubstring("matmul "));

  const auto folder =
      std::filesystem::temp_directory_path() / absl::StrCat("tools_test_check_", getpid());
  std::filesystem::create_directory(folder);
  const std::string text = (folder / "g.rgt").string(), file = (folder / "g.bwd.pb").string();
  CHECK(RunCommandLine(retrograd + " check golf_tiny -o " + text).status == 0);
  CHECK(RunCommandLine(retrograd + " check " + text + " -o " + file).status == 0);
  CHECK(RunCommandLine(retrograd + " check --print " + file).out ==
        absl::StrReplaceAll(RunCommandLine(retrograd + " check --print " + text).out,
                            {{text, file}}));
  CHECK_THAT(RunCommandLine(retrograd + " check golf_tiny golf_tiny -o " + text).err,
             ContainsSubstring("-o takes one graph"));

  std::ofstream(text) << "%0 = input name=\"x\" kind=saved  f32[4]\n%1 = sum %0 axes=[3]\n";
  output = RunCommandLine(retrograd + " check golf_tiny " + text);
  CHECK(output.status == 1);
  CHECK_THAT(output.out, ContainsSubstring("golf_tiny: legal"));
  CHECK_THAT(output.err, ContainsSubstring("RG-G032"));
  CHECK_THAT(output.err, ContainsSubstring("line 2"));
  std::filesystem::remove_all(folder);
}

// The tests' drivers under the names that real ones have, in a folder of their own.
class FakeGpus {
 public:
  explicit FakeGpus(const std::string& device)
      : folder(std::filesystem::temp_directory_path() /
               absl::StrCat("tools_test_", device, getpid())) {
    std::filesystem::create_directory(folder);
#if defined(RETROGRAD_FAKE_CUDA)
    for (const char* name : {"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"}) {
      std::filesystem::create_symlink(RETROGRAD_FAKE_CUDA, folder / name);
    }
#else
    there = device != "cuda";
#endif
    for (const char* name : {"libamdhip64.so.7", "libhiprtc.so.7", "libhipblaslt.so.1"}) {
      std::filesystem::create_symlink(RETROGRAD_FAKE_HIP, folder / name);
    }
  }
  ~FakeGpus() { std::filesystem::remove_all(folder); }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  // What stands before "retrograd"; the user's cache is `cache` in the folder.
  std::string Environment(absl::string_view cache = "cache") const {
    return absl::StrCat("LD_LIBRARY_PATH=", folder.string(), " XDG_CACHE_HOME=", folder.string(),
                        "/", cache, " ");
  }
  std::string Bin(absl::string_view cache = "cache") const {
    return absl::StrCat(Environment(cache), RETROGRAD_BIN_DIR, "/");
  }

  const std::filesystem::path folder;
  bool there = true;
};

TEST_CASE("a run on a GPU prints the device's own times, of each kernel too") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const std::string device = GENERATE(as<std::string>{}, "hip", "cuda");
  const FakeGpus gpus(device);
  if (!gpus.there) return;
  const std::filesystem::path& folder = gpus.folder;
  const std::string fake = gpus.Bin();
  const std::string run =
      absl::StrCat("retrograd run ", kSmall, " --device ", device, " --random-inputs 3");
  const Output times =
      RunCommandLine(absl::StrCat(fake, run, " --streams 2 --repeat 3 --kernels --cold --json"));
  INFO(times.err);
  REQUIRE(times.status == 0);
  const nlohmann::json json = nlohmann::json::parse(times.out);
  CHECK(json["recordings"] == 1);
  CHECK(json["failed_recordings"] == 0);
  CHECK(json["measured_us"] > 0);
  CHECK(json["steps"].size() >= 4);
  for (const auto& step : json["steps"]) {
    CHECK(step["measured_us"] > 0);
    if (step["kind"] != "matmul") continue;
    const std::string by = step["by"];
    CHECK(by.rfind("the library, algorithm ", 0) == 0);
    CHECK(std::count(by.begin(), by.end(), '\n') == 2);  // of three algorithms
  }
  CHECK(RunCommandLine(absl::StrCat(fake, run, " --no-recording --save ", folder.string(),
                                    "/gradients.safetensors"))
            .status == 0);
  // Recorded inputs and gradients; attention, and kernels that several layers share.
  const Output checked =
      RunCommandLine(absl::StrCat(fake, "retrograd run golf_tiny --check --device ", device));
  INFO(checked.out << checked.err);
  CHECK(checked.status == 0);
  const Output third = RunCommandLine(
      absl::StrCat(fake, "retrograd run ", kSmall, " --random-inputs 3 --device ", device, ":3"));
  CHECK(third.status == 1);
  CHECK_THAT(third.err, ContainsSubstring(device + ":3"));
}

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "3 choices measured, 1 known before" of what tune prints.
std::pair<int, int> MeasuredAndKnown(const std::string& out) {
  int calls = 0, measured = 0, known = 0;
  const size_t at = out.find(": ");
  REQUIRE(at != std::string::npos);
  REQUIRE(std::sscanf(out.c_str() + at, ": %d library calls; %d choices measured, %d known before",
                      &calls, &measured, &known) == 3);
  return {measured, known};
}

TEST_CASE("tune writes the choices of a graph, and later runs take them and measure nothing") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const std::string device = GENERATE(as<std::string>{}, "hip", "cuda");
  const FakeGpus gpus(device);
  if (!gpus.there) return;
  const std::string file = (gpus.folder / "tuned.textproto").string();
  const std::string tune = absl::StrCat("retrograd tune ", kSmall, " --device ", device);
  const Output tuned = RunCommandLine(absl::StrCat(gpus.Bin(), tune, " -o ", file));
  INFO(tuned.out << tuned.err);
  REQUIRE(tuned.status == 0);
  const int choices = MeasuredAndKnown(tuned.out).first;
  CHECK(choices > 1);
  CHECK(MeasuredAndKnown(tuned.out).second == 0);
  CHECK_THAT(tuned.err, ContainsSubstring("[call 1 of "));
  CHECK_FALSE(std::filesystem::exists(file + ".part"));
  const std::string text = TextOf(file);
  CHECK_THAT(text, ContainsSubstring("candidate { name: \"algorithm "));

  // Again, from another cache: what is given is not measured, and what is written is the same.
  const std::string again = (gpus.folder / "again.textproto").string();
  const Output from =
      RunCommandLine(absl::StrCat(gpus.Bin("another"), tune, " --from ", file, " -o ", again));
  INFO(from.out << from.err);
  REQUIRE(from.status == 0);
  CHECK(MeasuredAndKnown(from.out) == std::pair(0, choices));
  CHECK(TextOf(again) == text);
  // And from the cache alone.
  const Output cached = RunCommandLine(absl::StrCat(gpus.Bin(), tune, " -o ", again));
  REQUIRE(cached.status == 0);
  CHECK(MeasuredAndKnown(cached.out) == std::pair(0, choices));
  CHECK(TextOf(again) == text);

  const std::string run = absl::StrCat("retrograd run ", kSmall, " --random-inputs 3 --device ",
                                       device, " --tuned ", file);
  const Output ran = RunCommandLine(absl::StrCat(gpus.Bin("third"), run));
  INFO(ran.out << ran.err);
  CHECK(ran.status == 0);
  CHECK_THAT(ran.err, !ContainsSubstring("tuned.textproto"));
  // No choice was made, so the cache has none: all that is there are compiled kernels.
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(gpus.folder / "third" / "retrograd")) {
    if (!entry.is_regular_file()) continue;
    CHECK_THAT(TextOf(entry.path()), !ContainsSubstring("retrograd choice"));
  }
}

TEST_CASE("choices of another device are not used, which a note says; malformed ones are refused") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const FakeGpus gpus("hip");
  const std::string file = (gpus.folder / "tuned.textproto").string();
  const Output tuned = RunCommandLine(
      absl::StrCat(gpus.Bin(), "retrograd tune ", kSmall, " --device hip -o ", file));
  INFO(tuned.err);
  REQUIRE(tuned.status == 0);
  const std::string run = absl::StrCat(gpus.Bin("another"), "retrograd run ", kSmall,
                                       " --random-inputs 3 --device hip --tuned ", file);
  const std::string text = TextOf(file);
  std::ofstream(file) << absl::StrReplaceAll(text, {{"device: \"", "device: \"old "}});
  const Output other = RunCommandLine(run);
  INFO(other.err);
  CHECK(other.status == 0);
  CHECK_THAT(other.err,
             ContainsSubstring(absl::StrCat("note: ", file, ": its choices are of old ")));
  CHECK(MessageLines(other.err) == 2);  // one is of the device's spec
  std::ofstream(file) << absl::StrReplaceAll(text, {{"library: \"", "library: \"old "}});
  const Output older = RunCommandLine(absl::StrReplaceAll(run, {{"another", "third"}}));
  CHECK(older.status == 0);
  CHECK_THAT(older.err, ContainsSubstring("with old hipblaslt 1000 are not used"));
  CHECK(MessageLines(older.err) == 2);
  std::ofstream(file) << text << "choice {\n";
  const Output broken = RunCommandLine(run);
  CHECK(broken.status == 1);
  CHECK_THAT(broken.err, ContainsSubstring("tuned.textproto:"));
  CHECK(RunCommandLine(absl::StrCat(gpus.Bin(), "retrograd tune ", kSmall, " --device hip -o ",
                                    file, " --from /no/such/file"))
            .status == 1);
  const Output host = RunCommandLine(
      absl::StrCat(gpus.Bin(), "retrograd tune ", kSmall, " --device host -o ", file));
  CHECK(host.status == 1);
  CHECK_THAT(host.err, ContainsSubstring("nothing to tune on host"));
}

TEST_CASE("beyond the budget of tune calls keep their default, and a later one goes on with them") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const FakeGpus gpus("hip");
  const std::string file = (gpus.folder / "tuned.textproto").string();
  const std::string tune =
      absl::StrCat(gpus.Bin(), "retrograd tune ", kSmall, " --device hip -o ", file);
  const Output begun = RunCommandLine(tune + " --budget 0.000001");
  INFO(begun.out << begun.err);
  REQUIRE(begun.status == 0);
  CHECK(MeasuredAndKnown(begun.out) == std::pair(1, 0));
  CHECK_THAT(begun.err, ContainsSubstring("note: the tuning budget of 1e-06 s is used up: "));
  const Output run =
      RunCommandLine(absl::StrCat(gpus.Bin("another"), "retrograd run ", kSmall,
                                  " --random-inputs 3 --device hip --tuning-budget 0.000001"));
  CHECK(run.status == 0);
  CHECK_THAT(run.err, ContainsSubstring("is used up: 2 kinds of library calls take the default"));
  const Output rest = RunCommandLine(tune);
  REQUIRE(rest.status == 0);
  CHECK(MeasuredAndKnown(rest.out).first > 0);
  CHECK(MeasuredAndKnown(rest.out).second == 1);
}

TEST_CASE("tune that is killed or interrupted at any moment goes on where it was") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  const FakeGpus gpus("hip");
  const std::string signal = GENERATE(as<std::string>{}, "KILL", "INT");
  const std::string file = (gpus.folder / "tuned.textproto").string();
  // Without a cache of choices, so that the part file alone remembers; with one, both do.
  const bool cached = GENERATE(true, false);
  const std::string bin = cached ? gpus.Bin()
                                 : absl::StrCat("LD_LIBRARY_PATH=", gpus.folder.string(),
                                                " XDG_CACHE_HOME=/proc/nothing HOME=/proc/nothing ",
                                                RETROGRAD_BIN_DIR, "/");
  const std::string tune =
      absl::StrCat(bin, "retrograd tune mlp:layers=4,tokens=64,in=16,hidden=32,out=16,dtype=fp32 ",
                   "--device hip -o ", file);
  size_t least = 0;  // choices that were found so far
  for (int milliseconds = 20; milliseconds < 400; milliseconds += 60) {
    RunCommandLine(absl::StrCat("timeout -s ", signal, " ", milliseconds / 1000.0, " env ", tune,
                                " > /dev/null"));
    if (std::filesystem::exists(file)) break;  // it came to its end: the next call would begin anew
    if (!std::filesystem::exists(file + ".part")) continue;
    auto part = ReadChoices(file + ".part");  // whole, at any moment
    INFO(part.status());
    REQUIRE(part.ok());
    CHECK(part->size() >= least);
    least = part->size();
  }
  const bool ended = std::filesystem::exists(file);
  auto part = ended ? ReadChoices(file) : ReadChoices(file + ".part");
  const Output rest = RunCommandLine(tune);
  INFO(rest.out << rest.err);
  REQUIRE(rest.status == 0);
  auto whole = ReadChoices(file);
  REQUIRE(whole.ok());
  if (!part.ok()) return;  // nothing was found in any time
  // Of what was found nothing is measured again: it has the same times.
  if (!ended || cached) CHECK(MeasuredAndKnown(rest.out).second >= static_cast<int>(part->size()));
  for (const auto& [key, choice] : *part) {
    if (!ended || cached) CHECK(whole->at(key).candidates == choice.candidates);
  }
}

TEST_CASE("a device that nobody knows is refused with the names of those that there are") {
  if (!HaveBinaries()) RG_SKIP("the binaries are not built");
  for (const char* name : {"hipp", "cuda:", "hip:x", "gpu", ""}) {
    const Output refused = RunCommandLine(absl::StrCat(RETROGRAD_BIN_DIR, "/retrograd run ", kSmall,
                                                       " --random-inputs 1 --device '", name, "'"));
    CHECK(refused.status == 1);
    CHECK_THAT(refused.err, ContainsSubstring("host, cuda, cuda:N, hip and hip:N"));
  }
}

TEST_CASE(
    "an error is measured against the gradient, or against the floor below which it is noise") {
  const std::vector<GradientError> errors =
      GradientErrors({{.name = "large", .computed = {3, 4.5}, .recorded = {3, 4}},
                      {.name = "none", .computed = {1e-5}, .recorded = {0}}},
                     1e-2);
  CHECK(std::abs(errors[0].error - 0.1) < 1e-12);
  CHECK(errors[1].below_floor);
  CHECK(errors[1].error > 0.1);  // of a floor that is a share of all gradients' norm
}

TEST_CASE("of an even count of times the upper of the middle two is the median") {
  CHECK(Median({4, 1, 3, 2}) == 3);
  CHECK(Median({5, 1, 3}) == 3);
  CHECK(Median({7}) == 7);
}

}  // namespace
}  // namespace retrograd
