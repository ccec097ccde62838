// The host dialect runs right kernels right.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"
#include "tests/support/kernels/hand_kernels.h"

namespace retrograd {
namespace {

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

// Three batches of copies, 4 numbers a thread each, one of them not sent off. Looks at all of them
// before any wait, and after each.
constexpr char kCopiesAhead[] = R"(
RG_KERNEL(rg_copies_ahead, 8, 2) {
  RG_STAGED(float, s, 0, 96);
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  for (int batch = 0; batch < 3; ++batch) {
    rg_copy_ahead<4>(s, batch * 32 + RG_THREAD * 4, x, batch * 32 + RG_THREAD * 4);
    if (batch < 2) {
      RG_COPIES_SENT();
    }
  }
  for (int look = 0; look < 4; ++look) {
    if (look == 1) {
      RG_COPIES_WAIT(2);
    }
    if (look == 2) {
      RG_COPIES_WAIT(1);
    }
    if (look == 3) {
      RG_COPIES_WAIT(0);
    }
    for (int batch = 0; batch < 3; ++batch) {
      for (int k = 0; k < 4; ++k) {
        const int at = batch * 32 + RG_THREAD * 4 + k;
        rg_store(y, RG_BLOCK * 384 + look * 96 + at, rg_load(s, at));
      }
    }
  }
}
)";

// Sums of what the blocks of a cluster have, by each of them.
constexpr char kClusterSums[] = R"(
RG_KERNEL_CLUSTER(rg_cluster_sums, 64, 2, 4) {
  RG_SHARED(float, s, 64);
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  s[RG_THREAD] = rg_load(x, RG_BLOCK * 64 + RG_THREAD);
  RG_CLUSTER_ARRIVE();
  RG_CLUSTER_WAIT();
  float sum = 0;
  for (int b = 0; b < 4; ++b) sum += RG_PEER(s, b, 63 - RG_THREAD);
  RG_CLUSTER_DONE();
  rg_store(y, RG_BLOCK * 64 + RG_THREAD, sum);
  RG_CLUSTER_WAIT();
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

std::shared_ptr<HostModule> GoodKernels(bool check, int warp) {
  return MustCompile(
      absl::StrCat(kPointwise, kRowSum, kTranspose, kSplitSum, kNeighbour, kConversions, kLastWins),
      check, warp);
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

TEST_CASE("copies come when they are waited for and no earlier; until then their target is NaN") {
  const bool check = GENERATE(false, true);
  const auto module = MustCompile(kCopiesAhead, check);
  const std::vector<float> x = RandomValues(96, 3);
  // Each block leaves a batch behind that is not the next one's.
  std::vector<float> y(2 * 4 * 96);
  ExpectOk(module->Launch("rg_copies_ahead", 2, 8, {In(x), Out(y)}));
  for (int look = 0; look < 8; ++look) {
    const int come = std::max(look % 4 - 1, 0);  // batches
    for (int i = 0; i < 96; ++i) {
      INFO("check " << check << ", look " << look << ", number " << i);
      const float seen = y[look * 96 + i];
      CHECK((i / 32 < come ? seen == x[i] : std::isnan(seen)));
    }
  }
}

TEST_CASE("storing as fp16 or bf16 rounds to nearest, ties to even, for every float of interest") {
  // Every fp16 and bf16 value, the middles between neighbours, and what lies just beside those.
  std::vector<float> x;
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const double low =
        std::ldexp(h < 0x400 ? h : 0x400 + h % 0x400, std::max<int>(h >> 10, 1) - 25);
    const double high = std::ldexp(h + 1 < 0x400 ? h + 1 : 0x400 + (h + 1) % 0x400,
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
  ExpectOk(
      module->Launch("rg_integers", 4, 1, {In(x), Out(i), Out(b), Out(l, HostContents::kDefined)}));
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

TEST_CASE("the blocks of a cluster run together and read each other's shared memory") {
  const bool check = GENERATE(false, true);
  const int warp = GENERATE(32, 64);
  const auto module = MustCompile(kClusterSums, check, warp);
  std::vector<float> x(12 * 64), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 97);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto status = module->Launch("rg_cluster_sums", 12, 64, {In(x), Out(y)}, {.seed = seed});
    INFO(status);
    REQUIRE(status.ok());
    int wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      float sum = 0;
      for (size_t b = 0; b < 4; ++b) sum += x[i / 256 * 256 + b * 64 + 63 - i % 64];
      wrong += y[i] != sum;
    }
    CHECK(wrong == 0);
  }
  const auto odd = module->Launch("rg_cluster_sums", 6, 64, {In(x), Out(y)});
  CHECK_THAT(std::string(odd.message()), ContainsSubstring("6 blocks are no clusters of 4"));
}

// What the checking build says of the kernel with other text in the place of its n-th such wait.
std::string WithOtherWait(int n, const std::string& instead, bool check, uint64_t seed) {
  const std::string wait = "RG_CLUSTER_WAIT();";
  std::string text = kClusterSums;
  size_t at = text.find(wait);
  for (int i = 0; i < n; ++i) at = text.find(wait, at + 1);
  text.replace(at, wait.size(), instead);
  const auto module = MustCompile(text, check);
  std::vector<float> x(256, 1), y(256);
  return std::string(
      module->Launch("rg_cluster_sums", 4, 64, {In(x), Out(y)}, {.seed = seed}).message());
}

TEST_CASE("the checking build finds barriers of a cluster that are not there") {
  CHECK_THAT(WithOtherWait(0, "", true, 1), ContainsSubstring("shared array s of block"));
  // Seeds draw whether a block runs to its end before the others of its cluster go on.
  bool ended = false;
  for (uint64_t seed = 0; seed < 8 && !ended; ++seed) {
    ended = WithOtherWait(1, "", true, seed).find("threads have returned") != std::string::npos;
  }
  CHECK(ended);
}

TEST_CASE("threads that do not come to a barrier of their cluster are told") {
  CHECK_THAT(WithOtherWait(1, "if (RG_BLOCK != 2) RG_CLUSTER_WAIT();", false, 1),
             ContainsSubstring("at the cluster's barrier"));
}

TEST_CASE("a launch that does not fit its kernel is refused by name") {
  const auto module = GoodKernels(false, 32);
  std::vector<float> x(4000), y(20);
  Expect(module->Launch("rg_row_sum", 1, 64, {In(x), Out(y)}), {"rg_row_sum", "128 threads", "64"});
  Expect(module->Launch("rg_row_sum", 1, 128, {In(x)}), {"rg_row_sum", "2 arguments", "with 1"});
  Expect(module->Launch("rg_row_sum", int64_t{1} << 31, 128, {In(x), Out(y)}),
         {"2147483648 blocks"});
  Expect(module->Launch("rg_row_sum", -1, 128, {In(x), Out(y)}), {"-1 blocks"});
  Expect(module->Launch("rg_sum_row", 1, 128, {In(x), Out(y)}), {"rg_sum_row"});
  HostArg odd = In(x);
  odd.data = reinterpret_cast<char*>(odd.data) + 4;
  Expect(module->Launch("rg_row_sum", 1, 128, {odd, Out(y)}), {"argument 0", "aligned to 16"});
  ExpectOk(module->Launch("rg_row_sum", 0, 128, {In(x), Out(y)}));
}

}  // namespace
}  // namespace retrograd
