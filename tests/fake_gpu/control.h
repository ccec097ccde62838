// How tests steer the fake drivers: functions that their libraries export beside the vendor's.
#ifndef RETROGRAD_TESTS_FAKE_GPU_CONTROL_H_
#define RETROGRAD_TESTS_FAKE_GPU_CONTROL_H_

extern "C" {

// The call number `nth` (1: the next) of this entry point fails with `result`. One at a time; the
// last order stands.
void fake_gpu_fail(const char* entry, int nth, int result);

// Calls of the entry point since the last reset.
int fake_gpu_calls(const char* entry);

// Entry points that were called since the last reset: the name of number i, null past the end.
const char* fake_gpu_called(int i);

// What the driver shows: "devices", "major", "minor", "gfx" (0x90a), "sms", "memory_mib". And
// "hides_addresses" (0): 1: the library's kernels are given no address as it is.
void fake_gpu_set(const char* property, int value);

// Bytes of device memory that are allocated.
long long fake_gpu_allocated();

// Forgets counts, the failure that waits, and the properties.
void fake_gpu_reset();
}

#endif  // RETROGRAD_TESTS_FAKE_GPU_CONTROL_H_
