#include "api/guard.h"

#include <cctype>
#include <cstdlib>

namespace retrograd {
namespace {

struct LastError {
  rg_code code = RG_OK;
  int64_t node = -1;
  std::string message;
};
thread_local LastError last_error;

rg_code CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk: return RG_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss: return RG_INVALID_ARGUMENT;
    case absl::StatusCode::kNotFound: return RG_NOT_FOUND;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kAlreadyExists: return RG_FAILED_PRECONDITION;
    case absl::StatusCode::kUnimplemented: return RG_UNIMPLEMENTED;
    case absl::StatusCode::kResourceExhausted: return RG_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kUnavailable: return RG_UNAVAILABLE;
    case absl::StatusCode::kCancelled: return RG_CANCELLED;
    default: return RG_INTERNAL;
  }
}

// Messages name nodes as the text form does: "%12". The first one that is a number; -1: none.
int64_t NodeIn(absl::string_view message) {
  constexpr int64_t kMost = int64_t{1} << 32;
  for (size_t at = message.find('%'); at != absl::string_view::npos;
       at = message.find('%', at + 1)) {
    int64_t node = -1;
    for (size_t i = at + 1; i < message.size() && node < kMost; ++i) {
      if (std::isdigit(static_cast<unsigned char>(message[i])) == 0) break;
      node = (node < 0 ? 0 : node * 10) + (message[i] - '0');
    }
    if (node >= 0) return node;
  }
  return -1;
}

}  // namespace

rg_code ReportStatus(const absl::Status& status) {
  if (status.ok()) return RG_OK;
  last_error.code = CodeOf(status.code());
  last_error.message.assign(status.message().data(), status.message().size());
  last_error.node = NodeIn(last_error.message);
  return last_error.code;
}

rg_code Guarded(absl::FunctionRef<absl::Status()> work) {
  try {
    return ReportStatus(work());
  } catch (const std::bad_alloc&) {
    return ReportStatus(absl::ResourceExhaustedError("the host has no memory left"));
  } catch (const std::exception& error) {
    return ReportStatus(absl::InternalError(error.what()));
  } catch (...) {
    return ReportStatus(absl::InternalError("an exception that is no std::exception"));
  }
}

absl::Status NotNull(const void* address, absl::string_view parameter) {
  if (address != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(parameter, " is null"));
}

absl::StatusOr<char*> CallersCopy(absl::string_view bytes) {
  auto* const copy = static_cast<char*>(std::malloc(bytes.size() + 1));
  if (copy == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes.size(), " bytes of text"));
  }
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  copy[bytes.size()] = '\0';
  return copy;
}

}  // namespace retrograd

rg_code rg_last_error(rg_error* error) {
  // Not through Report: asking does not change the answer.
  if (error == nullptr || error->struct_size < sizeof(size_t) ||
      error->struct_size > sizeof(rg_error)) {
    return RG_INVALID_ARGUMENT;
  }
  rg_error told = {};
  told.code = retrograd::last_error.code;
  told.message = retrograd::last_error.message.c_str();
  told.node = retrograd::last_error.node;
  return retrograd::ReportStatus(retrograd::Give(told, error, "rg_error"));
}

const char* rg_code_name(rg_code code) {
  switch (code) {
    case RG_OK: return "RG_OK";
    case RG_INVALID_ARGUMENT: return "RG_INVALID_ARGUMENT";
    case RG_NOT_FOUND: return "RG_NOT_FOUND";
    case RG_FAILED_PRECONDITION: return "RG_FAILED_PRECONDITION";
    case RG_UNIMPLEMENTED: return "RG_UNIMPLEMENTED";
    case RG_RESOURCE_EXHAUSTED: return "RG_RESOURCE_EXHAUSTED";
    case RG_UNAVAILABLE: return "RG_UNAVAILABLE";
    case RG_CANCELLED: return "RG_CANCELLED";
    case RG_INTERNAL: return "RG_INTERNAL";
    default: return "RG_UNKNOWN";
  }
}

const char* rg_version(void) { return RETROGRAD_VERSION; }

void rg_free(void* data) { std::free(data); }
