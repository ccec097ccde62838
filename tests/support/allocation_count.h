// Counts allocations, so that a test can show that there are none, or how much they hold. Whoever
// includes this gets the counting operator new; malloc itself is not counted.
#ifndef RETROGRAD_TESTS_SUPPORT_ALLOCATION_COUNT_H_
#define RETROGRAD_TESTS_SUPPORT_ALLOCATION_COUNT_H_

#include <cstdint>

namespace retrograd {

// By operator new, on the calling thread, since it began.
int64_t AllocationCount();

// Bytes of all that it gave and that was not freed on the calling thread, as large as the allocator
// made it.
int64_t AllocatedBytes();

// Bytes of all that it ever gave on the calling thread: a measure of work that no clock disturbs.
int64_t GivenBytes();

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_ALLOCATION_COUNT_H_
