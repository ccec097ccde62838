#include "fusion/search/atoms/region_bytes.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "fusion/cost/kernel_cost.h"

namespace retrograd {

RegionBytes::RegionBytes(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                         AtomMask uncounted, absl::Span<const AtomMask> conflicts)
    : own_(atoms.size()) {
  Count(atoms, pricer, uncounted);
  CountUncached(pricer.device());
  JoinEqual();
  TakeOwn();
  FindSplits(conflicts);
}

void RegionBytes::Count(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        AtomMask uncounted) {
  const auto size = static_cast<int>(atoms.size());
  absl::flat_hash_map<NodeId, AtomMask> owner, sharers;
  for (int i = 0; i < size; ++i) {
    for (NodeId id : atoms[i].ops) owner[id] = Bit(i);
    for (NodeId id : atoms[i].shared) sharers[id] |= Bit(i);
  }
  auto mask = [](const absl::flat_hash_map<NodeId, AtomMask>& of, NodeId id) {
    auto at = of.find(id);
    return at == of.end() ? AtomMask{0} : at->second;
  };
  struct Reader {
    std::pair<ValueId, int> what;  // a value's piece
    int64_t bytes;
    int atom;
    bool again;
  };
  std::vector<Reader> readers;
  for (int i = 0; i < size; ++i) {
    if (uncounted & Bit(i)) continue;
    for (const std::vector<NodeId>* ops : {&atoms[i].ops, &atoms[i].shared}) {
      for (NodeId id : *ops) {
        for (const SureRead& read : pricer.traffic().reads(id)) {
          const NodeId producer = read.value.node;
          const bool own = ((mask(owner, producer) | mask(sharers, producer)) & Bit(i)) != 0;
          if (!own) readers.push_back({read.what(), read.bytes, i, ops == &atoms[i].shared});
        }
      }
    }
    for (NodeId id : atoms[i].ops) {
      Write write{.producer = Bit(i), .readers = 0, .bytes = pricer.traffic().StoredBytes(id)};
      write.escapes = pricer.consumers().is_output(id);
      for (NodeId user : pricer.consumers().of(id)) {
        const AtomMask holders = mask(owner, user) | mask(sharers, user);
        if (holders == 0) write.escapes = true;
        if (mask(sharers, id) == 0) write.readers |= holders & ~Bit(i);
      }
      if (write.escapes) write.readers = 0;  // written whoever reads it here
      if (write.escapes || write.readers != 0) writes_.push_back(write);
    }
  }
  // Of several reads of one piece the largest counts: as steps from one size to the next.
  std::sort(readers.begin(), readers.end(), [](const Reader& a, const Reader& b) {
    return std::tuple(a.what, a.bytes) < std::tuple(b.what, b.bytes);
  });
  for (size_t i = 0; i < readers.size(); ++i) {
    const bool same = i > 0 && readers[i].what == readers[i - 1].what;
    const int64_t before = same ? readers[i - 1].bytes : 0;
    if (readers[i].bytes == before) continue;
    Read read{.producer = mask(owner, readers[i].what.first.node),
              .readers = 0,
              .bytes = readers[i].bytes - before,
              .fresh = pricer.graph().op(readers[i].what.first.node) != Op::input};
    AtomMask sure = 0;
    for (size_t j = i; j < readers.size() && readers[j].what == readers[i].what; ++j) {
      read.readers |= Bit(readers[j].atom);
      if (!readers[j].again) sure |= Bit(readers[j].atom);
    }
    read.again = read.readers & ~sure;
    reads_.push_back(read);
  }
}

// A cache holds the less of a read the more its kernel moves. Whichever atom it reads for, that is
// at least what this atom moves in any kernel: what it reads from outside the region and stores for
// it.
void RegionBytes::CountUncached(const DeviceSpec& device) {
  std::vector<int64_t> moved(own_.size(), 0);  // by atom
  for (const Read& r : reads_) {
    if (r.producer == 0) ForEachBit(r.readers, [&](int i) { moved[i] += r.bytes; });
  }
  for (const Write& w : writes_) {
    if (w.escapes) ForEachBit(w.producer, [&](int i) { moved[i] += w.bytes; });
  }
  for (Read& r : reads_) {
    r.uncached = r.bytes;
    if (!r.fresh) continue;
    int64_t least = std::numeric_limits<int64_t>::max();
    ForEachBit(r.readers,
               [&](int i) { least = std::min(least, moved[i] + (r.producer == 0 ? 0 : r.bytes)); });
    r.uncached -= CachedBytes(r.bytes, least, device);
  }
}

void RegionBytes::JoinEqual() {
  const auto read = [](const Read& r) {
    return std::tuple(r.producer, r.readers, r.again, r.fresh);
  };
  std::sort(reads_.begin(), reads_.end(),
            [&](const Read& a, const Read& b) { return read(a) < read(b); });
  const auto write = [](const Write& w) { return std::tuple(w.producer, w.readers, w.escapes); };
  std::sort(writes_.begin(), writes_.end(),
            [&](const Write& a, const Write& b) { return write(a) < write(b); });
  std::vector<Read> reads;
  for (const Read& r : reads_) {
    if (reads.empty() || read(reads.back()) != read(r)) {
      reads.push_back(r);
    } else {
      reads.back().bytes += r.bytes;
      reads.back().uncached += r.uncached;
    }
  }
  std::vector<Write> writes;
  for (const Write& w : writes_) {
    if (writes.empty() || write(writes.back()) != write(w)) {
      writes.push_back(w);
    } else {
      writes.back().bytes += w.bytes;
    }
  }
  reads_ = std::move(reads);
  writes_ = std::move(writes);
}

void RegionBytes::TakeOwn() {
  std::erase_if(reads_, [&](const Read& r) {
    const bool own = r.producer == 0 && std::has_single_bit(r.readers);
    if (own) own_[std::countr_zero(r.readers)].Add(r.bytes, r.uncached, r.fresh);
    return own;
  });
  std::erase_if(writes_, [&](const Write& w) {
    if (w.escapes) own_[std::countr_zero(w.producer)].Add(w.bytes, w.bytes, false);
    return w.escapes;
  });
}

void RegionBytes::FindSplits(absl::Span<const AtomMask> conflicts) {
  const auto splits_of = [&](AtomMask atoms) {
    std::vector<Split> splits;
    ForEachBit(atoms, [&](int i) {
      const AtomMask others = conflicts[i] & atoms & ~LowBits(i);
      if (others != 0) splits.push_back({Bit(i), others});
    });
    return splits;
  };
  for (Read& r : reads_) r.splits = splits_of((r.producer | r.readers) & ~r.again);
  for (Write& w : writes_) w.splits = splits_of(w.producer | w.readers);
}

bool RegionBytes::IsSplit(const std::vector<Split>& splits, AtomMask set) {
  return std::any_of(splits.begin(), splits.end(), [&](const Split& split) {
    return (split.atom & set) != 0 && (split.conflicts & set) != 0;
  });
}

MovedBytes RegionBytes::Least(AtomMask set, AtomMask beside) const {
  MovedBytes bytes;
  ForEachBit(set, [&](int i) { bytes += own_[i]; });
  for (const Read& r : reads_) {
    if ((r.readers & set) == 0) continue;
    if ((r.producer & beside) == 0) bytes.Add(r.bytes, r.uncached, r.fresh);
    if (IsSplit(r.splits, set)) bytes.Add(r.bytes, r.uncached, r.fresh);
  }
  for (const Write& w : writes_) {
    if ((w.producer & set) == 0) continue;
    if ((w.readers & ~beside) != 0 || IsSplit(w.splits, set)) {
      bytes.Add(w.bytes, w.bytes, false);
    }
  }
  return bytes;
}

}  // namespace retrograd
