"""Multiply-adds of a computation, counted while it runs."""

from typing import Any, Callable

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d")


def multiply_adds(call: Callable[[], Any]) -> float:
    """Multiply-adds of the matrix products and convolutions of ``call()``.

    Attention counts whatever computes it: torch's fused kernels, which its counter does not know on a
    CPU, give way to separate products meanwhile.
    """
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:  # torch 1.13
        return _by_profile(call)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 2


def _by_profile(call: Callable[[], Any]) -> float:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as record:
        call()
    return sum(e.flops for e in record.events() if e.name in PRODUCTS) / 2
