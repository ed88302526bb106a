"""Linear attention: a kernel in place of the soft-max, positions as multipliers of the keys.

With a kernel psi and multipliers m, the weight of key j for query i is
``sum_r (psi(q_i) a_ir) . (psi(k_j) m_jr)``, so that sums over keys can be taken first
(`right`, linear in the length) or last (`left`, quadratic): the same values and gradients.

In a causal context frame i sees the keys j <= i. Its sums are then running ones: of whole pieces
of some frames, and within a piece by pairs. A stream, too, keeps sums in place of keys that all later frames see, whatever its length.
"""

from icefall_attn.attention.linear import lmla, periodic
from icefall_attn.attention.linear.base import LinearAttention, LinearConfig

__all__ = ["LinearAttention", "LinearConfig", "lmla", "periodic"]
