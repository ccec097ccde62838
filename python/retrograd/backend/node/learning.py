"""What a compiled backward takes and gives, seen in a run by Python: a DirectPlan for the next runs.

AOTAutograd hands a backward the tensors that its forward saved and the tangents, perhaps copied into
other strides, and hands its results on to autograd's edges. Which is which shows in their addresses;
what shows no single reading has no plan, and stays with Python.
"""

import torch

from retrograd import native
from retrograd.backend import absent, messages, watching


class Learner:
    """Looks on in one run, and makes the plan. extension: the node's module."""

    def __init__(self, extension):
        self._extension = extension

    def begin(self, missing):
        """missing: the tangents of differentiable results, by number, that nobody computed."""
        watching.of_thread.runs, watching.of_thread.missing = [], tuple(missing)

    def stop(self):
        """The run failed."""
        watching.of_thread.runs, watching.of_thread.missing = None, ()

    def end(self, saved, tangents, used, gradients):
        """The DirectPlan of the run since begin, or None.

        saved, tangents: what autograd holds; a tangent that nobody computed is None. used: which
        tangents belong to differentiable results. gradients: of the edges, None where there is none.
        """
        runs, watching.of_thread.runs = watching.of_thread.runs, None
        watching.of_thread.missing = ()
        if len(runs) != 1:
            return None  # Inductor's
        compiled, given, results = runs[0]
        given_tangents = [
            use and not (compiled.recipe.absent and tangents[n] is None)
            for n, use in enumerate(used)
        ]
        sources = _sources(given, saved, tangents, given_tangents)
        edges = _edges(results, gradients)
        if sources is None or edges is None:
            return None
        missing = [n for n, use in enumerate(used) if use and tangents[n] is None]
        unread = [i for i, (of_saved, n) in enumerate(sources) if not of_saved and n in missing]
        shorter = _without(compiled, tuple(missing), tuple(unread)) if unread else None
        if shorter is not None:
            compiled = shorter
            sources = [source for i, source in enumerate(sources) if i not in unread]
        return self._plan(compiled, sources, edges, missing)

    def _plan(self, compiled, sources, edges, missing):
        program = compiled.program
        executable = program.executable
        operands = [
            (
                *source, (dtype, list(tensor.shape), list(strides)), alignment,
                i not in compiled.recipe.unread,
            )
            for i, (source, tensor, strides, alignment, dtype) in enumerate(
                zip(
                    sources, program.inputs[: len(sources)], compiled.strides,
                    compiled.alignment[: len(sources)], compiled.dtypes, strict=True,
                )
            )
        ]  # fmt: skip
        rooms = [
            None if room is None else (room[2], list(room[0]), list(room[1]))
            for room in compiled.rooms
        ]
        library = executable.library
        return self._extension.DirectPlan(
            what=compiled.what,
            held_bytes=program.held_bytes,
            run=library.address_of("executable_run"),
            last_error=library.address_of("last_error"),
            executable=executable.handle.value,
            block_alignment=compiled.block_alignment,
            blocks=program.phases.blocks,
            input_last=program.phases.input_last,
            result_first=program.phases.output_first,
            num_phases=program.phases.count,
            device=_indexed(compiled.device),
            operands=operands,
            absent=missing,
            constants=compiled.constants,
            results=rooms,
            result_of_edge=edges,
            before=compiled.forward_ender(),
            keep=program,
        )


def _without(compiled, missing, unread):
    """The CompiledBackward that is not given these inputs; None where it does not pay, or there can be
    none."""
    of_sizes = getattr(compiled, "of_sizes", lambda: None)()  # the DynamicBackward
    try:
        if of_sizes is None:
            pays = absent.pays(compiled, unread)
        else:
            pays = bool(of_sizes.absent_inputs(missing, compiled, unread))
        return absent.without(compiled, unread) if pays else None
    except native.Failure as failure:  # the program that there is runs on
        messages.log.warning("%s: no plan without absent tangents: %s", compiled.what, failure)
        return None


def _indexed(device):
    """The device with the number that tensors on it have."""
    return torch.empty(0, device=device).device


def _key(tensor):
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _is_plain(tensor):
    return tensor is not None and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _sources(given, saved, tangents, used):
    """For each tensor of a run (whether the forward saved it, its number there), or None. used: which
    tangents the run was given."""
    places = {}
    for from_forward, tensors in ((True, saved), (False, tangents)):
        for number, tensor in enumerate(tensors):
            if _is_plain(tensor):
                places.setdefault(_key(tensor), []).append((from_forward, number))
    # Tensors of one address keep their order.
    sources = [places[key].pop(0) if places.get(key := _key(t)) else None for t in given]
    taken = {number for source in sources if source for saves, number in [source] if not saves}
    left = [i for i, source in enumerate(sources) if source is None]
    others = [n for n, use in enumerate(used) if use and n not in taken]
    if not left:
        return sources
    # Copies of tangents, and zeros for those that nobody computed, in the tangents' order.
    if len(left) != len(others):
        return None
    for i, number in zip(left, others, strict=True):
        tangent = tangents[number]
        if tangent is not None and (
            not _is_plain(tangent)
            or tangent.shape != given[i].shape
            or tangent.dtype != given[i].dtype
        ):
            return None
        sources[i] = False, number
    return sources


def _edges(results, gradients):
    """For each edge the number of its result, or -1; None unless each result has one edge."""
    places = {}
    for number, result in enumerate(results):
        if result is not None:
            places.setdefault(_key(result), []).append(number)
    edges = []
    for gradient in gradients:
        if gradient is None:
            edges.append(-1)
        elif not _is_plain(gradient) or not places.get(_key(gradient)):
            return None
        else:
            edges.append(places[_key(gradient)].pop(0))
    return None if any(places.values()) else edges
