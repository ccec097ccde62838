"""The measured time of each kernel and library call of a training step's backwards."""

import dataclasses
import html
import threading

from retrograd.backend import watching

REPETITIONS = 10


@dataclasses.dataclass(frozen=True)
class Step:
    """A kernel or library call of a backward, run alone."""

    what: str  # its ops
    kind: str  # "kernel", "matmul", "attention", ..
    measured_us: float  # the median of REPETITIONS runs
    predicted_us: float
    bytes: int  # that it must read and write


@dataclasses.dataclass
class Profile:
    """The backwards of a step, in the order in which they ran: (what it is, its Steps)."""

    backwards: list

    @property
    def measured_us(self):
        """Microseconds of all kernels and calls together, each alone."""
        return sum(step.measured_us for _, steps in self.backwards for step in steps)

    def rows(self, most=20):
        """(backward, Step) of the `most` longest ones, the longest first."""
        every = [(what, step) for what, steps in self.backwards for step in steps]
        return sorted(every, key=lambda row: -row[1].measured_us)[:most]

    def __str__(self):
        count = sum(len(steps) for _, steps in self.backwards)
        lines = [
            f"{len(self.backwards)} backwards, {count} kernels and library calls, "
            f"{self.measured_us:.1f} us, each alone",
            f"{'measured us':>11} {'predicted us':>12} {'GB/s':>7}  kind       ops",
        ]
        lines += [
            f"{s.measured_us:11.1f} {s.predicted_us:12.1f} {_rate(s):7.0f}  {s.kind:10} {s.what}"
            for _, s in self.rows()
        ]
        return "\n".join(lines)

    def _repr_html_(self):
        """In a notebook."""
        cells = "".join(
            f"<tr><td>{s.measured_us:.1f}</td><td>{s.predicted_us:.1f}</td><td>{_rate(s):.0f}</td>"
            f"<td>{html.escape(s.kind)}</td><td>{html.escape(s.what)}</td></tr>"
            for _, s in self.rows()
        )
        heads = "".join(
            f"<th>{h}</th>" for h in ("measured us", "predicted us", "GB/s", "kind", "ops")
        )
        return f"<table><tr>{heads}</tr>{cells}</table>"


def _rate(step):
    return 1e-3 * step.bytes / step.measured_us if step.measured_us > 0 else 0.0


def profile(step):
    """Calls step(), a training step with a model of this backend, and returns the Profile of the
    backwards that it ran. Compile before: call the step once or twice.

    Each kernel and call is timed alone, behind the run of its backward, on the same tensors; the
    gradients are made again afterwards and are right. RuntimeError if no backward of ours ran.
    """
    found, lock = [], threading.Lock()

    def watch(what, time_steps):
        timed = [
            Step(
                s["ops"], s["kind"], s["measured_us"], s["predicted_us"],
                s["read_bytes"] + s["written_bytes"],
            )
            for s in time_steps(REPETITIONS)
        ]  # fmt: skip
        with lock:
            found.append((what, timed))

    with watching.by(watch):
        step()
    if not found:
        raise RuntimeError(
            "no backward of the backend ran in the step: is its model compiled with it?"
        )
    return Profile(found)
