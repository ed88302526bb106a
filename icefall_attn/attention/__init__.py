"""Self-attention mechanisms, by name: importing this package fills the registry."""

import importlib
import pkgutil

from icefall_attn.attention.contexts import AttentionContext, ContextConfig
from icefall_attn.attention.registry import (
    MECHANISMS,
    make_attention,
    make_config,
    make_shared,
    make_view,
    objection,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

AttentionConfig = make_config()

__all__ = [
    "MECHANISMS",
    "AttentionConfig",
    "AttentionContext",
    "ContextConfig",
    "make_attention",
    "make_shared",
    "make_view",
    "objection",
]
