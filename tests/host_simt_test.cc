#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/host_prelude.h"
#include "runtime/host_module.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"
#include "tests/support/planted_faults.h"

namespace retrograd {
namespace {

// y = exp(x) of 1000 elements, stored as bf16; four a thread.
constexpr char kPointwise[] = R"(
RG_KERNEL(rg_pointwise, 64, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(rg_bf16, y, 1);
  const int64_t point = (static_cast<int64_t>(RG_BLOCK) * 64 + RG_THREAD) * 4;
  if (point < 1000) {
    float v[4];
    rg_load_vec<4>(x, point, v);
    for (int k = 0; k < 4; ++k) v[k] = rg_exp(v[k]);
    rg_store_vec<4>(y, point, v);
  }
}
)";

// A row a block, 200 columns: shuffles within warps, shared memory across them.
constexpr char kRowSum[] = R"(
RG_KERNEL(rg_row_sum, 128, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  RG_SHARED(float, partial, 4);
  const int t = RG_THREAD;
  float v = 0;
  for (int64_t c = t; c < 200; c += 128) v += rg_load(x, static_cast<int64_t>(RG_BLOCK) * 200 + c);
  for (int lane = RG_WARP / 2; lane > 0; lane /= 2) v += RG_SHUFFLE_XOR(v, lane);
  if (t % RG_WARP == 0) {
    partial[t / RG_WARP] = v;
  }
  RG_BARRIER();
  float total = 0;
  for (int w = 0; w < 128 / RG_WARP; ++w) total += partial[w];
  if (t < 1) rg_store(y, RG_BLOCK, total);
}
)";

// A 48 x 80 matrix in tiles of 16 x 16, two passes of which use the same tile.
constexpr char kTranspose[] = R"(
RG_KERNEL(rg_transpose, 256, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  RG_SHARED(float, tile, 272);
  const int row = RG_THREAD / 16, column = RG_THREAD % 16;
  for (int pass = 0; pass < 5; ++pass) {
    const int64_t from = (RG_BLOCK * 16 + row) * 80 + pass * 16 + column;
    tile[row * 17 + column] = rg_load(x, from);
    RG_BARRIER();
    const int64_t to = (pass * 16 + row) * 48 + RG_BLOCK * 16 + column;
    rg_store(y, to, tile[column * 17 + row]);
    RG_BARRIER();
  }
}
)";

// 1000 elements summed by 4 blocks into a workspace, and the workspace by one.
constexpr char kSplitSum[] = R"(
RG_KERNEL(rg_split_sum, 64, 2) {
  RG_ARG(const double, x, 0);
  RG_ARG(double, workspace, 1);
  RG_SHARED(double, partial, 64);
  double v = 0;
  for (int64_t i = RG_BLOCK * 250 + RG_THREAD; i < RG_BLOCK * 250 + 250; i += 64) v += rg_load(x, i);
  partial[RG_THREAD] = v;
  RG_BARRIER();
  for (int half = 32; half > 0; half /= 2) {
    if (RG_THREAD < half) partial[RG_THREAD] += partial[RG_THREAD + half];
    RG_BARRIER();
  }
  if (RG_THREAD < 1) rg_store(workspace, RG_BLOCK, partial[0]);
}
RG_KERNEL(rg_split_sum_finalize, RG_WARP, 2) {
  RG_ARG(const double, workspace, 0);
  RG_ARG(double, y, 1);
  double v = RG_THREAD < 4 ? rg_load(workspace, RG_THREAD) : 0;
  v += RG_SHUFFLE_DOWN(v, 2);
  v += RG_SHUFFLE_DOWN(v, 1);
  if (RG_THREAD < 1) rg_store(y, 0, v);
}
)";

// Each lane of a block of one warp learns who is three further; the last three keep their own.
constexpr char kNeighbour[] = R"(
RG_KERNEL(rg_neighbour, RG_WARP, 1) {
  RG_ARG(int64_t, y, 0);
  const long long v = 10000000000ll + RG_THREAD;
  rg_store(y, RG_THREAD, RG_SHUFFLE_DOWN(v, 3));
}
)";

// Who comes last in a block decides: wrong code, made to see orders.
constexpr char kLastWins[] = R"(
RG_KERNEL(rg_last_wins, 96, 1) {
  RG_ARG(int32_t, y, 0);
  RG_BARRIER();
  rg_store(y, 0, RG_THREAD);
}
RG_KERNEL(rg_last_block_wins, 1, 1) {
  RG_ARG(int32_t, y, 0);
  rg_store(y, 0, RG_BLOCK);
}
)";

constexpr char kConversions[] = R"(
RG_KERNEL(rg_conversions, 1, 4) {
  RG_ARG(const float, x, 0);
  RG_ARG(rg_bf16, b, 1);
  RG_ARG(rg_fp16, h, 2);
  RG_ARG(float, back, 3);
  rg_store(b, RG_BLOCK, rg_load(x, RG_BLOCK));
  rg_store(h, RG_BLOCK, rg_load(x, RG_BLOCK));
  rg_store(back, 2 * RG_BLOCK, rg_load(b, RG_BLOCK));
  rg_store(back, 2 * RG_BLOCK + 1, rg_round<rg_fp16>(rg_load(x, RG_BLOCK)));
}
RG_KERNEL(rg_integers, 1, 4) {
  RG_ARG(const double, x, 0);
  RG_ARG(int8_t, i, 1);
  RG_ARG(bool, b, 2);
  RG_ARG(int64_t, l, 3);
  rg_store(i, RG_BLOCK, rg_load(x, RG_BLOCK));
  rg_store(b, RG_BLOCK, rg_load(x, RG_BLOCK));
  rg_store(l, RG_BLOCK, rg_max(rg_load(l, RG_BLOCK), static_cast<int64_t>(rg_load(i, RG_BLOCK))));
}
RG_KERNEL(rg_functions, 1, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  const float a = rg_load(x, 0), b = rg_load(x, 1);
  rg_store(y, 0, rg_max(a, b));
  rg_store(y, 1, rg_min(a, b));
  rg_store(y, 2, rg_relu(a));
  rg_store(y, 3, rg_sign(b));
  rg_store(y, 4, rg_rsqrt(b));
  rg_store(y, 5, rg_erf(b));
  rg_store(y, 6, rg_fmod(b, 1.5f));
  rg_store(y, 7, rg_log1p(b));
}
)";

std::shared_ptr<HostModule> MustCompile(const std::string& kernels, bool check, int warp = 32) {
  HostCompileOptions options;
  options.check = check;
  options.warp = warp;
  auto module = HostModule::Compile(absl::StrCat(HostPrelude(), kernels), options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  return *module;
}

std::shared_ptr<HostModule> GoodKernels(bool check, int warp) {
  return MustCompile(absl::StrCat(kPointwise, kRowSum, kTranspose, kSplitSum, kNeighbour,
                                  kConversions, kLastWins),
                     check, warp);
}

template <typename T>
HostArg In(const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  return {const_cast<T*>(values.data()), bytes, 16, false, HostContents::kDefined};
}
template <typename T>
HostArg Out(std::vector<T>& values, HostContents contents = HostContents::kUndefined) {
  return {values.data(), static_cast<int64_t>(values.size() * sizeof(T)), 16, true, contents};
}

std::vector<float> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256;
  return values;
}

uint32_t BitsOf(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return bits;
}
float FloatOf(uint32_t bits) {
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

// Statuses of launches, each with what it should say.
void Expect(const absl::Status& status, std::initializer_list<const char*> parts) {
  INFO(status.ToString());
  REQUIRE_FALSE(status.ok());
  for (const char* part : parts) {
    CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
  }
}
void ExpectOk(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

TEST_CASE("kernels give right results in both builds, with both warp sizes, in any order") {
  const bool check = GENERATE(false, true);
  const int warp = GENERATE(32, 64);
  const auto module = GoodKernels(check, warp);
  HostLauncher launcher;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    INFO("check " << check << ", warp " << warp << ", seed " << seed);
    const auto run = [&](const char* kernel, int64_t blocks, int threads,
                         std::vector<HostArg> args) {
      ExpectOk(launcher.Run(*module->Find(kernel), blocks, threads, args, {seed}));
    };
    const std::vector<float> x = RandomValues(48 * 80, 7);

    std::vector<uint16_t> y16(1000);
    const std::vector<float> thousand(x.begin(), x.begin() + 1000);
    run("rg_pointwise", 4, 64, {In(thousand), Out(y16)});
    for (int i = 0; i < 1000; ++i) {
      const float exact = std::exp(x[i]);
      REQUIRE(std::fabs(FloatOf(uint32_t{y16[i]} << 16) - exact) <= exact / 256);
    }

    std::vector<float> sums(19);
    const std::vector<float> rows(x.begin(), x.begin() + 19 * 200);
    run("rg_row_sum", 19, 128, {In(rows), Out(sums)});
    for (int row = 0; row < 19; ++row) {
      float sum = 0;  // multiples of 1/256: exact in any order
      for (int c = 0; c < 200; ++c) sum += x[row * 200 + c];
      REQUIRE(sums[row] == sum);
    }

    std::vector<float> transposed(48 * 80);
    run("rg_transpose", 3, 256, {In(x), Out(transposed)});
    for (int i = 0; i < 48 * 80; ++i) REQUIRE(transposed[i % 80 * 48 + i / 80] == x[i]);

    std::vector<double> wide(1000), workspace(4), total(1);
    double sum = 0;
    for (int i = 0; i < 1000; ++i) sum += wide[i] = x[i];
    run("rg_split_sum", 4, 64, {In(wide), Out(workspace)});
    HostArg partials = Out(workspace, HostContents::kTracked);
    run("rg_split_sum_finalize", 1, warp, {partials, Out(total)});
    REQUIRE(total[0] == sum);

    std::vector<int64_t> neighbours(warp);
    run("rg_neighbour", 1, warp, {Out(neighbours)});
    for (int i = 0; i < warp; ++i) {
      REQUIRE(neighbours[i] == 10000000000 + (i + 3 < warp ? i + 3 : i));
    }
  }
}

TEST_CASE("storing as fp16 or bf16 rounds to nearest, ties to even, for every float of interest") {
  // Every fp16 and bf16 value, the middles between neighbours, and what lies just beside those.
  std::vector<float> x;
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const double low = std::ldexp(h < 0x400 ? h : 0x400 + h % 0x400, std::max<int>(h >> 10, 1) - 25);
    const double high =
        std::ldexp(h + 1 < 0x400 ? h + 1 : 0x400 + (h + 1) % 0x400,
                   std::max<int>((h + 1) >> 10, 1) - 25);
    const float middle = static_cast<float>((low + high) / 2);
    for (float v : {static_cast<float>(low), middle, std::nextafter(middle, 0.0f),
                    std::nextafter(middle, 1e9f)}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  for (uint32_t b = 0; b < 0x7f80; b += 3) {
    for (uint32_t low : {0x0u, 0x7fffu, 0x8000u, 0x8001u}) x.push_back(FloatOf(b << 16 | low));
  }
  for (float v : {INFINITY, -INFINITY, NAN, 65519.9f, 65520.0f, 1e-8f, 0x1p-25f, 1e38f}) {
    x.push_back(v);
  }
  std::vector<uint16_t> b(x.size()), h(x.size());
  std::vector<float> back(2 * x.size());
  const auto module = GoodKernels(false, 32);
  ExpectOk(module->Launch("rg_conversions", static_cast<int64_t>(x.size()), 1,
                          {In(x), Out(b), Out(h), Out(back)}));
  // The nearest of a format with p bits of precision and least exponent e, by double arithmetic.
  const auto nearest = [](double v, int precision, int least, double most) {
    if (v == 0 || std::isinf(v)) return v;
    const int exponent = std::max(std::ilogb(v), least);
    const double unit = std::ldexp(1.0, exponent - precision + 1);
    const double rounded = std::nearbyint(v / unit) * unit;
    return std::fabs(rounded) > most ? std::copysign(INFINITY, v) : rounded;
  };
  for (size_t i = 0; i < x.size(); ++i) {
    INFO("x = " << x[i] << " = 0x" << std::hex << BitsOf(x[i]));
    if (std::isnan(x[i])) {
      REQUIRE((std::isnan(back[2 * i]) && std::isnan(back[2 * i + 1])));
      continue;
    }
    REQUIRE(back[2 * i] == nearest(x[i], 8, -126, 0x1.fep127));
    REQUIRE(back[2 * i + 1] == nearest(x[i], 11, -14, 65504));
    REQUIRE(std::signbit(back[2 * i + 1]) == std::signbit(x[i]));
  }
}

TEST_CASE("conversions to integers truncate, to bool ask for non-zero, and functions pass NaN on") {
  const bool check = GENERATE(false, true);
  const auto module = GoodKernels(check, 32);
  const std::vector<double> x = {-3.75, 0.0, 2.99, 0.25};
  std::vector<int8_t> i(4);
  std::vector<uint8_t> b(4);
  std::vector<int64_t> l = {-5, 7, 1, int64_t{1} << 40};
  ExpectOk(module->Launch("rg_integers", 4, 1,
                          {In(x), Out(i), Out(b), Out(l, HostContents::kDefined)}));
  CHECK(i == std::vector<int8_t>{-3, 0, 2, 0});
  CHECK(b == std::vector<uint8_t>{1, 0, 1, 1});
  CHECK(l == std::vector<int64_t>{-3, 7, 2, int64_t{1} << 40});

  const std::vector<float> in = {NAN, 4.0f};
  std::vector<float> y(8);
  ExpectOk(module->Launch("rg_functions", 1, 1, {In(in), Out(y)}));
  CHECK((std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(y[2])));
  CHECK(y[3] == 1);
  CHECK(y[4] == 0.5f);
  CHECK(y[5] == std::erf(4.0f));
  CHECK(y[6] == 1.0f);
  CHECK(y[7] == std::log1p(4.0f));
}

TEST_CASE("seeds draw the order of threads and of blocks, and one seed always draws the same") {
  const auto module = GoodKernels(false, 32);
  HostLauncher launcher;
  std::vector<int32_t> y(1);
  const std::vector<HostArg> args = {Out(y)};
  for (const auto& [kernel, blocks, threads] :
       {std::tuple("rg_last_wins", 1, 96), std::tuple("rg_last_block_wins", 64, 1)}) {
    std::set<int32_t> winners;
    for (uint64_t seed = 0; seed < 32; ++seed) {
      ExpectOk(launcher.Run(*module->Find(kernel), blocks, threads, args, {seed}));
      const int32_t winner = y[0];
      winners.insert(winner);
      ExpectOk(launcher.Run(*module->Find(kernel), blocks, threads, args, {seed}));
      CHECK(y[0] == winner);
    }
    INFO(kernel);
    CHECK(winners.size() > 8);
  }
}

TEST_CASE("a launch of a fast build allocates nothing once its kernel is reserved") {
  const auto module = GoodKernels(false, 32);
  const HostKernel row_sum = *module->Find("rg_row_sum");
  const HostKernel pointwise = *module->Find("rg_pointwise");
  const std::vector<float> x(4000, 1.0f);
  const std::vector<float> thousand(1000, 1.0f);
  std::vector<float> y(20);
  std::vector<uint16_t> y16(1000);
  const std::vector<HostArg> row_args = {In(x), Out(y)}, point_args = {In(thousand), Out(y16)};
  HostLauncher launcher;
  ExpectOk(launcher.Reserve(row_sum));
  ExpectOk(launcher.Reserve(pointwise));
  const int64_t before = AllocationCount();
  bool ok = true;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ok = ok && launcher.Run(row_sum, 20, 128, row_args, {seed}).ok();
    ok = ok && launcher.Run(pointwise, 4, 64, point_args, {seed}).ok();
  }
  CHECK(AllocationCount() == before);
  CHECK(ok);
  CHECK(y[19] == 200);
}

TEST_CASE("launchers on several threads run one module at once") {
  const auto module = GoodKernels(false, 32);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      const std::vector<float> x(200 * 50, static_cast<float>(id + 1));
      std::vector<float> y(50);
      for (int round = 0; round < 20; ++round) {
        const auto status = module->Launch("rg_row_sum", 50, 128, {In(x), Out(y)});
        for (float v : y) wrong[id] += v != 200 * (id + 1) || !status.ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a launch that does not fit its kernel is refused by name") {
  const auto module = GoodKernels(false, 32);
  std::vector<float> x(4000), y(20);
  Expect(module->Launch("rg_row_sum", 1, 64, {In(x), Out(y)}), {"rg_row_sum", "128 threads", "64"});
  Expect(module->Launch("rg_row_sum", 1, 128, {In(x)}), {"rg_row_sum", "2 arguments", "with 1"});
  Expect(module->Launch("rg_row_sum", int64_t{1} << 31, 128, {In(x), Out(y)}), {"2147483648 blocks"});
  Expect(module->Launch("rg_row_sum", -1, 128, {In(x), Out(y)}), {"-1 blocks"});
  Expect(module->Launch("rg_sum_row", 1, 128, {In(x), Out(y)}), {"rg_sum_row"});
  HostArg odd = In(x);
  odd.data = reinterpret_cast<char*>(odd.data) + 4;
  Expect(module->Launch("rg_row_sum", 1, 128, {odd, Out(y)}), {"argument 0", "aligned to 16"});
  ExpectOk(module->Launch("rg_row_sum", 0, 128, {In(x), Out(y)}));
}

// --- faults -------------------------------------------------------------------------------------

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
  // The strided loop reads one element of the next row, past the end only in the last one; the guard
  // of the store lets a second thread through.
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
  Expect(RunChecked(Plant(kTranspose, PlantedFault::kUninitialisedShared, 0), "rg_transpose", 3, 256,
                    {In(x), Out(y)}),
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
  shifted.replace(shifted.find("rg_load_vec<4>(x, point, v)"), 27, "rg_load_vec<4>(x, point + 1, v)");
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
  const auto module = GoodKernels(true, 32);
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
  const auto module = GoodKernels(true, 32);
  std::vector<int32_t> y = {42};
  Expect(module->Launch("rg_last_block_wins", 1, 1, {In(y)}), {"only read", "argument 0"});
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

}  // namespace
}  // namespace retrograd
