// Offsets for storages of known lifetimes in one arena: the last stage of the memory plan.
#ifndef RETROGRAD_RUNTIME_MEMORY_ARENA_OFFSETS_H_
#define RETROGRAD_RUNTIME_MEMORY_ARENA_OFFSETS_H_

#include <cstdint>
#include <vector>

#include "runtime/memory/lifetimes.h"

namespace retrograd {

// Bytes that one value after another (by taking over) or one workspace lives in.
struct Storage {
  int64_t bytes = 0;
  Lifetime lifetime;
  int64_t offset = 0;  // the result
};

// What a storage of so many bytes takes, by the alignment of the arena.
int64_t BytesInArena(int64_t bytes);

// Largest first, each into the smallest gap that the storages alive beside it leave. Returns the
// size of the arena.
int64_t AssignOffsets(const HappensBefore& order, uint32_t num_steps, bool reuse,
                      std::vector<Storage>* storages);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_MEMORY_ARENA_OFFSETS_H_
