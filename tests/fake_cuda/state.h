// What the parts of the fake driver share. Device memory is host memory, work is done when it is
// issued, and captured work when its graph is launched.
#ifndef RETROGRAD_TESTS_FAKE_CUDA_STATE_H_
#define RETROGRAD_TESTS_FAKE_CUDA_STATE_H_

#include <cuda.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace retrograd::fake {

// A piece of work. Of two graphs of equal kinds one can be updated to the other.
struct Work {
  std::string kind;
  std::function<CUresult()> run;
};

using Clock = std::map<const void*, int>;  // work seen, by stream

struct Capture {
  const void* origin = nullptr;  // the stream that began it
  std::vector<const void*> streams;
  std::vector<Work> work;
  bool invalid = false;
};

struct Stream {
  std::shared_ptr<Capture> capture;
  Clock clock;
};

struct Event {
  bool recorded = false;
  bool timing = true;
  double us = 0;
  std::shared_ptr<Capture> capture;
  Clock clock;
};

struct Graph {
  std::vector<Work> work;
};

// Counts the call; the failure to return if one was ordered, or 0.
int Enter(const char* entry);

// Whether a context is current on this thread.
bool HasContext();

// Whether this thread captures, where some calls are not allowed: then its captures are void.
bool RefusedByCapture();

// Does the work, or adds it to the stream's capture.
CUresult Issue(CUstream stream, std::string kind, std::function<CUresult()> run);

// Device properties by name.
int Property(const std::string& name);

}  // namespace retrograd::fake

// What every entry point begins with.
#define FAKE_ENTER_NAMED(name)                                                 \
  if (const int rg_ordered = ::retrograd::fake::Enter(name); rg_ordered != 0) \
    return static_cast<CUresult>(rg_ordered)
#define FAKE_ENTER(entry) FAKE_ENTER_NAMED(#entry)  // the name before the header's macros
#define FAKE_ENTER_WITH_CONTEXT(entry) \
  FAKE_ENTER_NAMED(#entry);            \
  if (!::retrograd::fake::HasContext()) return CUDA_ERROR_INVALID_CONTEXT

#endif  // RETROGRAD_TESTS_FAKE_CUDA_STATE_H_
