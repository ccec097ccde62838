// Matmuls on a GPU: by the vendor's library, by tiles of ours where these may be the faster, and
// where both refuse by a simple kernel of ours.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_GPU_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_GPU_MATMUL_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/ops/matmul/matmul_facts.h"
#include "runtime/ops/matmul/tiled_matmul.h"

namespace retrograd {

// A matmul by a library, as prepared for a call; calls that differ in their offsets alone share it.
class LibraryMatMul {
 public:
  virtual ~LibraryMatMul() = default;

  // The library's algorithms for it, its favourite first, which is chosen until Choose.
  virtual int algorithms() const = 0;
  virtual int64_t most_workspace_bytes() const = 0;  // that any of them wants
  // By what the library knows it by, so that other processes find it again.
  virtual std::string Name(int algorithm) const = 0;
  // An error where the library does not take this one here and now.
  virtual absl::Status Choose(int algorithm) = 0;
  // What brings the chosen one back for this call or another, without asking the library which it
  // has; empty: nothing does.
  virtual std::string ChosenState() const { return ""; }
  virtual absl::Status ChooseByState(absl::string_view) {
    return absl::UnimplementedError("the library's algorithms have no state");
  }

  // Of the chosen one.
  virtual int64_t workspace_bytes() const = 0;
  // Pointers to the stored values' first elements, and the offsets of a, b and d in elements.
  virtual absl::Status Run(GpuStream stream, const MatMulPointers& pointers,
                           const int64_t offsets[3], void* workspace) const = 0;
};

// Who makes a matmul: one of them, or none where there is nothing to do.
struct MatMulMaker {
  std::shared_ptr<const LibraryMatMul> library;
  std::shared_ptr<const TiledMatMul> tiles;
};

class GpuMatMulLoader : public CallLoader {
 public:
  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override;
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override;

 protected:
  explicit GpuMatMulLoader(GpuDevice& device) : device_(device) {}
  // Unimplemented where the library has no algorithm for the call: then a kernel of ours makes it.
  // In the device's context.
  virtual absl::StatusOr<std::unique_ptr<LibraryMatMul>> Make(const MatMulCall& call,
                                                              const MatMulFacts& facts) = 0;
  // The same without asking the library for algorithms: there are none until ChooseByState. Null
  // where algorithms have no state.
  virtual absl::StatusOr<std::unique_ptr<LibraryMatMul>> MakeWithoutAlgorithms(const MatMulCall&,
                                                                               const MatMulFacts&) {
    return nullptr;
  }
  // "cublaslt 130000". Asked after Make.
  virtual std::string LibraryVersion() const = 0;
  GpuDevice& device() const { return device_; }
  // For those who destroy what prepared matmuls need.
  void Forget() { known_.clear(); }

 private:
  struct Prepared {
    MatMulMaker maker;
    Choice choice;
    ChoiceKey key;      // of the choice
    std::string timed;  // the call that the choice was timed for, if it is another
  };
  absl::StatusOr<Prepared> Prepare(const MatMulCall& call, const MatMulFacts& facts);
  // By the state of the algorithm that is known to be the fastest for another call; no matmul where
  // that is not known, or not to be had for this call.
  absl::StatusOr<Prepared> PrepareByState(const MatMulCall& timed, const MatMulCall& call,
                                          const MatMulFacts& facts);
  // By the algorithm that is the fastest for another call, or the library's favourite.
  absl::StatusOr<Prepared> PrepareLike(const MatMulCall& timed, const MatMulCall& call,
                                       const MatMulFacts& facts);
  // The library's algorithms beside tiles of ours.
  absl::StatusOr<Prepared> PrepareWithTiles(const MatMulCall& call, const MatMulFacts& facts,
                                            std::unique_ptr<LibraryMatMul> library,
                                            const std::vector<MatMulTile>& tiles);
  // By tiles, or the simple kernel, for what the library refuses.
  absl::StatusOr<std::unique_ptr<LoadedCall>> LoadOurs(const MatMulCall& call,
                                                       const MatMulFacts& facts);
  // Tiles of ours that are timed beside the library's algorithms.
  std::vector<MatMulTile> TilesFor(const MatMulCall& call, const MatMulFacts& facts) const;
  ChoiceKey KeyOf(const std::string& matmul_key) const;

  GpuDevice& device_;
  std::map<std::string, Prepared> known_;  // by MatMulKey, since layers repeat their calls
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_GPU_MATMUL_H_
