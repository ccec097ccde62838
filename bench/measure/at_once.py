"""Processes that prepare side by side and are measured one at a time: compilers want cores, figures want the
GPU alone.
"""

import subprocess
import sys
import threading

PREPARED = "prepared"  # the line that a process says before it awaits one


def await_turn():
    """In a process: says that it is prepared, and waits until it has the GPU to itself."""
    print(PREPARED, flush=True)
    sys.stdin.readline()


class _Process:
    def __init__(self, command, seconds):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._late = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.start()

    def _end(self):
        self._late = True
        self._process.kill()

    def prepare(self):
        """Waits until it is prepared, or has ended."""
        for line in self._process.stdout:
            if line.strip() == PREPARED:
                return
            print(line, end="", flush=True)

    def measure(self):
        """Gives it its turn and waits for its end; whether it came in time."""
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended
        for line in self._process.stdout:
            print(line, end="", flush=True)
        self._process.wait()
        self._timer.cancel()
        return not self._late


def run(commands, seconds):
    """Runs {name: command} side by side, each at most so long, waiting included; the names of those that took
    longer, which are stopped."""
    running = {name: _Process(command, seconds) for name, command in commands.items()}
    for process in running.values():
        process.prepare()
    late = []
    for name, process in running.items():
        if not process.measure():
            late.append(name)
    return late
