"""What takes the place of Inductor's compiled backward."""

import array
import dataclasses
import operator
import weakref

import torch
from torch._C._dynamo import guards
from torch._inductor import cudagraph_trees

from retrograd.backend import arrived, programs, saved, watching

_DTYPES = {
    "bool": torch.bool, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
    "f8e4m3fnuz": torch.float8_e4m3fnuz, "f8e5m2fnuz": torch.float8_e5m2fnuz,
}  # fmt: skip


# Of the current device; in half the time of torch.empty_strided, as Inductor's own code has it.
_EMPTY = {"cpu": guards._empty_strided_cpu, "cuda": guards._empty_strided_cuda}


@dataclasses.dataclass
class Recipe:
    """All that a CompiledBackward is made of, in this process or another."""

    graph: object  # the bytes of a schema.Graph, or a programs.BoundGraph, which has them
    constants: list  # tensors that the graph holds itself, behind autograd's inputs
    dtypes: list  # of autograd's inputs
    device: torch.device
    settings: object  # settings.Settings
    what: str  # for people
    absent: tuple = ()  # numbers of autograd's inputs that are zeros, and are not given
    # Numbers of the inputs given that the graph does not read, scalars all: they may be anywhere.
    # PyTorch's efficient attention keeps the seeds of a dropout that drops nothing in the host's memory.
    unread: tuple = ()

    def unread_without(self, gone):
        """unread, of the inputs that are left without those with the numbers `gone`."""
        left = [i for i in range(len(self.dtypes)) if i not in gone]
        return tuple(n for n, i in enumerate(left) if i in self.unread)


class CompiledBackward(saved.Saved):
    """Runs a Program on the tensors that autograd hands over, on the thread's current stream."""

    def __init__(self, recipe, forward_graphs=None):
        """forward_graphs: Inductor's box for the device whose CUDA graphs the forward runs by."""
        self.recipe = recipe
        self._boxed_call = True  # in the instance: torch._dynamo.disable copies its __dict__
        self.forward_graphs = forward_graphs
        self.open()

    def open(self):
        """Makes the Program, or finds it. native.Failure if there can be none."""
        recipe = self.recipe
        self.device, self.what = recipe.device, recipe.what
        self.program = program = programs.program_of(
            recipe.graph, self.device, recipe.settings, self.what
        )
        self.constants = [t.to(self.device).contiguous() for t in recipe.constants]
        self.dtypes = recipe.dtypes
        own = len(program.inputs) - len(self.constants)
        self.strides = [t.strides for t in program.inputs[:own]]
        self.alignment = [t.alignment or 1 for t in program.inputs]
        self.instead = {
            i: torch.zeros((), dtype=recipe.dtypes[i], device=self.device) for i in recipe.unread
        }
        self.make = _EMPTY[self.device.type]
        self.is_here = operator.attrgetter(f"is_{self.device.type}")
        self.rooms = [
            (t.shape, t.strides, _DTYPES[t.dtype]) if t.present else None for t in program.outputs
        ]
        self.block_alignment = program.executable.workspace_alignment

    def save_for_others(self):
        recipe = self.recipe
        self.save(programs.key_of(recipe.graph, recipe.device, recipe.settings))

    def __getstate__(self):
        return {"recipe": dataclasses.replace(self.recipe, graph=bytes(self.recipe.graph))}

    def __setstate__(self, state):
        self.recipe, self._boxed_call, self.forward_graphs = state["recipe"], True, None

    def post_compile(self, example_inputs, constants, graph_kwargs):
        """What the cache calls on an entry that it has loaded."""
        self.forward_graphs = graph_kwargs.get("boxed_forward_device_index")
        self.open()

    def __call__(self, inputs):
        given = list(inputs)
        inputs.clear()
        seen = getattr(watching.of_thread, "runs", None)
        arrived_tensors = None if seen is None else list(given)
        self.end_forward()
        if len(given) == len(self.strides):
            for i, nothing in self.instead.items():
                given[i] = nothing
        if (
            [t.stride() for t in given] != self.strides
            or [t.dtype for t in given] != self.dtypes
            or not all(map(self.is_here, given))
        ):
            given = self._as_expected(given)
        given += self.constants
        addresses = array.array("Q", map(torch.Tensor.data_ptr, given))
        if any(map(operator.mod, addresses, self.alignment)):
            given, addresses = self._aligned(given)
        keeps = seen is not None or watching.watcher is not None
        memory = RunMemory(self, given, keeps)
        del given
        stream = None
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream(self.device).cuda_stream
        program = self.program
        with program.lock:
            memory.enter(0)
            before = memory.enter if program.phases.count > 1 else None
            program.executable.run_at(addresses, memory.places, memory.block_places, stream, before)
            if watching.watcher is not None:
                self._show(addresses, memory.places, memory.block_places, stream)
        if seen is not None:
            seen.append((self, arrived_tensors, memory.results))
        return memory.results

    def end_forward(self):
        """Tells Inductor's CUDA graphs, if the forward runs by them, that it is over, as Inductor's
        own backwards do: what they hold may be used again once this backward has run."""
        manager = self._manager()
        if manager is not None:
            manager.set_to_running_backward()

    def forward_ender(self):
        """end_forward for the runs of one compiled function, once its forward has run: its manager is
        looked up once, if there is one. None where there is nothing to tell."""
        if self.forward_graphs is None:
            return None
        manager = self._manager()
        if manager is None:
            return self.end_forward
        reference = weakref.ref(manager)  # the manager holds memory of the device
        del manager

        def end():
            alive = reference()
            if alive is not None:
                alive.set_to_running_backward()

        return end

    def _manager(self):
        """Of the CUDA graphs that the forward runs by; None if it does not."""
        if self.forward_graphs is None or self.forward_graphs.value is None:
            return None
        return cudagraph_trees.get_manager(self.forward_graphs.value, create_if_none_exists=False)

    def _show(self, *places):
        """Times the steps of this run for who looks on, and makes its results again."""
        executable = self.program.executable
        watching.watcher(
            self.what, lambda repetitions: executable.time_steps_at(repetitions, *places)
        )
        executable.run_at(*places)

    def _as_expected(self, given):
        """The tensors in the strides that the plan was made for: a hook on saved tensors may hand
        back others."""
        if len(given) != len(self.strides):
            raise RuntimeError(
                f"{self.what}: {len(given)} tensors where {len(self.strides)} were expected"
            )
        expected = []
        for i, (tensor, strides, dtype) in enumerate(
            zip(given, self.strides, self.dtypes, strict=True)
        ):
            shape = self.program.inputs[i].shape
            if tensor.dim() == 0 and tensor.is_cpu and self.device.type != "cpu":
                # As the seeds of efficient attention are. A copy would wait for the stream.
                tensor = torch.full((), tensor.item(), dtype=tensor.dtype, device=self.device)
            there = tensor.device.type == self.device.type
            if tensor.dtype != dtype or tuple(tensor.shape) != shape or not there:
                raise RuntimeError(
                    f"{self.what}: input {i} ({self.program.inputs[i].name}) is {tensor.dtype} "
                    f"{list(tensor.shape)} on {tensor.device} where the forward saved {dtype} "
                    f"{list(shape)} on {self.device}; a hook on saved tensors must give back what "
                    "it was given"
                )
            if not same_strides(shape, tensor.stride(), strides):
                room = torch.empty_strided(shape, strides, dtype=dtype, device=tensor.device)
                tensor = _filled(room, tensor)
            expected.append(tensor)
        return expected

    def _aligned(self, given):
        """Copies of the tensors that do not lie as the plan expects, and all addresses."""
        for i, (tensor, alignment) in enumerate(zip(given, self.alignment, strict=True)):
            if tensor.data_ptr() % alignment:
                room = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )
                given[i] = _filled(room, tensor)
        return given, array.array("Q", map(torch.Tensor.data_ptr, given))


class RunMemory:
    """What one run holds: it comes and goes with the phases.

    given: the tensors that it reads; the caller keeps none of them. keeps: nothing goes.
    """

    def __init__(self, backward, given, keeps):
        self._backward, self._given, self._keeps = backward, given, keeps
        phases = backward.program.phases
        self.results = [None] * len(phases.output_first)
        self._blocks = [None] * len(phases.blocks)
        self.places = array.array("Q", [0] * len(self.results))
        self.block_places = array.array("Q", [0] * len(self._blocks))

    def enter(self, phase):
        """Before a phase is issued, and behind the one before it: what runs on a stream reuses memory
        in the stream's order."""
        backward, phases = self._backward, self._backward.program.phases
        if phase > 0 and not self._keeps:
            for i, last in enumerate(phases.input_last):
                if last < phase:
                    self._given[i] = None
            for i, (_, _, last) in enumerate(phases.blocks):
                if last < phase:
                    self._blocks[i] = None
        for i, (size, first, _) in enumerate(phases.blocks):
            if first == phase:
                alignment = backward.block_alignment
                self._blocks[i] = block = torch.empty(
                    size + alignment, dtype=torch.uint8, device=backward.device
                )
                self.block_places[i] = block.data_ptr() + -block.data_ptr() % alignment
        for i, first in enumerate(phases.output_first):
            if first == phase and backward.rooms[i] is not None:
                self.results[i] = result = backward.make(*backward.rooms[i])
                self.places[i] = result.data_ptr()


def same_strides(shape, one, other):
    """Whether the elements lie at the same places: strides of axes of one element mean nothing."""
    return 0 in shape or all(a == b for n, a, b in zip(shape, one, other, strict=True) if n != 1)


def _filled(room, tensor):
    """`room` with the tensor's values; where elements share memory, one of them is written."""
    shared = [i for i, stride in enumerate(room.stride()) if stride == 0 and room.shape[i] > 1]
    to, source = room, tensor
    for axis in shared:
        to, source = to.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
    to.copy_(source)
    return room
