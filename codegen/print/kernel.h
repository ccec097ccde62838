// Kernel: one launch as a value: what it is written with, how it is declared, what its body holds,
// and what is needed to call it. kernel_text.h prints it.
#ifndef RETROGRAD_CODEGEN_PRINT_KERNEL_H_
#define RETROGRAD_CODEGEN_PRINT_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/print/numbers/sized_number.h"
#include "fusion/plan/plan.h"

namespace retrograd {

enum class Dialect : uint8_t { kCuda, kHip, kHost };
absl::string_view Name(Dialect dialect);  // "cuda", "hip", "host"

// Parameter i of a kernel: a stored value's buffer, or the group's workspace.
struct KernelArg {
  enum Kind : uint8_t { kValue, kWorkspace };
  Kind kind = kValue;
  ValueId value;
  uint32_t member = 0;  // of a merged launch: the kernel that it is an argument of
  friend bool operator==(const KernelArg&, const KernelArg&) = default;
};

// Parts of a translation unit's prelude that only some kernels are written with.
enum class PreludePart : uint8_t {
  kMultiplier,    // codegen/preludes/multiplier_prelude.h
  kAttention,     // codegen/preludes/attention_prelude.h
  kDropout,       // codegen/preludes/dropout_prelude.h, in any dialect
  kTensorCores,   // codegen/preludes/tensor_core_prelude.h, in any dialect
  kGroupedTiles,  // codegen/preludes/grouped_tiles_prelude.h, of multipliers
  kClusters,      // codegen/preludes/cluster_prelude.h
  kParts,         // codegen/preludes/part_prelude.h, in any dialect, behind kTensorCores
  kBoxes,         // codegen/preludes/box_prelude.h, of CUDA and the host, behind kTensorCores
  kWideTiles,     // codegen/attention/wide_tiles_prelude.h, in any dialect, behind kTensorCores
};

class PreludeParts {
 public:
  PreludeParts() = default;
  PreludeParts(PreludePart part)  // NOLINT: one part is a set of parts
      : bits_(static_cast<uint16_t>(1 << static_cast<int>(part))) {}
  bool empty() const { return bits_ == 0; }
  bool Has(PreludePart part) const { return (bits_ & PreludeParts(part).bits_) != 0; }
  PreludeParts& operator|=(PreludeParts other) {
    bits_ |= other.bits_;
    return *this;
  }
  friend bool operator==(const PreludeParts&, const PreludeParts&) = default;

 private:
  uint16_t bits_ = 0;
};

// The macro that declares a kernel. It says what the kernel takes behind the slots.
enum class KernelHead : uint8_t {
  kPlain,
  kMultiplier,  // takes descriptions of two operands (runtime/gpu/tma_descriptors.h)
  kAttention,   // takes descriptions of Q, K, V, dO and O, and maybe of a bias: `maps`
  kCluster,     // as the plain one, in clusters whose blocks read each other's shared memory
  kBoxes,       // direct, with descriptions of `maps` operands (runtime/gpu/tma_descriptors.h)
};

inline constexpr int kAttentionMaps = 5;  // without a bias

// A name that a body begins with.
struct Declaration {
  enum Kind : uint8_t {
    kArgument,
    kShared,  // an array that the threads of a block share
    kStaged,  // the same, of memory that the launch asks for
  };
  Kind kind = kArgument;
  std::string type;  // of its elements, as it is spelled: "const rg_bf16"
  std::string name;
  int64_t at = 0;     // of an argument: its number; of staged memory: the first byte
  int64_t count = 0;  // elements of an array
  friend bool operator==(const Declaration&, const Declaration&) = default;
};

struct KernelFunction {
  std::string comment;  // lines above the head
  std::vector<Declaration> declarations;
  std::string statements;  // lines
  friend bool operator==(const KernelFunction&, const KernelFunction&) = default;
};

// Blocks of a merged launch that run one of its members, `count` times, one after the other.
struct MemberRun {
  int member = 0;
  int64_t count = 1;
  int64_t first_block = 0, blocks = 1;        // blocks: of each time
  int64_t first_argument = 0, arguments = 0;  // arguments: of each time
  int64_t first_map = 0, maps = 0;            // of KernelHead::kBoxes; maps: of each time
  friend bool operator==(const MemberRun&, const MemberRun&) = default;
};

// Numbers of a kernel's text (sized_number.h) that are arguments: they come behind the pointers, as
// words of 32 bits.
struct LiftedNumbers {
  std::vector<int> argument;     // by number of the text: which argument it is; -1: none
  std::vector<SizedType> types;  // by argument
  bool empty() const { return types.empty(); }
  int words() const;
  friend bool operator==(const LiftedNumbers&, const LiftedNumbers&) = default;
};

// Every kernel has the signature  void name(void* const* table, Slots<n> slots): argument i is the
// pointer table[slots.at[i]]. The table lies in device memory, so that addresses may change between
// runs while the launch stays as captured.
struct Kernel {
  std::string name;  // "rg_" + digest of the text: equal kernels share one name
  KernelHead head = KernelHead::kPlain;
  PreludeParts parts;
  int64_t blocks = 1;
  int threads = 1;
  int cluster = 2;            // of a multiplier: blocks that share loads; of kCluster: its blocks
  int maps = 0;               // of kBoxes; of kAttention: kAttentionMaps, or one more
  int resident = 0;           // blocks on an SM that the plan counts on; 0: it says nothing
  int arguments = 0;          // how many pointers it takes, and words of lifted numbers
  bool threads_meet = false;  // by barriers, shuffles or shared arrays
  // Its threads begin with RG_EARLY_START, by which it may be launched before the kernel in front
  // of it has finished.
  bool starts_early = false;
  // On a GPU it takes its addresses as parameters, without the table: what records it records them.
  bool direct = false;
  LiftedNumbers lifted;
  KernelFunction function;
  // Of a merged launch: functions that share its blocks. It has no statements of its own.
  std::vector<KernelFunction> members;
  std::vector<MemberRun> runs;
  int64_t shared_bytes = 0;     // static shared memory
  int64_t staged_bytes = 0;     // dynamic shared memory, which a launch asks for
  std::vector<KernelArg> args;  // what the pointers are; empty where the caller knows
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

// The launches of one group, in order: main, then any finalize. Empty for library calls.
struct GroupKernels {
  std::vector<Kernel> launches;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_KERNEL_H_
