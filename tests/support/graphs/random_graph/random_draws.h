// Numbers drawn from a seed: the same ones with every compiler and standard library. A call whose
// arguments draw draws in an order that compilers choose, so draws are named before they are
// passed.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_DRAWS_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_DRAWS_H_

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace retrograd {

class RandomDraws {
 public:
  explicit RandomDraws(uint32_t seed) : rng_(seed) {}

  // One of low..high.
  int64_t Int(int64_t low, int64_t high) {
    // Not std::uniform_int_distribution: its numbers differ between standard libraries.
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_()) < p * 4294967296.0; }
  template <typename T>
  const T& Choose(const std::vector<T>& list) {
    return list[Int(0, static_cast<int64_t>(list.size()) - 1)];
  }
  template <typename T>
  void Shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[Int(0, i - 1)]);
  }

 private:
  std::mt19937 rng_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_RANDOM_DRAWS_H_
