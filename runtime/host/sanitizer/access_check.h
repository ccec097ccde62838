// AccessCheck: judges every access of a launch of a checking build. Faults are: outside of an
// argument or shared array; a vector access that is not aligned as promised; a store to what is
// only read; two accesses to a word, one of them a store, that no barrier orders; a load of what
// nobody has stored; a shuffle with a lane that does not exist.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_ACCESS_CHECK_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_ACCESS_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/host/sanitizer/launch_request.h"
#include "runtime/host/sanitizer/shadow_word.h"
#include "runtime/host/sanitizer/shared_arrays.h"
#include "runtime/host/sanitizer/undefined_memory.h"

namespace retrograd {

class AccessCheck {
 public:
  absl::Status BeginLaunch(absl::string_view kernel, absl::Span<const HostArg> args, int64_t blocks,
                           int threads, int cluster, const HostLaunchOptions& options);
  // OK, or the faults found since BeginLaunch.
  absl::Status EndLaunch();
  // So many faults or accesses that going on would tell nothing new.
  bool full() const { return faults_ > kMostFaults || accesses_ > options_.most_accesses; }

  // Whether the access may touch memory. Offsets and sizes are in bytes; an access of several
  // elements is one of `bytes` that must be aligned to its whole size.
  bool Global(const Accessor& by, int argument, int64_t offset, int64_t bytes, int element_bytes,
              bool write, int line);
  // `owner`: the block of the cluster whose array it is.
  bool Shared(const Accessor& by, int owner, const SharedArrays::Array& array, int64_t offset,
              int64_t bytes, bool write);
  // Of a block of the cluster whose threads have all returned.
  void Ended(const Accessor& by, int owner, const SharedArrays::Array& array, int64_t offset);
  void MissingLane(const Accessor& by, int distance, int line);

  void MarkDefined(const void* data, int64_t bytes);
  void MarkUndefined(const void* data, int64_t bytes);

 private:
  static constexpr int64_t kMostFaults = 100000;
  static constexpr size_t kMostTold = 8;

  // A stretch of memory that one or more arguments lie in.
  struct Region {
    uintptr_t begin = 0, end = 0;
    int64_t granule = 0;             // bytes a shadow word stands for; 0: none made yet
    std::vector<ShadowWord> shadow;  // grown finer when smaller elements are accessed
    std::vector<uint8_t> undefined;  // a flag a byte; empty: all defined
  };
  // The kinds of faults, each told once an argument or array and line.
  struct Fault {
    std::string text;
    const char* kind;
    const void* where;
    int line;
    int64_t times;
  };

  void MakeRegions();
  static void MakeFiner(Region& region, int64_t granule);
  // The fault to describe, or null if its like is already told.
  Fault* Tell(const char* kind, const void* where, int line);
  std::string ThreadName(int thread, int block) const;
  std::string Access(const Accessor& by, absl::string_view what, int64_t offset, int element_bytes,
                     bool write, int line) const;
  void TellRace(const Accessor& by, const ShadowWord::Conflict& other, absl::string_view what,
                const void* where, int64_t offset, int element_bytes, bool write, int line);

  std::string kernel_;
  HostLaunchOptions options_;
  std::vector<HostArg> args_;
  std::vector<int> region_of_;  // by argument
  std::vector<Region> regions_;
  std::vector<ShadowWord> shared_shadow_;  // of each block: at array.offset + element
  ThreadShape shape_;
  int64_t accesses_ = 0, faults_ = 0;
  std::vector<Fault> told_;
  UndefinedBytes undefined_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_SANITIZER_ACCESS_CHECK_H_
