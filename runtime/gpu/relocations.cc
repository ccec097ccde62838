#include "runtime/gpu/relocations.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

uint64_t WordAt(const std::string& bytes, size_t at) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

absl::Status Differs(size_t kernel, const char* how) {
  return absl::FailedPreconditionError(
      absl::StrFormat("kernel %d of a recording %s at other addresses", kernel, how));
}

}  // namespace

absl::Status Relocations::CheckLaunches(absl::Span<const GraphKernel> others) const {
  if (others.size() != kernels_.size()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "a recording has %d kernels, and %d at other addresses", kernels_.size(), others.size()));
  }
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const GraphKernel& mine = kernels_[k];
    const GraphKernel& other = others[k];
    if (mine.launch != other.launch || mine.begins != other.begins ||
        mine.parameters.size() != other.parameters.size()) {
      return Differs(k, "is launched otherwise");
    }
  }
  return absl::OkStatus();
}

uint64_t Relocations::IdleBytes(size_t kernel, size_t at) const {
  const auto found = idle_.find({kernel, at});
  return found == idle_.end() ? 0 : found->second;
}

absl::Status Relocations::Repeat(absl::Span<const GraphKernel> others) {
  RG_RETURN_IF_ERROR(CheckLaunches(others));
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const std::string& mine = kernels_[k].parameters;
    for (size_t at = 0; at < mine.size(); at += sizeof(uint64_t)) {
      const uint64_t differ = WordAt(mine, at) ^ WordAt(others[k].parameters, at);
      for (uint64_t byte = 0xff; differ != 0 && byte != 0; byte <<= 8) {
        if ((differ & byte) != 0) idle_[{k, at}] |= byte;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Relocations::Compare(absl::Span<const GraphKernel> others,
                                  absl::Span<const int64_t> moved) {
  RG_RETURN_IF_ERROR(CheckLaunches(others));
  std::map<uint64_t, size_t> by_distance;
  for (size_t i = 0; i < moved.size(); ++i) by_distance[static_cast<uint64_t>(moved[i])] = i;
  std::vector<Moving> found;
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const std::string& mine = kernels_[k].parameters;
    Moving moving{.kernel = k, .words = {}};
    for (size_t at = 0; at < mine.size(); at += sizeof(uint64_t)) {
      const uint64_t word = WordAt(mine, at), other = WordAt(others[k].parameters, at);
      const uint64_t idle = IdleBytes(k, at);
      if (((word ^ other) & ~idle) == 0) continue;
      const auto address = by_distance.find(other - word);
      if (idle != 0 || address == by_distance.end()) {
        return Differs(k, "takes what is no address and differs");
      }
      moving.words.push_back({at, address->second, word});
    }
    if (!moving.words.empty()) found.push_back(std::move(moving));
  }
  if (!compared_) {
    compared_ = true;
    moving_ = std::move(found);
    return absl::OkStatus();
  }
  const auto same_words = [](const Word& a, const Word& b) {
    return a.at == b.at && a.address == b.address;
  };
  const auto same = [&](const Moving& a, const Moving& b) {
    return a.kernel == b.kernel &&
           std::equal(a.words.begin(), a.words.end(), b.words.begin(), b.words.end(), same_words);
  };
  if (std::equal(found.begin(), found.end(), moving_.begin(), moving_.end(), same)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "a recording's parameters follow from its addresses in more than one way");
}

absl::Status Relocations::Move(absl::Span<const int64_t> moved,
                               absl::FunctionRef<absl::Status(const GraphKernel&)> set) {
  moved_.resize(moved.size(), 0);
  for (const Moving& moving : moving_) {
    const bool changes = std::any_of(moving.words.begin(), moving.words.end(), [&](const Word& w) {
      return moved[w.address] != moved_[w.address];
    });
    if (!changes) continue;
    GraphKernel& kernel = kernels_[moving.kernel];
    for (const Word& w : moving.words) {
      const uint64_t now = w.captured + static_cast<uint64_t>(moved[w.address]);
      std::memcpy(kernel.parameters.data() + w.at, &now, sizeof now);
    }
    RG_RETURN_IF_ERROR(set(kernel));
  }
  std::copy(moved.begin(), moved.end(), moved_.begin());
  return absl::OkStatus();
}

}  // namespace retrograd
