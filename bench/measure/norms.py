"""Backwards of single norms, ours alone, beside the bytes that they must move."""

from measure import ours, watch

# name: (graph, rows, columns)
NORMS = {
    "rms_norm 16384x4096": ("norm_stack", 16384, 4096),
    "rms_norm 8192x8192": ("norm_stack:rows=8192,columns=8192", 8192, 8192),
    "rms_norm 4096x16384": ("norm_stack:rows=4096,columns=16384", 4096, 16384),
    "rms_norm 98304x512": ("norm_stack:rows=98304,columns=512", 98304, 512),
    "layer_norm 1024x12288": ("norm_stack:rows=1024,columns=12288,norm=layer", 1024, 12288),
}
BYTES_AN_ELEMENT = 6  # bf16: dy and x are read, dx is written
BANDWIDTH = 4.41e12   # bytes a second of two reads and one write, measured on an H200
REPEAT = 30


def measure(library, say):
    """{name: figures} in microseconds. Inputs are random; nothing is compared here."""
    figures = {}
    for name, (graph, rows, columns) in NORMS.items():
        with ours.Backward(library, graph, "cuda") as backward:
            plan = backward.describe()
            backward.bind(ours.drawn_inputs(plan), ours.empty_outputs(plan))
            backward.run()
            time = watch.gpu_ms(lambda: None, backward.run, REPEAT)
        floor = 1e6 * BYTES_AN_ELEMENT * rows * columns / BANDWIDTH
        figures[name] = {
            "measured_us": 1e3 * time["median"],
            "least_us": 1e3 * time["least"],
            "predicted_us": plan["predicted_us"],
            "floor_us": floor,
        }
        measured = figures[name]["measured_us"]
        say(f"{name}: {measured:.1f} us, {measured / floor:.2f} x its bytes")
    return figures
