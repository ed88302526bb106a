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


def row(kind, module, query, time, keys, times, period=None):
    """What one query takes from some keys, whose times are told; before the output's map.

    Args:
      query: ``(D,)`` frame.
      time: its time.
      keys: ``(k, D)`` frames.
      times: k of them.
      period: M of the periodic mechanisms.
    """
    parts = []
    heads = zip(_heads(module, query[None]), _heads(module, keys))
    for head, ((part, q, _, _), (_, _, k, v)) in enumerate(heads):
        q, width = q[0], q.size(1)
        if kind in ("full", "rel_pos"):
            scores = []
            for key, at in zip(k, times):
                if kind == "full":
                    scores.append((q * key).sum() / width**0.5)
                    continue
                p = _signed(module, time - at)[part]
                u, b = module.content_bias[part], module.position_bias[part]
                scores.append(
                    (((q + u) * key).sum() + ((q + b) * p).sum()) / width**0.5
                )
            parts.append(_weigh(scores, v))
            continue
        total, weight = 0.0, 0.0
        for key, value, at in zip(k, v, times):
            if kind == "lmla":
                place = torch.cos(module.table[head % module.table.size(0), at])
            elif kind == "m_ape":
                place = module.extension * math.cos(math.pi * at / (2 * period))
            else:
                place = math.cos(math.pi * (time - at) / (2 * period))
            w = (module.psi(q) * module.psi(key) * place).sum()
            total, weight = total + w * value, weight + w
        parts.append(total / (weight if abs(weight) > 1e-6 else 1e-6))
    return torch.cat(parts)


def _signed(module, distance):
    dim = module.query.weight.size(0)
    values = []
    for k in range(dim // 2):
        angle = distance * 10000 ** (-2 * k / dim)
        values += [math.sin(angle), math.cos(angle)]
    return module.position(torch.tensor(values, dtype=module.query.weight.dtype))
