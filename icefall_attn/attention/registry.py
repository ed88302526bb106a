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
* optionally ``watch()``: numbers by name, scalar tensors, to be shown in training, counted since the last call;
* linear maps ``value`` and ``out`` of what it takes from frames, by which `encoder.maps` sees its weights.

A mechanism that can run as a stream, or in a context of two groups of keys, also has the steps that
its ``forward`` is made of:

* ``parts(x, times)``: queries, keys and values ``(B, H, n, .)`` of frames ``(B, n, D)`` at times ``(B, n)``,
  0 for those that are not valid;
* ``scores(query, key, lead)``: ``(B, H, q, k)``, the first query being ``lead`` frames after the first key,
  and the others one frame apart;
* ``weigh(scores, bias)``: the weights of the keys of a query;
* ``mix(weights, value)``: their products with values, which may be added up over groups of keys;
* ``finish(out)``: ``(B, H, q, .)`` to ``(B, q, D)``;
* optionally ``absorb(past, key, value)``, if keys that all later queries see need not be kept:
  ``past`` is what stands for them, and ``recall(past, query)`` what queries take from it.

Nothing else has to be touched: every file of this package is imported with it, and the command
line, the configuration and the encoder read the registry.
"""

from dataclasses import field, make_dataclass
from typing import Any, Callable, Dict, List, Optional, Type

from torch import Tensor, nn

from icefall_attn.attention.chunked import ChunkedAttention, ChunkedView
from icefall_attn.attention.contexts import ContextConfig
from icefall_attn.attention.dual import DualAttention, DualView
from icefall_attn.attention.view import View


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
    words = [f"{name}: options of ``{name}``." for name, _, _ in options]
    about = [f"kind: the mechanism: {', '.join(MECHANISMS)}.", *words]
    doc = "Which self-attention, and its options.\n\nAttributes:\n  " + "\n  ".join(
        about
    )
    return make_dataclass(
        "AttentionConfig", [kind] + options, namespace={"__doc__": doc}
    )


TWO_GROUPS = {"dcn": (DualAttention, DualView), "csa": (ChunkedAttention, ChunkedView)}


def make_attention(
    config: Any, dim: int, heads: int, dropout: float, layer: int, context: str = "full"
) -> nn.Module:
    """The self-attention of layer ``layer``.

    Args:
      config: an ``AttentionConfig``.
      dim, heads, dropout, layer: of the encoder.
      context: name of the context; two of them have a pass of their own over a mechanism's parts.
    """
    cls = MECHANISMS[config.kind]
    if context in TWO_GROUPS:
        own = TWO_GROUPS[context][0]
        cls = type(
            own.__name__ + cls.__name__, (own, cls), {"__module__": own.__module__}
        )
    return cls(dim, heads, dropout, getattr(config, config.kind, None), layer)


def make_view(config: ContextConfig, kind: str) -> nn.Module:
    """How a pass of mechanism ``kind`` is arranged for the context of ``config``; see `View`."""
    scores_keys = getattr(MECHANISMS[kind], "scores_keys", True)
    return TWO_GROUPS.get(config.kind, (None, View))[1](config, scores_keys)


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
