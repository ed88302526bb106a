"""Self-attention mechanisms, by name: importing this package fills the registry."""

from icefall_attn.attention import full, rel_pos  # noqa: F401
from icefall_attn.attention.registry import (
    MECHANISMS,
    AttentionContext,
    make_attention,
    make_config,
    make_shared,
)

AttentionConfig = make_config()

__all__ = [
    "MECHANISMS",
    "AttentionConfig",
    "AttentionContext",
    "make_attention",
    "make_shared",
]
