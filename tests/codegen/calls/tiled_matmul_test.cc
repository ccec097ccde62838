// Matmuls by tiles on the host with every access checked, against sums in float64; and whether the
// GPU compilers take them.
#include <array>
#include <limits>
#include <random>

#include "absl/strings/str_join.h"
#include "codegen/gemm/emit_tiled_matmul.h"
#include "graph/base/rounding.h"
#include "runtime/compiler/rtc.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/matmul/blas_operands.h"
#include "runtime/ops/matmul/tiled_matmul.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::vector<int64_t> batch;
  int64_t m = 1, n = 1, k = 1;
  DType in = DType::kBf16, out = DType::kBf16;
  bool a_down = false, b_down = false, d_down = false;  // columns of unit stride
  bool batch_inside = false;  // lines of the batch's matrices take turns in memory
  int64_t gap = 0;            // elements between one line of a matrix and the next
  int64_t offset = 0;         // elements, of each tensor
  int64_t alignment = 16;     // bytes that are known to divide addresses
  bool adds = false;          // to what is there
};

MatrixOperand OperandOf(const Case& c, int64_t rows, int64_t columns, bool down) {
  int64_t line = (down ? rows : columns) + c.gap, matrix = line * (down ? columns : rows);
  int64_t count = 1;
  for (int64_t extent : c.batch) count *= extent;
  if (c.batch_inside) {
    matrix = line;
    line *= count;
  }
  MatrixOperand made{.offset = c.offset,
                     .row_stride = down ? 1 : line,
                     .col_stride = down ? line : 1,
                     .batch_strides = std::vector<int64_t>(c.batch.size())};
  for (size_t axis = c.batch.size(); axis-- > 0;) {
    made.batch_strides[axis] = matrix;
    matrix *= c.batch[axis];
  }
  return made;
}

MatMulCall CallOf(const Case& c) {
  return {.m = c.m,
          .n = c.n,
          .k = c.k,
          .batch = c.batch,
          .in_dtype = c.in,
          .out_dtype = c.out,
          .a = OperandOf(c, c.m, c.k, c.a_down),
          .b = OperandOf(c, c.k, c.n, c.b_down),
          .d = OperandOf(c, c.m, c.n, c.d_down),
          .accumulate = c.adds};
}

// Calls fn(matrix, row, column, address) for every element.
template <typename Fn>
void ForElements(const MatrixOperand& o, const std::vector<int64_t>& batch, int64_t rows,
                 int64_t columns, Fn fn) {
  int64_t count = 1;
  for (int64_t extent : batch) count *= extent;
  for (int64_t matrix = 0; matrix < count; ++matrix) {
    int64_t rest = matrix, at = o.offset;
    for (size_t axis = batch.size(); axis-- > 0;) {
      at += rest % batch[axis] * o.batch_strides[axis];
      rest /= batch[axis];
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        fn(matrix, row, column, at + row * o.row_stride + column * o.col_stride);
      }
    }
  }
}

// Memory of a tensor at an address of 16 bytes' multiples, or beside one.
class Memory {
 public:
  Memory(int64_t bytes, int64_t alignment) : bytes_(bytes + 48) {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    data_ = bytes_.data() + (16 - at % 16) % 16 + (alignment % 16 == 0 ? 0 : alignment);
  }
  void* data() { return data_; }

 private:
  std::vector<char> bytes_;
  char* data_;
};

void Check(const Case& c, uint64_t seed) {
  INFO(c.m << "x" << c.n << "x" << c.k << ", batch " << absl::StrJoin(c.batch, "x") << " "
           << Name(c.in) << " into " << Name(c.out) << (c.adds ? ", adds" : "") << ", down "
           << c.a_down << c.b_down << c.d_down << ", batch inside " << c.batch_inside << ", gap "
           << c.gap << ", offset " << c.offset << ", alignment " << c.alignment << ", seed "
           << seed);
  const MatMulCall call = CallOf(c);
  std::mt19937_64 random(seed);
  HostDeviceOptions options;
  options.compile.check = true;
  options.compile.warp = seed % 3 == 0 ? 64 : 32;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  const MatMulFacts facts = {
      .a_alignment = c.alignment, .b_alignment = c.alignment, .d_alignment = c.alignment};
  const std::vector<MatMulTile> tiles = MatMulTilesOn(call, *device);
  REQUIRE(!tiles.empty());
  auto loaded = TiledMatMul::Load(*device, call, facts, tiles[seed % tiles.size()]);
  REQUIRE(loaded.status().ToString() == "OK");

  int64_t count = 1;
  for (int64_t extent : c.batch) count *= extent;
  // Small integers, whose products add up without rounding in fp32.
  std::vector<double> a(count * c.m * c.k), b(count * c.k * c.n), d(count * c.m * c.n);
  for (double& v : a) v = static_cast<double>(random() % 7) - 3;
  for (double& v : b) v = static_cast<double>(random() % 7) - 3;
  for (double& v : d) v = c.adds ? static_cast<double>(random() % 7) - 3 : 77;
  std::vector<double> wanted(d.size());
  for (int64_t matrix = 0; matrix < count; ++matrix) {
    for (int64_t row = 0; row < c.m; ++row) {
      for (int64_t column = 0; column < c.n; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          sum += a[(matrix * c.m + row) * c.k + k] * b[(matrix * c.k + k) * c.n + column];
        }
        const int64_t at = (matrix * c.m + row) * c.n + column;
        wanted[at] = c.adds ? sum + d[at] : sum;
      }
    }
  }
  RoundTo(c.out, absl::MakeSpan(wanted));

  const auto bytes = [&](int operand, DType dtype) {
    const MatrixOperand& o = operand == 0 ? call.a : operand == 1 ? call.b : call.d;
    return (OperandSpan(call, operand) + o.offset) * SizeBytes(dtype);
  };
  Memory in_a(bytes(0, c.in), c.alignment), in_b(bytes(1, c.in), c.alignment);
  Memory out(bytes(2, c.out), c.alignment);
  WithFloatType(c.in, [&](auto* type) {
    using T = decltype(type);
    const auto fill = [&](Memory& memory, int operand, const std::vector<double>& values,
                          const MatrixOperand& o, int64_t rows, int64_t columns) {
      auto* const data = static_cast<T>(memory.data());
      for (int64_t i = 0; i < OperandSpan(call, operand) + o.offset; ++i) StoreAs(data, i, kNan);
      ForElements(o, c.batch, rows, columns,
                  [&](int64_t matrix, int64_t row, int64_t column, int64_t at) {
                    StoreAs(data, at, values[(matrix * rows + row) * columns + column]);
                  });
    };
    fill(in_a, 0, a, call.a, c.m, c.k);
    fill(in_b, 1, b, call.b, c.k, c.n);
  });
  WithFloatType(c.out, [&](auto* type) {
    auto* const data = static_cast<decltype(type)>(out.data());
    const int64_t span = OperandSpan(call, 2) + call.d.offset;
    for (int64_t i = 0; i < span; ++i) StoreAs(data, i, 77.0);
    ForElements(call.d, c.batch, c.m, c.n,
                [&](int64_t matrix, int64_t row, int64_t column, int64_t at) {
                  StoreAs(data, at, d[(matrix * c.m + row) * c.n + column]);
                });
    const int64_t offsets[3] = {call.a.offset, call.b.offset, call.d.offset};
    REQUIRE((*loaded)->Run(0, {in_a.data(), in_b.data(), data}, offsets).ToString() == "OK");
    std::vector<bool> touched(span);
    ForElements(call.d, c.batch, c.m, c.n,
                [&](int64_t matrix, int64_t row, int64_t column, int64_t at) {
                  INFO("matrix " << matrix << ", row " << row << ", column " << column);
                  REQUIRE(LoadAs<double>(data, at) == wanted[(matrix * c.m + row) * c.n + column]);
                  touched[at] = true;
                });
    for (int64_t i = 0; i < span; ++i) {
      REQUIRE((touched[i] || LoadAs<double>(data, i) == 77.0));
    }
  });
}

TEST_CASE("the matrices of attention windows are multiplied in all layouts") {
  uint64_t seed = 1;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{49, 49, 32}, {49, 32, 49}, {32, 49, 49}}) {
    Check({.batch = {2, 3}, .m = m, .n = n, .k = k}, seed++);
    Check({.batch = {5}, .m = m, .n = n, .k = k, .b_down = true}, seed++);
    Check({.batch = {3}, .m = m, .n = n, .k = k, .a_down = true, .batch_inside = true}, seed++);
    Check({.batch = {2}, .m = m, .n = n, .k = k, .d_down = true}, seed++);
  }
}

TEST_CASE("matrices of any sides, layout, type and alignment are multiplied") {
  constexpr DType kTypes[] = {DType::kBf16, DType::kFp16, DType::kBf16, DType::kFp32, DType::kFp64};
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 48; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    Case c;
    c.m = 1 + any(129), c.n = 1 + any(129), c.k = 1 + any(129);
    if (any(4) == 0) c.k += 128;
    for (int64_t axis = any(2); axis > 0; --axis) c.batch.push_back(1 + any(2));
    c.in = kTypes[seed % std::size(kTypes)];
    c.out = c.in == DType::kFp64 || any(1) == 0 ? c.in : DType::kFp32;
    c.a_down = any(1) == 1, c.b_down = any(1) == 1, c.d_down = any(2) == 0;
    c.batch_inside = any(2) == 0;
    c.adds = any(3) == 0;
    if (any(1) == 0) c.gap = any(9);
    if (any(2) == 0) c.offset = any(9);
    if (any(2) == 0) c.alignment = SizeBytes(c.in == DType::kFp64 ? c.in : c.out) << any(1);
    Check(c, seed);
  }
}

TEST_CASE("the smallest sides are multiplied") {
  for (int64_t side = 1; side <= 17; side += 4) {
    Check({.batch = {7}, .m = side, .n = 1, .k = 1}, 1);
    Check({.batch = {7}, .m = 1, .n = side, .k = 3, .a_down = true}, 2);
    Check({.m = 2, .n = side, .k = side, .b_down = true, .d_down = true}, 3);
  }
}

// Of the second operand NaN stands behind its last column, of the first behind its last term.
TEST_CASE("what lies behind lines of operands is multiplied by nothing") {
  for (const bool down : {false, true}) {
    Check({.batch = {2}, .m = 50, .n = 23, .k = 37, .a_down = down, .b_down = !down, .gap = 3}, 4);
    Check({.m = 40, .n = 72, .k = 200, .a_down = down, .b_down = down, .gap = 8}, 5);
  }
}

MatMulCall Odd(int64_t side, DType dtype) {
  Case c{.batch = {6}, .m = side, .n = side, .k = 32, .in = dtype, .out = dtype};
  return CallOf(c);
}

TEST_CASE("what our tiles do not take is refused by name") {
  MatMulCall fp8 = Odd(49, DType::kBf16);
  fp8.in_dtype = DType::kFp8E4M3;
  CHECK(TiledMatMulRefusal(fp8).message() ==
        "matmul of 49 x 49 x 32: our tiles are of bf16, fp16, fp32 or fp64");
  MatMulCall mixed = Odd(49, DType::kFp64);
  mixed.out_dtype = DType::kFp32;
  CHECK(absl::IsUnimplemented(TiledMatMulRefusal(mixed)));
  MatMulCall strided = Odd(49, DType::kBf16);
  strided.a.col_stride = 2;
  CHECK(absl::IsUnimplemented(TiledMatMulRefusal(strided)));
  MatMulCall many = Odd(49, DType::kBf16);
  many.batch = {int64_t{1} << 31};
  CHECK(absl::IsUnimplemented(TiledMatMulRefusal(many)));
  CHECK(TiledMatMulRefusal(Odd(49, DType::kBf16)).ok());
}

void CheckCompiles(Dialect dialect, absl::string_view arch, int warp) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp64}) {
    for (const int64_t side : {16, 49, 130}) {
      for (const bool aligned : {false, true}) {
        MatMulCall call = Odd(side, dtype);
        if (aligned) call = CallOf({.m = side, .n = 64, .k = 200, .in = dtype, .out = dtype});
        const std::vector<MatMulTile> tiles = MatMulTilesFor(call, {.sms = 132}, 1);
        REQUIRE(!tiles.empty());
        const Kernel kernel = EmitTiledMatMul(call, tiles[0], {}, dialect, warp).kernel;
        const auto object = CompileKernels(dialect, {kernel}, arch);
        INFO(Name(dtype) << " " << side << ": " << object.status());
        CHECK(object.ok());
      }
    }
  }
}

TEST_CASE("NVRTC takes tiles of every type") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  CheckCompiles(Dialect::kCuda, "sm_90", 32);
}

TEST_CASE("HIPRTC takes tiles of every type") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  CheckCompiles(Dialect::kHip, "gfx90a", 64);
}

}  // namespace
}  // namespace retrograd
