#include "fusion/cost/memory_bound.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/tensor_type.h"

namespace retrograd {
namespace {

// Whether an op that is computed whole reads every element of its operand, as prices count it: they
// have what a thread waits for sorted positions, and not these positions' bytes.
bool ReadsWhole(const BackwardGraph& g, NodeId id, size_t operand) {
  switch (g.pattern(id)) {
    case Pattern::kJoin: return g.op(id) != Op::slice_scatter || operand == 1;
    case Pattern::kGather: return operand == 1;
    case Pattern::kScatter: return operand > 1;
    default: return true;
  }
}

// How much of the value behind a chain of views is seen through it, in elements.
struct Seen {
  ValueId value;
  int64_t elements = 0;
  bool all = true;  // surely every element
};

Seen SeenThroughViews(const BackwardGraph& g, ValueId v) {
  Seen seen{.value = v, .elements = g.type(v).elements()};
  bool cuts = false, repeats = false;
  while (g.pattern(seen.value.node) == Pattern::kView) {
    const Op op = g.op(seen.value.node);
    cuts = cuts || op == Op::slice;
    repeats = repeats || op == Op::expand || op == Op::pad;
    seen.value = g.operands(seen.value.node)[0];
    seen.elements = std::min(seen.elements, g.type(seen.value).elements());
  }
  // What is cut out after repeating may be one element many times.
  if (cuts && repeats) seen.elements = 0;
  seen.all = !cuts;
  return seen;
}

// Elements that lie apart: a dim of stride 0 repeats.
int64_t Distinct(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) elements *= strides[d] == 0 ? 1 : shape[d];
  return elements;
}

// Of one value.
constexpr size_t kMostSlices = 16;

int64_t Elements(absl::Span<const ViewBox> boxes) {
  int64_t sum = 0;
  for (const ViewBox& b : boxes) sum += b.elements;
  return sum;
}

bool AllApart(absl::Span<const ViewBox> boxes) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!LieApart(boxes[i], boxes[j])) return false;
    }
  }
  return true;
}

bool LargestOfEachFirst(const SureRead& a, const SureRead& b) {
  return a.what() != b.what() ? a.what() < b.what() : a.bytes > b.bytes;
}

}  // namespace

Traffic::Traffic(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                 const Consumers& consumers)
    : graph_(graph), consumers_(consumers), whole_(graph.num_nodes(), false) {
  Slices slices;
  MarkWhole(slices);
  // Slices that may overlap are not told apart.
  absl::erase_if(slices, [](const auto& of) { return !AllApart(of.second); });
  FindReads(layouts, slices);
}

void Traffic::MarkWhole(Slices& slices) {
  for (uint32_t i = static_cast<uint32_t>(graph_.num_nodes()); i-- > 0;) {
    const NodeId id{i};
    if (!Computes(graph_, id)) continue;
    const bool library = graph_.pattern(id) == Pattern::kLibrary;
    if (library || consumers_.is_output(id)) whole_[i] = true;
    if (auto sliced = slices.find({id, 0}); !whole_[i] && sliced != slices.end()) {
      whole_[i] =
          Elements(sliced->second) == graph_.type(id).elements() && AllApart(sliced->second);
    }
    if (!whole_[i]) continue;
    absl::Span<const ValueId> operands = graph_.operands(id);
    for (size_t k = 0; k < operands.size(); ++k) {
      // What a library call reads is stored, and so is what is looked up in.
      const bool stored = library || graph_.pattern(id) == Pattern::kGather;
      const Seen seen = SeenThroughViews(graph_, operands[k]);
      if (stored || (seen.all && ReadsWhole(graph_, id, k))) whole_[Index(seen.value.node)] = true;
      if (seen.all || !ReadsWhole(graph_, id, k)) continue;
      std::vector<ViewBox>& known = slices[seen.value];
      if (known.size() >= kMostSlices) continue;
      const std::optional<ViewBox> box = BoxBehindViews(graph_, operands[k]);
      if (box && std::find(known.begin(), known.end(), *box) == known.end()) known.push_back(*box);
    }
  }
}

void Traffic::FindReads(absl::Span<const Layout> layouts, const Slices& slices) {
  first_.reserve(graph_.num_nodes() + 1);
  for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
    first_.push_back(static_cast<uint32_t>(reads_.size()));
    if (!whole_[i] || !Computes(graph_, NodeId{i})) continue;
    absl::Span<const ValueId> operands = graph_.operands(NodeId{i});
    for (size_t k = 0; k < operands.size(); ++k) {
      const Seen seen = SeenThroughViews(graph_, operands[k]);
      if (seen.elements == 0 || !ReadsWhole(graph_, NodeId{i}, k)) continue;
      if (IsConstant(graph_, seen.value.node)) continue;
      const TensorType& type = graph_.type(seen.value);
      const std::vector<int64_t>& strides = layouts[graph_.value_index(seen.value)].strides;
      const int64_t stored =
          std::min(SpanElements(type.shape, strides), Distinct(type.shape, strides));
      const int64_t size = SizeBytes(type.dtype);
      const auto sliced = slices.find(seen.value);
      if (sliced == slices.end() || stored < type.elements()) {
        reads_.push_back({seen.value, 0, std::min(seen.elements, stored) * size});
        continue;
      }
      // Piece 0 is what no slice shows.
      const std::vector<ViewBox>& pieces = sliced->second;
      const std::optional<ViewBox> box =
          seen.all ? std::nullopt : BoxBehindViews(graph_, operands[k]);
      for (size_t p = 0; p < pieces.size(); ++p) {
        if (!seen.all && box != pieces[p]) continue;
        reads_.push_back({seen.value, static_cast<int>(p) + 1, pieces[p].elements * size});
      }
      const int64_t rest = type.elements() - Elements(pieces);
      if (seen.all && rest > 0) reads_.push_back({seen.value, 0, rest * size});
    }
    auto begin = reads_.begin() + first_.back();
    std::sort(begin, reads_.end(), LargestOfEachFirst);
    reads_.erase(
        std::unique(begin, reads_.end(),
                    [](const SureRead& a, const SureRead& b) { return a.what() == b.what(); }),
        reads_.end());
  }
  first_.push_back(static_cast<uint32_t>(reads_.size()));
}

MovedBytes Traffic::LeastBytes(absl::Span<const NodeId> ops, const DeviceSpec& device) const {
  auto inside = [&](NodeId id) { return std::binary_search(ops.begin(), ops.end(), id); };
  MovedBytes bytes;
  std::vector<SureRead> reads;
  for (NodeId id : ops) {
    absl::Span<const NodeId> users = consumers_.of(id);
    const bool escapes =
        consumers_.is_output(id) ||
        std::any_of(users.begin(), users.end(), [&](NodeId u) { return !inside(u); });
    if (escapes) bytes.all += StoredBytes(id);
    for (const SureRead& read : this->reads(id)) {
      if (!inside(read.value.node)) reads.push_back(read);
    }
  }
  bytes.uncached = bytes.all;
  std::sort(reads.begin(), reads.end(), LargestOfEachFirst);
  for (size_t i = 0; i < reads.size(); ++i) {
    if (i > 0 && reads[i].what() == reads[i - 1].what()) continue;
    const int64_t read = reads[i].bytes;
    const bool fresh = graph_.op(reads[i].value.node) != Op::input;
    bytes.all += read;
    if (fresh) bytes.fresh += read;
    bytes.uncached += read - (fresh ? CachedBytes(read, read, device) : 0);
  }
  return bytes;
}

}  // namespace retrograd
