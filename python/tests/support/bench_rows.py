"""Rows as bench/run.py writes them, of no model."""

KEY = {"format": 1, "commit": "abc", "repeat": 3, "modes": []}


def row(name, **more):
    return {"key": KEY, "model": name, "status": "refused", "reason": "a test", **more}


def example_row(name, median, saved_equal=True):
    mode = {
        "gpu_ms": {"median": 2 * median}, "wall_ms": {"median": 3 * median}, "first_step_s": 20.0,
        "kernels": {"count": 30, "idle": 0.05}, "peak_bytes": 4 << 30,
        "saved": {"equal": saved_equal, "captured_bytes": 10, "inductor_bytes": 12},
    }  # fmt: skip
    mine = {
        "gpu_ms": {"median": median}, "wall_ms": {"median": median}, "host_us": {"median": 9.0},
        "kernels": {"count": 20, "idle": 0.01}, "peak_bytes": 2 << 30,
        "errors": {"worst": 0.004}, "unequal_gradients_of_4_runs": 0,
        "cold": {"total_s": 3.0}, "warm": {"total_s": 0.5},
    }  # fmt: skip
    return {
        "key": KEY, "model": name, "status": "measured", "op_by_op_errors": {"worst": 0.006},
        "machine": {"device": "A GPU", "driver": "1.2", "pytorch": "2.11.0"},
        "ours": {"deterministic": mine, "nondeterministic": mine},
        "pytorch": {"eager": mode, "inductor": mode},
    }  # fmt: skip
