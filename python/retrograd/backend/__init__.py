"""torch.compile(model, backend="retrograd"): Inductor's forward, and our backward.

    model = torch.compile(model, backend="retrograd", options={"require_full": True})

The forward, and what it saves, are Inductor's own. Each backward graph is translated, planned and
compiled by us when it first runs; one that we cannot run goes to Inductor, with a warning that says
why. `settings.Settings` has the options.
"""

from retrograd.backend.entry import backend

__all__ = ["backend"]
