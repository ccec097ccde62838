"""Who looks on while compiled backwards run."""

import contextlib
import threading

# Called behind each run with what it was and a function that times its steps; None: nobody.
watcher = None

# `runs`: a list that collects (CompiledBackward, its tensors, its results) on one thread, or None.
# `missing`: the tangents, by number, that nobody computed for the run that is looked at there.
of_thread = threading.local()


@contextlib.contextmanager
def by(watch):
    """Every run of a CompiledBackward in the block is shown to `watch`."""
    global watcher
    before, watcher = watcher, watch
    _keep_on_python(True)
    try:
        yield
    finally:
        watcher = before
        _keep_on_python(before is not None)


def _keep_on_python(on):
    from retrograd.backend.node import extension  # which looks here

    module = extension.loaded()
    if module is not None:
        module.watch(on)
