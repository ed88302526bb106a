"""The names under which self-attention mechanisms are chosen.

A mechanism is one file with one class:

* decorated with ``@register("name")``;
* a nested dataclass ``Config`` with the options that are its own, if any;
* ``uses_input_positions``: whether the encoder adds absolute positions to its input for it;
* ``__init__(dim, heads, dropout, config, layer)``, ``layer`` counting from 0, and
  ``forward(x, context) -> (B, T', D)``;
* optionally ``shared(dim, config)``, a static method that returns a module for what all layers of
  a pass share; it is called once per pass with the number of frames and gives the list of
  tensors that travels in ``context.shared``; a layer may change the list for those after it;
* optionally ``objection(config, encoder)``, a static method that says why these options have no
  meaning in an encoder (its `ConformerConfig`), or None;
* optionally ``scores_keys = False`` if it never reads ``context.bias``;
* optionally ``weights_dropout``, the module that its attention weights go through, for pictures.

Nothing else has to be touched: every file of this package is imported with it, and the command
line, the configuration and the encoder read the registry.
"""

from dataclasses import field, make_dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type

from torch import Tensor, nn


class AttentionContext(NamedTuple):
    """What all layers of one pass over a batch share.

    Attributes:
      valid: ``(B, T')`` bool, True on valid frames.
      bias: added to scores, see `visible_bias`; None hides nothing.
      shared: what the mechanism's `shared` module made, for instance a table of positions, and
        what layers left there for those after them.
      causal: whether frames see none after them.
    """

    valid: Tensor
    bias: Optional[Tensor]
    shared: List[Tensor]
    causal: bool = False


MECHANISMS: Dict[str, Type[nn.Module]] = {}


def register(name: str) -> Callable[[Type[nn.Module]], Type[nn.Module]]:
    """Class decorator: makes a mechanism selectable as ``attention.kind=name``."""

    def add(cls: Type[nn.Module]) -> Type[nn.Module]:
        if name in MECHANISMS:
            raise ValueError(f"attention {name!r} is registered twice")
        MECHANISMS[name] = cls
        return cls

    return add


def make_config() -> Type[Any]:
    """The dataclass of attention options: ``kind`` and one group of options per mechanism."""
    options = [
        (name, cls.Config, field(default_factory=cls.Config))
        for name, cls in MECHANISMS.items()
        if hasattr(cls, "Config")
    ]
    kind = ("kind", str, field(default="rel_pos"))
    return make_dataclass("AttentionConfig", [kind] + options)


def make_attention(
    config: Any, dim: int, heads: int, dropout: float, layer: int
) -> nn.Module:
    """The self-attention of layer ``layer``, as chosen by ``config`` (an ``AttentionConfig``)."""
    cls = MECHANISMS[config.kind]
    return cls(dim, heads, dropout, getattr(config, config.kind, None), layer)


def make_shared(config: Any, dim: int) -> nn.Module:
    """The module for what the layers of a pass share; called with the number of frames."""
    cls = MECHANISMS[config.kind]
    if not hasattr(cls, "shared"):
        return NothingShared()
    return cls.shared(dim, getattr(config, config.kind, None))


def objection(config: Any, encoder: Any) -> Optional[str]:
    """Why the mechanism of ``config`` has no meaning in an encoder, or None.

    Args:
      config: an ``AttentionConfig``.
      encoder: the `ConformerConfig` it is part of.
    """
    cls = MECHANISMS[config.kind]
    if not hasattr(cls, "objection"):
        return None
    return cls.objection(getattr(config, config.kind, None), encoder)


class NothingShared(nn.Module):
    """For mechanisms whose layers share nothing."""

    def forward(self, frames: int) -> List[Tensor]:
        shared: List[Tensor] = []
        return shared
