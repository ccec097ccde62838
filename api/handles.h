// What the handles of the C interface hold.
#ifndef RETROGRAD_API_HANDLES_H_
#define RETROGRAD_API_HANDLES_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fusion/planner/sized_patterns.h"
#include "graph/base/cancelled.h"
#include "graph/ir/backward_graph.h"
#include "graph/proto/bind_graph.h"
#include "graph/symbols/size_table.h"
#include "include/retrograd/retrograd.h"
#include "runtime/device/device.h"
#include "tools/execute/make_device.h"
#include "tools/explain/explanation.h"

struct rg_graph {
  retrograd::BackwardGraph graph;
  std::vector<retrograd::NodeId> inputs;
  std::vector<retrograd::SizeSymbol> symbols;
  std::optional<retrograd::GraphBinder> binder;  // of a graph with symbols
  // Of a graph with symbols, and of those that are bound from it, each with its sizes.
  std::shared_ptr<retrograd::SizedPatterns> patterns;
  std::vector<retrograd::SizeBinding> sizes;
};

struct rg_builder {
  std::unique_ptr<retrograd::GraphBuilder> builder;  // null once it is finished
};

struct rg_plan {
  retrograd::PlannedGraph planned;
};

struct rg_cancellation {
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

// What executables need of a device. Each has a device of its own: streams, libraries' handles and
// events of one serve one thread at a time.
struct rg_device {
  std::string name;
  std::string model;
  retrograd::DeviceChoices choices;
  rg_allocator allocator = {};
  std::mutex mutex;
  std::shared_ptr<retrograd::Device> memory;  // for rg_device_allocate and copies; under the mutex
};

namespace retrograd {

inline Cancelled CancelledBy(const rg_cancellation* cancellation) {
  if (cancellation == nullptr) return {};
  return [flag = cancellation->cancelled] { return flag->load(); };
}

}  // namespace retrograd

#endif  // RETROGRAD_API_HANDLES_H_
