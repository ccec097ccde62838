#include "fusion/kernel/build/order_instructions.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "graph/base/status.h"

namespace retrograd {
namespace {

int Words(const Instr& instr) { return SizeBytes(ComputeType(instr.dtype)) > 4 ? 2 : 1; }

// Needs no operand, so that it can stand anywhere.
bool IsSource(const Instr& instr) { return instr.operands.empty(); }

// Each once, ascending.
std::vector<int> OperandsOf(const Instr& instr) {
  std::vector<int> operands = instr.operands;
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  return operands;
}

class ListSchedule {
 public:
  explicit ListSchedule(const KernelIr& ir)
      : ir_(ir),
        operands_(ir.instrs.size()),
        readers_(ir.instrs.size()),
        unread_(ir.instrs.size(), 0),
        missing_(ir.instrs.size(), 0),
        placed_(ir.instrs.size(), false) {
    for (int i = 0; i < Count(); ++i) {
      operands_[i] = OperandsOf(ir.instrs[i]);
      for (int o : operands_[i]) {
        readers_[o].push_back(i);
        if (!IsSource(ir.instrs[o])) ++missing_[i];
      }
    }
    for (int i = 0; i < Count(); ++i) unread_[i] = static_cast<int>(readers_[i].size());
  }

  std::vector<int> Run() {
    for (int i = 0; i < Count(); ++i) {
      if (IsReady(i)) ready_.emplace(Grows(i), i);
    }
    while (!ready_.empty()) {
      const int next = ready_.begin()->second;
      ready_.erase(ready_.begin());
      for (int o : operands_[next]) {
        if (!placed_[o]) Place(o);
      }
      Place(next);
    }
    for (int i = 0; i < Count(); ++i) {  // sources that nobody reads
      if (!placed_[i]) Place(i);
    }
    return std::move(order_);
  }

 private:
  int Count() const { return static_cast<int>(ir_.instrs.size()); }
  bool IsReady(int i) const { return !IsSource(ir_.instrs[i]) && !placed_[i] && missing_[i] == 0; }

  // How many words more wait behind the instruction than before it.
  int Grows(int i) const {
    int words = unread_[i] > 0 ? Words(ir_.instrs[i]) : 0;
    for (int o : operands_[i]) {
      if (unread_[o] == 1 && placed_[o]) words -= Words(ir_.instrs[o]);
      if (unread_[o] > 1 && !placed_[o]) words += Words(ir_.instrs[o]);
    }
    return words;
  }

  void Place(int i) {
    std::vector<int> touched;  // those whose Grows changes, while they are ready
    for (int reader : readers_[i]) touched.push_back(reader);
    for (int o : operands_[i]) {
      for (int reader : readers_[o]) touched.push_back(reader);
    }
    for (int t : touched) {
      if (IsReady(t)) ready_.erase({Grows(t), t});
    }
    placed_[i] = true;
    order_.push_back(i);
    for (int o : operands_[i]) --unread_[o];
    if (!IsSource(ir_.instrs[i])) {
      for (int reader : readers_[i]) --missing_[reader];
    }
    for (int t : touched) {
      if (IsReady(t)) ready_.emplace(Grows(t), t);
    }
  }

  const KernelIr& ir_;
  std::vector<std::vector<int>> operands_, readers_;
  std::vector<int> unread_;   // readers that are not placed
  std::vector<int> missing_;  // operands that are not placed, sources not counted
  std::vector<bool> placed_;
  std::set<std::pair<int, int>> ready_;  // by what they add, then by the graph's order
  std::vector<int> order_;
};

// The same from the last instruction back: of the instructions all of whose readers are placed, the
// next is the one before which the fewest words wait; of equal ones the graph's last.
class BackwardSchedule {
 public:
  explicit BackwardSchedule(const KernelIr& ir)
      : ir_(ir),
        operands_(ir.instrs.size()),
        readers_(ir.instrs.size()),
        unplaced_(ir.instrs.size(), 0),
        waits_(ir.instrs.size(), false),
        listed_(ir.instrs.size(), false) {
    for (int i = 0; i < Count(); ++i) {
      operands_[i] = OperandsOf(ir.instrs[i]);
      for (int o : operands_[i]) readers_[o].push_back(i);
    }
    for (int i = 0; i < Count(); ++i) unplaced_[i] = static_cast<int>(readers_[i].size());
  }

  std::vector<int> Run() {
    for (int i = 0; i < Count(); ++i) {
      if (unplaced_[i] == 0 && !IsSource(ir_.instrs[i])) List(i);
    }
    std::vector<int> backwards;
    while (!ready_.empty()) {
      const int next = -ready_.begin()->second;
      ready_.erase(ready_.begin());
      listed_[next] = false;
      backwards.push_back(next);
      for (int o : operands_[next]) Read(o);
    }
    return WithSources(backwards);
  }

 private:
  int Count() const { return static_cast<int>(ir_.instrs.size()); }
  void List(int i) {
    ready_.emplace(Grows(i), -i);
    listed_[i] = true;
  }

  // How many words more wait before the instruction than behind it. Sources wait nowhere.
  int Grows(int i) const {
    int words = -Words(ir_.instrs[i]);
    for (int o : operands_[i]) {
      if (!waits_[o] && !IsSource(ir_.instrs[o])) words += Words(ir_.instrs[o]);
    }
    return words;
  }

  void Read(int o) {
    if (IsSource(ir_.instrs[o])) return;
    if (!waits_[o]) {
      for (int reader : readers_[o]) {
        if (listed_[reader]) ready_.erase({Grows(reader), -reader});
      }
      waits_[o] = true;
      for (int reader : readers_[o]) {
        if (listed_[reader]) List(reader);
      }
    }
    if (--unplaced_[o] == 0) List(o);
  }

  // Sources stand right before their first reader, those that nobody reads at the end.
  std::vector<int> WithSources(const std::vector<int>& backwards) const {
    std::vector<int> order;
    std::vector<bool> placed(ir_.instrs.size(), false);
    const auto place = [&](int i) {
      if (!placed[i]) order.push_back(i);
      placed[i] = true;
    };
    for (size_t k = backwards.size(); k-- > 0;) {
      for (int o : operands_[backwards[k]]) place(o);
      place(backwards[k]);
    }
    for (int i = 0; i < Count(); ++i) place(i);
    return order;
  }

  const KernelIr& ir_;
  std::vector<std::vector<int>> operands_, readers_;
  std::vector<int> unplaced_;            // readers
  std::vector<bool> waits_;              // for a reader that is placed
  std::vector<bool> listed_;             // in ready_
  std::set<std::pair<int, int>> ready_;  // by what they add, then by the graph's order from the end
};

void Reorder(const std::vector<int>& order, KernelIr& ir) {
  RG_CHECK(order.size() == ir.instrs.size());
  std::vector<int> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
  std::vector<Instr> instrs;
  instrs.reserve(order.size());
  for (int i : order) {
    Instr& instr = instrs.emplace_back(std::move(ir.instrs[i]));
    for (int& operand : instr.operands) operand = place[operand];
    for (Indirect& indirect : instr.indirect) indirect.instr = place[indirect.instr];
  }
  ir.instrs = std::move(instrs);
  for (Store& store : ir.stores) store.instr = place[store.instr];
  if (ir.scatter) {
    ir.scatter->src_instr = place[ir.scatter->src_instr];
  }
}

}  // namespace

int MostWaiting(const KernelIr& ir) {
  std::vector<bool> waits(ir.instrs.size(), false);
  int words = 0, most = 0;
  for (size_t i = ir.instrs.size(); i-- > 0;) {  // backwards: a value begins at its last reader
    if (waits[i]) words -= Words(ir.instrs[i]);
    for (int o : ir.instrs[i].operands) {
      if (waits[o]) continue;
      waits[o] = true;
      words += Words(ir.instrs[o]);
    }
    most = std::max(most, words);
  }
  return most;
}

void OrderInstructions(KernelIr& ir) {
  if (ir.instrs.size() <= kGraphsOrder) return;
  // The second schedule breaks ties by the order that the first one has found.
  KernelIr forwards = ir;
  Reorder(ListSchedule(ir).Run(), forwards);
  KernelIr backwards = forwards;
  Reorder(BackwardSchedule(forwards).Run(), backwards);
  const int before = MostWaiting(ir);
  const int after = MostWaiting(forwards), twice = MostWaiting(backwards);
  if (std::min(after, twice) >= before) return;
  ir = std::move(twice < after ? backwards : forwards);
}

}  // namespace retrograd
