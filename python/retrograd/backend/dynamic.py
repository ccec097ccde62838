"""Backwards of graphs with dynamic sizes: a program for each set of sizes that comes, of one translation.

AOTAutograd hands over one graph whose sizes are symbols, and integers among the inputs of each run.
"""

import contextlib
import gc
import threading
import time
import weakref

import torch
from torch._inductor.output_code import OutputCode
from torch._subclasses.fake_tensor import unset_fake_temporarily

from retrograd import native, origins
from retrograd.backend import absent, messages, watching
from retrograd.backend.kept import Kept
from retrograd.backend.translation import Translation
from retrograd.errors import ExportError
from retrograd.sizes.specialize import specialized
from retrograd.sizes.torch_symbols import TorchSymbols

_MOST_KEPT = 8  # of one backward: each is tried at new sizes


def sizes_of(values):
    """What tells the sets of sizes of two runs apart."""
    return tuple(v if isinstance(v, int) else (v.shape, v.stride()) for v in values)


@contextlib.contextmanager
def _garbage_kept():
    """Without Python's garbage collector, of all threads, if it is on: for the many objects that a graph is
    made of it would go several times through all that the process holds, which can take a second."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class DynamicBackward(OutputCode):
    """Runs the CompiledBackward of the sizes that come, made when they first come.

    Its graph is translated with symbols, for the first sizes; later ones are numbers for these symbols.
    Sizes at which the graph would be another one are translated again.
    """

    def __init__(self, module, example_inputs, translate, compile_recipe, bound):
        """example_inputs: as they will come, with symbols. translate(graph, fakes, table): the Recipe of
        the graph, with the SizeTable's symbols or, without a table, with numbers.
        compile_recipe(recipe): a CompiledBackward. bound: the kept.Bound of them."""
        self._module, self._examples = module, example_inputs
        self._translate, self._compile = translate, compile_recipe
        origins.find_once(module.graph)
        self._made = Kept(bound)  # CompiledBackwards by sizes
        self._kept = []
        self._absent = {}  # by tangents that nobody computes: inputs that need not be given
        self._takes_symbols = True
        self._lock = threading.Lock()
        self._boxed_call = True  # in the instance: torch._dynamo.disable copies its __dict__
        self.translations = 0

    def prepare(self, values, absent=()):
        """Makes the CompiledBackward for the sizes of the values, if there is none. absent: numbers
        of tensors among them that are zeros; it is not given those that its recipe has as absent.
        """
        key = sizes_of(values), absent
        with self._lock:
            found = self._made.find(key)
            if found is not None:
                return found
            start = time.monotonic()
            # Without the symbols' mode, which is the current one while AOTAutograd compiles.
            with torch._guards.tracing(None), unset_fake_temporarily():
                recipe = self._recipe_of(values, absent)
                graph_at = time.monotonic()
                compiled = self._compile(recipe)
            messages.log.info(
                "%s: new sizes, graph in %.4f s, ready in %.4f s", compiled.what, graph_at - start,
                time.monotonic() - start,
            )  # fmt: skip
            if self._made.add(key, compiled, compiled.program.held_bytes):
                messages.log.info(
                    "%s: %d sets of sizes are kept, whose programs hold %d MiB", compiled.what,
                    len(self._made), self._made.held >> 20,
                )  # fmt: skip
                messages.once.warn(
                    "the programs of one backward's sizes hold as much as they may: each set of "
                    "sizes that comes back is made again; options max_plans and max_plan_mib"
                )
            return compiled

    def _recipe_of(self, values, absent):
        for translation in self._kept:
            recipe = self._bound(translation, values, absent) or translation.bind(values)
            if recipe is not None:
                return recipe
        with _garbage_kept():
            self.translations += 1
            recipe = self._with_symbols(values) if self._takes_symbols else None
            return recipe or self._translate(*specialized(self._module, values), None)

    @staticmethod
    def _bound(translation, values, absent):
        """The Recipe without the absent inputs; None where there is none."""
        if not absent:
            return None
        try:
            return translation.without(absent).bind(values)
        except native.Failure as error:
            messages.log.info("zeros are read as any tensor: %s", error)
            return None

    def absent_inputs(self, missing, compiled, unread):
        """Which inputs need not be given where nobody computes the tangents `missing`: those of
        `unread`, or none if that does not pay. Decided once, by a CompiledBackward of some sizes.
        native.Failure, once, if there can be no such program."""
        if missing not in self._absent:
            self._absent[missing] = ()
            self._absent[missing] = unread if absent.pays(compiled, unread) else ()
        return self._absent[missing]

    def _with_symbols(self, values):
        """The Recipe of a new Translation; None where there can be none."""
        if len(self._kept) == _MOST_KEPT:
            return None
        recorded = [n.meta["val"] for n in self._module.graph.nodes if n.op == "placeholder"]
        try:
            symbols = TorchSymbols(recorded, values)
            static, fakes = specialized(self._module, values, symbols, self._examples)
            translation = Translation(
                self._translate(static, fakes, symbols.table), symbols.sources
            )
        except (ExportError, native.Failure) as error:
            messages.log.info("each set of sizes is translated for itself: %s", error)
            self._takes_symbols = False
            return None
        recipe = translation.bind(values)
        if recipe is not None:
            self._kept.append(translation)
        return recipe

    def __call__(self, inputs):
        values = list(inputs)
        inputs.clear()
        missing = getattr(watching.of_thread, "missing", ())
        compiled = self.prepare(values, self._absent.get(missing, ()))
        compiled.of_sizes = weakref.ref(self)
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        return compiled([t for i, t in enumerate(tensors) if i not in compiled.recipe.absent])

    def post_compile(self, example_inputs, constants, graph_kwargs):
        pass

    def prepare_for_serialization(self):
        pass

    def set_triton_bundle(self, triton_bundle):
        pass
