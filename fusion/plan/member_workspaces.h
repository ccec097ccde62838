// Kernels that share a launch have their workspaces side by side in that of the group.
#ifndef RETROGRAD_FUSION_PLAN_MEMBER_WORKSPACES_H_
#define RETROGRAD_FUSION_PLAN_MEMBER_WORKSPACES_H_

#include <cstdint>
#include <vector>

#include "fusion/plan/plan.h"

namespace retrograd {

// Where the workspace of each member begins and how long it is, in bytes; empty where a member
// needs none. Those that need one begin at multiples of 256.
struct MemberWorkspaces {
  struct Part {
    int64_t offset = 0, bytes = 0;
  };
  std::vector<Part> parts;  // by member
  int64_t bytes = 0;        // of all
};
MemberWorkspaces MemberWorkspacesOf(const KernelLaunch& launch);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_MEMBER_WORKSPACES_H_
