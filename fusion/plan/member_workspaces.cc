#include "fusion/plan/member_workspaces.h"

#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/schedule.h"

namespace retrograd {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

MemberWorkspaces MemberWorkspacesOf(const KernelLaunch& launch) {
  MemberWorkspaces all;
  for (const KernelLaunch::Member& member : launch.members) {
    const int64_t bytes = WorkspaceBytes(member.kernel.ir, member.kernel.schedule);
    if (bytes > 0) all.bytes = CeilDiv(all.bytes, kAlignment) * kAlignment;
    all.parts.push_back({bytes > 0 ? all.bytes : 0, bytes});
    all.bytes += bytes;
  }
  return all;
}

}  // namespace retrograd
