// ResNet with bottleneck blocks, images as rows of channels (channels last). A 1x1 convolution is
// the matmul that it is. A wider one is no op of the graph: the gradient of its result leaves the
// graph as the output NAME.dy, and that of its argument comes in as the input NAME.dx, so that what
// lies between the convolutions is planned as it would be around library calls.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/builders.h"
#include "models/classifier.h"
#include "models/layers.h"

namespace retrograd {
namespace {

// The positions of a batch of feature maps; a map is a tensor [rows, channels].
struct Positions {
  int64_t images, height, width;
  int64_t rows() const { return images * height * width; }
  Positions Halved() const { return {images, height / 2, width / 2}; }
};

// y = w (x - mean) rstd + b by channel, mean and rstd taken over the rows of this batch
//   ⇒  x̂ = (x - mean) rstd,  db = Σ dy,  dw = Σ dy x̂,  dx = w rstd (dy - db/rows - x̂ dw/rows)
ValueId BatchNorm(LayerBackward& net, const std::string& name, ValueId dy) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const Shape shape = graph.type(dy).shape;
  const int64_t channels = shape[1];
  const ValueId x = net.Saved(name + ".x", net.precision().activation, shape);
  const ValueId mean = net.Saved(name + ".mean", compute, {channels});
  const ValueId rstd = net.Saved(name + ".rstd", compute, {channels});
  const ValueId w = net.Parameter(name + ".weight", compute, {channels});
  net.From("batch_norm_backward", name);
  const ValueId d = graph.Cast(dy, compute);
  const ValueId centred = graph.Add(Op::sub, {graph.Cast(x, compute), mean});
  const ValueId normal = net.Mul(centred, rstd);
  const ValueId db = graph.Sum(d, {0});
  const ValueId dw = graph.Sum(net.Mul(d, normal), {0});
  graph.Output(dw, name + ".weight");
  graph.Output(db, name + ".bias");
  const ValueId share = graph.Full(1.0 / static_cast<double>(shape[0]), compute);
  const ValueId without_mean = graph.Add(Op::sub, {d, net.Mul(db, share)});
  const ValueId rest = graph.Add(Op::sub, {without_mean, net.Mul(normal, net.Mul(dw, share))});
  return graph.Cast(net.Mul(rest, net.Mul(w, rstd)), net.precision().activation);
}

// Every second position of a map in both directions, as rows.
ValueId EverySecond(LayerBackward& net, const Positions& at, ValueId x) {
  GraphBuilder& graph = net.graph();
  const int64_t channels = graph.type(x).shape[1];
  ValueId v = graph.Reshape(x, {at.images, at.height, at.width, channels});
  for (int64_t axis : {1, 2}) {
    v = graph.Slice(v, axis, 0, graph.type(v).shape[axis], 2);
  }
  return graph.Reshape(v, {at.Halved().rows(), channels});
}

// Its backward: zeros at the other positions.
ValueId BetweenZeros(LayerBackward& net, const Positions& at, ValueId dx) {
  GraphBuilder& graph = net.graph();
  const int64_t channels = graph.type(dx).shape[1];
  const ValueId v = graph.Reshape(dx, {at.images, at.height / 2, 1, at.width / 2, 1, channels});
  const ValueId padded = graph.Add(Op::pad, {v},
                                   {{"low", std::vector<int64_t>(6, 0)},
                                    {"high", std::vector<int64_t>{0, 0, 1, 0, 1, 0}},
                                    {"value", 0.0}});
  return graph.Reshape(padded, {at.rows(), channels});
}

// A convolution wider than 1x1, see the head of the file.
ValueId WideConvolution(LayerBackward& net, const std::string& name, ValueId dy, const Shape& x) {
  net.graph().Output(dy, name + ".dy");
  return net.Saved(name + ".dx", net.precision().activation, x);
}

// y = relu(f(x) + bn₃(conv₃(a₂))),  a₂ = relu(bn₂(conv₂(a₁))),  a₁ = relu(bn₁(conv₁(x))), where f
// is the identity, or in the first block of a stage bn(conv(x)). With a stride, conv₂ and f's
// convolution take every second position.
ValueId BlockBackward(LayerBackward& net, const std::string& name, const Positions& at, int64_t in,
                      int64_t width, bool first, bool stride, ValueId dy) {
  const DType dtype = net.precision().activation;
  const Positions out = stride ? at.Halved() : at;
  const int64_t channels = net.graph().type(dy).shape[1];
  const ValueId y = net.Saved(name + ".y", dtype, {out.rows(), channels});
  const ValueId dz = net.Activation(name + ".relu3", "relu", dy, y);

  const ValueId a2 = net.Saved(name + ".a2", dtype, {out.rows(), width});
  const ValueId da2 =
      net.Linear(name + ".conv3", BatchNorm(net, name + ".bn3", dz), a2, channels, false);
  const ValueId d2 =
      BatchNorm(net, name + ".bn2", net.Activation(name + ".relu2", "relu", da2, a2));
  const ValueId da1 = WideConvolution(net, name + ".conv2", d2, {at.rows(), width});
  const ValueId a1 = net.Saved(name + ".a1", dtype, {at.rows(), width});
  const ValueId d1 =
      BatchNorm(net, name + ".bn1", net.Activation(name + ".relu1", "relu", da1, a1));
  const ValueId x = net.Saved(name + ".x", dtype, {at.rows(), in});
  const ValueId dx = net.Linear(name + ".conv1", d1, x, width, false);
  if (!first) return net.Accumulate(name, dz, dx);

  const ValueId dshort = BatchNorm(net, name + ".downsample.bn", dz);
  const ValueId read = stride ? EverySecond(net, at, x) : x;
  ValueId from_short = net.Linear(name + ".downsample.conv", dshort, read, channels, false);
  if (stride) from_short = BetweenZeros(net, at, from_short);
  return net.Accumulate(name, from_short, dx);
}

// logits = mean over positions(x) Wᵀ + b
ValueId HeadBackward(LayerBackward& net, const Positions& at, int64_t channels, int64_t classes) {
  GraphBuilder& graph = net.graph();
  const ValueId dlogits = CrossEntropyBackward(net, at.images, classes);
  const ValueId pooled = net.Saved("fc.x", net.precision().activation, {at.images, channels});
  const ValueId d = net.Linear("fc", dlogits, pooled, classes, true);
  net.From("mean_backward", "avgpool");
  const int64_t positions = at.height * at.width;
  const ValueId share =
      net.Mul(d, graph.Full(1.0 / static_cast<double>(positions), net.precision().activation));
  const ValueId each = graph.Expand(graph.Reshape(share, {at.images, 1, channels}),
                                    {at.images, positions, channels});
  return graph.Reshape(each, {at.rows(), channels});
}

// A map moved by one position (`by` 1 or -1) along an axis of [images, height, width, channels];
// zeros come in.
ValueId Moved(LayerBackward& net, ValueId map, int64_t axis, int64_t by) {
  if (by == 0) return map;
  GraphBuilder& graph = net.graph();
  const int64_t extent = graph.type(map).shape[axis];
  const ValueId rest = graph.Slice(map, axis, by < 0, extent - (by > 0));
  std::vector<int64_t> low(4, 0), high(4, 0);
  (by > 0 ? low : high)[axis] = 1;
  return graph.Add(Op::pad, {rest}, {{"low", low}, {"high", high}, {"value", 0.0}});
}

// y = max over the 3x3 window around every second position; the forward kept which of the nine won
//   ⇒  da at row 2i + r - 1, column 2j + s - 1 gains dy[i, j] where 3r + s won, for r, s in 0..2
ValueId MaxPoolBackward(LayerBackward& net, const Positions& at, ValueId dy) {
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation;
  const Positions out = at.Halved();
  const int64_t channels = graph.type(dy).shape[1];
  const ValueId won = net.Saved("maxpool.won", DType::kInt8, {out.rows(), channels});
  net.From("max_pool_backward", "maxpool");
  ValueId sum{};
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t s = 0; s < 3; ++s) {
      const ValueId hit =
          graph.Add(Op::eq, {won, graph.Full(static_cast<double>(3 * r + s), DType::kInt8)});
      const ValueId share = graph.Add(Op::where, {hit, dy, graph.Full(0, dtype)});
      const ValueId map =
          graph.Reshape(BetweenZeros(net, at, share), {at.images, at.height, at.width, channels});
      const ValueId term = Moved(net, Moved(net, map, 1, r - 1), 2, s - 1);
      sum = r + s == 0 ? term : graph.Add(Op::add, {sum, term});
    }
  }
  return graph.Reshape(sum, {at.rows(), channels});
}

// x = maxpool(a),  a = relu(bn(conv(image)))
void StemBackward(LayerBackward& net, const Positions& at, int64_t channels, ValueId dx) {
  const ValueId da = MaxPoolBackward(net, at, dx);
  const ValueId a = net.Saved("relu.y", net.precision().activation, {at.rows(), channels});
  net.graph().Output(BatchNorm(net, "bn1", net.Activation("relu", "relu", da, a)), "conv1.dy");
}

absl::StatusOr<BackwardGraph> BuildResnet(const Parameters& p) {
  constexpr int kStages = 4;
  const int64_t side = p["image"], base = p["width"];
  if (side % 32 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model resnet: image=", side, " is no multiple of 32, by which its maps shrink"));
  }
  const int64_t blocks[kStages] = {p["blocks1"], p["blocks2"], p["blocks3"], p["blocks4"]};
  LayerBackward net(absl::StrCat("resnet:", p.Print()), PrecisionByName(p.Choice("dtype")));
  const Positions stem = {p["batch"], side / 2, side / 2};
  // By stage: the positions that go in; the first stage keeps them, the others halve them.
  Positions in[kStages];
  for (int s = 0; s < kStages; ++s) in[s] = s < 2 ? stem.Halved() : in[s - 1].Halved();

  ValueId dx = HeadBackward(net, in[kStages - 1].Halved(), 32 * base, p["classes"]);
  for (int s = kStages - 1; s >= 0; --s) {
    const int64_t width = base << s, out = 4 * width;
    for (int64_t b = blocks[s] - 1; b >= 0; --b) {
      const bool first = b == 0, stride = first && s > 0;
      const Positions at = s == 0 || stride ? in[s] : in[s].Halved();
      const int64_t channels = !first ? out : s == 0 ? base : 2 * width;
      dx = BlockBackward(net, absl::StrCat("layer", s + 1, ".", b), at, channels, width, first,
                         stride, dx);
    }
  }
  StemBackward(net, stem, base, dx);
  net.graph().AbsentOutput("image");
  return net.graph().Build();
}

}  // namespace

// Default sizes: ResNet-50, He et al. 2015.
const Builder& ResnetBuilder() {
  static const auto* builder =
      new Builder{"resnet",
                  "ResNet-50 around its convolutions: 1x1 ones are matmuls; of a wider one the "
                  "graph gives its result's gradient (NAME.dy) and takes its argument's (NAME.dx)",
                  {{"blocks1", 3, 1, 10000, "blocks of stage 1"},
                   {"blocks2", 4, 1, 10000, "blocks of stage 2"},
                   {"blocks3", 6, 1, 10000, "blocks of stage 3"},
                   {"blocks4", 3, 1, 10000, "blocks of stage 4"},
                   {"batch", 32, 1, 1 << 16, "images"},
                   {"image", 224, 32, 1 << 12, "pixels of a side"},
                   {"width", 64, 1, 1 << 12, "channels of the stem"},
                   {"classes", 1000, 1, 1 << 24, "classes"},
                   {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
                  BuildResnet};
  return *builder;
}

}  // namespace retrograd
