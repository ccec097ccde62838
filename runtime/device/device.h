// Device: what a program needs of a machine that runs kernels and library calls. Work is issued to
// streams, numbered from 0; work of one stream runs in order. No work on a stream allocates or
// waits, so that a program can be issued while the device works. Not for several threads at once.
#ifndef RETROGRAD_RUNTIME_DEVICE_DEVICE_H_
#define RETROGRAD_RUNTIME_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "fusion/ops/convolution/image_boxes.h"
#include "fusion/plan/plan.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/compiler/rtc.h"
#include "runtime/tuning/choice.h"

namespace retrograd {

// Allocate's addresses are multiples of so many bytes: any access pattern of a GPU is served.
inline constexpr int64_t kArenaAlignment = 256;

// What an argument's memory holds when the launch starts; checking devices look at it.
enum class Contents : uint8_t {
  kDefined,  // values that came from outside
  kWritten,  // what earlier launches and calls have left there
  kFresh,    // nothing that may be read
};

// One argument of a launch: where its address stands, and how the kernel may use it.
struct LaunchArg {
  uint32_t slot = 0;      // place of the pointer in the table
  int64_t bytes = 0;      // exactly what the kernel may touch
  int64_t alignment = 1;  // bytes known to divide the address
  bool written = false;
  Contents contents = Contents::kDefined;
};

// A matrix that a launch's kernel reads by the copy engine: `outer` runs of `inner` neighbours,
// `pitch` apart, from `offset` on; all in elements. Or, with heads, so many such matrices, or, with
// a batch too, batch x heads. They are read in boxes of 64 runs of 128 bytes, swizzled, or in fp32,
// run by run.
struct OperandMap {
  uint32_t slot = 0;
  DType dtype = DType::kBf16;
  int64_t offset = 0, inner = 0, outer = 0, pitch = 0;
  int64_t heads = 0, head_pitch = 0, batch = 0, batch_pitch = 0;
  // Or boxes of 64 pixels x 64 channels of images, of 16-bit types; then nothing above says more
  // than slot and dtype.
  std::optional<ImageWalk> images = std::nullopt;
};

// One launch of a program; everything but the addresses is known when it is loaded.
struct Launch {
  std::string kernel;
  int64_t blocks = 1;
  int threads = 1;
  std::vector<LaunchArg> args;
  int64_t staged_bytes = 0;  // shared memory of a block beyond what the kernel declares
  // Of kernels for tensor cores: further parameters, made of addresses. Then any number of clusters
  // does the work, and the device takes as many as it holds at once.
  std::vector<OperandMap> maps;
  // Of kernels with maps: blocks that start together. 0: each works alone, and all of them start.
  int cluster = 2;
  bool direct = false;           // Kernel::direct
  bool starts_early = false;     // Kernel::starts_early
  std::vector<int32_t> numbers;  // what comes behind the pointers: words of Kernel::lifted
};

// Addresses of a library call's operands and results, in the op's order: of their stored values'
// first elements.
struct CallPointers {
  absl::Span<const void* const> operands;
  absl::Span<void* const> results;
};

// What a device may count on beyond what the call says.
struct CallFacts {
  bool allow_tf32 = false;  // fp32 operands may be rounded to TF32
  // Kernels of ours may load boxes of images by the copy engine, where the device has one.
  bool image_boxes = true;
  // Of the device's memory, that the call may hold from run to run (LoadedCall::kept_results).
  int64_t most_kept_bytes = 0;
  // Bytes known to divide the addresses of CallPointers; an element's size where it is empty.
  std::vector<int64_t> operand_alignment, result_alignment;
};

// Kernels, loaded, with their launches.
class LoadedKernels {
 public:
  virtual ~LoadedKernels() = default;
  // What the compiler made of them; empty where it does not tell.
  virtual absl::Span<const KernelResources> resources() const { return {}; }
};

// A library call, ready to run: what could be decided has been.
class LoadedCall {
 public:
  explicit LoadedCall(int64_t scratch_bytes, double measured_us = 0)
      : scratch_bytes_(scratch_bytes), measured_us_(measured_us) {}
  virtual ~LoadedCall() = default;
  int64_t scratch_bytes() const { return scratch_bytes_; }  // memory that it wants while it runs
  // Microseconds of one of several runs in a row, as measured when the implementation was chosen;
  // 0: it was not timed.
  double measured_us() const { return measured_us_; }

  // Where its results lie, by number, if the call holds them from run to run, in memory of its own:
  // each run is given these addresses for them, and nothing else writes there. Null, or none for so
  // many: the result is the caller's.
  virtual std::vector<void*> kept_results() const { return {}; }
  virtual int64_t kept_bytes() const { return 0; }  // of that memory, in all

  // None of its launches starts early (Device::LaunchEarly), not even behind another one of its
  // own.
  virtual void ForbidEarlyLaunches() { may_launch_early_ = false; }
  // Its first launch may start early, too: in each run a launch or another call stands right in
  // front of it on the stream. Calls of libraries do not.
  void AllowEarlyStart() { may_start_early_ = true; }

  // Issues the work on a stream of the device that has loaded the call.
  virtual absl::Status Run(int stream, const CallPointers& pointers, void* scratch) = 0;
  // Which implementation it is, for people.
  virtual std::string Describe() const { return ""; }

 protected:
  // Whether the launch with this number among the call's own may start early.
  bool may_start_early(size_t launch) const {
    return may_launch_early_ && (launch > 0 || may_start_early_);
  }

 private:
  int64_t scratch_bytes_;
  double measured_us_;
  bool may_launch_early_ = true, may_start_early_ = false;
};

// A call that will be loaded.
struct ExpectedCall {
  const Call* call = nullptr;
  const CallFacts* facts = nullptr;
  bool together = false;  // in launches that it shares with the one in front of it
};

// Loads the calls of one op on one device, and keeps what they share: a library's handle, choices
// that were timed before.
class CallLoader {
 public:
  virtual ~CallLoader() = default;
  // The kernels that Load would have compiled for the call, in the order in which it would; empty
  // where it is not known.
  virtual std::vector<Kernel> KernelsOf(const Call&, const CallFacts&) { return {}; }
  // Unimplemented, saying why, where the device cannot make the call.
  virtual absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                           const CallFacts& facts) = 0;
};

// The same of calls in launches that they share (Device::LoadTogether).
class SharedCallLoader {
 public:
  virtual ~SharedCallLoader() = default;
  virtual std::vector<Kernel> KernelsOf(absl::Span<const ExpectedCall> calls) = 0;
  // Whether Load makes each call by itself, too, to time both.
  virtual bool times_each() const { return true; }
  virtual absl::StatusOr<std::unique_ptr<LoadedCall>> Load(
      absl::Span<const ExpectedCall> calls) = 0;
};

// Work that was recorded once, to be replayed by one call.
class Recording {
 public:
  virtual ~Recording() = default;
};

// The device's own time of each repetition of some work, in microseconds.
using TimeSamples = std::vector<double>;

// A kernel, copy or fill that a device saw itself run.
struct TracedWork {
  std::string name;   // of the kernel; "copy", "fill"
  uint64_t node = 0;  // of a recording: ascending as the work was recorded; 0 outside of one
  double begin_us = 0, end_us = 0;  // by a clock of the device's
};

// What a device says of itself.
struct DeviceFacts {
  std::string model;        // "NVIDIA H200"
  std::string arch;         // what the compiler is given: "sm_90"; empty: nothing
  int64_t sms = 1;          // multiprocessors, compute units, or cores that are used
  int64_t cache_bytes = 0;  // of the caches; 0: not told
  int warp = 32;            // threads of a warp
  int64_t shared_bytes = int64_t{64} << 10;  // shared memory that a block's launch may ask for
};

class Device {
 public:
  virtual ~Device() = default;
  virtual absl::string_view name() const = 0;  // "host"
  virtual DeviceFacts Describe() const { return {.model = std::string(name())}; }
  virtual Dialect dialect() const = 0;  // in which its kernels are written
  // Where it keeps compiled code and what was dear to find out; null: nowhere.
  virtual const ModuleCache* Cache() const { return nullptr; }
  // Which implementations it has chosen for library calls, of those that were timed; null: it
  // chooses none.
  virtual const Choices* choices() const { return nullptr; }
  // Lines for people about what was loaded since the last time.
  virtual std::vector<std::string> TakeNotes() { return {}; }
  // Whether it takes kernels that multiply (CompileOptions::epilogue_kernels).
  virtual bool multiplies_with_epilogues() const { return false; }
  // Whether it takes kernels that load boxes of images (KernelHead::kBoxes).
  virtual bool loads_boxes() const { return false; }
  // Whether blocks of a launch may form clusters, which read each other's shared memory.
  virtual bool runs_clusters() const { return true; }

  // Aligned to kArenaAlignment. Allocate(0) is nullptr.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* data) = 0;
  virtual absl::Status CopyIn(void* device, const void* host, int64_t bytes) = 0;
  virtual absl::Status CopyOut(void* host, const void* device, int64_t bytes) = 0;

  // Makes streams 0 to streams - 1 and events 0 to events - 1; those that exist stay.
  virtual absl::Status Reserve(int streams, int events) = 0;
  // These calls, kernels and launches are loaded next: a device may begin to prepare them beside
  // what the caller does until then. Takes the place of what was expected before.
  virtual void Expect(absl::Span<const ExpectedCall>, absl::Span<const Kernel>,
                      absl::Span<const Launch>) {}
  // Compiles the kernels, which have different names, and prepares the launches, which Launch then
  // names by number.
  virtual absl::StatusOr<std::unique_ptr<LoadedKernels>> Load(
      absl::Span<const Kernel> kernels, absl::Span<const Launch> launches) = 0;
  // Prepares a library call, or says why the device cannot make it.
  virtual absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                           const CallFacts& facts) = 0;
  // The same of calls that do not depend on each other, in launches that they share: a run has the
  // operands and results of all of them, in their order. Unimplemented where they share none.
  virtual absl::StatusOr<std::unique_ptr<LoadedCall>> LoadTogether(
      absl::Span<const ExpectedCall> /*calls*/) {
    return absl::UnimplementedError("calls share no launches");
  }

  // Stream 0 is the caller's from now on: a CUstream of the device's own context, where a CUstream
  // may be null; without a value it is one of the device's.
  virtual absl::Status UseStream(std::optional<void*> native) = 0;

  // Work on a stream.
  // `table` holds, by slot, the addresses that the next launches of these kernels take. It stays
  // where it is, unchanged, until the next Bind.
  virtual absl::Status Bind(int stream, LoadedKernels& kernels, absl::Span<void* const> table) = 0;
  virtual absl::Status Launch(int stream, LoadedKernels& kernels, size_t launch) = 0;
  // The same of a launch that starts early, right behind another launch or call on the stream: in a
  // recording it may start before that one has finished.
  virtual absl::Status LaunchEarly(int stream, LoadedKernels& kernels, size_t launch) {
    return Launch(stream, kernels, launch);
  }
  // Copies a tensor of at most kMaxRank dims; strides in elements.
  virtual absl::Status CopyStrided(int stream, DType dtype, absl::Span<const int64_t> shape,
                                   void* to, absl::Span<const int64_t> to_strides, const void* from,
                                   absl::Span<const int64_t> from_strides) = 0;
  // Marks what the stream has been given so far as `event`; Wait holds a stream back until then.
  virtual absl::Status Record(int stream, int event) = 0;
  virtual absl::Status Wait(int stream, int event) = 0;
  // Returns when everything issued has finished.
  virtual absl::Status Synchronize() = 0;

  // A device that records keeps what is issued between BeginRecording and EndRecording instead of
  // doing it, with the addresses that it is given. Record and Wait work as ever; all streams join
  // stream 0 in the end. Table entries are no part of it: Bind before, outside.
  virtual bool records() const { return false; }
  virtual absl::Status BeginRecording() { return absl::UnimplementedError("no recordings"); }
  // Ends a recording whatever happened meanwhile. `old`, if there is one, was of the same work with
  // other addresses, and is updated where that is possible.
  virtual absl::StatusOr<std::unique_ptr<Recording>> EndRecording(std::unique_ptr<Recording>) {
    return absl::UnimplementedError("no recordings");
  }
  virtual absl::Status Replay(Recording&) { return absl::UnimplementedError("no recordings"); }

  // A recording can be moved to other addresses where the device has seen how its parameters follow
  // from them: in recordings of the same work with all addresses moved, which are only looked at.
  //
  // Ends a recording that will be moved: Unimplemented, saying why, where there can be none.
  virtual absl::StatusOr<std::unique_ptr<Recording>> EndMovableRecording() {
    return absl::UnimplementedError("no recordings that move");
  }
  // Ends a recording of the work of `of`, each of whose addresses lies so many bytes behind the one
  // of `of`: all distances differ. The first says what follows from which address; further ones
  // find it confirmed. Before these, one at the same addresses, without distances, says what is the
  // same in no two recordings. FailedPrecondition where a parameter follows in another way.
  virtual absl::Status EndComparison(Recording& /*of*/, absl::Span<const int64_t> /*moved*/) {
    return absl::UnimplementedError("no recordings that move");
  }
  // Replays of the recording, from the next one on, work at addresses so many bytes behind those
  // that it was made with. Before the first Move, and after an error, it must not be replayed.
  virtual absl::Status Move(Recording&, absl::Span<const int64_t> /*moved*/) {
    return absl::UnimplementedError("no recordings that move");
  }
  // Launches of these kernels take the addresses of `table`, where they are parameters, in the
  // recording that begins next, until Assume is told the table of the last Bind again.
  virtual void Assume(LoadedKernels&, absl::Span<void* const> /*table*/) {}

  // Whether the caller is recording on stream 0: then work must be issued, not replayed.
  virtual absl::StatusOr<bool> CallerRecords() { return false; }

  // Issues the work, which starts and ends on stream 0, so often, and waits. The device is kept
  // busy while each repetition is issued, so that only its own time counts; `cold` also drives
  // what the caches hold out of them before each.
  virtual absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()> work, int repetitions,
                                           bool cold) = 0;

  // Work on a stream: notes the time when everything before it on the stream has finished, also in
  // a recording, then at each replay. Marks are numbered from 0.
  virtual absl::Status ReserveMarks(int) { return absl::UnimplementedError("no marks"); }
  virtual absl::Status Mark(int, int) { return absl::UnimplementedError("no marks"); }
  // Waits for the first so many marks; microseconds of each since mark 0. All must have been set.
  virtual absl::StatusOr<std::vector<double>> MarkTimes(int) {
    return absl::UnimplementedError("no marks");
  }

  // A device that watches itself notes every kernel, copy and fill from BeginTrace to EndTrace, of
  // recordings those that were made meanwhile. TakeTrace waits, and hands over what was noted since
  // the last time, by begin.
  virtual absl::Status BeginTrace() { return absl::UnimplementedError("no traces"); }
  virtual absl::StatusOr<std::vector<TracedWork>> TakeTrace() {
    return absl::UnimplementedError("no traces");
  }
  virtual void EndTrace() {}
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICE_DEVICE_H_
