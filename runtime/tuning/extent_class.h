// Size classes: which extents are alike enough that what is the fastest for one of them is taken
// for the others. Programs for several sizes then need not time each of them. A class follows from
// the extent alone, so that it does not depend on which size came first.
#ifndef RETROGRAD_RUNTIME_TUNING_EXTENT_CLASS_H_
#define RETROGRAD_RUNTIME_TUNING_EXTENT_CLASS_H_

#include <cstdint>

namespace retrograd {

// The nearest of four extents in each octave which is a multiple of the same powers of two up to
// `alignment` (1, 2, 4 or 8). Extents below 64 are their own.
int64_t ExtentOfClass(int64_t extent, int64_t alignment);

// The largest of its class, of eight in each octave, and as aligned: for work that is done in waves
// of tiles. What is the fastest for some extent may need a wave more for one that is a little
// larger, so that a class is known by no smaller one. Extents below 64 are their own.
int64_t LargestOfClass(int64_t extent, int64_t alignment);

// Of an extent that says how often the same work is done, such as a batch: the nearest of two in
// each octave, 1, 2, 3, 4, 6, 8, 12, ..
int64_t CountOfClass(int64_t count);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TUNING_EXTENT_CLASS_H_
