"""Self-attention mechanisms, by name: importing this package fills the registry."""

import importlib
import pkgutil

from icefall_attn.attention.registry import (
    MECHANISMS,
    AttentionContext,
    make_attention,
    make_config,
    make_shared,
    objection,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

AttentionConfig = make_config()

__all__ = [
    "MECHANISMS",
    "AttentionConfig",
    "AttentionContext",
    "make_attention",
    "make_shared",
    "objection",
]
