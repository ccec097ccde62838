"""Trains the network of train_cpp through Python: the graphs are built here, with no framework.

    python3 train.py examples/data/digits.csv [--device cuda] [--whole-step]

--whole-step makes one graph of forward, backward and update: on a GPU each step is one launch. The
exit status is 1 where fewer than 95% of the held-out images are recognised in the end.
"""

import argparse
import array
import csv
import random
import sys

from retrograd.native import Builder, Device, Executable, Memory, layers

PIXELS, HIDDEN, CLASSES = 64, 64, 10
BATCH, EPOCHS, RATE = 100, 15, 3e-3
HELD_OUT = 6  # every sixth image is held out
PARAMETERS = {
    "hidden.weight": (HIDDEN, PIXELS),
    "hidden.bias": (HIDDEN,),
    "classes.weight": (CLASSES, HIDDEN),
    "classes.bias": (CLASSES,),
}


# --- graphs ---------------------------------------------------------------------------------------


def images_and_labels(b, rows):
    images = b.input("images", "f32", (rows, PIXELS), alignment=16)
    return images, b.input("labels", "i64", (rows,), alignment=16)


def one_a_parameter(b, suffix=""):
    return [
        b.input(name + suffix, "f32", shape, kind="parameter", alignment=16)
        for name, shape in PARAMETERS.items()
    ]


def add_forward(b, images, labels, p):
    """(loss, log probabilities, hidden)"""
    hidden = layers.relu(b, layers.linear(b, images, p[0], p[1]))
    logits = layers.linear(b, hidden, p[2], p[3])
    return *layers.softmax_cross_entropy(b, logits, labels), hidden


def add_backward(b, images, labels, log_probabilities, hidden, weight):
    """The parameters' gradients; the images have none."""
    dlogits = layers.softmax_cross_entropy_backward(b, log_probabilities, labels)
    dhidden, *classes = layers.linear_backward(b, dlogits, hidden, weight)
    dhidden = layers.relu_backward(b, dhidden, hidden)
    dw = b.add("matmul", b.add("permute", dhidden, perm=[1, 0]), images)
    return [dw, b.add("sum", dhidden, axes=[0]), *classes]


def add_update(b, p, gradients):
    """Outputs: each parameter with its moments, then the next step."""
    m, v = one_a_parameter(b, ".m"), one_a_parameter(b, ".v")
    step = b.input("step", "f32", (), alignment=16)
    for name, *of in zip(PARAMETERS, p, gradients, m, v, strict=True):
        for suffix, value in zip(("", ".m", ".v"), layers.adam(b, *of, step, RATE), strict=True):
            b.output(value, name + suffix)
    b.output(b.add("add", step, b.scalar(1, "f32")), "step")


def forward_graph(rows):
    b = Builder("forward")
    images, labels = images_and_labels(b, rows)
    made = add_forward(b, images, labels, one_a_parameter(b))
    for value, name in zip(made, ("loss", "log_probabilities", "hidden"), strict=True):
        b.output(value, name)
    return b.finish()


def backward_graph(rows):
    b = Builder("backward")
    images, labels = images_and_labels(b, rows)
    saved = [
        b.input("log_probabilities", "f32", (rows, CLASSES), alignment=16),
        b.input("hidden", "f32", (rows, HIDDEN), alignment=16),
        b.input("classes.weight", "f32", PARAMETERS["classes.weight"], "parameter", alignment=16),
    ]
    for value, name in zip(add_backward(b, images, labels, *saved), PARAMETERS, strict=True):
        b.output(value, name)
    return b.finish()


def update_graph():
    b = Builder("update")
    p = one_a_parameter(b)
    add_update(b, p, one_a_parameter(b, ".gradient"))
    return b.finish()


def step_graph(rows):
    b = Builder("step")
    images, labels = images_and_labels(b, rows)
    p = one_a_parameter(b)
    loss, log_probabilities, hidden = add_forward(b, images, labels, p)
    b.output(loss, "loss")
    add_update(b, p, add_backward(b, images, labels, log_probabilities, hidden, p[2]))
    return b.finish()


# --- runs -----------------------------------------------------------------------------------------


class Part:
    """A graph made executable, with memory for its outputs."""

    def __init__(self, graph, device):
        self.executable = Executable(graph, device)
        self.outputs = [Memory(device, t.bytes) for t in graph.outputs]

    def run(self, inputs, outputs=None):
        self.executable.run(inputs, outputs or self.outputs)


def on_device(device, values):
    memory = Memory(device, values.itemsize * len(values))
    memory.copy_in(values)
    return memory


def initial_state(device):
    """Each parameter with its moments, then the step: the order of the update's outputs."""
    state = []
    for shape in PARAMETERS.values():
        size, deviation = shape[0], 0.0
        if len(shape) == 2:
            size, deviation = shape[0] * shape[1], (2 / shape[1]) ** 0.5
        state.append(on_device(device, array.array("f", (random.gauss(0, deviation) for _ in range(size)))))
        state += [on_device(device, array.array("f", bytes(4 * size))) for _ in range(2)]
    return [*state, on_device(device, array.array("f", [1]))]


class Steps:
    """Training steps in three launches: forward, backward, update."""

    def __init__(self, device):
        self.forward = Part(forward_graph(BATCH), device)
        self.backward = Part(backward_graph(BATCH), device)
        self.update = Part(update_graph(), device)
        self.loss = self.forward.outputs[0]

    def run(self, images, labels, now, then):
        p, m, v, step = now[0:-1:3], now[1:-1:3], now[2:-1:3], now[-1]
        self.forward.run([images, labels, *p])
        self.backward.run([images, labels, *self.forward.outputs[1:], p[2]])
        self.update.run([*p, *self.backward.outputs, *m, *v, step], then)


class WholeSteps:
    """Training steps in one launch each."""

    def __init__(self, device):
        self.step = Part(step_graph(BATCH), device)
        self.loss = self.step.outputs[0]

    def run(self, images, labels, now, then):
        inputs = [images, labels, *now[0:-1:3], *now[1:-1:3], *now[2:-1:3], now[-1]]
        self.step.run(inputs, [self.loss, *then])


# --- training -------------------------------------------------------------------------------------


def read_digits(path):
    """(trained, held out), each (pixels of each image from 0 to 1, labels)."""
    with open(path, newline="") as file:
        rows = [[int(number) for number in row] for row in csv.reader(file)]
    parts = ([], []), ([], [])
    for i, row in enumerate(rows):
        images, labels = parts[i % HELD_OUT == 0]
        images.append(array.array("f", (pixel / 16 for pixel in row[:PIXELS])))
        labels.append(row[PIXELS])
    return parts


def joined(images):
    whole = array.array("f")
    for image in images:
        whole.extend(image)
    return whole


class Evaluation:
    """The share of the held-out images that are recognised."""

    def __init__(self, device, images, labels):
        self.labels = labels
        self.forward = Part(forward_graph(len(labels)), device)
        self.inputs = [on_device(device, joined(images)), on_device(device, array.array("q", labels))]

    def accuracy(self, state):
        self.forward.run([*self.inputs, *state[0:-1:3]])
        scores = array.array("f", bytes(4 * CLASSES * len(self.labels)))
        self.forward.outputs[1].copy_out(scores)
        rows = (scores[i : i + CLASSES] for i in range(0, len(scores), CLASSES))
        right = sum(row.index(max(row)) == label for row, label in zip(rows, self.labels, strict=True))
        return right / len(self.labels)


def train(options):
    device = Device(options.device)
    trained, held_out = read_digits(options.data)
    evaluation = Evaluation(device, *held_out)
    steps = WholeSteps(device) if options.whole_step else Steps(device)
    random.seed(1)
    now, then = initial_state(device), initial_state(device)
    images, labels = Memory(device, 4 * BATCH * PIXELS), Memory(device, 8 * BATCH)
    order, reached = list(range(len(trained[1]))), 0
    for epoch in range(1, EPOCHS + 1):
        random.shuffle(order)
        for first in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[first : first + BATCH]
            images.copy_in(joined(trained[0][i] for i in batch))
            labels.copy_in(array.array("q", (trained[1][i] for i in batch)))
            steps.run(images, labels, now, then)
            now, then = then, now
        loss = array.array("f", [0])
        steps.loss.copy_out(loss)
        reached = evaluation.accuracy(now)
        print(f"epoch {epoch:2}: loss {loss[0]:.4f}, {reached:.1%} of the held-out images recognised")
    return reached


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits.")
    parser.add_argument("data", help="digits.csv")
    parser.add_argument("--device", default="host", help="host, cuda or hip")
    parser.add_argument("--whole-step", action="store_true", help="one graph of all of a step")
    return 0 if train(parser.parse_args()) >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
