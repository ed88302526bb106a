"""Prints what a run stands on and tries k2's pruned loss: ``icefall-attn-check-env``."""

import argparse
import importlib
import math
from types import ModuleType

from icefall_attn.environment import environment_report
from icefall_attn.errors import UserError, run_main


def main() -> None:
    """Reports the environment.

    Raises:
      UserError: torch or k2 cannot be imported, or k2 computes a wrong loss.
    """
    parser = argparse.ArgumentParser(
        prog="icefall-attn-check-env",
        description="Prints what a run stands on and tries k2's pruned loss.",
    )
    parser.add_argument(
        "--without-k2",
        action="store_true",
        help="k2 need not be there: the loss runs on the torch backend then",
    )
    arguments = parser.parse_args()
    print(environment_report(), flush=True)
    torch = _import("torch", "run tools/setup_env.sh")
    if arguments.without_k2:
        return
    k2 = _import(
        "k2",
        f"torch is {torch.__version__}, and k2 must be built for exactly that: give a matching"
        " wheel to tools/setup_env.sh --torch user --k2 WHEEL, or --k2 none to go without",
    )
    expected, loss = _losses(torch, k2)
    if not math.isclose(expected, loss, rel_tol=1e-4):
        raise UserError(
            f"k2's pruned loss is {loss:.6f} where {expected:.6f} is right; k2 does not work with"
            f" torch {torch.__version__}: remove .venv and run tools/setup_env.sh again"
        )
    print(f"self-test: k2's pruned loss is right ({loss:.4f})")


def cli() -> None:
    """Entry point of ``icefall-attn-check-env``."""
    run_main(main)


def _import(name: str, way_out: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    # k2 raises its own kinds of errors when torch does not match, some of several lines.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{name} cannot be imported ({reason}); {way_out}") from error


def _losses(torch: ModuleType, k2: ModuleType) -> "tuple[float, float]":
    """Gives the transducer loss of a random lattice: the plain recursion's, and k2's.

    The prune range covers all of the labels, so that pruning must change nothing.
    """
    generator = torch.Generator().manual_seed(0)
    frames, labels, vocabulary = 7, 3, 5
    am = torch.randn(1, frames, vocabulary, generator=generator)
    lm = torch.randn(1, labels + 1, vocabulary, generator=generator)
    symbols = torch.tensor([[1, 4, 2]])
    boundary = torch.tensor([[0, 0, labels, frames]])

    log_probs = (am.unsqueeze(2) + lm.unsqueeze(1)).log_softmax(-1)[0].tolist()
    alpha = {(0, 0): 0.0}
    for t in range(frames):
        for u in range(labels + 1):
            ways = []
            if t > 0:
                ways.append(alpha[t - 1, u] + log_probs[t - 1][u][0])
            if u > 0:
                symbol = int(symbols[0, u - 1])
                ways.append(alpha[t, u - 1] + log_probs[t][u - 1][symbol])
            if ways:
                best = max(ways)
                alpha[t, u] = best + math.log(sum(math.exp(w - best) for w in ways))
    expected = -(alpha[frames - 1, labels] + log_probs[frames - 1][labels][0])

    _, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
        lm=lm,
        am=am,
        symbols=symbols,
        termination_symbol=0,
        boundary=boundary,
        reduction="sum",
        return_grad=True,
    )
    ranges = k2.get_rnnt_prune_ranges(
        px_grad=px_grad, py_grad=py_grad, boundary=boundary, s_range=labels + 1
    )
    am_pruned, lm_pruned = k2.do_rnnt_pruning(am=am, lm=lm, ranges=ranges)
    loss = k2.rnnt_loss_pruned(
        logits=am_pruned + lm_pruned,
        symbols=symbols,
        ranges=ranges,
        termination_symbol=0,
        boundary=boundary,
        reduction="sum",
    )
    return expected, float(loss)


if __name__ == "__main__":
    cli()
