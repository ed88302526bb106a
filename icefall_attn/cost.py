"""Multiply-adds of a computation, counted while it runs."""

from typing import Any, Callable

from torch.utils._python_dispatch import TorchDispatchMode

# by name, which arguments are multiplied
PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}


def multiply_adds(call: Callable[[], Any]) -> float:
    """Multiply-adds of the matrix products and convolutions of ``call()``.

    Attention counts whatever computes it: torch's fused kernels, which its counter does not know on a
    CPU, give way to separate products meanwhile.
    """
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:  # torch 1.13
        with _Counter() as older:
            call()
        return older.total
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 2


class _Counter(TorchDispatchMode):
    """Counts the products and convolutions that reach the backend."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in PRODUCTS:
            a, b = (args[place] for place in PRODUCTS[name])
            self.total += a.numel() * b.size(-1)
        elif name == "convolution":
            self.total += out.numel() * args[1][0].numel()
        return out
