"""Who looks on while compiled backwards run."""

import contextlib

# Called behind each run with what it was and a function that times its steps; None: nobody.
watcher = None


@contextlib.contextmanager
def by(watch):
    """Every run of a CompiledBackward in the block is shown to `watch`."""
    global watcher
    before, watcher = watcher, watch
    try:
        yield
    finally:
        watcher = before
