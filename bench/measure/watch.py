"""Times and watches work on one device, the same way for both sides."""

import math
import os
import statistics
import time

import torch

HIDING_CYCLES = 200_000_000  # about 0.1 s: longer than the host takes to issue a backward
SHORT_HIDING_CYCLES = 20_000_000  # about 10 ms: the same of one that is issued by one call


def summary(samples):
    """The figures of repeated measurements."""
    return {
        "median": statistics.median(samples), "least": min(samples), "most": max(samples),
        "runs": len(samples),
    }  # fmt: skip


def gpu_ms(prepare, work, repeat):
    """The GPU's own time of `work` in milliseconds: it is kept busy while the host issues the work.
    On a CPU, which has no such time: wall time. `prepare` runs before each, outside."""
    if not torch.cuda.is_available():
        return wall_ms(prepare, work, repeat)
    samples = []
    for _ in range(repeat):
        prepare()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(HIDING_CYCLES)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end))
    return summary(samples)


def in_turns(works, repeat, least_ms, hiding=1):
    """The milliseconds of GPU time of each of `works`, which run in turns, so that a chip that gets
    warm does so for all. A sample is of as many runs, one behind the other, as fill `least_ms`;
    `hiding`: times as long as usual in which the host is hidden."""
    cycles = hiding * SHORT_HIDING_CYCLES
    runs = [max(1, math.ceil(least_ms / max(_sample_ms(work, 1, cycles), 1e-3))) for work in works]
    samples = [[] for _ in works]
    for _ in range(repeat):
        for i, work in enumerate(works):
            samples[i].append(_sample_ms(work, max(runs), cycles))
    return [summary(s) | {"runs_each": max(runs)} for s in samples]


def _sample_ms(work, runs, cycles):
    """Milliseconds of one of so many runs; on a CPU, which hides nothing, wall time."""
    if not torch.cuda.is_available():
        begin = time.perf_counter()
        for _ in range(runs):
            work()
        return (time.perf_counter() - begin) * 1e3 / runs
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    begin.record()
    for _ in range(runs):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / runs


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def wall_ms(prepare, work, repeat):
    """From before the host issues the work until the device has done it."""
    samples = []
    for _ in range(repeat):
        prepare()
        synchronize()
        begin = time.perf_counter()
        work()
        synchronize()
        samples.append((time.perf_counter() - begin) * 1e3)
    return summary(samples)


def host_us(prepare, work, repeat):
    """The host's time to issue the work, in microseconds."""
    samples = []
    for _ in range(repeat):
        prepare()
        synchronize()
        begin = time.perf_counter()
        work()
        samples.append((time.perf_counter() - begin) * 1e6)
        synchronize()
    return summary(samples)


def kernels(prepare, work, most=10):
    """What ran on the GPU during one `work` with the host hidden, as its profiler saw it: how many
    kernels, copies and fills, for how long, and what share of the time none ran. None without a
    GPU."""
    if not torch.cuda.is_available():
        return None
    # What watched stays otherwise: each later launch of a graph of 400 kernels took 300 us more.
    os.environ.setdefault("TEARDOWN_CUPTI", "1")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    prepare()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        torch.cuda._sleep(HIDING_CYCLES)
        work()
        torch.cuda.synchronize()
    cuda = torch.autograd.DeviceType.CUDA
    return of_events(
        [
            (e.time_range.start, e.time_range.end, e.name)
            for e in profile.events()
            if e.device_type == cuda and not getattr(e, "is_user_annotation", False)
        ],
        most,
    )


def of_events(events, most=10):
    """The figures of a list of (begin, end, name) in microseconds; what comes before the last
    spinning kernel is not looked at, nor are marks that the framework draws over its kernels."""
    events = sorted(
        e for e in events if not e[2].startswith("## ") and "Torch-Compiled" not in e[2]
    )
    spins = [i for i, e in enumerate(events) if "spin" in e[2].lower()]
    events = events[spins[-1] + 1 :] if spins else events
    if not events:
        return None
    busy, until, by_name = 0.0, events[0][0], {}
    for begin, end, name in events:
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
        count, total = by_name.get(name, (0, 0.0))
        by_name[name] = (count + 1, total + end - begin)
    span = until - events[0][0]
    largest = sorted(by_name.items(), key=lambda item: -item[1][1])[:most]
    return {
        "count": len(events),
        "busy_ms": busy / 1e3,
        "sum_ms": sum(total for _, total in by_name.values()) / 1e3,
        "span_ms": span / 1e3,
        "idle": 1 - busy / span if span else 0.0,
        "largest": [
            {"name": name[:120], "count": count, "ms": total / 1e3}
            for name, (count, total) in largest
        ],
    }
