#!/usr/bin/env python3
"""Loss curves of whole trainings: eager, Inductor and backend="retrograd", from several seeds.

    bench/curves.py [gpt|resnet18 ..] [--steps 500] [--seeds 3] [--device cuda] [--out FILE]
    bench/curves.py --flat 10000            # memory over many steps of a small network, ours alone
    bench/curves.py --plot FILE.json        # FILE.svg of a result; needs matplotlib

The small GPT reads this repository's own pages (docs/*.md) letter by letter. resnet18 learns images of
ten random patterns under noise. A seed makes weights and batches, so that sides of one seed differ by
rounding alone; seeds differ by what a user calls run-to-run noise. The last line tells both: the mean
distance of our curve from eager's of the same seed, and that of eager's curves of two seeds.
"""

import argparse
import itertools
import json
import pathlib
import resource
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "models"), str(ROOT / "python")]

SIDES = ("eager", "inductor", "retrograd")
MEAN_OF = 5  # steps that a point of a plot stands for


def _gpt(device, seed, large):
    """(model, batches) of a causal language model over letters."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text], device=device)
    layers, width, context, batch = (6, 384, 256, 32) if large else (2, 64, 32, 8)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            rows, length, _ = x.shape
            heads = (rows, length, width // 32, 32)
            q, k, v = (t.view(heads).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(F.gelu(self.up(self.behind(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters, self.places = nn.Embedding(len(letters), width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(letters))

        def forward(self, tokens, targets):
            x = self.letters(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

    torch.manual_seed(seed)
    model = GPT().to(device)

    def batches():
        generator = torch.Generator().manual_seed(seed)
        while True:
            begins = torch.randint(len(data) - context - 1, (batch,), generator=generator)
            rows = torch.stack([data[b : b + context + 1] for b in begins.tolist()])
            yield rows[:, :-1], rows[:, 1:]

    return model, batches()


def _resnet18(device, seed, large):
    """(model, batches) of an image classifier."""
    import torch
    import torchvision
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torchvision.models.resnet18(num_classes=10)

        def forward(self, images, classes):
            return nn.functional.cross_entropy(self.body(images), classes)

    torch.manual_seed(seed)
    model = Classifier().to(device).to(memory_format=torch.channels_last)
    size, batch = (96, 32) if large else (32, 4)
    patterns = torch.randn(10, 3, size, size, device=device)

    def batches():
        generator = torch.Generator().manual_seed(seed)
        while True:
            classes = torch.randint(10, (batch,), generator=generator).to(device)
            noise = torch.randn(batch, 3, size, size, generator=generator).to(device)
            images = patterns[classes] + 2 * noise
            yield images.to(memory_format=torch.channels_last), classes

    return model, batches()


MODELS = {"gpt": _gpt, "resnet18": _resnet18}


def compiled(model, side):
    """The model as the side runs it. Falling back to Inductor is an error."""
    import torch
    from retrograd.backend import backend

    torch._dynamo.reset()
    if side == "eager":
        return model
    if side == "inductor":
        return torch.compile(model, dynamic=False)
    return torch.compile(model, backend=backend, options={"require_full": True}, dynamic=False)


def train(name, side, seed, steps, device):
    """The loss of each step."""
    import torch

    model, batches = MODELS[name](device, seed, large=device == "cuda")
    step = compiled(model, side)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for inputs in itertools.islice(batches, steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = step(*inputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _held(device):
    """Bytes that this process holds on the device; on the CPU the most that it ever held."""
    import torch

    if device == "cuda":
        return torch.cuda.memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def flat(steps, device):
    """Bytes held after each tenth of many steps."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(device)
    step = compiled(model, "retrograd")
    optimizer = torch.optim.AdamW(model.parameters())
    held = []
    for i in range(steps):
        optimizer.zero_grad()
        step(torch.randn(16, 32, device=device)).square().mean().backward()
        optimizer.step()
        if (i + 1) % max(steps // 10, 1) == 0:
            held.append(_held(device))
    return held


def distance(one, other):
    return statistics.fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def told(curves):
    """The two distances of one model's curves {side: [losses of each seed]}."""
    eager = curves["eager"]
    seeds = [distance(a, b) for a, b in itertools.combinations(eager, 2)]
    row = {"between_seeds": statistics.fmean(seeds) if seeds else None}
    for side in SIDES[1:]:
        row[side] = statistics.fmean(map(distance, curves[side], eager))
    return row


def plot(path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    result = json.loads(path.read_text())
    figure, axes = pyplot.subplots(1, len(result["curves"]), figsize=(11, 4), squeeze=False)
    colors = dict(zip(SIDES, ("black", "tab:orange", "tab:blue"), strict=True))
    for axis, (name, curves) in zip(axes[0], result["curves"].items(), strict=True):
        for side, style in zip(SIDES, ("-", "--", ":"), strict=True):
            for seed, losses in enumerate(curves[side]):
                steps = range(0, len(losses) - MEAN_OF + 1, MEAN_OF)
                axis.plot(
                    [i + MEAN_OF / 2 for i in steps],
                    [statistics.fmean(losses[i : i + MEAN_OF]) for i in steps],
                    style, color=colors[side], linewidth=0.8, label=None if seed else side,
                )  # fmt: skip
        axis.set(title=name, xlabel="step", ylabel=f"loss, mean of {MEAN_OF} steps")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: smaller models, in fp32")  # fmt: skip
    parser.add_argument("--flat", type=int, metavar="STEPS")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if options.plot:
        return plot(options.plot)
    import run
    from measure import one_model
    from retrograd.atomic_file import write_atomically

    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    result = {
        "command": " ".join(["bench/curves.py", *sys.argv[1:]]), "commit": run.commit(),
        "machine": one_model.machine(options.device), "steps": options.steps, "curves": {},
    }  # fmt: skip
    if options.flat:
        result["held_bytes"] = flat(options.flat, options.device)
        print(json.dumps(result["held_bytes"]))
    for name in [] if options.flat else options.names or MODELS:
        result["curves"][name] = {
            side: [
                train(name, side, seed, options.steps, options.device)
                for seed in range(options.seeds)
            ]
            for side in SIDES
        }
        result.setdefault("distances", {})[name] = told(result["curves"][name])
        print(name, json.dumps(result["distances"][name]), flush=True)
    if options.out:
        write_atomically(options.out, (json.dumps(result) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
