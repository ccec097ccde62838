// The libFuzzer target: RunFuzzInput on every input (tests/support/graphs/fuzz_input.h), and a
// mutator that edits graphs as graphs. Of its outputs about two thirds are legal graphs, which
// reach the planner, and the rest are files or texts with something wrong in them.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstring>
#include <random>

#include "graph/proto/graph.pb.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/support/graphs/fuzz_input.h"
#include "tests/support/graphs/mutation/graph_mutation.h"
#include "tests/support/graphs/mutation/message_mutation.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace retrograd {
namespace {

bool IsText(absl::string_view input) { return !input.empty() && (input[0] & 1) == kFuzzText; }

absl::StatusOr<BackwardGraph> Load(absl::string_view input) {
  if (input.empty()) return absl::InvalidArgumentError("empty");
  return IsText(input) ? ParseGraph(input.substr(1)) : ParseGraphProto(input.substr(1));
}

// Header and body, or nothing if that is longer than allowed.
std::string Write(const BackwardGraph& graph, std::mt19937& rng) {
  // Mostly files: the text form is three times as long.
  char header = static_cast<char>(rng() & 0xfe);
  if (rng() % 8 == 0) header |= kFuzzText;
  return header + ((header & 1) == kFuzzText ? Print(graph) : SerializeGraph(graph));
}

std::string MutateInput(absl::string_view input, std::mt19937& rng) {
  const uint32_t way = rng() % 16;
  if (way < 4 && !IsText(input)) {
    v1::Graph message;
    if (input.empty() ||
        !message.ParseFromArray(input.data() + 1, static_cast<int>(input.size()) - 1))
      return "";
    for (uint32_t i = 0; i <= rng() % 2; ++i) MutateMessage(message, rng);
    return input[0] + message.SerializeAsString();
  }
  if (way < 5) return "";
  const absl::StatusOr<BackwardGraph> graph = Load(input);
  if (!graph.ok()) return way < 8 ? Write(SmallestGraph(), rng) : "";
  return Write(MutateGraph(*graph, rng), rng);
}

}  // namespace
}  // namespace retrograd

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);  // it would report each string that is no UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  retrograd::RunFuzzInput({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::mt19937 rng(seed);
  const std::string mutated =
      retrograd::MutateInput({reinterpret_cast<const char*>(data), size}, rng);
  if (mutated.empty() || mutated.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, mutated.data(), mutated.size());
  return mutated.size();
}
