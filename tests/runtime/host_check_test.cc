// The checking build of the host dialect catches wrong kernels, and names what is wrong.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/preludes/host_prelude.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/hand_kernels.h"
#include "tests/support/kernels/planted_faults.h"

namespace retrograd {
namespace {

// Runs a checked kernel that has these planted in it, with several seeds: the first status that is
// not OK.
absl::Status RunChecked(const std::string& source, const char* kernel, int64_t blocks, int threads,
                        const std::vector<HostArg>& args) {
  const auto module = MustCompile(source, true);
  HostLauncher launcher;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    absl::Status status = launcher.Run(*module->Find(kernel), blocks, threads, args, {seed});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST_CASE("each barrier removed from a reduction or a transpose is reported as a race") {
  const std::vector<float> x = RandomValues(48 * 80, 3);
  std::vector<float> y(48 * 80), sums(19);
  REQUIRE(CountSites(kTranspose, PlantedFault::kRemovedBarrier) == 2);
  for (int n = 0; n < 2; ++n) {
    const std::string source = Plant(kTranspose, PlantedFault::kRemovedBarrier, n);
    INFO(DescribeSite(kTranspose, PlantedFault::kRemovedBarrier, n));
    Expect(RunChecked(source, "rg_transpose", 3, 256, {In(x), Out(y)}),
           {"rg_transpose", "race", "shared array tile", "no barrier between"});
  }
  Expect(RunChecked(Plant(kRowSum, PlantedFault::kRemovedBarrier, 0), "rg_row_sum", 19, 128,
                    {In(x), Out(sums)}),
         {"rg_row_sum", "shared array partial"});
  std::vector<double> wide(1000), workspace(4);
  REQUIRE(CountSites(kSplitSum, PlantedFault::kRemovedBarrier) == 2);
  for (int n = 0; n < 2; ++n) {
    Expect(RunChecked(Plant(kSplitSum, PlantedFault::kRemovedBarrier, n), "rg_split_sum", 4, 64,
                      {In(wide), Out(workspace)}),
           {"race", "shared array partial"});
  }
}

TEST_CASE("a bound off by one is reported as out of bounds, with argument, element and thread") {
  const std::vector<float> x(1000);
  std::vector<uint16_t> y(1000);
  REQUIRE(CountSites(kPointwise, PlantedFault::kOffByOneBound) == 1);
  Expect(RunChecked(Plant(kPointwise, PlantedFault::kOffByOneBound, 0), "rg_pointwise", 4, 64,
                    {In(x), Out(y)}),
         {"rg_pointwise", "out of bounds", "argument 0", "argument 1", "element 1000",
          "thread 58 of block 3", "has 1000 elements", "line 7"});
  const std::vector<float> rows(19 * 200);
  std::vector<float> sums(19);
  // The strided loop reads one element of the next row, past the end only in the last one; the
  // guard of the store lets a second thread through.
  REQUIRE(CountSites(kRowSum, PlantedFault::kOffByOneBound) == 2);
  Expect(RunChecked(Plant(kRowSum, PlantedFault::kOffByOneBound, 0), "rg_row_sum", 19, 128,
                    {In(rows), Out(sums)}),
         {"out of bounds", "argument 0", "element 3800", "thread 72 of block 18"});
  Expect(RunChecked(Plant(kRowSum, PlantedFault::kOffByOneBound, 1), "rg_row_sum", 19, 128,
                    {In(rows), Out(sums)}),
         {"race", "argument 1"});
}

TEST_CASE("shared memory that a block has not stored to is reported as uninitialised") {
  const std::vector<float> x(48 * 80);
  std::vector<float> y(48 * 80), sums(19);
  REQUIRE(CountSites(kTranspose, PlantedFault::kUninitialisedShared) == 1);
  Expect(RunChecked(Plant(kTranspose, PlantedFault::kUninitialisedShared, 0), "rg_transpose", 3,
                    256, {In(x), Out(y)}),
         {"uninitialised", "shared array tile"});
  Expect(RunChecked(Plant(kRowSum, PlantedFault::kUninitialisedShared, 0), "rg_row_sum", 19, 128,
                    {In(x), Out(sums)}),
         {"uninitialised", "shared array partial"});
}

TEST_CASE("what one block stored in shared memory is uninitialised to the next") {
  const std::string source = R"(
RG_KERNEL(rg_stale, 1, 1) {
  RG_ARG(float, y, 0);
  RG_SHARED(float, s, 1);
  if (RG_BLOCK == 0) s[0] = 1;
  rg_store(y, RG_BLOCK, s[0]);
}
)";
  std::vector<float> y(2);
  Expect(RunChecked(source, "rg_stale", 2, 1, {Out(y)}), {"uninitialised", "block 1"});
}

TEST_CASE("shared arrays have bounds of their own") {
  const std::string source = R"(
RG_KERNEL(rg_beside, 32, 1) {
  RG_ARG(float, y, 0);
  RG_SHARED(float, a, 32);
  RG_SHARED(float, b, 32);
  a[RG_THREAD + 1] = 1;
  b[RG_THREAD] = 2;
  RG_BARRIER();
  rg_store(y, RG_THREAD, b[RG_THREAD]);
}
)";
  std::vector<float> y(32);
  Expect(RunChecked(source, "rg_beside", 1, 32, {Out(y)}),
         {"out of bounds", "shared array a", "element 32", "thread 31", "has 32 elements"});
}

TEST_CASE("threads that wait at different places, or leave, are reported and never waited for") {
  const std::string source = R"(
RG_KERNEL(rg_leaves, 64, 1) {
  RG_ARG(float, y, 0);
  if (RG_THREAD < 40) {
    RG_BARRIER();
  }
  rg_store(y, RG_THREAD, 1.0f);
}
RG_KERNEL(rg_two_barriers, 64, 1) {
  RG_ARG(float, y, 0);
  if (RG_THREAD % 2 == 0) {
    RG_BARRIER();
  } else {
    RG_BARRIER();
  }
  rg_store(y, RG_THREAD, 1.0f);
}
RG_KERNEL(rg_half_a_shuffle, 64, 1) {
  RG_ARG(float, y, 0);
  float v = 1;
  if (RG_THREAD < 48) v += RG_SHUFFLE_XOR(v, 1);
  rg_store(y, RG_THREAD, v);
}
RG_KERNEL(rg_shuffle_or_barrier, 64, 1) {
  RG_ARG(float, y, 0);
  float v = 1;
  if (RG_THREAD < 63) v += RG_SHUFFLE_XOR(v, 1);
  RG_BARRIER();
  rg_store(y, RG_THREAD, v);
}
RG_KERNEL(rg_fine, 64, 1) {
  RG_ARG(float, y, 0);
  RG_BARRIER();
  rg_store(y, RG_THREAD, 2.0f);
}
)";
  const bool check = GENERATE(false, true);
  const auto module = MustCompile(source, check);
  HostLauncher launcher;
  std::vector<float> y(64);
  const auto run = [&](const char* kernel) {
    return launcher.Run(*module->Find(kernel), 1, 64, std::vector<HostArg>{Out(y)}, {5});
  };
  Expect(run("rg_leaves"), {"rg_leaves", "block 0", "divergent", "and 39 more wait at the barrier",
                            "line 4", "and 23 more have returned"});
  Expect(run("rg_two_barriers"), {"divergent", "barrier in line 4", "barrier in line 6"});
  Expect(run("rg_half_a_shuffle"), {"divergent", "and 15 more wait at the shuffle in line 4"});
  Expect(run("rg_shuffle_or_barrier"), {"divergent", "shuffle in line 4", "barrier in line 5"});
  // The launcher is none the worse.
  ExpectOk(run("rg_fine"));
  CHECK(y == std::vector<float>(64, 2.0f));
}

// Each thread takes its neighbour's number, within its warp or from the other one.
constexpr char kTurn[] = R"(
RG_KERNEL(rg_turn, 64, 1) {
  RG_ARG(int32_t, y, 0);
  RG_SHARED(int, numbers, 64);
  const int lane = RG_THREAD % 32, warp = RG_THREAD - lane;
  numbers[RG_THREAD] = RG_THREAD;
  RG_WARP_BARRIER();
  const int other = numbers[warp + (lane + 1) % 32];
  RG_WARP_BARRIER();
  numbers[RG_THREAD] = other;
  RG_WARP_BARRIER();
  rg_store(y, RG_THREAD, numbers[warp + (lane + 1) % 32]);
}
)";

TEST_CASE("a meeting of a warp orders what its threads do, and each one that lacks is a race") {
  std::vector<int32_t> y(64);
  ExpectOk(RunChecked(kTurn, "rg_turn", 1, 64, {Out(y)}));
  for (int t = 0; t < 64; ++t) CHECK(y[t] == t / 32 * 32 + (t + 2) % 32);
  const std::string meeting = "  RG_WARP_BARRIER();\n";
  for (size_t at = std::string(kTurn).find(meeting); at != std::string::npos;
       at = std::string(kTurn).find(meeting, at + 1)) {
    std::string source = kTurn;
    source.erase(at, meeting.size());
    Expect(RunChecked(source, "rg_turn", 1, 64, {Out(y)}), {"race", "shared array numbers"});
  }
}

TEST_CASE("a meeting of a warp orders nothing that another warp does") {
  const std::string source = R"(
RG_KERNEL(rg_read_other_warp, 64, 1) {
  RG_ARG(int32_t, y, 0);
  RG_SHARED(int, numbers, 64);
  numbers[RG_THREAD] = RG_THREAD;
  RG_WARP_BARRIER();
  rg_store(y, RG_THREAD, numbers[(RG_THREAD + 32) % 64]);
}
RG_KERNEL(rg_write_what_two_read, 64, 1) {
  RG_ARG(int32_t, y, 0);
  RG_SHARED(int, numbers, 1);
  if (RG_THREAD == 0) numbers[0] = 3;
  RG_BARRIER();
  const int number = numbers[0];
  RG_WARP_BARRIER();
  if (RG_THREAD == 40) numbers[0] = 4;
  rg_store(y, RG_THREAD, number);
}
RG_KERNEL(rg_through_memory, 64, 1) {
  RG_ARG(int32_t, y, 0);
  rg_store(y, RG_THREAD, RG_THREAD);
  RG_WARP_BARRIER();
  const int number = rg_load(y, (RG_THREAD + 32) % 64);
  RG_BARRIER();
  rg_store(y, RG_THREAD, number);
}
)";
  std::vector<int32_t> y(64);
  Expect(RunChecked(source, "rg_read_other_warp", 1, 64, {Out(y)}), {"race", "numbers"});
  Expect(RunChecked(source, "rg_write_what_two_read", 1, 64, {Out(y)}), {"race", "numbers"});
  Expect(RunChecked(source, "rg_through_memory", 1, 64, {Out(y)}), {"race", "argument 0"});
}

TEST_CASE("a meeting that part of a warp does not come to is reported") {
  const std::string source = R"(
RG_KERNEL(rg_half_a_meeting, 64, 1) {
  RG_ARG(int32_t, y, 0);
  if (RG_THREAD < 48) RG_WARP_BARRIER();
  rg_store(y, RG_THREAD, 1);
}
)";
  std::vector<int32_t> y(64);
  Expect(RunChecked(source, "rg_half_a_meeting", 1, 64, {Out(y)}),
         {"divergent", "and 15 more wait at the shuffle in line 3"});
}

TEST_CASE("a shuffle with lanes that a short warp lacks is reported") {
  const std::string source = R"(
RG_KERNEL(rg_short, 48, 1) {
  RG_ARG(float, y, 0);
  float v = 1;
  v += RG_SHUFFLE_XOR(v, 16);
  rg_store(y, RG_THREAD, v);
}
)";
  std::vector<float> y(48);
  Expect(RunChecked(source, "rg_short", 1, 48, {Out(y)}), {"shuffle", "16 away", "line 4"});
}

TEST_CASE("a vector access beyond the promised alignment is reported") {
  const std::vector<float> x(1004);
  std::vector<uint16_t> y(1000);
  HostArg promised_little = In(std::vector<float>());
  promised_little = {const_cast<float*>(x.data()), 4000, 4, false, HostContents::kDefined};
  Expect(RunChecked(kPointwise, "rg_pointwise", 4, 64, {promised_little, Out(y)}),
         {"misaligned", "argument 0", "16 bytes", "aligned to 4"});
  std::string shifted = kPointwise;
  shifted.replace(shifted.find("rg_load_vec<4>(x, point, v)"), 27,
                  "rg_load_vec<4>(x, point + 1, v)");
  Expect(RunChecked(shifted, "rg_pointwise", 4, 64, {{const_cast<float*>(x.data()), 4016}, Out(y)}),
         {"misaligned", "16 bytes at byte", "aligned to 16"});
}

TEST_CASE("blocks that store to one word, or read what another block stores, are reported") {
  const std::string source = R"(
RG_KERNEL(rg_add, 32, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  rg_store(y, RG_THREAD, rg_load(y, RG_THREAD) + rg_load(x, RG_BLOCK * 32 + RG_THREAD));
}
RG_KERNEL(rg_read_other, 32, 1) {
  RG_ARG(float, y, 0);
  const int i = RG_BLOCK * 32 + RG_THREAD;
  rg_store(y, i, rg_load(y, i < 32 ? i : i - 32));
}
RG_KERNEL(rg_bytes, 32, 2) {
  RG_ARG(const int32_t, x, 0);
  RG_ARG(int8_t, y, 1);
  rg_store(y, RG_BLOCK * 32 + RG_THREAD, rg_load(x, 0));
}
)";
  const std::vector<float> x(64);
  std::vector<float> y(64);
  Expect(RunChecked(source, "rg_add", 2, 32, {In(x), Out(y, HostContents::kDefined)}),
         {"race", "argument 1", "in the same launch", "line 4"});
  ExpectOk(RunChecked(source, "rg_add", 1, 32, {In(x), Out(y, HostContents::kDefined)}));
  Expect(RunChecked(source, "rg_read_other", 2, 32, {Out(y, HostContents::kDefined)}), {"race"});
  // Neighbouring bytes are words of their own.
  const std::vector<int32_t> one(1);
  std::vector<int8_t> bytes(64);
  ExpectOk(RunChecked(source, "rg_bytes", 2, 32, {In(one), Out(bytes)}));
}

TEST_CASE("two arguments with the same memory are one to the race check") {
  const std::string source = R"(
RG_KERNEL(rg_in_place, 32, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  rg_store(y, RG_THREAD, 2 * rg_load(x, RG_THREAD));
}
RG_KERNEL(rg_reversed_in_place, 32, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  rg_store(y, RG_THREAD, 2 * rg_load(x, 31 - RG_THREAD));
}
)";
  std::vector<float> x(32, 1.0f);
  ExpectOk(RunChecked(source, "rg_in_place", 1, 32, {In(x), Out(x)}));
  Expect(RunChecked(source, "rg_reversed_in_place", 1, 32, {In(x), Out(x)}), {"race"});
}

TEST_CASE("outputs and workspaces read before they are written are reported, across launches too") {
  const auto module = MustCompile(kSplitSum, true);
  HostLauncher launcher;
  std::vector<double> wide(1000), workspace(4), total(1);
  const auto finalize = [&](HostContents contents) {
    const std::vector<HostArg> args = {Out(workspace, contents), Out(total)};
    return launcher.Run(*module->Find("rg_split_sum_finalize"), 1, 32, args);
  };
  Expect(finalize(HostContents::kUndefined), {"uninitialised", "argument 0", "nothing was stored"});
  // Three of four partial sums are there.
  const std::vector<HostArg> args = {In(wide), Out(workspace)};
  ExpectOk(launcher.Run(*module->Find("rg_split_sum"), 3, 64, args));
  Expect(finalize(HostContents::kTracked), {"uninitialised", "element 3 "});
  ExpectOk(launcher.Run(*module->Find("rg_split_sum"), 4, 64, args));
  ExpectOk(finalize(HostContents::kTracked));
  launcher.MarkUndefined(workspace.data(), 16);
  Expect(finalize(HostContents::kTracked), {"uninitialised"});
  launcher.MarkDefined(workspace.data(), 16);
  ExpectOk(finalize(HostContents::kTracked));
}

TEST_CASE("a store to an argument that the launch only reads is reported and not done") {
  const std::string source = R"(
RG_KERNEL(rg_store_one, 1, 1) {
  RG_ARG(int32_t, y, 0);
  rg_store(y, 0, 1);
}
)";
  const std::vector<int32_t> y = {42};
  Expect(RunChecked(source, "rg_store_one", 1, 1, {In(y)}), {"only read", "argument 0"});
  CHECK(y[0] == 42);
}

TEST_CASE("a checked kernel that would never end is ended after so many accesses") {
  const std::string source = R"(
RG_KERNEL(rg_endless, 32, 1) {
  RG_ARG(float, y, 0);
  while (rg_load(y, RG_THREAD) == 0) {
  }
}
RG_KERNEL(rg_endless_together, 32, 1) {
  RG_ARG(float, y, 0);
  RG_SHARED(float, s, 32);
  s[RG_THREAD] = rg_load(y, RG_THREAD);
  RG_BARRIER();
  while (s[RG_THREAD] == 0) {
  }
}
)";
  const auto module = MustCompile(source, true);
  HostLauncher launcher;
  std::vector<float> y(32);
  const std::vector<HostArg> args = {Out(y, HostContents::kDefined)};
  for (const char* kernel : {"rg_endless", "rg_endless_together"}) {
    HostLaunchOptions options;
    options.most_accesses = 10000;
    Expect(launcher.Run(*module->Find(kernel), 3, 32, args, options),
           {kernel, "stopped after 10000 accesses"});
  }
}

TEST_CASE("more shared memory than a block has is an error, not a crash") {
  const std::string source = R"(
RG_KERNEL(rg_greedy, 32, 1) {
  RG_ARG(float, y, 0);
  RG_SHARED(float, s, 100000);
  s[RG_THREAD] = 1;
  rg_store(y, RG_THREAD, s[RG_THREAD]);
}
)";
  std::vector<float> y(32);
  const bool check = GENERATE(false, true);
  Expect(MustCompile(source, check)->Launch("rg_greedy", 1, 32, {Out(y)}),
         {"rg_greedy", "shared memory", "400000 bytes"});
}

TEST_CASE("a block has as many shared arrays as its memory holds") {
  std::string source = "\nRG_KERNEL(rg_many, 32, 1) {\n  RG_ARG(float, y, 0);\n  float sum = 0;\n";
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&source, "  RG_SHARED(float, s", i, ", 32);\n  s", i, "[RG_THREAD] = ", i,
                    ";\n  sum += s", i, "[RG_THREAD];\n");
  }
  absl::StrAppend(&source, "  rg_store(y, RG_THREAD, sum);\n}\n");
  std::vector<float> y(32);
  const bool check = GENERATE(false, true);
  ExpectOk(MustCompile(source, check)->Launch("rg_many", 1, 32, {Out(y)}));
  CHECK(y == std::vector<float>(32, 199 * 100));
}

}  // namespace
}  // namespace retrograd
