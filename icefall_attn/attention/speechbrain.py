"""Weights of SpeechBrain's relative-position attention, for `RelPosAttention`."""

from typing import Dict

import torch
from torch import Tensor

from icefall_attn.errors import UserError

LAYOUTS = ("interleaved", "stacked")


def from_speechbrain(
    state: Dict[str, Tensor], heads: int, layout: str = "interleaved"
) -> Dict[str, Tensor]:
    """The state dict of a `RelPosAttention` that computes what SpeechBrain's ``RelPosMHAXL`` does.

    Use it with ``scale="embed_dim"``, by which SpeechBrain divides its scores, and with the
    ``legacy_symmetric`` table that the model was trained with.

    Two things in SpeechBrain's layout are easy to miss. The rows of ``in_proj_weight`` stand head by head
    as query, key, value where its module saw that the three were one tensor, as in self-attention; where
    they were not, it took the same rows for three stacked blocks, so that a model is of the one layout or
    of the other by how it was called. And the position biases are stored ``(D / H, H)`` but *viewed*, not
    transposed, as ``(H, D / H)``.

    Args:
      state: tensors by SpeechBrain's names.
      heads: H.
      layout: of ``in_proj_weight``: ``interleaved``, as in self-attention, or ``stacked``.

    Raises:
      UserError: if a tensor is missing or does not fit, or there is no such layout.
    """
    if layout not in LAYOUTS:
        raise UserError(f"layout '{layout}' is neither {' nor '.join(LAYOUTS)}")
    dim = _tensor(state, "in_proj_weight").size(-1)
    if heads < 1 or dim % heads != 0:
        raise UserError(f"{heads} heads do not divide in_proj_weight's {dim} columns")
    width = dim // heads
    expected = {
        "in_proj_weight": (3 * dim, dim),
        "pos_bias_u": (width, heads),
        "pos_bias_v": (width, heads),
        "linear_pos.weight": (dim, dim),
        "out_proj.weight": (dim, dim),
    }
    optional = {"value_bias_weight": (dim,), "out_proj.bias": (dim,)}
    unknown = sorted(set(state) - set(expected) - set(optional))
    if unknown:
        raise UserError(f"no RelPosMHAXL: {unknown[0]} is not one of its tensors")
    for name, shape in {**expected, **optional}.items():
        if name in optional and name not in state:
            state = {**state, name: torch.zeros(shape)}
        found = tuple(_tensor(state, name).shape)
        if found != shape:
            raise UserError(f"{name} is {found}, not {shape} as {heads} heads have it")
    by_head, axis = {
        "interleaved": ((heads, 3, width), 1),
        "stacked": ((3, heads, width), 0),
    }[layout]
    result = {
        "position.weight": state["linear_pos.weight"],
        "content_bias": state["pos_bias_u"].reshape(-1),
        "position_bias": state["pos_bias_v"].reshape(-1),
        "out.weight": state["out_proj.weight"],
        "out.bias": state["out_proj.bias"],
    }
    rows = state["in_proj_weight"].reshape(*by_head, dim)
    for index, name in enumerate(("query", "key", "value")):
        weight = rows.select(axis, index).reshape(dim, dim)
        result[f"{name}.weight"] = weight
        result[f"{name}.bias"] = weight.new_zeros(dim)
    result["value.bias"] = state["value_bias_weight"]
    return result


def _tensor(state: Dict[str, Tensor], name: str) -> Tensor:
    if name not in state:
        raise UserError(f"no RelPosMHAXL: {name} is missing")
    return state[name]
