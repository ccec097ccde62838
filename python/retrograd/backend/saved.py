"""Backwards of ours in Inductor's cache on disk, so that a second process finds them there.

AOTAutograd's cache holds, for each graph, keys of entries of Inductor's FxGraphCache, and takes any
object from it that has what `Saved` has. Everything here is PyTorch's own interface between its two
caches: where it changes, loading fails, and a failing load is a miss.
"""

import collections
import os
import pickle

import torch
from torch._inductor.codecache import FxGraphCache
from torch._inductor.metrics import CachedMetricsDeltas
from torch._inductor.output_code import OutputCode

from retrograd.backend import messages


class Saved(OutputCode):
    """What the cache reads of an entry, besides calling it: no generated source, no guards."""

    guards_expr = ""
    _triton_bundle = None
    source_code = runnable_graph_str = inductor_post_grad_graph_str = ""
    inductor_provenance_mapping_str = inductor_provenance_stack_traces_str = None
    counter_deltas = collections.Counter()
    metrics_deltas = CachedMetricsDeltas(
        **dict.fromkeys(CachedMetricsDeltas.__dataclass_fields__, 0)
    )

    def after_deserialization(self, constants):
        return os.devnull

    def set_triton_bundle(self, triton_bundle):
        pass

    def prepare_for_serialization(self):
        pass

    def save(self, key):
        """Writes the entry, if PyTorch's caches are on. key: a digest of all that it depends on."""
        caches = torch._functorch.config.enable_autograd_cache and (
            torch._inductor.config.fx_graph_cache
        )
        if not caches:
            return
        try:
            entry = "f" + key[:51]
            FxGraphCache._write_to_local_cache(entry, pickle.dumps(self))
        except Exception as error:  # a full disk, or a PyTorch that keeps them elsewhere
            messages.log.info("this backward is not kept for other processes: %s", error)
            return
        # In the instance, which is where AOTAutograd's cache looks.
        self._fx_graph_cache_key, self._fx_graph_cache_debug_lines = entry, []
        self.guards_expr = ""
