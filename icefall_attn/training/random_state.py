"""The state of all random number generators, as plain values."""

import random
from typing import Any, Dict

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def get_random_state() -> Dict[str, Any]:
    """Builtins only, so that it can be written as JSON."""
    version, values, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    state = {
        "python": [version, list(values), gauss],
        "numpy": [kind, keys.tolist(), *rest],
        "torch": torch.get_rng_state().tolist(),
    }
    if torch.cuda.is_available():
        state["cuda"] = [s.tolist() for s in torch.cuda.get_rng_state_all()]
    return state


def set_random_state(state: Dict[str, Any]) -> None:
    """The inverse of `get_random_state`."""
    version, values, gauss = state["python"]
    random.setstate((version, tuple(values), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
    cuda = [torch.tensor(s, dtype=torch.uint8) for s in state.get("cuda", [])]
    if torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)
