"""What the backend tells its user: the log, warnings, progress.

RETROGRAD_LOG=info or debug shows the log on stderr: each backward, what it took, what it holds.
"""

import contextlib
import logging
import math
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


class _Block:
    """What is being done, and since when."""

    def __init__(self, stage):
        self.stage, self.start = stage, time.monotonic()
        self.next_line = self.start + FIRST_SECONDS


class _Watcher:
    """Logs a line of each block that takes long, from one thread for all of them: to start a thread, and to
    wait for its end, each block would wait until the system runs it, which takes milliseconds on a busy
    machine."""

    def __init__(self):
        self._blocks = set()
        self._changed = threading.Condition()
        self._thread = None
        self._wakes = math.inf  # when the thread looks at the blocks next

    def add(self, block):
        with self._changed:
            self._blocks.add(block)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name="retrograd-progress", daemon=True
                )
                self._thread.start()
            elif block.next_line < self._wakes:
                self._changed.notify()

    def remove(self, block):
        """No line of the block is logged from here on."""
        with self._changed:
            self._blocks.discard(block)

    def _watch(self):
        with self._changed:
            while True:
                now = time.monotonic()
                for block in self._blocks:
                    if block.next_line <= now:
                        log.warning("%s (%.0f s)", block.stage, now - block.start)
                        block.next_line = now + EVERY_SECONDS
                self._wakes = min((block.next_line for block in self._blocks), default=math.inf)
                seconds = self._wakes - time.monotonic()
                self._changed.wait(seconds if self._blocks else None)


_watcher = _Watcher()


def _forked():
    """A child process has none of its parent's threads."""
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def progress(what):
    """Logs a line if the block takes longer than FIRST_SECONDS, and every EVERY_SECONDS after.

    Yields a function that takes what is being done, for the next line.
    """
    block, watcher = _Block(what), _watcher
    watcher.add(block)
    try:
        yield lambda stage: setattr(block, "stage", stage)
    finally:
        if watcher is _watcher:  # else this is a child process, whose copy a lost thread may hold
            watcher.remove(block)
