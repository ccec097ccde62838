"""The options of torch.compile(backend="retrograd")."""

import dataclasses
import difflib
import json

import torch._inductor

from retrograd.backend.kept import Bound

# Of convolutions' gradients. What "matmul" makes, 1x1 convolutions, is decided when a graph is
# translated.
_BACKENDS = ("cudnn", "retrograd", "matmul")
_MATMUL = "matmul"
# Options that are lists of names, with the names where they are few.
_LISTS = {
    "disable": None,
    "conv_bwd_input_backends": _BACKENDS,
    "conv_bwd_weight_backends": _BACKENDS,
}
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a user may choose in torch.compile(options={...}); the mode may stand there, too."""

    mode: str = "default"  # of MODES: Inductor's, for the forward
    require_full: bool = False  # an error in place of Inductor's backward, whole or for some ops
    divided: bool = True  # PyTorch runs ops without a row; else Inductor the backward that has one
    direct_gradients: bool = True  # autograd runs the backward by a node in C++
    direct_forward: bool = True  # the forward, too, runs without PyTorch's function around it
    channels_last_forward: bool = True  # 16-bit images in the forward, where that is faster
    deterministic: bool = True  # the same bits in every run
    streams: int = 0  # that independent work is spread over; 0: as many as gain
    early_launches: bool = True  # small kernels start before the one in front has finished
    keep_sorted_indices: bool = True  # indices that are those of the last run are not sorted again
    max_phases: int = 8  # that a backward may be cut into, to let go of saved tensors between them
    # Of one backward with dynamic sizes, the programs that are kept: how many (0: any number), and
    # the MiB that they may hold, of host and device together. The one used last longest ago goes.
    max_plans: int = 0
    max_plan_mib: int = 3072
    spec: str = ""  # a device spec by name or file; "": that of the device
    cache_dir: str = ""  # of compiled kernels and timed choices; "": the user's
    tuned: str = ""  # a file of `retrograd tune`, whose choices are taken; "": none
    tuning_budget_s: float = 0.0  # for timing library calls, of all backwards; 0: no limit
    disable: tuple = ()  # parts of the planner that are left out, by name (fusion-explain)
    # Who may make convolutions' gradients: 1x1 ones a matmul, others the fastest of the rest.
    conv_bwd_input_backends: tuple = _BACKENDS
    conv_bwd_weight_backends: tuple = _BACKENDS
    # What is no option: those that are Inductor's, for the forward, as (name, value), and whether the
    # graph comes in several sizes.
    inductor: tuple = ()
    sizes_vary: bool = False

    @staticmethod
    def of(mode, options):
        """Of what torch.compile hands over. ValueError for an unknown option or a wrong value."""
        given = dict(options or {})
        if mode is not None and given.setdefault("mode", mode) != mode:
            raise ValueError(f"mode {mode!r} and options['mode'] {given['mode']!r} differ")
        ours = {field.name: field for field in dataclasses.fields(Settings)}
        del ours["inductor"], ours["sizes_vary"]
        inductors = torch._inductor.list_options()
        chosen, passed_on = {}, []
        for name, value in given.items():
            if name in ours:
                chosen[name] = _checked(ours[name], value)
            elif name.replace("-", "_") in inductors:
                passed_on.append((name.replace("-", "_"), value))
            else:
                raise ValueError(_unknown(name, ours, inductors))
        return Settings(**chosen, inductor=tuple(sorted(passed_on)))

    def inductor_patches(self):
        """The patches of Inductor's configuration that mode and options ask for."""
        patches = {}
        if self.mode != "default":
            patches.update(torch._inductor.list_mode_options(self.mode))
        return {**patches, **dict(self.inductor)}

    def of_executables(self):
        """The settings of native.Executable (docs/embedding.md)."""
        made = {"deterministic": self.deterministic, "sizes_vary": self.sizes_vary}
        if self.mode.startswith("max-autotune"):
            made["convolution_plans"] = 0  # all
        for name in ("early_launches", "keep_sorted_indices"):
            if not getattr(self, name):
                made[name] = False
        for name in _LISTS:
            if getattr(self, name) != getattr(Settings, name):
                made[name] = [part for part in getattr(self, name) if part != _MATMUL]
        return made

    def kept_plans(self):
        """The kept.Bound of one backward's programs."""
        return Bound(self.max_plans, self.max_plan_mib << 20)

    def matmul_gradients(self):
        """The gradients of 1x1 convolutions that are to be matmuls, as translate takes them."""
        of = {"input": self.conv_bwd_input_backends, "weight": self.conv_bwd_weight_backends}
        return tuple(gradient for gradient, backends in of.items() if _MATMUL in backends)

    def tag(self):
        """A text that differs between any two settings."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)


def _checked(field, value):
    if field.name == "mode" and value not in MODES:
        raise ValueError(f"mode {value!r}: must be one of {', '.join(MODES)}")
    if field.name in _LISTS:
        if isinstance(value, str) or not all(isinstance(part, str) for part in value):
            raise ValueError(f"option {field.name}: {value!r} must be a list of names")
        known = _LISTS[field.name]
        if known and (not value or set(value) - set(known) or len(set(value)) < len(value)):
            raise ValueError(
                f"option {field.name}: {value!r} must hold some of {', '.join(known)}, each once"
            )
        if known and set(value) == {_MATMUL}:
            raise ValueError(
                f"option {field.name}: {_MATMUL} makes 1x1 convolutions alone; name who makes "
                "others, too"
            )
        return tuple(value)
    kind = type(field.default)
    if kind is float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ValueError(f"option {field.name}: {value!r} must be a number")
        if not 0 <= value < float("inf"):
            raise ValueError(f"option {field.name}: {value} must be 0 or more")
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"option {field.name}: {value!r} must be of type {kind.__name__}")
    if kind is int and value < (least := min(field.default, 1)):
        raise ValueError(f"option {field.name}: {value} must be at least {least}")
    return value


def _unknown(name, ours, inductors):
    near = difflib.get_close_matches(name, [*ours, *inductors], n=3)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return (
        f"unknown option {name!r}{hint}. The options are {', '.join(ours)}, and Inductor's, which "
        "are for the forward"
    )
