"""What bench/run.py does with one model, in a process of its own: both sides on the same backward.

1. The model's forward runs once and its backward graph is captured as PyTorch partitions it, with
   the very tensors that the forward saved.
2. The gradients of that graph in float64, on these tensors.
3. Ours: the captured graph, planned and compiled, on these tensors, where they lie. Four times, for
   equal bits; its times; its kernels, as the framework's profiler sees them.
4. PyTorch's: the same model, each mode, its own backward() behind its own forward.
"""

import collections
import contextlib
import gc
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import zoo
from measure import float64, ours, pytorch, watch
from retrograd import dtypes, schema
from retrograd.atomic_file import write_atomically
from retrograd.errors import ExportError
from retrograd.export import captured_backwards
from retrograd.translate import translate

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST_RUNS = 30


def machine(device):
    """What the figures depend on beside the code."""
    found = {"pytorch": torch.__version__, "device": "CPU"}
    if device == "cuda":
        driver = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found |= {
            "device": torch.cuda.get_device_name(),
            "driver": driver.stdout.split("\n")[0].strip(),
            "cudnn": torch.backends.cudnn.version(),
        }
    return found


def measure(name, device, library, repeat, modes, say, graphs=None, inductor_cache=None):
    """The row of one model. `say` is handed a line now and then. graphs: a folder that the captured
    graph is left in. inductor_cache: a folder that keeps what Inductor compiles; without one its
    first step, which compiles everything, is timed."""
    torch.set_float32_matmul_precision("high")
    row = {"model": name, "machine": machine(device)}
    with tempfile.TemporaryDirectory(prefix="retrograd_bench_") as scratch:
        cache = inductor_cache or pathlib.Path(scratch, "inductor")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        try:
            captured = _capture(name, device)
        except ImportError as error:
            return row | {"status": "skipped", "reason": f"{error.name} is not installed"}
        try:
            folder = pathlib.Path(scratch)
            row |= _our_side(captured, name, library, repeat, folder, graphs or folder, say)
        except (ours.Refused, ExportError) as error:
            return row | {"status": "refused", "reason": str(error)}
        captured_saved = pytorch.inputs_of(captured.fx_graph.owning_module)
        from_before = sum(
            i.recorded.numel() * i.recorded.element_size()
            for i in captured.inputs
            if not i.saved and i.kind != schema.TANGENT
        )
        del captured
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
        row["pytorch"] = {}
        for mode in modes:
            result = pytorch.measure(name, device, mode, repeat, from_before)
            if inductor_cache is not None:
                del result["first_step_s"]
            if "saved" in result:
                result["saved"] = _compare_saved(captured_saved, result["saved"])
            row["pytorch"][mode] = result
            say(f"{mode}: {result['gpu_ms']['median']:.2f} ms")
    return row | {"status": "measured"}


def _capture(name, device):
    """The one backward of the model, with what its forward saved left on the device."""
    model, args, kwargs = zoo.make(name, device)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=zoo.autocasts(name, device)):
        captured = captured_backwards(model, args, kwargs, keep_on_device=True, joint_passes=True)
    if len(captured) != 1:
        raise ExportError(f"{name} has graph breaks: {len(captured)} backwards instead of one")
    return captured[0]


def _our_side(captured, name, library, repeat, scratch, graphs, say):
    path = graphs / f"{name}.bwd.pb"
    graph, constants = translate(captured, name)
    write_atomically(path, graph.SerializeToString(deterministic=True))
    inputs = [i.recorded for i in captured.inputs]
    device = inputs[0].device
    inputs += [t.to(device) for t in constants.values()]
    row = {"graph": _describe(graph, name)}
    theirs = [o.recorded for o in captured.outputs]
    try:
        references = float64.gradients(captured)
        row["op_by_op_errors"] = worst_error(theirs, references, captured)
    except float64.NoReference as error:
        row["no_reference"], references = str(error), None
    gigabytes = row["graph"]["input_bytes"] / 1e9
    say(f"captured: {row['graph']['nodes']} nodes, {gigabytes:.2f} GB of inputs")
    row["ours"] = {}
    for choice, deterministic in (("deterministic", True), ("nondeterministic", False)):
        options = {"deterministic": deterministic, "cache_dir": str(scratch / f"cache_{choice}")}
        with _opened(library, path, inputs, captured, options) as (backward, cold_s):
            result = _run_ours(backward, repeat, references, theirs, captured)
            result["cold"] = {"total_s": cold_s, "steps_s": result["plan"]["seconds"]}
            if deterministic:
                result["steps"] = backward.time_steps(5)
        with _opened(library, path, inputs, captured, options) as (backward, warm_s):
            result["warm"] = {"total_s": warm_s, "steps_s": backward.describe()["seconds"]}
        row["ours"][choice] = result
        say(f"ours, {choice}: {result['gpu_ms']['median']:.2f} ms, {_error_text(result)}")
    return row


@contextlib.contextmanager
def _opened(library, path, inputs, captured, options):
    """A backward, bound to the inputs and to gradients of its own, and how many seconds it took."""
    begin = time.perf_counter()
    device = inputs[0].device
    name = "host" if device.type == "cpu" else "cuda"
    with ours.Backward(library, path, name, **options) as backward:
        seconds = time.perf_counter() - begin
        backward.bind(inputs, ours.room_for(captured.outputs, device))
        yield backward, seconds


def _run_ours(backward, repeat, references, theirs, captured):
    for gradient in backward.gradients:  # what is not written shows
        if gradient is not None and gradient.is_floating_point():
            gradient.fill_(float("nan"))
    backward.run()
    watch.synchronize()
    result = {}
    if references is not None:
        result["errors"] = worst_error(backward.gradients, references, captured)
    result["difference_from_pytorch"] = worst_error(backward.gradients, theirs, captured)
    first = [None if g is None else g.clone() for g in backward.gradients]
    unequal = set()
    for _ in range(3):
        backward.run()
        watch.synchronize()
        unequal |= {
            i for i, (a, b) in enumerate(zip(first, backward.gradients)) if not same_bits(a, b)
        }  # fmt: skip
    del first
    result["unequal_gradients_of_4_runs"] = len(unequal)
    nothing = lambda: None  # noqa: E731
    result["gpu_ms"] = watch.gpu_ms(nothing, backward.run, repeat)
    result["wall_ms"] = watch.wall_ms(nothing, backward.run, repeat)
    result["host_us"] = watch.host_us(nothing, backward.run, HOST_RUNS)
    result["run_us"] = backward.run_us(HOST_RUNS)
    result["kernels"] = watch.kernels(nothing, backward.run)
    result["plan"] = backward.describe()
    del result["plan"]["inputs"], result["plan"]["outputs"]
    result["peak_bytes"] = result["plan"]["peak_bytes"]
    return result


def same_bits(a, b):
    if a is None:
        return True
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.view(integers), b.view(integers))


def worst_error(gradients, references, captured):
    """The errors of all gradients: the worst and whose it is, the median."""
    names = [o.name for o, r in zip(captured.outputs, references) if r is not None]
    errors = float64.errors(gradients, references)
    worst = max(range(len(errors)), key=lambda i: errors[i] if errors[i] == errors[i] else 1e300)
    return {
        "worst": errors[worst], "of": names[worst], "median": statistics.median(errors),
        "gradients": len(errors),
    }  # fmt: skip


def _error_text(result):
    errors = result.get("errors")
    return f"worst error {errors['worst']:.2g}" if errors else "no reference"


def _describe(graph, name):
    """What the captured graph is, and whether it is the one that the repository holds."""
    ops = collections.Counter(n.op for n in graph.nodes)
    attention = [n for n in graph.nodes if n.op == "attention_backward"]
    variants = sorted({a.s for n in attention for a in n.attrs if a.name == "variant"})
    dropout = sorted({a.f for n in attention for a in n.attrs if a.name == "dropout_p"})
    inputs = {schema.SAVED: 0, schema.PARAMETER: 0, schema.TANGENT: 0, schema.CONSTANT: 0}
    for node in graph.nodes:
        if node.op == "input":
            elements = 1
            for extent in node.results[0].dims:
                elements *= extent
            inputs[node.input.kind] += elements * dtypes.torch_dtype(node.results[0].dtype).itemsize
    recorded = ROOT / "models" / "graphs" / f"{name}.bwd.pb"
    return {
        "nodes": len(graph.nodes),
        "inputs": ops["input"],
        "outputs": len(graph.outputs),
        "matmuls": ops["matmul"],
        "attention": {"ops": len(attention), "variants": variants, "dropout": dropout},
        "input_bytes": sum(inputs.values()),
        "saved_bytes": inputs[schema.SAVED],
        "nodes_of_the_recorded": len(schema.load(recorded).nodes) if recorded.exists() else None,
    }


def _compare_saved(captured, inductors):
    """Whether Inductor's own partition gives its backward as many bytes; what differs."""
    if inductors is None:
        return {"equal": None}
    mine = collections.Counter(captured["lines"])
    theirs = collections.Counter(inductors["lines"])
    return {
        "equal": captured["bytes"] == inductors["bytes"],
        "captured_bytes": captured["bytes"],
        "inductor_bytes": inductors["bytes"],
        "only_captured": dict((mine - theirs).most_common(12)),
        "only_inductor": dict((theirs - mine).most_common(12)),
    }
