// The same list for every device: what device.h promises, on the host always and on others where
// one is present.
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "graph/reference/reference.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/devices/hip_device.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernels_from_text.h"
#include "tests/support/plans/calls.h"

namespace retrograd {
namespace {

std::vector<double> RandomValues(uint64_t seed, int64_t count) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& v : values) v = uniform(engine);
  return values;
}

// Storage of a dtype holding the values.
std::vector<char> Encode(DType dtype, const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(SizeBytes(dtype)));
  REQUIRE(WithFloatType(dtype, [&](auto* type) {
    auto* p = reinterpret_cast<decltype(type)>(bytes.data());
    for (size_t i = 0; i < values.size(); ++i) StoreAs(p, static_cast<int64_t>(i), values[i]);
  }));
  return bytes;
}

std::vector<double> Decode(DType dtype, const std::vector<char>& bytes) {
  std::vector<double> values(bytes.size() / static_cast<size_t>(SizeBytes(dtype)));
  REQUIRE(WithFloatType(dtype, [&](auto* type) {
    const auto* p = reinterpret_cast<decltype(type)>(const_cast<char*>(bytes.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = LoadAs<double>(p, static_cast<int64_t>(i));
    }
  }));
  return values;
}

// A tensor in device memory.
class DeviceTensor {
 public:
  DeviceTensor(Device* device, DType dtype, const std::vector<double>& values)
      : device_(device), dtype_(dtype), bytes_(Encode(dtype, values).size()) {
    auto data = device->Allocate(static_cast<int64_t>(bytes_));
    REQUIRE(data.ok());
    data_ = *data;
    const std::vector<char> encoded = Encode(dtype, values);
    REQUIRE(device->CopyIn(data_, encoded.data(), static_cast<int64_t>(bytes_)).ok());
  }
  ~DeviceTensor() { device_->Free(data_); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  void* data() const { return data_; }
  std::vector<double> Read() const {
    std::vector<char> bytes(bytes_);
    REQUIRE(device_->Synchronize().ok());
    REQUIRE(device_->CopyOut(bytes.data(), data_, static_cast<int64_t>(bytes_)).ok());
    return Decode(dtype_, bytes);
  }

 private:
  Device* device_;
  DType dtype_;
  size_t bytes_;
  void* data_ = nullptr;
};

// Every device in turn; those that check are the host's.
std::unique_ptr<Device> TestDevice(bool check = false) {
  const std::string name = check ? "host" : GENERATE(as<std::string>{}, "host", "cuda", "hip");
  if (name == "hip") {
    HipDeviceOptions options{.driver_library = RETROGRAD_FAKE_HIP,
                             .hipblaslt_library = RETROGRAD_FAKE_HIP};
    options.compile.rtc.library = RETROGRAD_FAKE_HIP;
    options.cache = false;
    auto device = MakeHipDevice(options);
    INFO(device.status());
    REQUIRE(device.ok());
    return *std::move(device);
  }
#if defined(RETROGRAD_FAKE_CUDA)
  if (name == "cuda") {
    CudaDeviceOptions options{.driver_library = RETROGRAD_FAKE_CUDA,
                              .cublas_library = RETROGRAD_FAKE_CUDA};
    options.compile.rtc.library = RETROGRAD_FAKE_CUDA;
    options.cache = false;
    options.attention.allow_cudnn = false;  // a real one would take the fake streams
    options.convolution.allow_cudnn = false;
    auto device = MakeCudaDevice(options);
    INFO(device.status());
    REQUIRE(device.ok());
    return *std::move(device);
  }
#endif
  HostDeviceOptions options;
  options.compile.check = check;
  return MakeHostDevice(options);
}

struct Scratch {
  Scratch(Device* device, int64_t bytes) : device(device) {
    auto allocated = device->Allocate(bytes);
    REQUIRE(allocated.ok());
    data = *allocated;
  }
  ~Scratch() { device->Free(data); }
  Device* device;
  void* data = nullptr;
};

double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFp64: return 1e-13;
    case DType::kFp32: return 2e-6;
    case DType::kFp16: return 1e-3;  // one unit in the last place of 11 bits
    default: return 8e-3;            // of 8 bits
  }
}

// Element [batch, row, col] of an operand in its storage.
int64_t At(const MatrixOperand& m, int64_t batch, int64_t row, int64_t col) {
  return m.offset + (m.batch_strides.empty() ? 0 : batch * m.batch_strides[0]) +
         row * m.row_stride + col * m.col_stride;
}

void CheckMatMul(Device* device, const MatMulCall& call, int64_t a_size, int64_t b_size,
                 int64_t d_size) {
  const DeviceTensor a(device, call.in_dtype, RandomValues(1, a_size));
  const DeviceTensor b(device, call.in_dtype, RandomValues(2, b_size));
  const DeviceTensor d(device, call.out_dtype, RandomValues(3, d_size));
  const std::vector<double> av = a.Read(), bv = b.Read(), before = d.Read();
  auto loaded = device->Load(ToCall(call), {});
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  Scratch scratch(device, (*loaded)->scratch_bytes());
  const void* const operands[] = {a.data(), b.data()};
  void* const results[] = {d.data()};
  REQUIRE((*loaded)->Run(0, {operands, results}, scratch.data).ok());
  const std::vector<double> after = d.Read();

  std::vector<double> expected = before;
  const int64_t batches = call.batch.empty() ? 1 : call.batch[0];
  for (int64_t i = 0; i < batches; ++i) {
    for (int64_t r = 0; r < call.m; ++r) {
      for (int64_t c = 0; c < call.n; ++c) {
        double sum = call.accumulate ? before[At(call.d, i, r, c)] : 0;
        for (int64_t k = 0; k < call.k; ++k)
          sum += av[At(call.a, i, r, k)] * bv[At(call.b, i, k, c)];
        expected[At(call.d, i, r, c)] = sum;
      }
    }
  }
  const double tolerance =
      std::max(Tolerance(call.out_dtype), call.in_dtype == DType::kFp64 ? 1e-13 : 2e-6);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("element " << i << " expected " << expected[i] << " found " << after[i]);
    REQUIRE(std::abs(after[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i])));
  }
}

TEST_CASE("memory comes aligned, keeps what is copied in, and too much of it is a status") {
  auto device = TestDevice();
  auto data = device->Allocate(1000);
  REQUIRE(data.ok());
  CHECK(reinterpret_cast<uintptr_t>(*data) % 256 == 0);
  const std::vector<char> in(1000, 'x');
  std::vector<char> out(1000);
  REQUIRE(device->CopyIn(*data, in.data(), 1000).ok());
  REQUIRE(device->CopyOut(out.data(), *data, 1000).ok());
  CHECK(in == out);
  device->Free(*data);
  CHECK(*device->Allocate(0) == nullptr);
  CHECK(device->Allocate(int64_t{1} << 60).status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a matmul reads rows or columns, strided and offset, in every floating type") {
  auto device = TestDevice(GENERATE(false, true));
  const DType in = GENERATE(DType::kFp16, DType::kBf16, DType::kFp32, DType::kFp64);
  const DType out = GENERATE(DType::kBf16, DType::kFp32, DType::kFp64);
  if (in == DType::kFp64 && out != DType::kFp64) return;
  const bool accumulate = GENERATE(false, true);
  MatMulCall call{
      .m = 5, .n = 7, .k = 9, .in_dtype = in, .out_dtype = out, .accumulate = accumulate};
  INFO(Name(in) << " to " << Name(out) << " accumulate " << accumulate);
  for (bool a_columns : {false, true}) {
    for (bool b_columns : {false, true}) {
      for (bool d_columns : {false, true}) {
        call.a = {.offset = 3, .row_stride = a_columns ? 1 : 11, .col_stride = a_columns ? 6 : 1};
        call.b = {.offset = 0, .row_stride = b_columns ? 1 : 7, .col_stride = b_columns ? 9 : 1};
        call.d = {.offset = 2, .row_stride = d_columns ? 1 : 8, .col_stride = d_columns ? 5 : 1};
        // What libraries refuse is a kernel of its own for each call: some will do.
        const bool mixed = in != out && out != DType::kFp32;
        if (mixed && device->name() != "host" && (a_columns || b_columns != d_columns)) continue;
        CheckMatMul(device.get(), call, 100, 100, 100);
      }
    }
  }
}

TEST_CASE("a matmul takes batches, broadcast operands, extents of 1 and 0, and any strides") {
  auto device = TestDevice();
  MatMulCall call{.m = 4,
                  .n = 3,
                  .k = 5,
                  .batch = {6},
                  .a = {.row_stride = 5, .col_stride = 1, .batch_strides = {20}},
                  .b = {.row_stride = 3, .col_stride = 1, .batch_strides = {0}},
                  .d = {.row_stride = 3, .col_stride = 1, .batch_strides = {12}}};
  CheckMatMul(device.get(), call, 120, 15, 72);
  call.a = {.row_stride = 2, .col_stride = 9, .batch_strides = {1}};  // no unit stride
  call.b = {.row_stride = 0, .col_stride = 1, .batch_strides = {3}};  // equal rows
  call.d = {.row_stride = 6, .col_stride = 2, .batch_strides = {24}};
  CheckMatMul(device.get(), call, 60, 40, 200);
  call = {.m = 1,
          .n = 1,
          .k = 8,
          .a = {.row_stride = 1, .col_stride = 1},
          .b = {.row_stride = 1, .col_stride = 1},
          .d = {.row_stride = 1, .col_stride = 1}};
  CheckMatMul(device.get(), call, 8, 8, 1);
  call.k = 0;  // an empty sum
  CheckMatMul(device.get(), call, 8, 8, 1);
  call.accumulate = true;
  CheckMatMul(device.get(), call, 8, 8, 1);
  call.m = 0;
  CheckMatMul(device.get(), call, 8, 8, 1);
}

// Whoever makes them: on a GPU tiles of ours stand beside the library's algorithms.
TEST_CASE("batches of small matrices are multiplied, and on a GPU tiles are among the choices") {
  auto device = TestDevice();
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{17, 17, 9}, {17, 9, 17}, {16, 16, 16}}) {
    for (const bool adds : {false, true}) {
      const MatMulCall call{.m = m,
                            .n = n,
                            .k = k,
                            .batch = {3},
                            .in_dtype = DType::kBf16,
                            .out_dtype = DType::kBf16,
                            .a = {.row_stride = k, .col_stride = 1, .batch_strides = {m * k}},
                            .b = {.row_stride = 1, .col_stride = k, .batch_strides = {k * n}},
                            .d = {.row_stride = n, .col_stride = 1, .batch_strides = {m * n}},
                            .accumulate = adds};
      INFO(m << "x" << n << "x" << k << ", adds " << adds);
      CheckMatMul(device.get(), call, 3 * m * k, 3 * k * n, 3 * m * n);
    }
  }
  if (device->choices() == nullptr) return;
  int raced = 0;
  for (const auto& [key, choice] : *device->choices()) {
    REQUIRE(choice.candidates.size() > 1);
    CHECK(key.kind == "matmul 2");
    CHECK_THAT(choice.candidates.back().name, ContainsSubstring("kernels of ours"));
    CHECK(choice.candidates.back().us > 0);
    ++raced;
  }
  CHECK(raced == 6);
}

TEST_CASE("a matmul of integers or beyond BLAS's range is refused before it runs") {
  auto device = TestDevice();
  const auto refusal = [&](const MatMulCall& call) {
    return std::string(device->Load(ToCall(call), {}).status().message());
  };
  CHECK_THAT(
      refusal({.m = 1, .n = 1, .k = 1, .in_dtype = DType::kInt32, .out_dtype = DType::kInt32}),
      ContainsSubstring("floating"));
  CHECK_THAT(refusal({.m = int64_t{1} << 32, .n = 1, .k = 1}), ContainsSubstring("4294967296"));
}

// An attention node's operands in row-major storage, or [B,T,H,D] storage seen as [B,H,T,D].
AttentionOperand Operand(const Shape& shape, bool tokens_first) {
  AttentionOperand operand{.shape = shape, .strides = DenseStrides(shape)};
  if (tokens_first && shape.size() == 4) {
    operand.strides = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
  }
  return operand;
}

// Row-major values in the operand's storage and back.
std::vector<double> Stored(const AttentionOperand& t, const std::vector<double>& dense, bool back) {
  std::vector<double> result(dense.size());
  std::vector<int64_t> index(t.shape.size(), 0);
  for (size_t i = 0; i < dense.size(); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * t.strides[d];
    if (back) {
      result[i] = dense[static_cast<size_t>(at)];
    } else {
      result[static_cast<size_t>(at)] = dense[i];
    }
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < t.shape[d]) break;
      index[d] = 0;
    }
  }
  return result;
}

// The bias [T, Tk] or [B, 1, T, Tk], if there is one, as it is added to a score.
double Bias(const std::vector<std::vector<double>>& values, int64_t b, int64_t T, int64_t i,
            int64_t Tk, int64_t j) {
  if (values.size() < 7) return 0;
  const bool one_for_all = static_cast<int64_t>(values[6].size()) == T * Tk;
  return values[6][((one_for_all ? 0 : b) * T + i) * Tk + j];
}

// What the forward pass saves: the log-sum-exp and O.
void Forward(const Shape& q_shape, const Shape& k_shape, int64_t v_dim, double scale, bool causal,
             std::vector<std::vector<double>>* values) {
  const int64_t B = q_shape[0], H = q_shape[1], T = q_shape[2], D = q_shape[3];
  const int64_t Hk = k_shape[1], Tk = k_shape[2];
  const auto& q = (*values)[1];
  const auto& k = (*values)[2];
  const auto& v = (*values)[3];
  auto& o = (*values)[4];
  auto& lse = (*values)[5];
  for (int64_t bh = 0; bh < B * H; ++bh) {
    const int64_t kv = bh / H * Hk + bh % H / (H / Hk);
    for (int64_t i = 0; i < T; ++i) {
      std::vector<double> s(Tk);
      double sum = 0;
      for (int64_t j = 0; j < Tk; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < D; ++d) dot += q[(bh * T + i) * D + d] * k[(kv * Tk + j) * D + d];
        s[j] = scale * dot + Bias(*values, bh / H, T, i, Tk, j);
        if (!causal || j <= i) sum += std::exp(s[j]);
      }
      lse[bh * T + i] = std::log(sum);
      for (int64_t d = 0; d < v_dim; ++d) {
        double total = 0;
        for (int64_t j = 0; j < Tk; ++j) {
          if (causal && j > i) continue;
          total += std::exp(s[j]) / sum * v[(kv * Tk + j) * v_dim + d];
        }
        o[(bh * T + i) * v_dim + d] = total;
      }
    }
  }
}

TEST_CASE("attention backward agrees with the reference: causal, grouped queries, bias, layouts") {
  auto device = TestDevice();
  const DType dtype = GENERATE(DType::kFp64, DType::kFp32, DType::kBf16);
  const bool causal = GENERATE(false, true);
  const int bias = GENERATE(0, 2, 4);  // dims of the bias; 0: none
  const int64_t heads = 4, kv_heads = GENERATE(4, 2, 1);
  const bool tokens_first = GENERATE(false, true);
  const int64_t T = causal ? 150 : 37, Tk = causal ? 150 : 21, D = 8, Dv = causal ? 8 : 5;
  INFO(Name(dtype) << " causal " << causal << " bias " << bias << " kv heads " << kv_heads);
  const Shape q{2, heads, T, D}, k{2, kv_heads, Tk, D}, v{2, kv_heads, Tk, Dv}, o{2, heads, T, Dv};
  std::vector<Shape> shapes{o, q, k, v, o, {2, heads, T}};
  if (bias == 2) shapes.push_back({T, Tk});  // the same for every head
  if (bias == 4) shapes.push_back({2, 1, T, Tk});
  const DType lse_dtype = dtype == DType::kFp64 ? DType::kFp64 : DType::kFp32;

  GraphBuilder builder("attention");
  std::vector<ValueId> nodes;
  std::vector<std::vector<double>> values;
  for (size_t i = 0; i < shapes.size(); ++i) {
    nodes.push_back(builder.Input({i == 5 ? lse_dtype : dtype, shapes[i]}, {.name = "x"}));
    values.push_back(RandomValues(i + 1, Elements(shapes[i])));
  }
  const double scale = 0.3;
  const bool score_gradient = bias == 4;
  const ValueId result = builder.Add(
      Op::attention_backward, nodes,
      {{"scale", scale}, {"causal", int64_t{causal}}, {"score_gradient", int64_t{score_gradient}}});
  builder.Output(result, "dq");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  // The values that the storage type can hold, and what the forward pass makes of those.
  for (std::vector<double>& tensor : values) tensor = Decode(dtype, Encode(dtype, tensor));
  Forward(q, k, Dv, scale, causal, &values);
  values[4] = Decode(dtype, Encode(dtype, values[4]));
  values[5] = Decode(lse_dtype, Encode(lse_dtype, values[5]));

  AttentionCall call{.node = result.node, .dtype = dtype, .scale = scale, .causal = causal};
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
  std::vector<const void*> operands;
  std::vector<DType> dtypes;
  std::vector<const Values*> reference_operands;
  for (size_t i = 0; i < shapes.size(); ++i) {
    call.operands.push_back(Operand(shapes[i], tokens_first && i < 5));
    dtypes.push_back(i == 5 ? lse_dtype : dtype);
    tensors.push_back(std::make_unique<DeviceTensor>(device.get(), dtypes[i],
                                                     Stored(call.operands[i], values[i], false)));
    operands.push_back(tensors.back()->data());
    reference_operands.push_back(&values[i]);
  }
  std::vector<void*> results;
  std::vector<Shape> result_shapes = {q, k, v};
  if (score_gradient) result_shapes.push_back({2, heads, T, Tk});
  for (const Shape& shape : result_shapes) {
    call.results.push_back(Operand(shape, tokens_first));
    tensors.push_back(std::make_unique<DeviceTensor>(
        device.get(), dtype, std::vector<double>(static_cast<size_t>(Elements(shape)), 7.0)));
    results.push_back(tensors.back()->data());
  }
  auto loaded = device->Load(ToCall(call, dtypes), {});
  REQUIRE(loaded.ok());
  Scratch scratch(device.get(), (*loaded)->scratch_bytes());
  REQUIRE((*loaded)->Run(0, {operands, results}, scratch.data).ok());
  auto expected = EvaluateNode(*graph, result.node, reference_operands);
  INFO(expected.status());
  REQUIRE(expected.ok());
  for (size_t r = 0; r < results.size(); ++r) {
    const std::vector<double> found =
        Stored(call.results[r], tensors[shapes.size() + r]->Read(), true);
    double largest = 0, error = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      largest = std::max(largest, std::abs((*expected)[r][i]));
      error = std::max(error, std::abs(found[i] - (*expected)[r][i]));
    }
    INFO("result " << r << " error " << error << " of " << largest);
    CHECK(error <= largest * (dtype == DType::kFp64 ? 1e-12 : 2 * Tolerance(dtype)));
  }
}

constexpr char kKernels[] = R"(
RG_KERNEL(rg_double, 64, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  const int i = RG_BLOCK * 64 + RG_THREAD;
  if (i < 100) {
    rg_store(y, i, rg_load(x, i) * 2);
  }
}
RG_KERNEL(rg_beyond, 64, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  const int i = RG_BLOCK * 64 + RG_THREAD;
  if (i < 101) {
    rg_store(y, i, rg_load(x, i) * 2);
  }
}
)";

TEST_CASE("a loaded kernel runs at the addresses that the table holds at each launch") {
  auto device = TestDevice();
  const LaunchArg x{.slot = 2, .bytes = 400, .alignment = 16};
  const LaunchArg y{
      .slot = 0, .bytes = 400, .alignment = 16, .written = true, .contents = Contents::kFresh};
  auto kernels = device->Load(KernelsFromText(kKernels), {Launch{"rg_double", 2, 64, {x, y}}});
  INFO(kernels.status());
  REQUIRE(kernels.ok());
  const DeviceTensor in1(device.get(), DType::kFp32, RandomValues(1, 100));
  const DeviceTensor in2(device.get(), DType::kFp32, RandomValues(2, 100));
  for (const DeviceTensor* in : {&in1, &in2}) {
    const DeviceTensor out(device.get(), DType::kFp32, std::vector<double>(100, 0));
    void* table[] = {out.data(), nullptr, in->data()};
    REQUIRE(device->Bind(0, **kernels, table).ok());
    REQUIRE(device->Launch(0, **kernels, 0).ok());
    std::vector<double> expected = in->Read();
    for (double& v : expected) v *= 2;
    CHECK(out.Read() == expected);
  }
  CHECK_FALSE(device->Load(KernelsFromText(kKernels), {Launch{"rg_missing", 1, 64, {}}}).ok());
}

TEST_CASE("a checking device reports an access beyond an argument and goes on") {
  auto device = TestDevice(true);
  const LaunchArg x{.slot = 0, .bytes = 400, .alignment = 16};
  const LaunchArg y{
      .slot = 1, .bytes = 400, .alignment = 16, .written = true, .contents = Contents::kFresh};
  auto kernels = device->Load(KernelsFromText(kKernels), {Launch{"rg_double", 2, 64, {x, y}},
                                                          Launch{"rg_beyond", 2, 64, {x, y}}});
  REQUIRE(kernels.ok());
  const DeviceTensor in(device.get(), DType::kFp32, RandomValues(1, 101));
  const DeviceTensor out(device.get(), DType::kFp32, RandomValues(2, 101));
  void* table[] = {in.data(), out.data()};
  REQUIRE(device->Bind(0, **kernels, table).ok());
  CHECK(device->Launch(0, **kernels, 0).ok());
  const absl::Status fault = device->Launch(0, **kernels, 1);
  CHECK_THAT(std::string(fault.message()), ContainsSubstring("rg_beyond"));
}

TEST_CASE("a strided copy moves every element, through transposes and broadcasts") {
  auto device = TestDevice();
  const DeviceTensor from(device.get(), DType::kBf16, RandomValues(1, 12));
  const DeviceTensor to(device.get(), DType::kBf16, std::vector<double>(24, 0));
  REQUIRE(
      device->CopyStrided(0, DType::kBf16, {2, 3, 4}, to.data(), {12, 1, 3}, from.data(), {0, 4, 1})
          .ok());
  const std::vector<double> source = from.Read(), copy = to.Read();
  for (int b = 0; b < 2; ++b) {
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 4; ++c) CHECK(copy[12 * b + r + 3 * c] == source[4 * r + c]);
    }
  }
}

TEST_CASE(
    "bf16, fp16 and fp8 round to the nearest, ties to even, and every value survives a round "
    "trip") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const HostBf16 b{static_cast<uint16_t>(bits)};
    const HostFp16 h{static_cast<uint16_t>(bits)};
    const bool b_nan = std::isnan(ToFloat(b)), h_nan = std::isnan(ToFloat(h));
    if (b_nan ? !std::isnan(ToFloat(ToBf16(ToFloat(b)))) : ToBf16(ToFloat(b)).bits != bits) {
      FAIL("bf16 " << bits);
    }
    if (h_nan ? !std::isnan(ToFloat(ToFp16(ToFloat(h)))) : ToFp16(ToFloat(h)).bits != bits) {
      FAIL("fp16 " << bits);
    }
    // The middle between two neighbours goes to the even one, anything above it up.
    const float f = ToFloat(h), next = ToFloat(HostFp16{static_cast<uint16_t>(bits + 1)});
    if (!std::isfinite(f) || !std::isfinite(next) || (bits & 0x7fff) == 0x7fff) continue;
    const float middle = f + (next - f) / 2;
    if (ToFp16(middle).bits != (bits % 2 == 0 ? bits : bits + 1)) FAIL("fp16 middle " << bits);
    if (ToFp16(std::nextafter(middle, next)).bits != bits + 1) FAIL("fp16 above " << bits);
  }
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const HostF8E4M3 a{static_cast<uint8_t>(bits)};
    const HostF8E5M2 b{static_cast<uint8_t>(bits)};
    const float fa = ToFloat(a), fb = ToFloat(b);
    CHECK((std::isnan(fa) || ToFp8<DType::kFp8E4M3>(fa).bits == bits));
    CHECK((std::isnan(fb) || ToFp8<DType::kFp8E5M2>(fb).bits == bits));
    const HostF8E4M3Fnuz c{static_cast<uint8_t>(bits)};
    const HostF8E5M2Fnuz d{static_cast<uint8_t>(bits)};
    CHECK(std::isnan(ToFloat(c)) == (bits == 0x80));
    CHECK(std::isnan(ToFloat(d)) == (bits == 0x80));
    CHECK(ToFp8<DType::kFp8E4M3Fnuz>(ToFloat(c)).bits == bits);
    CHECK(ToFp8<DType::kFp8E5M2Fnuz>(ToFloat(d)).bits == bits);
  }
  CHECK(ToFp8<DType::kFp8E4M3>(464.0f).bits == 0x7e);   // a tie: 448 is even
  CHECK(ToFp8<DType::kFp8E4M3>(-465.0f).bits == 0xff);  // no infinity: NaN
  CHECK(ToFp8<DType::kFp8E5M2>(61439.0f).bits == 0x7b);
  CHECK(ToFp8<DType::kFp8E5M2>(61440.0f).bits == 0x7c);
  CHECK(ToFloat(ToFp8<DType::kFp8E4M3>(0.0009765625f)) == 0);  // half of the least: to even
  CHECK(ToFloat(ToFp8<DType::kFp8E4M3>(0.0009766f)) == 0.001953125f);
  CHECK(ToFp8<DType::kFp8E4M3Fnuz>(-247.9f).bits == 0xff);
  CHECK(ToFp8<DType::kFp8E4M3Fnuz>(248.0f).bits == 0x80);  // a tie: past 240 there is NaN alone
  CHECK(ToFp8<DType::kFp8E4M3Fnuz>(-0.0f).bits == 0);
  CHECK(ToFp8<DType::kFp8E4M3Fnuz>(-0.00048828125f).bits == 0);  // half of the least: to even
  CHECK(ToFp8<DType::kFp8E5M2Fnuz>(61439.0f).bits == 0x7f);
  CHECK(ToFp8<DType::kFp8E5M2Fnuz>(-61440.0f).bits == 0x80);
  CHECK(ToFp16(65519.0f).bits == 0x7bff);
  CHECK(ToFp16(65520.0f).bits == 0x7c00);
  CHECK(ToBf16(1.00390625f).bits == 0x3f80);  // a tie: 1 is even
  CHECK(ToBf16(1.01171875f).bits == 0x3f82);  // a tie: up to even
}

}  // namespace
}  // namespace retrograd
