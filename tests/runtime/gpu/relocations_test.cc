// Relocations of kernels' parameters, on kernels that the tests make up.
#include "runtime/gpu/relocations.h"

#include <cstring>
#include <random>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/program/movable_recording.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

using Addresses = std::vector<uint64_t>;

void Put(GraphKernel& kernel, uint64_t word) {
  kernel.begins.push_back(kernel.parameters.size());
  kernel.parameters.append(reinterpret_cast<const char*>(&word), sizeof word);
}

// Kernels that take some of the addresses, with offsets, among other numbers: the same work for the
// same seed.
std::vector<GraphKernel> Capture(unsigned seed, const Addresses& addresses) {
  std::mt19937 random(seed);
  std::vector<GraphKernel> kernels(1 + random() % 8);
  for (GraphKernel& kernel : kernels) {
    kernel.launch = std::to_string(random() % 4);
    const unsigned words = random() % 6;
    for (unsigned i = 0; i < words; ++i) {
      const uint64_t offset = random() % 3 == 0 ? random() % 100000 : 0;
      const bool address = random() % 2 == 0;
      Put(kernel, offset + (address ? addresses[random() % addresses.size()] : 0));
    }
  }
  return kernels;
}

Addresses Behind(const Addresses& addresses, absl::Span<const int64_t> moved) {
  Addresses behind = addresses;
  for (size_t i = 0; i < behind.size(); ++i) behind[i] += static_cast<uint64_t>(moved[i]);
  return behind;
}

MovableRecording AtAddresses(const Addresses& addresses) {
  std::vector<const void*> pointers;
  for (uint64_t address : addresses) pointers.push_back(reinterpret_cast<const void*>(address));
  MovableRecording recording;
  recording.Take(nullptr, pointers);
  return recording;
}

TEST_CASE("what two captures show gives the parameters of any other") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    Addresses addresses(1 + random() % 12);
    for (uint64_t& address : addresses) address = (random() >> 17) & ~uint64_t{15};
    Relocations relocations(Capture(seed, addresses));
    MovableRecording distances = AtAddresses(addresses);
    REQUIRE(distances.Distances(0).empty());
    for (int look = 1; look < MovableRecording::kLooks; ++look) {
      const absl::Span<const int64_t> moved = distances.Distances(look);
      REQUIRE(relocations.Compare(Capture(seed, Behind(addresses, moved)), moved).ok());
    }
    std::vector<GraphKernel> set = Capture(seed, addresses);
    for (GraphKernel& kernel : set) kernel.node = &kernel;
    for (int run = 0; run < 5; ++run) {
      std::vector<int64_t> moved(addresses.size(), 0);
      for (int64_t& distance : moved) {
        if (random() % 3 > 0) distance = static_cast<int64_t>(random() >> 20) & ~int64_t{255};
      }
      const std::vector<GraphKernel> expected = Capture(seed, Behind(addresses, moved));
      // Whoever is not told of a kernel keeps its last parameters.
      REQUIRE(relocations
                  .Move(moved,
                        [&](const GraphKernel& kernel) {
                          for (size_t k = 0; k < expected.size(); ++k) {
                            const bool same = kernel.parameters == expected[k].parameters &&
                                              kernel.launch == expected[k].launch;
                            if (same) set[k] = kernel;
                          }
                          return absl::OkStatus();
                        })
                  .ok());
      for (size_t k = 0; k < expected.size(); ++k) {
        CHECK(set[k].parameters == expected[k].parameters);
      }
    }
  }
}

// A kernel's one word as a function of two addresses.
absl::Status Compared(uint64_t (*word)(uint64_t, uint64_t)) {
  const Addresses addresses = {0x7f0012340000, 0x7f0056780000};
  const auto capture = [&](absl::Span<const int64_t> moved) {
    const Addresses at = Behind(addresses, moved);
    std::vector<GraphKernel> kernels(1);
    Put(kernels[0], word(at[0], at[1]));
    return kernels;
  };
  Relocations relocations(capture({0, 0}));
  MovableRecording distances = AtAddresses(addresses);
  for (int look = 1; look < MovableRecording::kLooks; ++look) {
    const absl::Span<const int64_t> moved = distances.Distances(look);
    if (const auto status = relocations.Compare(capture(moved), moved); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST_CASE("a word that is more than an address and an offset is refused") {
  CHECK(Compared([](uint64_t a, uint64_t) { return a + 64; }).ok());
  CHECK(Compared([](uint64_t, uint64_t) { return uint64_t{7}; }).ok());
  for (auto* word : std::initializer_list<uint64_t (*)(uint64_t, uint64_t)>{
           [](uint64_t a, uint64_t b) { return a - b; },
           [](uint64_t a, uint64_t b) { return a + b; },
           [](uint64_t a, uint64_t) { return ~a; },
           [](uint64_t a, uint64_t) { return a >> 8; },
           [](uint64_t a, uint64_t) { return a & 0xffffffff; },
           [](uint64_t a, uint64_t) { return 2 * a; },
       }) {
    CHECK(Compared(word).code() == absl::StatusCode::kFailedPrecondition);
  }
}

TEST_CASE("a second look finds what the first could not") {
  const Addresses addresses = {0x7f0012340000};
  std::vector<GraphKernel> kernels(1);
  Put(kernels[0], addresses[0]);
  Relocations relocations(kernels);
  const auto at = [&](uint64_t word) {
    std::vector<GraphKernel> other(1);
    Put(other[0], word);
    return other;
  };
  REQUIRE(relocations.Compare(at(addresses[0] + 512), {512}).ok());
  // It follows the address no more.
  CHECK(!relocations.Compare(at(addresses[0]), {1024}).ok());
}

TEST_CASE("bytes that no two captures have alike mean nothing, and others beside them do") {
  const auto at = [](uint64_t word) {
    std::vector<GraphKernel> kernels(1);
    Put(kernels[0], word);
    return kernels;
  };
  const uint64_t number = 0x00000007, chance = uint64_t{0xabcd} << 32,
                 other = uint64_t{0x1234} << 32;
  Relocations relocations(at(chance | number));
  REQUIRE(relocations.Repeat(at(other | number)).ok());
  CHECK(relocations.Compare(at((other << 1) | number), {512}).ok());
  CHECK(!relocations.Compare(at(chance | 8), {512}).ok());
}

TEST_CASE("captures of other kernels are refused") {
  std::vector<GraphKernel> kernels(2);
  Put(kernels[0], 1);
  kernels[1].launch = "a";
  const auto refused = [&](auto change) {
    std::vector<GraphKernel> other = kernels;
    change(other);
    return Relocations(kernels).Compare(other, {256}).code() ==
           absl::StatusCode::kFailedPrecondition;
  };
  CHECK(!refused([](auto&) {}));
  CHECK(refused([](auto& other) { other.pop_back(); }));
  CHECK(refused([](auto& other) { other[1].launch = "b"; }));
  CHECK(refused([](auto& other) { Put(other[0], 0); }));
}

TEST_CASE("an address that lies otherwise in its line of memory moves no recording") {
  MovableRecording recording = AtAddresses({0x7f0012340000, 0x7f0056780010});
  const auto pointer = [](uint64_t address) { return reinterpret_cast<const void*>(address); };
  const auto moved =
      recording.MoveTo({pointer(0x7f0012340000), pointer(0x7f0056780020)}, /*device=*/nullptr);
  REQUIRE(moved.ok());
  CHECK(!*moved);
}

}  // namespace
}  // namespace retrograd
