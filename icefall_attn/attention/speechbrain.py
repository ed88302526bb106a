"""Weights of SpeechBrain's relative-position attention, for `RelPosAttention`."""

from typing import Dict

import torch
from torch import Tensor

from icefall_attn.errors import UserError

NAMES = (
    "in_proj_weight",
    "pos_bias_u",
    "pos_bias_v",
    "linear_pos.weight",
    "out_proj.weight",
)


def from_speechbrain(state: Dict[str, Tensor], heads: int) -> Dict[str, Tensor]:
    """The state dict of a `RelPosAttention` that computes what SpeechBrain's ``RelPosMHAXL`` does.

    Use it with ``scale="embed_dim"``, by which SpeechBrain divides its scores, and with the
    ``legacy_symmetric`` table that the model was trained with.

    Two things in SpeechBrain's layout are easy to miss: for self-attention the rows of
    ``in_proj_weight`` stand head by head as query, key, value; and the position biases are stored
    ``(D / H, H)`` but *viewed*, not transposed, as ``(H, D / H)``.

    Args:
      state: tensors by SpeechBrain's names.
      heads: H.

    Raises:
      UserError: if a tensor is missing or does not fit.
    """
    missing = [name for name in NAMES if name not in state]
    if missing:
        raise UserError(f"no RelPosMHAXL: {missing[0]} is missing")
    rows, dim = state["in_proj_weight"].shape
    if rows != 3 * dim or dim % heads != 0:
        raise UserError(
            f"in_proj_weight of {rows} x {dim} is not that of {heads} heads of self-attention"
        )
    result = {
        "position.weight": state["linear_pos.weight"],
        "content_bias": state["pos_bias_u"].reshape(-1),
        "position_bias": state["pos_bias_v"].reshape(-1),
        "out.weight": state["out_proj.weight"],
        "out.bias": state.get("out_proj.bias", torch.zeros(dim)),
    }
    bias = state.get("in_proj_bias", torch.zeros(rows))
    by_head = (heads, 3, dim // heads)
    for index, name in enumerate(("query", "key", "value")):
        weight = state["in_proj_weight"].reshape(*by_head, dim)[:, index]
        result[f"{name}.weight"] = weight.reshape(dim, dim)
        result[f"{name}.bias"] = bias.reshape(by_head)[:, index].reshape(dim)
    return result
