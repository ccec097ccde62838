// Faults planted into the text of a generated kernel, as an emitter's mistake would leave them:
// tests show that the checking host build catches each.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_PLANTED_FAULTS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_PLANTED_FAULTS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

enum class PlantedFault {
  kRemovedBarrier,       // RG_BARRIER() gone
  kOffByOneBound,        // a guard or strided loop with `i < 1000` lets 1000 through; loops that
                         // count one by one are left alone, since they count registers, too
  kUninitialisedShared,  // a store to an array of RG_SHARED gone
  kLaxWait,              // RG_COPIES_WAIT lets one batch more be under way
  kUnsentCopies,         // RG_COPIES_SENT() gone
  kRemovedMeeting,       // RG_CLUSTER_WAIT() gone
};

// How many places of the source the fault can be planted in.
int CountSites(absl::string_view source, PlantedFault fault);

// The source with the fault in its n-th such place, from 0.
std::string Plant(absl::string_view source, PlantedFault fault, int n);

// "the barrier in line 9 removed": what Plant did, for a failing test's message.
std::string DescribeSite(absl::string_view source, PlantedFault fault, int n);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_PLANTED_FAULTS_H_
