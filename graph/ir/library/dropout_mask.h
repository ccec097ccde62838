// Which of attention's probabilities a forward has dropped out. PyTorch's implementations draw with
// Philox 4x32 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011), keyed by the
// seed; each has its own rounds, counters, and way to make choices of the random words. Those of
// PyTorch 2.11 with cuDNN 9.19, as found from masks that they drew (tests/data/attention_masks).
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_DROPOUT_MASK_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_DROPOUT_MASK_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace retrograd {

// Whose choices: the attribute `variant` of attention_backward.
enum class DropoutVariant : uint8_t { kCudnn, kEfficient, kFlash };

// None for a name of which no generator is known.
std::optional<DropoutVariant> DropoutVariantOf(absl::string_view name);

// What a random number is compared with, to be kept.
struct DropoutLimits {
  float keep_above = 0;     // efficient: uniform in (0, 1], more than this
  uint32_t keep_up_to = 0;  // flash: 8 bits, cuDNN: 16 bits, no more than this
};
DropoutLimits DropoutLimitsOf(DropoutVariant variant, double dropout_p);

class DropoutMask {
 public:
  // Of every head's `queries` x `keys` probabilities; 0 < dropout_p < 1.
  DropoutMask(DropoutVariant variant, double dropout_p, uint64_t seed, uint64_t offset,
              int64_t queries, int64_t keys);

  // 1 / (1 - dropout_p), or 0 for what is dropped. `head` counts those of all batch entries.
  double ShareOf(int64_t head, int64_t query, int64_t key) const {
    return Keeps(static_cast<uint64_t>(head), static_cast<uint64_t>(query),
                 static_cast<uint64_t>(key))
               ? share_
               : 0;
  }

 private:
  bool Keeps(uint64_t head, uint64_t query, uint64_t key) const;

  const DropoutVariant variant_;
  const DropoutLimits limits_;
  const double share_;
  const uint64_t seed_, offset_, queries_, keys_;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_DROPOUT_MASK_H_
