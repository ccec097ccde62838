"""Our side in the framework's process: libretrograd.so, the C interface, through ctypes."""

import ctypes
import json
import pathlib
import subprocess
import tempfile

import torch
import watch

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "libretrograd.so"
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
        "build/release retrograd_shared"
    )


class _Struct(ctypes.Structure):
    """A struct of retrograd.h, which begins with its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class _Error(_Struct):
    _fields_ = [("struct_size", ctypes.c_size_t), ("code", ctypes.c_int32),
                ("message", ctypes.c_char_p), ("node", ctypes.c_int64)]  # fmt: skip


class _DeviceOptions(_Struct):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p),
                ("cache_dir", ctypes.c_char_p), ("no_cache", ctypes.c_int32),
                ("compile_jobs", ctypes.c_int32), ("allocator", ctypes.c_void_p * 3)]  # fmt: skip


class _ExecutableOptions(_Struct):
    _fields_ = [("struct_size", ctypes.c_size_t), ("spec", ctypes.c_char_p),
                ("max_memory_bytes", ctypes.c_int64), ("streams", ctypes.c_int32),
                ("caller_workspace", ctypes.c_int32), ("accumulate", ctypes.c_void_p),
                ("num_accumulate", ctypes.c_size_t), ("progress", ctypes.c_void_p),
                ("progress_user", ctypes.c_void_p), ("log", ctypes.c_void_p),
                ("log_user", ctypes.c_void_p), ("cancellation", ctypes.c_void_p),
                ("settings", ctypes.c_char_p)]  # fmt: skip


class _Run(_Struct):
    _fields_ = [("struct_size", ctypes.c_size_t), ("stream", ctypes.c_void_p),
                ("inputs", ctypes.POINTER(ctypes.c_void_p)), ("num_inputs", ctypes.c_size_t),
                ("outputs", ctypes.POINTER(ctypes.c_void_p)), ("num_outputs", ctypes.c_size_t),
                ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t)]  # fmt: skip


def _load(path):
    library = ctypes.CDLL(str(path))
    handle, out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
    for name, result, arguments in (
        ("graph_load", ctypes.c_int32, [ctypes.c_char_p, out]),
        ("graph_destroy", None, [handle]),
        ("device_create", ctypes.c_int32, [ctypes.POINTER(_DeviceOptions), out]),
        ("device_destroy", None, [handle]),
        ("executable_create", ctypes.c_int32,
         [handle, handle, ctypes.POINTER(_ExecutableOptions), out]),
        ("executable_destroy", None, [handle]),
        ("executable_run", ctypes.c_int32, [handle, ctypes.POINTER(_Run)]),
        ("executable_last_run_us", ctypes.c_double, [handle]),
        ("executable_describe", ctypes.c_int32, [handle, out]),
        ("executable_time_steps", ctypes.c_int32,
         [handle, ctypes.POINTER(_Run), ctypes.c_int32, out]),
        ("last_error", ctypes.c_int32, [ctypes.POINTER(_Error)]),
        ("free", None, [handle]),
    ):  # fmt: skip
        function = getattr(library, f"rg_{name}")
        function.restype, function.argtypes = result, arguments
    return library


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


def _addresses(tensors):
    """An array of data pointers; null for None."""
    values = [None if t is None else t.data_ptr() for t in tensors]
    return (ctypes.c_void_p * max(len(values), 1))(*values), len(values)


class Backward:
    """A compiled backward on a device ("cuda", "host"), or on that of another backward, `beside`.

    Options are `spec`, `streams` and `cache_dir`; all others are settings (docs/embedding.md).
    Bind it to tensors before it runs. Refused if it cannot be made.
    """

    def __init__(self, library, graph, device="host", beside=None, **options):
        self._library = _load(library)
        self._handle = None
        self.on_gpu = device != "host"
        cache_dir = options.pop("cache_dir", "").encode() or None
        spec, streams = options.pop("spec", "").encode() or None, options.pop("streams", 1)
        how = _ExecutableOptions(spec=spec, streams=streams, settings=json.dumps(options).encode())
        if beside is None:
            self._own = _Device(self._library, _DeviceOptions(name=device.encode(),
                                                              cache_dir=cache_dir))  # fmt: skip
        else:
            self._own = beside._own
        with tempfile.TemporaryDirectory() as folder:
            path = _graph_file(library, graph, folder).encode()
            loaded = self._made("graph_load", path, refuses=True)
        try:
            self._handle = self._made("executable_create", loaded, self._own.handle,
                                      ctypes.byref(how), refuses=True)  # fmt: skip
        finally:
            self._library.rg_graph_destroy(loaded)

    def _check(self, code, refuses=False):
        if code:
            raise (Refused if refuses else RuntimeError)(_message(self._library))

    def _made(self, function, *arguments, refuses=False):
        """The handle or text that the function makes."""
        made = ctypes.c_void_p()
        call = getattr(self._library, f"rg_{function}")
        self._check(call(*arguments, ctypes.byref(made)), refuses)
        return made

    def _json(self, function, *arguments):
        text = self._made(function, *arguments)
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            self._library.rg_free(text)

    def bind(self, inputs, gradients):
        """inputs: the raw spans of the graph's inputs in their order. gradients: tensors for its
        outputs; None for absent ones."""
        self.inputs, self.gradients = inputs, gradients
        self._in, num_inputs = _addresses(inputs)
        self._out, num_outputs = _addresses(gradients)
        self._bound = _Run(inputs=self._in, num_inputs=num_inputs,
                           outputs=self._out, num_outputs=num_outputs)  # fmt: skip

    def _on_stream(self):
        stream = torch.cuda.current_stream().cuda_stream if self.on_gpu else None
        self._bound.stream = stream
        return ctypes.byref(self._bound)

    def run(self):
        """Issues the backward on torch's current stream."""
        self._check(self._library.rg_executable_run(self._handle, self._on_stream()))

    def run_us(self, repeat):
        """The host's time of one run, in microseconds, by itself. "waited": the host waited for the
        device before, and its caches have gone cold. "ahead": runs are issued while others wait in
        the queue, as in training."""
        samples = {"waited": [], "ahead": []}
        for _ in range(repeat):
            for kind in ("waited", "ahead", "ahead", "ahead"):
                self.run()
                samples[kind].append(self._library.rg_executable_last_run_us(self._handle))
            watch.synchronize()
        return {kind: watch.summary(us) for kind, us in samples.items()}

    def describe(self):
        return self._json("executable_describe", self._handle)

    def time_steps(self, repeat):
        """Each kernel and call alone; the gradients are worth nothing afterwards."""
        return self._json("executable_time_steps", self._handle, self._on_stream(), repeat)

    def close(self):
        if self._handle:
            self._library.rg_executable_destroy(self._handle)
        self._handle = None
        self.inputs = self.gradients = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Device:
    """An rg_device, destroyed with the last backward on it."""

    def __init__(self, library, options):
        self.library, self.handle = library, ctypes.c_void_p()
        if library.rg_device_create(ctypes.byref(options), ctypes.byref(self.handle)):
            raise Refused(_message(library))

    def __del__(self):
        if self.handle:
            self.library.rg_device_destroy(self.handle)


def _message(library):
    error = _Error()
    library.rg_last_error(ctypes.byref(error))
    return error.message.decode()


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
