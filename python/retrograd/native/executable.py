"""Executables: a graph compiled for a device, and its runs."""

import array
import ctypes
import dataclasses
import json

from retrograd.native import structs
from retrograd.native.addresses import addresses
from retrograd.native.library import Handle
from retrograd.native.plan import explained, given_settings

_STAGES = {1: "plan", 2: "compile"}
_ADDRESSES = ctypes.POINTER(ctypes.c_void_p)
_NO_BLOCKS = array.array("Q", [0])


class _Callbacks:
    """C functions for Python ones. What a Python one raises ends the making, and is raised there."""

    def __init__(self, progress, log):
        self.raised = None
        self._progress, self._log = progress, log
        self.progress = structs.progress_function(self._on_progress if progress else 0)
        self.log = structs.log_function(self._on_log if log else 0)

    def _on_progress(self, _, stage, what):
        try:
            return int(self._progress(_STAGES.get(stage, str(stage)), what.decode()) is False)
        except BaseException as raised:  # noqa: BLE001: it is raised behind the library
            self.raised = raised
            return 1

    def _on_log(self, _, line):
        try:
            self._log(line.decode())
        except BaseException as raised:  # noqa: BLE001
            self.raised = raised


@dataclasses.dataclass(frozen=True)
class Phases:
    """When a run uses what: one phase runs behind the other."""

    count: int
    input_last: list  # by input: the last phase that reads it
    output_first: list  # by output: the phase that writes it first
    blocks: list  # of the workspace: (bytes, first phase, last phase)


class Executable(Handle):
    """Serves one thread at a time. Different executables are independent."""

    def __init__(
        self, graph, device, *, spec=None, max_memory_bytes=0, streams=0, caller_workspace=False,
        accumulate=None, progress=None, log=None, cancellation=None, settings=None, max_phases=1,
    ):  # fmt: skip
        """Plans, compiles and loads.

        spec, max_memory_bytes, settings: as Plan has them. streams: that independent work is spread
        over. caller_workspace: each run is given its workspace. accumulate: for each output, whether
        the gradient is added to what its memory holds. progress(stage, what), with stage "plan" or
        "compile": False cancels. log(line). max_phases: that a run may be cut into, with
        caller_workspace: see `phases`.
        """
        callbacks = _Callbacks(progress, log)
        flags = None if accumulate is None else [int(bool(flag)) for flag in accumulate]
        options = structs.ExecutableOptions(
            spec=spec.encode() if spec else None,
            max_memory_bytes=max_memory_bytes,
            streams=streams,
            caller_workspace=int(caller_workspace),
            accumulate=None if flags is None else (ctypes.c_uint8 * max(len(flags), 1))(*flags),
            num_accumulate=0 if flags is None else len(flags),
            progress=callbacks.progress,
            log=callbacks.log,
            cancellation=cancellation.handle if cancellation else None,
            settings=given_settings(settings),
            max_phases=max_phases,
        )
        library = graph.library
        try:
            handle = library.made(
                "executable_create", graph.handle, device.handle, ctypes.byref(options)
            )
        finally:
            if callbacks.raised is not None:
                raise callbacks.raised
        super().__init__(library, handle, "executable_destroy")
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self._run_at = structs.Run()

    def bind(self, inputs, outputs, workspace=None):
        """Keeps the addresses of a run: what each thing may be is in addresses.addresses. The things
        stay alive as long as they are bound."""
        self._bound = inputs, outputs, workspace
        self._run = structs.Run(
            inputs=addresses(inputs, self.inputs, "input"),
            num_inputs=len(inputs),
            outputs=addresses(outputs, self.outputs, "output"),
            num_outputs=len(outputs),
        )
        if workspace is not None:
            self._run.workspace, self._run.workspace_bytes = workspace.address, workspace.nbytes

    def run(self, inputs=None, outputs=None, workspace=None, stream=None):
        """Issues one run on `stream`, an address; None: the default stream. Does not wait for it.
        Without inputs and outputs it uses the bound ones."""
        if inputs is not None:
            self.bind(inputs, outputs, workspace)
        self._run.stream = stream
        self.library.check(self.library.executable_run(self.handle, ctypes.byref(self._run)))

    def run_at(self, inputs, outputs, blocks, stream, before=None):
        """`run` for callers who look after everything themselves, with caller_workspace. inputs,
        outputs, blocks: array.array("Q") of addresses, the blocks those of `phases`. stream: an
        address. before(phase) is called before each phase but the first, and may write into outputs
        and blocks; what it raises ends the run, and is raised here."""
        run = self._place(inputs, outputs, blocks, stream)
        raised = []
        if before is not None:

            def called(_, phase):
                try:
                    before(phase)
                except BaseException as error:  # noqa: BLE001: it is raised behind the library
                    raised.append(error)
                return len(raised)

            run.before_phase = structs.before_phase_function(called)
        else:
            run.before_phase = structs.before_phase_function(0)
        try:
            code = self.library.executable_run(self.handle, ctypes.byref(run))
        finally:
            # The structure outlives the run, and would keep what the caller's function holds.
            run.before_phase = structs.before_phase_function(0)
        if raised:
            raise raised[0]
        self.library.check(code)

    def time_steps_at(self, repetitions, inputs, outputs, blocks, stream):
        """`time_steps` for the same callers."""
        run = self._place(inputs, outputs, blocks, stream)
        run.before_phase = structs.before_phase_function(0)
        return json.loads(
            self.library.text("executable_time_steps", self.handle, ctypes.byref(run), repetitions)
        )

    def _place(self, inputs, outputs, blocks, stream):
        run = self._run_at
        run.inputs = ctypes.cast(inputs.buffer_info()[0], _ADDRESSES)
        run.outputs = ctypes.cast(outputs.buffer_info()[0], _ADDRESSES)
        run.num_inputs, run.num_outputs = len(inputs), len(outputs)
        # An empty array has no address, and a run of blocks is told by theirs.
        run.blocks = ctypes.cast((blocks or _NO_BLOCKS).buffer_info()[0], _ADDRESSES)
        run.num_blocks = len(blocks)
        run.stream = stream
        return run

    @property
    def phases(self):
        """The Phases that a run is cut into."""
        told = structs.Phases()
        self.library.check(self.library.executable_phases(self.handle, ctypes.byref(told)))
        return Phases(
            count=told.num_phases,
            input_last=told.input_last[: len(self.inputs)],
            output_first=told.output_first[: len(self.outputs)],
            blocks=[(b.bytes, b.first, b.last) for b in told.blocks[: told.num_blocks]],
        )

    @property
    def workspace_bytes(self):
        """Of the memory that runs share, without inputs and outputs."""
        return self._workspace()[0]

    @property
    def workspace_alignment(self):
        return self._workspace()[1]

    @property
    def memory(self):
        """The bytes of host memory and of the device's that it holds as long as it lives, estimated."""
        return self._two_sizes("executable_memory")

    def _workspace(self):
        return self._two_sizes("executable_workspace")

    def _two_sizes(self, function):
        first, second = ctypes.c_size_t(), ctypes.c_size_t()
        self.library.check(
            getattr(self.library, function)(self.handle, ctypes.byref(first), ctypes.byref(second))
        )
        return first.value, second.value

    def describe(self):
        """What it is, and what it did so far."""
        return json.loads(self.library.text("executable_describe", self.handle))

    def explain(self, form="text"):
        """Its plan, as Plan.explain tells one."""
        return explained(self.library, "executable_explain", self.handle, form)

    def time_steps(self, repetitions, stream=None):
        """Each kernel and call of the bound run alone. The outputs are worth nothing afterwards."""
        self._run.stream = stream
        return json.loads(
            self.library.text(
                "executable_time_steps", self.handle, ctypes.byref(self._run), repetitions
            )
        )

    @property
    def last_run_us(self):
        """The host's time of the last run, in microseconds; 0 before the first."""
        return self.library.executable_last_run_us(self.handle)
