// HIP's headers are not needed. What is relied on: the functions below with the arguments that HIP
// has declared since ROCm 4.5, when graphs came; enums passed as ints; and the numbers of
// gpu_driver.h, which HIP takes from CUDA. One number of hipDeviceAttribute_t, and no field of
// hipDeviceProp_t, which grew in ROCm 6. Checked against the headers of ROCm 5.2 and 7.1 and the
// library of 5.2; never run on AMD hardware.
#include "runtime/gpu/hip/hip_driver.h"

#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// More than hipDeviceProp_t of any release: 792 bytes in ROCm 5, 1472 in ROCm 6 and 7.
constexpr size_t kMostPropertyBytes = 16384;

// The caches of a device, last-level ones included. CDNA 3 and later put 256 MiB before the memory;
// CDNA 1 and 2 end with 8 MiB of L2 a die.
int64_t CacheBytes(absl::string_view arch) {
  const bool infinity_cache = absl::StartsWith(arch, "gfx94") || absl::StartsWith(arch, "gfx95");
  return (infinity_cache ? int64_t{260} : int64_t{8}) << 20;
}

// hipDeviceAttributeMultiprocessorCount: the same in ROCm 5.2 and 7.1. Should a release number them
// otherwise, what comes back may be nothing that a chip has.
constexpr int kComputeUnits = 63, kMostComputeUnits = 4096;

// No CDNA chip's cores run faster (MI355X: 2.4 GHz).
constexpr int64_t kMostClockKhz = 2'500'000;
constexpr int64_t kSharedBytes = int64_t{64} << 10;  // LDS of a workgroup, on CDNA chips, at least

class HipDriver : public GpuDriver {
 public:
  const char* Fill(void* library);

  absl::StatusOr<GpuFacts> Describe(int device) const override;
  absl::StatusOr<GpuContext> Open(int device) const override;
  void Close(const GpuContext&) const override {}
  absl::Status Enter(const GpuContext& context, int* before) const override;
  void Leave(int before) const override { SetDevice(before); }
  // A block may have all 64 KiB without asking.
  absl::Status AllowStaged(GpuFunction, int64_t) const override { return absl::OkStatus(); }
  absl::StatusOr<bool> IsOf(const GpuContext& context, GpuStream stream) const override;
  bool Update(GpuGraphExec exec, GpuGraph graph) const override;

 protected:
  std::string Words(int result) const override;

 private:
  const char* (*error_name_)(int) = nullptr;
  const char* (*error_string_)(int) = nullptr;
  GpuEntry<int(int*)> GetDevice;
  GpuEntry<int(int)> SetDevice;
  GpuEntry<int(void*, int)> GetDeviceProperties;
  GpuEntry<int(int*, int, int)> DeviceGetAttribute;
  GpuEntry<int(GpuStream, int*)> StreamGetDevice;  // from ROCm 5.6; null before
  GpuEntry<int(GpuGraphExec, GpuGraph, void**, int*)> GraphExecUpdate;
};

template <typename Signature>
bool Find(void* library, const char* symbol, GpuEntry<Signature>* entry) {
  entry->name = symbol;
  return FindSymbol(library, symbol, reinterpret_cast<void**>(&entry->function));
}

// The name of an entry point that the library lacks; null if it has all.
const char* HipDriver::Fill(void* library) {
  const char* missing = nullptr;
#define RG_HIP_FIND(entry, cuda, hip, ...) \
  if (!Find(library, #hip, &entry)) missing = #hip;
  RG_GPU_ENTRY_POINTS(RG_HIP_FIND)
  RG_HIP_FIND(GetDevice, , hipGetDevice)
  RG_HIP_FIND(SetDevice, , hipSetDevice)
  RG_HIP_FIND(DeviceGetAttribute, , hipDeviceGetAttribute)
  RG_HIP_FIND(GraphExecUpdate, , hipGraphExecUpdate)
#undef RG_HIP_FIND
  // The older function stays in later releases, for those compiled before.
  if (!Find(library, "hipGetDevicePropertiesR0600", &GetDeviceProperties) &&
      !Find(library, "hipGetDeviceProperties", &GetDeviceProperties)) {
    missing = "hipGetDeviceProperties";
  }
  Find(library, "hipStreamGetDevice", &StreamGetDevice);
  if (!FindSymbol(library, "hipGetErrorName", reinterpret_cast<void**>(&error_name_))) {
    missing = "hipGetErrorName";
  }
  if (!FindSymbol(library, "hipGetErrorString", reinterpret_cast<void**>(&error_string_))) {
    missing = "hipGetErrorString";
  }
  return missing;
}

// "gfx90a" of "gfx90a:sramecc+:xnack-": the properties' only text that begins so, wherever this
// release keeps it. The first field is the display name, which may hold anything.
std::optional<std::string> ArchIn(const std::string& properties) {
  for (size_t at = properties.find("gfx"); at != std::string::npos;
       at = properties.find("gfx", at + 1)) {
    if (at == 0 || absl::ascii_isalnum(static_cast<unsigned char>(properties[at - 1]))) continue;
    size_t end = at + 3;
    while (end < properties.size() &&
           absl::ascii_isxdigit(static_cast<unsigned char>(properties[end]))) {
      ++end;
    }
    if (end - at >= 6 && (properties[end] == '\0' || properties[end] == ':')) {
      return properties.substr(at, end - at);
    }
  }
  return std::nullopt;
}

absl::StatusOr<GpuFacts> HipDriver::Describe(int device) const {
  GpuFacts facts;
  char name[256] = {};
  RG_GPU(*this, DeviceGetName, name, sizeof name, device);
  facts.model = name;
  std::string properties(kMostPropertyBytes, '\0');
  RG_GPU(*this, GetDeviceProperties, properties.data(), device);
  const std::optional<std::string> arch = ArchIn(properties);
  if (!arch) {
    return absl::UnimplementedError(
        absl::StrCat(facts.model, ": the driver names no architecture (gfx90a, gfx942, ..)"));
  }
  facts.arch = *arch;
  // Of three digits and "9" the GCN and CDNA chips, whose wavefronts have 64 threads.
  if (facts.arch.size() != 6 || facts.arch[3] != '9') {
    return absl::UnimplementedError(
        absl::StrCat(facts.model, " is ", facts.arch,
                     ": kernels want wavefronts of 64 threads (gfx90a, gfx942 and their like)"));
  }
  facts.cache_bytes = CacheBytes(facts.arch);
  facts.clock_khz = kMostClockKhz;
  facts.shared_bytes = kSharedBytes;
  int units = 0;
  RG_GPU(*this, DeviceGetAttribute, &units, kComputeUnits, device);
  if (units >= 1 && units <= kMostComputeUnits) facts.sms = units;
  return facts;
}

absl::StatusOr<GpuContext> HipDriver::Open(int device) const {
  return GpuContext{.device = device};
}

absl::Status HipDriver::Enter(const GpuContext& context, int* before) const {
  RG_GPU(*this, GetDevice, before);
  RG_GPU(*this, SetDevice, context.device);
  return absl::OkStatus();
}

absl::StatusOr<bool> HipDriver::IsOf(const GpuContext& context, GpuStream stream) const {
  if (StreamGetDevice.function == nullptr) return true;
  int owner = 0;
  RG_GPU(*this, StreamGetDevice, stream, &owner);
  return owner == context.device;
}

bool HipDriver::Update(GpuGraphExec exec, GpuGraph graph) const {
  void* node = nullptr;
  int result = 0;
  return GraphExecUpdate(exec, graph, &node, &result) == kGpuSuccess && result == 0;
}

std::string HipDriver::Words(int result) const {
  const char* const name = error_name_(result);
  const char* const text = error_string_(result);
  return absl::StrCat(text != nullptr ? text : "an unknown error", " (",
                      name != nullptr ? name : "hipError_t", " ", result, ")");
}

absl::StatusOr<const GpuDriver*> Load(const std::string& path) {
  std::vector<const char*> candidates = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                         "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"};
  if (!path.empty()) candidates = {path.c_str()};
  void* const library = FirstLibrary(candidates);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("no HIP runtime found (",
                                               absl::StrJoin(candidates, ", "),
                                               "): install ROCm, or run with --device host"));
  }
  auto driver = std::make_unique<HipDriver>();
  if (const char* missing = driver->Fill(library)) {
    return absl::UnavailableError(absl::StrCat("the HIP runtime has no ", missing,
                                               ": it is too old; install ROCm 5.0 or later"));
  }
  // Without a GPU it answers with a device that is invalid.
  if (const absl::Status started = driver->StatusOf(driver->Init(0), driver->Init.name);
      !started.ok()) {
    return absl::UnavailableError(absl::StrCat("no AMD GPU that HIP can use: ", started.message()));
  }
  return driver.release();  // like the library, for the rest of the process
}

}  // namespace

absl::StatusOr<const GpuDriver*> LoadHipDriver(const std::string& library) {
  static LoadedDrivers& drivers = *new LoadedDrivers;
  return drivers.Get(library, Load);
}

}  // namespace retrograd
