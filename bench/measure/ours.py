"""Our side in the framework's process: libretrograd.so, through retrograd.native."""

import pathlib
import subprocess
import sys
import tempfile

import torch
from measure import watch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from retrograd import native  # noqa: E402

NAME = native.NAME
find_library = native.find


class Refused(Exception):
    """The graph cannot be planned, compiled or loaded; says why."""


def _graph_file(library, graph, folder):
    """The graph's file; of a model's name, a file in the folder that `retrograd check` writes."""
    if pathlib.Path(graph).exists():
        return str(graph)
    path = f"{folder}/graph.bwd.pb"
    tool = pathlib.Path(library).resolve().parent / "retrograd"
    done = subprocess.run([tool, "check", str(graph), "-o", path], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    if done.returncode:
        raise Refused(done.stdout.strip())
    return path


class Backward:
    """A compiled backward on a device ("cuda", "host"), or on that of another backward, `beside`.

    Options are `spec`, `streams`, `cache_dir` and `sizes`, numbers for the symbols of the graph; all
    others are settings (docs/embedding.md). Bind it to tensors before it runs. Refused if it cannot be made.
    """

    def __init__(self, library, graph, device="host", beside=None, **options):
        self.on_gpu = device != "host"
        library, cache_dir = native.load(library), options.pop("cache_dir", None)
        sizes = options.pop("sizes", None)
        how = {name: options.pop(name) for name in ("spec", "streams") if name in options}
        self._executable = None
        try:
            self._device = (
                native.Device(device, cache_dir, library=library)
                if beside is None
                else beside._device
            )
            with tempfile.TemporaryDirectory() as folder:
                loaded = native.Graph.load(_graph_file(library.path, graph, folder), library)
            if sizes:
                with loaded:
                    loaded = loaded.bind(sizes)
            with loaded:
                self._executable = native.Executable(loaded, self._device, settings=options, **how)
        except native.Failure as failure:
            raise Refused(failure.message) from failure

    def bind(self, inputs, gradients):
        """inputs: the raw spans of the graph's inputs in their order. gradients: tensors for its
        outputs; None for absent ones."""
        self.inputs, self.gradients = inputs, gradients
        self._executable.bind(inputs, gradients)

    def _stream(self):
        return torch.cuda.current_stream().cuda_stream if self.on_gpu else None

    def run(self):
        """Issues the backward on torch's current stream."""
        self._executable.run(stream=self._stream())

    def run_us(self, repeat):
        """The host's time of one run, in microseconds, by itself. "waited": the host waited for the
        device before, and its caches have gone cold. "ahead": runs are issued while others wait in
        the queue, as in training."""
        samples = {"waited": [], "ahead": []}
        for _ in range(repeat):
            for kind in ("waited", "ahead", "ahead", "ahead"):
                self.run()
                samples[kind].append(self._executable.last_run_us)
            watch.synchronize()
        return {kind: watch.summary(us) for kind, us in samples.items()}

    def describe(self):
        return self._executable.describe()

    def time_steps(self, repeat):
        """Each kernel and call alone; the gradients are worth nothing afterwards."""
        return self._executable.time_steps(repeat, self._stream())

    def close(self):
        if self._executable is not None:
            self._executable.close()
        self._executable = None
        self.inputs = self.gradients = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_DTYPES = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
    "f8e4m3fnuz": torch.float8_e4m3fnuz, "f8e5m2fnuz": torch.float8_e5m2fnuz,
    "bool": torch.bool, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip


def drawn_inputs(plan, device="cuda"):
    """Random tensors for what describe() says of a backward: normal floats, integers that index."""
    tensors = []
    for name, elements, below in plan["inputs"]:
        dtype = _DTYPES[name]
        if dtype.is_floating_point:
            tensors.append(torch.randn(elements, device=device).to(dtype))
        else:
            tensors.append(torch.randint(below, (elements,), device=device).to(dtype))
    return tensors


def empty_outputs(plan, device="cuda"):
    """Unwritten tensors for the gradients; None for absent ones."""
    return [
        None if room is None else torch.empty(room[1], device=device, dtype=_DTYPES[room[0]])
        for room in plan["outputs"]
    ]


def room_for(outputs, device):
    """Unwritten tensors for capture.CapturedOutputs, in the strides that they ask for."""
    return [_room(output, device) for output in outputs]


def _room(output, device):
    if output.node is None:
        return None
    shape = tuple(output.node.meta["val"].shape)
    if not output.strides:
        return torch.empty(shape, dtype=output.dtype, device=device)
    return torch.empty_strided(shape, output.strides, dtype=output.dtype, device=device)
