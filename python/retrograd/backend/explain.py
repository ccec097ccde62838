"""What we would make of a model's backward, told before one switches to us."""

import dataclasses
import html

from retrograd import native
from retrograd.errors import ExportError
from retrograd.export import captured_backwards
from retrograd.translate import translate


@dataclasses.dataclass
class Refusal:
    """A backward that would not run whole: PyTorch would run an op of it, or Inductor all of it."""

    reason: str
    has_op: bool  # that the reason is about

    def __str__(self):
        how = "runs in pieces around an op, or " if self.has_op else "runs "
        return f"{how}through Inductor: {self.reason}"

    def page(self):
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclasses.dataclass
class Explanation:
    """The backwards of a model, each a native.Plan or a Refusal, in the order of their forwards."""

    backwards: list

    @property
    def predicted_us(self):
        """Microseconds that all the planned ones are predicted to take."""
        return sum(b.predicted_ns / 1e3 for b in self.backwards if isinstance(b, native.Plan))

    def __str__(self):
        return "\n\n".join(
            b.explain() if isinstance(b, native.Plan) else str(b) for b in self.backwards
        )

    def _repr_html_(self):
        """In a notebook: a page for each backward."""
        frames = []
        for backward in self.backwards:
            page = (
                backward.explain("html") if isinstance(backward, native.Plan) else backward.page()
            )
            frames.append(
                f'<iframe srcdoc="{html.escape(page, quote=True)}" width="100%" height="700"></iframe>'
            )
        return "\n".join(frames)

    def save(self, path):
        """Writes the first planned backward's page to a file."""
        for backward in self.backwards:
            if isinstance(backward, native.Plan):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(backward.explain("html"))
                return
        raise ValueError("no backward of this model is planned: print the explanation")


def explain(model, args=(), kwargs=None, *, loss_fn=None, spec=None):
    """The Explanation of model(*args, **kwargs), whose forward and backward run once.

    model: an nn.Module or a function. Its result, or loss_fn(result), must be a scalar, an object
    with a `loss` that is one, or a sequence that begins with one. spec: the GPU to plan for, by name
    ("h200") or file; None: the reference GPU. The parameters' `grad` stay as they were.
    """
    captured = captured_backwards(model, args, kwargs, loss_fn=loss_fn, joint_passes=True)
    return Explanation([_planned(one, f"backward {i}", spec) for i, one in enumerate(captured)])


def _planned(captured, name, spec):
    try:
        graph, _ = translate(captured, name)
        message = graph.SerializeToString(deterministic=True)
        return native.Plan(native.Graph.deserialize(message), spec=spec)
    except (ExportError, native.Failure) as error:
        return Refusal(str(error), getattr(error, "node", None) is not None)
