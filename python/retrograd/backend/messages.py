"""What the backend tells its user: the log, warnings, progress.

RETROGRAD_LOG=info or debug shows the log on stderr: each backward, what it took, what it holds.
"""

import contextlib
import logging
import os
import threading
import time
import warnings

log = logging.getLogger("retrograd")

FIRST_SECONDS, EVERY_SECONDS = 2, 10  # when what takes long says so


def _set_up():
    level = os.environ.get("RETROGRAD_LOG", "warning").upper()
    known = {"DEBUG", "INFO", "WARNING", "ERROR"}
    log.setLevel(level if level in known else "WARNING")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("retrograd: %(message)s"))
        log.addHandler(handler)
        log.propagate = False
    if level not in known:
        log.warning("RETROGRAD_LOG is %r: must be debug, info, warning or error", level.lower())


_set_up()


class BackwardFallsBack(UserWarning):
    """A backward graph runs through Inductor, or some of its ops through PyTorch."""


class _Once:
    """Warnings of which each is told once a process."""

    def __init__(self):
        self._told, self._lock = set(), threading.Lock()

    def warn(self, text):
        with self._lock:
            if text in self._told:
                return
            self._told.add(text)
        warnings.warn(text, BackwardFallsBack, stacklevel=2)

    def forget(self):
        with self._lock:
            self._told.clear()


once = _Once()


@contextlib.contextmanager
def progress(what):
    """Logs a line if the block takes longer than FIRST_SECONDS, and every EVERY_SECONDS after.

    Yields a function that takes what is being done, for the next line.
    """
    state = {"stage": what}
    done, start = threading.Event(), time.monotonic()

    def tell():
        wait = FIRST_SECONDS
        while not done.wait(wait):
            log.warning("%s (%.0f s)", state["stage"], time.monotonic() - start)
            wait = EVERY_SECONDS

    thread = threading.Thread(target=tell, name="retrograd-progress", daemon=True)
    thread.start()
    try:
        yield lambda stage: state.update(stage=stage)
    finally:
        done.set()
        thread.join()
