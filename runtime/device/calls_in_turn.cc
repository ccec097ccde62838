#include "runtime/device/calls_in_turn.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class CallsInTurn : public LoadedCall {
 public:
  struct Member {
    std::unique_ptr<LoadedCall> call;
    size_t operands = 0, results = 0;
  };
  CallsInTurn(std::vector<Member> members, int64_t scratch_bytes)
      : LoadedCall(scratch_bytes), members_(std::move(members)) {}

  void ForbidEarlyLaunches() override {
    for (const Member& member : members_) member.call->ForbidEarlyLaunches();
  }

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    size_t operand = 0, result = 0;
    for (const Member& member : members_) {
      const CallPointers own = {pointers.operands.subspan(operand, member.operands),
                                pointers.results.subspan(result, member.results)};
      RG_RETURN_IF_ERROR(member.call->Run(stream, own, scratch));
      operand += member.operands;
      result += member.results;
    }
    return absl::OkStatus();
  }
  std::vector<void*> kept_results() const override {
    std::vector<void*> kept;
    for (const Member& member : members_) {
      std::vector<void*> own = member.call->kept_results();
      own.resize(member.results, nullptr);
      kept.insert(kept.end(), own.begin(), own.end());
    }
    return kept;
  }
  int64_t kept_bytes() const override {
    int64_t bytes = 0;
    for (const Member& member : members_) bytes += member.call->kept_bytes();
    return bytes;
  }
  std::string Describe() const override {
    return absl::StrCat(members_.size(), " calls one after the other, the first by ",
                        members_[0].call->Describe());
  }

 private:
  const std::vector<Member> members_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadInTurn(Device& device,
                                                       absl::Span<const ExpectedCall> calls) {
  std::vector<CallsInTurn::Member> members;
  int64_t scratch_bytes = 0;
  for (const ExpectedCall& expected : calls) {
    RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> loaded,
                        device.Load(*expected.call, *expected.facts));
    scratch_bytes = std::max(scratch_bytes, loaded->scratch_bytes());
    members.push_back({.call = std::move(loaded),
                       .operands = expected.call->operands.size(),
                       .results = expected.call->results.size()});
  }
  return std::make_unique<CallsInTurn>(std::move(members), scratch_bytes);
}

}  // namespace retrograd
