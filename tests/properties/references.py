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


def prob_sparse(module, x):
    """Sampled sparsity by loops; the most peaked half attends, the rest keeps its value."""
    frames = x.size(0)
    count = min(frames, max(1, math.ceil(module.r_sparse * frames - 1e-9)))
    sampled = min(frames, max(2, math.ceil(module.r_sample * math.log(frames))))
    places = [int((s + 0.5) * frames / sampled) for s in range(sampled)]
    parts = []
    for _, query, key, value in _heads(module, x):
        scale = query.size(1) ** -0.5
        scores = [[float((q * key[j]).sum() * scale) for j in places] for q in query]
        measure = [max(row) - sum(row) / len(row) for row in scores]
        best = sorted(range(frames), key=lambda i: (-measure[i], i))[:count]
        rows = [
            (
                _weigh([(q * k).sum() * scale for k in key], value)
                if i in best
                else value[i]
            )
            for i, q in enumerate(query)
        ]
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


def _linear(module, x, weight):
    """``sum_j w_ij v_j / sum_j w_ij``, pair by pair."""
    parts = []
    for head, (_, query, key, value) in enumerate(_heads(module, x)):
        rows = []
        for i, q in enumerate(query):
            weights = [
                weight(head, i, j, module.psi(q), module.psi(k))
                for j, k in enumerate(key)
            ]
            total = sum(weights)  # all 0 if psi is: then the result is 0
            total = total if abs(total) > 1e-6 else 1e-6
            rows.append(sum(w * v for w, v in zip(weights, value)) / total)
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


def cosformer(module, x):
    """``psi(q_i) psi(k_j) cos(pi (i - j) / 2M)``."""
    frames = x.size(0)
    return _linear(
        module,
        x,
        lambda head, i, j, q, k: (q * k).sum()
        * math.cos(math.pi * (i - j) / (2 * frames)),
    )


def m_ape(module, x):
    """``psi(q_i) (psi(k_j) cos(pi j / 2M) W)``."""
    frames = x.size(0)
    return _linear(
        module,
        x,
        lambda head, i, j, q, k: (
            q * k * module.extension * math.cos(math.pi * j / (2 * frames))
        ).sum(),
    )


def lmla(module, x):
    """``psi(q_i) (psi(k_j) cos(R_j))``."""
    table = module.table
    return _linear(
        module,
        x,
        lambda head, i, j, q, k: (
            q * k * torch.cos(table[head % table.size(0), j])
        ).sum(),
    )


REFERENCES = {
    "full": full,
    "rel_pos": rel_pos,
    "prob_sparse": prob_sparse,
    "cosformer": cosformer,
    "lbla": cosformer,
    "m_ape": m_ape,
    "lmla": lmla,
}
