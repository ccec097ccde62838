// How tests steer the fake driver: functions that its library exports beside the vendor's.
#ifndef RETROGRAD_TESTS_FAKE_CUDA_CONTROL_H_
#define RETROGRAD_TESTS_FAKE_CUDA_CONTROL_H_

extern "C" {

// The call number `nth` (1: the next) of this entry point fails with `result`. One at a time; the last
// order stands.
void fake_cuda_fail(const char* entry, int nth, int result);

// Calls of the entry point since the last reset.
int fake_cuda_calls(const char* entry);

// Entry points that were called since the last reset: the name of number i, null past the end.
const char* fake_cuda_called(int i);

// "devices", "major", "minor": what the driver shows. "memory_mib": how much there is.
void fake_cuda_set(const char* property, int value);

// Bytes of device memory that are allocated.
long long fake_cuda_allocated();

// Forgets counts, the failure that waits, and the properties.
void fake_cuda_reset();
}

#endif  // RETROGRAD_TESTS_FAKE_CUDA_CONTROL_H_
