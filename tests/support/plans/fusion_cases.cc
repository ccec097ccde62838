#include "tests/support/plans/fusion_cases.h"

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Device allocations are aligned to far more than the 16 bytes that the widest access needs.
ValueId Saved(GraphBuilder& b, DType dtype, Shape shape, std::string name) {
  return b.Input({dtype, std::move(shape)}, {.name = std::move(name), .alignment = 16});
}

ValueId Widened(GraphBuilder& b, ValueId v) { return b.Cast(v, DType::kFp32); }

BackwardGraph Built(GraphBuilder& b) {
  auto graph = b.Build();
  RG_CHECK(graph.ok());
  return *std::move(graph);
}

ValueId Mul(GraphBuilder& b, ValueId x, ValueId y) { return b.Add(Op::mul, {x, y}); }

// Inputs of one norm's backward, x and dy as they lie in memory.
struct Norm {
  ValueId x, dy, rstd, w;
};

ValueId RmsNorm(GraphBuilder& b, const Norm& n) {
  return b.Add(Op::rms_norm_backward, {Widened(b, n.dy), Widened(b, n.x), n.rstd, n.w});
}

}  // namespace

BackwardGraph LayerNormWithSums(Extent e, SiblingOf sibling, int sums) {
  GraphBuilder b("layer_norm_with_sums");
  const Shape shape = {e.rows, e.columns};
  const ValueId dy = Saved(b, DType::kBf16, shape, "dy");
  const ValueId x = Saved(b, DType::kBf16, shape, "x");
  const ValueId mean = Saved(b, DType::kFp32, {e.rows, 1}, "mean");
  const ValueId rstd = Saved(b, DType::kFp32, {e.rows, 1}, "rstd");
  const ValueId w = Saved(b, DType::kFp32, {e.columns}, "w");
  const ValueId dx = b.Add(Op::layer_norm_backward, {Widened(b, dy), Widened(b, x), mean, rstd, w});
  for (int k = 0; k < sums; ++k) {
    ValueId summed = sibling == SiblingOf::kNormInput ? Widened(b, dy) : dx;
    if (sibling == SiblingOf::kOtherTensor) {
      const ValueId other = Saved(b, DType::kBf16, shape, absl::StrCat("dz", k));
      summed = Mul(b, Widened(b, other), rstd);
    } else if (sibling == SiblingOf::kNormResult) {
      const ValueId other = Saved(b, DType::kBf16, shape, absl::StrCat("t", k));
      summed = Mul(b, summed, Widened(b, other));
    }
    b.Output(b.Sum(summed, {0}), absl::StrCat("sum", k));
  }
  b.Output(b.Cast(dx, DType::kBf16), "dx");
  return Built(b);
}

BackwardGraph RmsNormWithScaleSums(Extent e, int sums) {
  GraphBuilder b("rms_norm_with_scale_sums");
  const Shape shape = {e.rows, e.columns};
  const ValueId dy = Widened(b, Saved(b, DType::kBf16, shape, "dy"));
  const ValueId x = Widened(b, Saved(b, DType::kBf16, shape, "x"));
  const ValueId residual = Widened(b, Saved(b, DType::kBf16, shape, "dresidual"));
  const ValueId rstd = Saved(b, DType::kFp32, {e.rows, 1}, "rstd");
  // xhat = x·rstd; dx = rstd·(dy − xhat·mean(dy·xhat)) + dresidual
  const ValueId xhat = Mul(b, x, rstd);
  const ValueId mean = Mul(b, b.Sum(Mul(b, dy, xhat), {1}, /*keep=*/true),
                           b.Full(1.0 / static_cast<double>(e.columns), DType::kFp32));
  const ValueId norm = Mul(b, rstd, b.Add(Op::sub, {dy, Mul(b, xhat, mean)}));
  const ValueId dx = b.Add(Op::add, {norm, residual});
  for (int k = 0; k < sums; ++k) {
    const ValueId t = Widened(b, Saved(b, DType::kBf16, shape, absl::StrCat("t", k)));
    b.Output(b.Sum(Mul(b, dx, t), {0}), absl::StrCat("dscale", k));
  }
  b.Output(b.Cast(dx, DType::kBf16), "dx");
  return Built(b);
}

BackwardGraph RmsNormBackward(Extent e, NormOperands operands) {
  GraphBuilder b("rms_norm_backward");
  auto operand = [&](const std::string& name) {
    const ValueId a = Saved(b, DType::kBf16, {e.rows, e.columns}, name);
    if (operands == NormOperands::kInputs) return a;
    return b.MatMul(a, Saved(b, DType::kBf16, {e.columns, e.columns}, name + "_weight"));
  };
  Norm n;
  n.x = operand("x");
  n.dy = operand("dy");
  n.rstd = Saved(b, DType::kFp32, {e.rows, 1}, "rstd");
  n.w = Saved(b, DType::kFp32, {e.columns}, "w");
  const ValueId dx = RmsNorm(b, n);
  b.Output(b.Cast(dx, DType::kBf16), "dx");
  b.Output({dx.node, 1}, "dw");
  return Built(b);
}

BackwardGraph TwoRmsNorms(Extent e, NormsShare share) {
  GraphBuilder b("two_rms_norms");
  const Shape shape = {e.rows, e.columns};
  std::vector<ValueId> dx;
  Norm n;
  for (int k = 0; k < 2; ++k) {
    const std::string number = absl::StrCat(k);
    n.dy = Saved(b, DType::kBf16, shape, "dy" + number);
    if (k == 0 || share == NormsShare::kWeight) {
      n.x = Saved(b, DType::kBf16, shape, "x" + number);
      n.rstd = Saved(b, DType::kFp32, {e.rows, 1}, "rstd" + number);
    }
    if (k == 0 || share == NormsShare::kInput) {
      n.w = Saved(b, DType::kFp32, {e.columns}, "w" + number);
    }
    dx.push_back(RmsNorm(b, n));
    b.Output({dx[k].node, 1}, "dw" + number);
  }
  if (share == NormsShare::kInput) {
    b.Output(b.Cast(b.Add(Op::add, {dx[0], dx[1]}), DType::kBf16), "dx");
  } else {
    for (int k = 0; k < 2; ++k) b.Output(b.Cast(dx[k], DType::kBf16), absl::StrCat("dx", k));
  }
  return Built(b);
}

BackwardGraph BroadcastMask(int64_t batch, int64_t length, int64_t width, int ops) {
  GraphBuilder b("broadcast_mask");
  const ValueId dy = Saved(b, DType::kBf16, {batch, length, width}, "dy");
  const ValueId seed = Saved(b, DType::kInt32, {batch, 1, width}, "seed");
  // Steps of a multiplicative hash; the seed enters each, so that no two are the same.
  ValueId bits = seed;
  for (int k = 0; k < ops; ++k) {
    bits = k % 2 == 0 ? Mul(b, bits, b.Full(1664525 + k, DType::kInt32))
                      : b.Add(Op::add, {bits, seed});
  }
  const ValueId keep = b.Add(Op::gt, {bits, b.Full(0, DType::kInt32)});
  b.Output(b.Add(Op::where, {keep, dy, b.Full(0, DType::kBf16)}), "dx");
  return Built(b);
}

BackwardGraph BroadcastScale(Extent e, int ops) {
  GraphBuilder b("broadcast_scale");
  const ValueId dy = Saved(b, DType::kBf16, {e.rows, e.columns}, "dy");
  ValueId scale = Saved(b, DType::kFp32, {e.columns}, "scale");
  for (int k = 0; k < ops; ++k) scale = b.Add(Op::erf, {scale});
  b.Output(b.Cast(Mul(b, Widened(b, dy), scale), DType::kBf16), "dx");
  return Built(b);
}

BackwardGraph TwoReadersOfOne(int64_t outer, int64_t middle, int64_t inner, int ops) {
  GraphBuilder b("two_readers_of_one");
  ValueId t = Widened(b, Saved(b, DType::kBf16, {outer, middle, inner}, "x"));
  for (int k = 0; k < ops; ++k) t = b.Add(Op::erf, {t});
  b.Output(b.Sum(t, {0}), "sum0");
  b.Output(b.Sum(t, {1}), "sum1");
  return Built(b);
}

BackwardGraph ScaledBranches(Extent e, int branches, BranchesRead read) {
  GraphBuilder b("scaled_branches");
  constexpr int64_t kWidth = 64;
  std::vector<ValueId> t;
  ValueId x;
  for (int k = 0; k < branches; ++k) {
    if (k == 0 || read == BranchesRead::kTheirOwn) {
      x = Widened(b, Saved(b, DType::kBf16, {e.rows, e.columns}, absl::StrCat("x", k)));
    }
    const ValueId scale = Saved(b, DType::kFp32, {e.columns}, absl::StrCat("scale", k));
    t.push_back(b.Cast(Mul(b, x, scale), DType::kBf16));
  }
  for (int k = 0; k < branches; ++k) {
    const ValueId dy = Saved(b, DType::kBf16, {e.rows, kWidth}, absl::StrCat("dy", k));
    b.Output(b.MatMul(b.Permute(dy, {1, 0}), t[k]), absl::StrCat("dw", k));
  }
  return Built(b);
}

BackwardGraph TwoScalingsOfOne(Extent e) {
  GraphBuilder b("two_scalings_of_one");
  const ValueId x = Saved(b, DType::kFp32, {e.rows, e.columns}, "x");
  for (int k = 0; k < 2; ++k) {
    const ValueId scale = Saved(b, DType::kFp32, {e.columns}, absl::StrCat("scale", k));
    b.Output(Mul(b, x, scale), absl::StrCat("d", k));
  }
  return Built(b);
}

}  // namespace retrograd
