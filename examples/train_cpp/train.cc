// Trains a small network on handwritten digits, without a framework: forward, backward and Adam are
// graphs, and each is planned, compiled and run by Retrograd.
//
//   train_cpp examples/data/digits.csv [--device cuda] [--whole-step] [--save FOLDER]
//
// --whole-step makes one graph of forward, backward and update: on a GPU each step is one launch.
// --save writes the graphs in their text form. The exit status is 1 where anything fails, or where
// fewer than 95% of the held-out images are recognised in the end.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "network.h"
#include "retrograd/retrograd.hpp"

namespace {

using network::kClasses;
using network::kParameters;
using network::kPixels;
using retrograd::Device;
using retrograd::Error;
using retrograd::Executable;
using retrograd::Graph;
using retrograd::Memory;
using retrograd::Result;

constexpr int64_t kBatch = 100, kEpochs = 15;
constexpr int64_t kHeldOut = 6;  // every sixth image is held out

// Ends the program with the error.
void Need(const Error& error) {
  if (error.ok()) return;
  std::fprintf(stderr, "train_cpp: %s: %s\n", rg_code_name(error.code), error.message.c_str());
  std::exit(1);
}
template <typename T>
T Need(Result<T> result) {
  Need(result.error());
  return std::move(*result);
}

struct Digits {
  std::vector<float> images;  // [rows, kPixels], 0 to 1
  std::vector<int64_t> labels;
};

// Lines of 64 pixels from 0 to 16 and the label.
Digits ReadDigits(const std::string& path) {
  Digits digits;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream numbers(line);
    float pixel = 0;
    for (int64_t i = 0; i < kPixels && numbers >> pixel; ++i) digits.images.push_back(pixel / 16);
    int64_t label = 0;
    if (numbers >> label) digits.labels.push_back(label);
  }
  if (digits.labels.size() < 2 * kBatch || digits.images.size() != digits.labels.size() * kPixels) {
    Need(Error{RG_NOT_FOUND, path + " does not hold the digits", -1});
  }
  return digits;
}

Digits Part(const Digits& all, bool held_out) {
  Digits part;
  for (size_t i = 0; i < all.labels.size(); ++i) {
    if ((i % kHeldOut == 0) != held_out) continue;
    const auto image = all.images.begin() + static_cast<int64_t>(i) * kPixels;
    part.images.insert(part.images.end(), image, image + kPixels);
    part.labels.push_back(all.labels[i]);
  }
  return part;
}

struct Options {
  std::string data, device = "host", save;
  bool whole_step = false;
};

// Device memory for each output of a graph.
std::vector<Memory> Room(const Device& device, const std::vector<retrograd::Tensor>& tensors) {
  std::vector<Memory> room;
  for (const retrograd::Tensor& t : tensors) {
    room.push_back(Need(Memory::Of(device, static_cast<size_t>(t.bytes))));
  }
  return room;
}

template <typename T>
Memory OnDevice(const Device& device, const std::vector<T>& values) {
  Memory memory = Need(Memory::Of(device, values.size() * sizeof(T)));
  Need(memory.CopyIn(values.data()));
  return memory;
}

std::vector<void*> Addresses(const std::vector<Memory>& memory) {
  std::vector<void*> addresses;
  for (const Memory& m : memory) addresses.push_back(m.data());
  return addresses;
}

// Parameters, moments and the step, in the order of the update's outputs: an update reads one state
// and writes another.
std::vector<Memory> InitialState(const Device& device) {
  std::mt19937 random(1);
  std::vector<Memory> state;
  for (const network::Parameter& parameter : kParameters) {
    std::vector<float> values(static_cast<size_t>(parameter.elements()));
    const std::vector<float> zeros(values.size());
    if (parameter.shape.size() == 2) {
      std::normal_distribution<float> normal(
          0, std::sqrt(2.0f / static_cast<float>(parameter.shape[1])));
      for (float& v : values) v = normal(random);
    }
    state.push_back(OnDevice(device, values));
    state.push_back(OnDevice(device, zeros));
    state.push_back(OnDevice(device, zeros));
  }
  state.push_back(OnDevice(device, std::vector<float>{1}));
  return state;
}

// Addresses of the state's parameters (part 0), first moments (1) or second moments (2).
void Append(std::vector<const void*>& to, const std::vector<Memory>& state, size_t part) {
  for (size_t i = 0; i < kParameters.size(); ++i) to.push_back(state[3 * i + part].data());
}

// One step of training: reads `from`, writes `to`, and the loss.
class Step {
 public:
  Step(const Device& device, const Options& options) : whole_(options.whole_step) {
    if (whole_) {
      Add(device, Need(network::StepGraph(kBatch)), options.save);
      return;
    }
    Add(device, Need(network::ForwardGraph(kBatch)), options.save);
    Add(device, Need(network::BackwardGraph(kBatch)), options.save);
    Add(device, Need(network::UpdateGraph()), options.save);
  }

  void Run(const void* images, const void* labels, const std::vector<Memory>& from,
           const std::vector<Memory>& to) {
    whole_ ? RunWhole(images, labels, from, to) : RunParts(images, labels, from, to);
  }
  float Loss() const {
    float loss = 0;
    Need(results_[0][0].CopyOut(&loss));
    return loss;
  }

 private:
  void Add(const Device& device, Graph graph, const std::string& save) {
    const std::string name = Need(graph.Print());
    if (!save.empty()) {
      const size_t quote = name.find('"') + 1;
      Need(graph.Save(save + "/" + name.substr(quote, name.find('"', quote) - quote) + ".rgt"));
    }
    executables_.push_back(Need(Executable::Make(graph, device)));
    results_.push_back(Room(device, graph.outputs()));
  }

  void RunParts(const void* images, const void* labels, const std::vector<Memory>& from,
                const std::vector<Memory>& to) {
    const std::vector<Memory>& made = results_[0];  // loss, log_probabilities, hidden
    std::vector<const void*> inputs = {images, labels};
    Append(inputs, from, 0);
    Need(executables_[0].Run(nullptr, inputs, Addresses(made)));
    inputs = {images, labels, made[1].data(), made[2].data(), from[6].data()};
    Need(executables_[1].Run(nullptr, inputs, Addresses(results_[1])));
    inputs.clear();
    Append(inputs, from, 0);
    for (const Memory& gradient : results_[1]) inputs.push_back(gradient.data());
    Append(inputs, from, 1);
    Append(inputs, from, 2);
    inputs.push_back(from.back().data());
    Need(executables_[2].Run(nullptr, inputs, Addresses(to)));
  }

  void RunWhole(const void* images, const void* labels, const std::vector<Memory>& from,
                const std::vector<Memory>& to) {
    std::vector<const void*> inputs = {images, labels};
    for (size_t part = 0; part < 3; ++part) Append(inputs, from, part);
    inputs.push_back(from.back().data());
    std::vector<void*> outputs = Addresses(to);
    outputs.insert(outputs.begin(), results_[0][0].data());
    Need(executables_[0].Run(nullptr, inputs, outputs));
  }

  bool whole_;
  std::vector<Executable> executables_;
  std::vector<std::vector<Memory>> results_;  // by executable
};

// The share of the held-out images that are recognised.
class Evaluation {
 public:
  Evaluation(const Device& device, const Digits& digits)
      : labels_(digits.labels),
        graph_(Need(network::ForwardGraph(static_cast<int64_t>(labels_.size())))),
        executable_(Need(Executable::Make(graph_, device))),
        results_(Room(device, graph_.outputs())),
        images_on_device_(OnDevice(device, digits.images)),
        labels_on_device_(OnDevice(device, labels_)) {}

  double Accuracy(const std::vector<Memory>& state) {
    std::vector<const void*> inputs = {images_on_device_.data(), labels_on_device_.data()};
    Append(inputs, state, 0);
    Need(executable_.Run(nullptr, inputs, Addresses(results_)));
    std::vector<float> scores(labels_.size() * kClasses);
    Need(results_[1].CopyOut(scores.data()));
    int64_t right = 0;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const auto row = scores.begin() + static_cast<int64_t>(i) * kClasses;
      right += std::max_element(row, row + kClasses) - row == labels_[i] ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(labels_.size());
  }

 private:
  std::vector<int64_t> labels_;
  Graph graph_;
  Executable executable_;
  std::vector<Memory> results_;
  Memory images_on_device_, labels_on_device_;
};

double Train(const Device& device, const Digits& all, const Options& options) {
  const Digits digits = Part(all, /*held_out=*/false);
  const auto rows = static_cast<int64_t>(digits.labels.size());
  Step step(device, options);
  Evaluation evaluation(device, Part(all, /*held_out=*/true));
  std::vector<Memory> states[2] = {InitialState(device), InitialState(device)};
  Memory images = Need(Memory::Of(device, kBatch * kPixels * sizeof(float)));
  Memory labels = Need(Memory::Of(device, kBatch * sizeof(int64_t)));
  std::vector<int64_t> order(digits.labels.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(2);
  int64_t steps = 0;
  double accuracy = 0;
  for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    for (int64_t first = 0; first + kBatch <= rows; first += kBatch, ++steps) {
      std::vector<float> image_batch;
      std::vector<int64_t> label_batch;
      for (int64_t i = first; i < first + kBatch; ++i) {
        const auto image = digits.images.begin() + order[i] * kPixels;
        image_batch.insert(image_batch.end(), image, image + kPixels);
        label_batch.push_back(digits.labels[order[i]]);
      }
      Need(images.CopyIn(image_batch.data()));
      Need(labels.CopyIn(label_batch.data()));
      step.Run(images.data(), labels.data(), states[steps % 2], states[(steps + 1) % 2]);
    }
    accuracy = evaluation.Accuracy(states[steps % 2]);
    std::printf("epoch %2ld: loss %.4f, %.1f%% of the held-out images recognised\n",
                static_cast<long>(epoch), step.Loss(), 100 * accuracy);
  }
  return accuracy;
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--whole-step") {
      options.whole_step = true;
    } else if ((argument == "--device" || argument == "--save") && i + 1 < argc) {
      (argument == "--device" ? options.device : options.save) = argv[++i];
    } else if (options.data.empty() && argument[0] != '-') {
      options.data = argument;
    } else {
      Need(Error{RG_INVALID_ARGUMENT, argument + " is not understood", -1});
    }
  }
  if (options.data.empty()) Need(Error{RG_INVALID_ARGUMENT, "which file? digits.csv", -1});
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const Device device = Need(Device::Make({.name = options.device}));
  std::printf("on %s\n", device.model().c_str());
  return Train(device, ReadDigits(options.data), options) < 0.95 ? 1 : 0;
}
