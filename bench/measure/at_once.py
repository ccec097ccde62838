"""Processes that prepare side by side and are measured one at a time: compilers want cores, figures want the
GPU alone.
"""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

PREPARED = "prepared"  # the line that a process says before it awaits one


def await_turn():
    """In a process: says that it is prepared, and waits until it has the GPU to itself. Ends the process if
    the one that gives turns has ended."""
    print("\n" + PREPARED, flush=True)
    if not sys.stdin.readline():
        sys.exit("nobody is there to give turns")


class _Process:
    def __init__(self, command):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._late, self._timer = False, None

    def limit(self, seconds):
        """From here on it has so long; None: as long as it wants."""
        if self._timer:
            self._timer.cancel()
        self._timer = seconds and threading.Timer(seconds, self._stop_late)
        if self._timer:
            self._timer.daemon = True
            self._timer.start()

    def _stop_late(self):
        self._late = self._runs()  # else it ended in time, and waits to be read
        self.stop()

    def _runs(self):
        """Whether it runs, or what it has started, which may hold its output open."""
        if self._process.poll() is None:
            return True
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def stop(self):
        """Ends it and what it has started, which may hold its output open."""
        self.limit(None)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all have ended

    def prepare(self):
        """Waits until it is prepared, or has ended."""
        for line in self._process.stdout:
            if line.strip() == PREPARED:
                self.limit(None)
                return
            print(line, end="", flush=True)

    def measure(self, seconds):
        """Gives it its turn, of so long, and waits for its end; "", or what went wrong."""
        self.limit(seconds)
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended
        for line in self._process.stdout:
            print(line, end="", flush=True)
        status = self._process.wait()
        self.limit(None)
        if self._late:
            return "not finished in time"
        return f"exit status {status}" if status else ""


def _prepare(processes):
    """Waits until each is prepared, or has ended. All are read at once: one that is prepared is not late
    because another is waited for."""
    with ThreadPoolExecutor(max(1, len(processes))) as readers:
        list(readers.map(_Process.prepare, processes))


def run(commands, seconds):
    """Runs {name: command} side by side; {name: what went wrong}. Each has `seconds` for each of them to be
    prepared, and as many for its turn."""
    running = {}
    try:
        for name, command in commands.items():
            running[name] = _Process(command)
            running[name].limit(seconds * len(commands))
        _prepare(running.values())
        return {n: why for n, process in running.items() if (why := process.measure(seconds))}
    finally:
        for process in running.values():
            process.stop()
