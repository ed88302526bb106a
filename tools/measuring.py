"""What the benchmarks share: memory of a call, in a fresh process; times in alternation."""

import argparse
import multiprocessing
import resource
import statistics
import threading
import time
from typing import Any, Callable, Dict, List

import icefall_attn.bin  # noqa: F401  (sets up the process, before torch is imported)


def peak_mib(call: Callable[[], Any]) -> float:
    """MiB that a call takes at most above what the process had before it."""
    peak, done = [current_mib()], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], current_mib())
            time.sleep(0.0005)

    before = current_mib()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        kept = call()
        peak[0] = max(peak[0], current_mib())
    finally:
        done.set()
        watcher.join()
    del kept
    return peak[0] - before


def current_mib() -> float:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a module's function, called in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(function, arguments)
        # Let it end by itself: a killed one leaves semaphores behind, and warnings.
        pool.close()
        pool.join()
    return result


def alternate(calls: Dict[str, Callable[[], Any]], repeats: int) -> Dict[str, float]:
    """Median seconds of each call, all of them taking turns; the first round warms up."""
    times: Dict[str, List[float]] = {name: [] for name in calls}
    for _ in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def positive(text: str) -> int:
    """A command line's whole number of 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)
