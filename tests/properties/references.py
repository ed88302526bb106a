"""Every attention mechanism as naive loops: slow, obvious, independent of the fast code.

``REFERENCES[name](module, x, length) -> (T, D)`` for one utterance x ``(T, D)`` without padding.
"""

import math

import torch


def _heads(module, x):
    for head in range(module.heads):
        width = x.size(1) // module.heads
        part = slice(head * width, (head + 1) * width)
        yield part, module.query(x)[:, part], module.key(x)[:, part], module.value(x)[
            :, part
        ]


def _weigh(scores, value):
    weights = [math.e**s for s in scores]
    total = sum(weights)
    return sum(w * v for w, v in zip(weights, value)) / total


def full(module, x):
    """``softmax(q k / sqrt(d_h)) v``."""
    parts = []
    for _, query, key, value in _heads(module, x):
        width = query.size(1)
        rows = [_weigh([(q * k).sum() / width**0.5 for k in key], value) for q in query]
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


def rel_pos(module, x):
    """``softmax(((q_i + u) k_j + (q_i + v) W r(i - j)) / sqrt(d_h)) v``."""
    dim = x.size(1)

    def row(distance):
        values = []
        for k in range(dim // 2):
            angle = distance * 10000 ** (-2 * k / dim)
            values += [math.sin(angle), math.cos(angle)]
        return module.position(torch.tensor(values, dtype=x.dtype))

    parts = []
    for part, query, key, value in _heads(module, x):
        u, v, width = (
            module.content_bias[part],
            module.position_bias[part],
            query.size(1),
        )
        rows = []
        for i, q in enumerate(query):
            scores = [
                (((q + u) * k).sum() + ((q + v) * row(i - j)[part]).sum()) / width**0.5
                for j, k in enumerate(key)
            ]
            rows.append(_weigh(scores, value))
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


REFERENCES = {"full": full, "rel_pos": rel_pos}
