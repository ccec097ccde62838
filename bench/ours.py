"""Our side in the framework's process: libretrograd_backward.so through ctypes."""

import ctypes
import json
import pathlib

import torch
import watch

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "libretrograd_backward.so"
PLACES = [ROOT / "build/release/bin" / NAME, ROOT / "bin" / NAME]  # a build tree, a bundle


class Refused(Exception):
    """The graph cannot be planned, compiled or loaded; says why."""


def find_library(path=None):
    """The library at `path`, or where builds and bundles have it; FileNotFoundError if nowhere."""
    for place in [pathlib.Path(path)] if path else PLACES:
        if place.exists():
            return place
    raise FileNotFoundError(
        f"no {NAME} at {path or ' or '.join(map(str, PLACES))}: make build, or ninja -C "
        "build/release retrograd_backward"
    )


def _load(path):
    library = ctypes.CDLL(str(path))
    pointers = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t] * 2
    for name, result, arguments in (
        ("open", ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]),
        ("open_beside", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]),
        ("close", None, [ctypes.c_void_p]),
        ("run", ctypes.c_int, [ctypes.c_void_p, *pointers, ctypes.c_void_p]),
        ("last_run_us", ctypes.c_double, [ctypes.c_void_p]),
        ("describe", ctypes.c_char_p, [ctypes.c_void_p]),
        ("time_steps", ctypes.c_char_p, [ctypes.c_void_p, *pointers, ctypes.c_int]),
        ("error", ctypes.c_char_p, []),
    ):
        function = getattr(library, f"rg_backward_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _addresses(tensors):
    """An array of data pointers; null for None."""
    values = [None if t is None else t.data_ptr() for t in tensors]
    return (ctypes.c_void_p * max(len(values), 1))(*values), len(values)


class Backward:
    """A compiled backward on a device ("cuda", "host"), or on that of another backward, `beside`,
    with what has been loaded and timed there.

    Bind it to tensors before it runs. Refused if it cannot be made.
    """

    def __init__(self, library, graph, device, beside=None, **options):
        self._library = _load(library)
        arguments = str(graph).encode(), json.dumps({"device": device, **options}).encode()
        if beside is None:
            self._handle = self._library.rg_backward_open(*arguments)
        else:
            self._handle = self._library.rg_backward_open_beside(beside._handle, *arguments)
        if not self._handle:
            raise Refused(self._library.rg_backward_error().decode())
        self.on_gpu = device != "host"

    def bind(self, inputs, gradients):
        """inputs: the raw spans of the graph's inputs in their order. gradients: tensors for its
        outputs; None for absent ones."""
        self.inputs, self.gradients = inputs, gradients
        self._in, self._out = _addresses(inputs), _addresses(gradients)

    def run(self):
        """Issues the backward on torch's current stream."""
        stream = torch.cuda.current_stream().cuda_stream if self.on_gpu else None
        if self._library.rg_backward_run(self._handle, *self._in, *self._out, stream):
            raise RuntimeError(self._library.rg_backward_error().decode())

    def run_us(self, repeat):
        """The host's time of one run, in microseconds, by itself. "waited": the host waited for the
        device before, and its caches have gone cold. "ahead": runs are issued while others wait in
        the queue, as in training."""
        samples = {"waited": [], "ahead": []}
        for _ in range(repeat):
            for kind in ("waited", "ahead", "ahead", "ahead"):
                self.run()
                samples[kind].append(self._library.rg_backward_last_run_us(self._handle))
            watch.synchronize()
        return {kind: watch.summary(us) for kind, us in samples.items()}

    def describe(self):
        return json.loads(self._library.rg_backward_describe(self._handle))

    def time_steps(self, repeat):
        """Each kernel and call alone; the gradients are worth nothing afterwards."""
        text = self._library.rg_backward_time_steps(self._handle, *self._in, *self._out, repeat)
        if text is None:
            raise RuntimeError(self._library.rg_backward_error().decode())
        return json.loads(text)

    def close(self):
        if self._handle:
            self._library.rg_backward_close(self._handle)
        self._handle = None
        self.inputs = self.gradients = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_DTYPES = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64,
    "bool": torch.bool, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip


def drawn_inputs(plan, device="cuda"):
    """Random tensors for what describe() says of a backward: normal floats, integers that index."""
    tensors = []
    for name, elements, below in plan["inputs"]:
        dtype = _DTYPES[name]
        if dtype.is_floating_point:
            tensors.append(torch.randn(elements, device=device, dtype=dtype))
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
