"""Every attention mechanism as naive loops: slow, obvious, independent of the fast code.

``REFERENCES[name](module, x, options) -> (T, D)`` for one utterance x ``(T, D)`` without padding;
``options`` are the mechanism's own, None if it has none. `VARIANTS` are the options to compare with.
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


def full(module, x, options):
    """``softmax(q k / sqrt(d_h)) v``."""
    parts = []
    for _, query, key, value in _heads(module, x):
        width = query.size(1)
        rows = [_weigh([(q * k).sum() / width**0.5 for k in key], value) for q in query]
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


def rel_pos(module, x, options):
    """``softmax(((q_i + u) k_j + (q_i + v) W r(i - j)) / s) v``; the old r knows no sign."""
    parts = []
    for part, query, key, value in _heads(module, x):
        u, v = module.content_bias[part], module.position_bias[part]
        width = x.size(1) if options.scale == "embed_dim" else query.size(1)
        rows = []
        for i, q in enumerate(query):
            scores = []
            for j, k in enumerate(key):
                distance = abs(i - j) if options.legacy_symmetric else i - j
                place = _signed(module, distance)[part]
                scores.append(
                    (((q + u) * k).sum() + ((q + v) * place).sum()) / width**0.5
                )
            rows.append(_weigh(scores, value))
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


def prob_sparse(module, x, options):
    """Sampled sparsity by loops; the most peaked share attends, the rest keeps its value."""
    frames = x.size(0)
    count = min(frames, max(1, math.ceil(options.r_sparse * frames - 1e-9)))
    count = frames if frames < options.min_len else count
    sampled = min(frames, max(2, math.ceil(options.r_sample * math.log(frames))))
    places = [int((s + 0.5) * frames / sampled) for s in range(sampled)]
    heads = list(_heads(module, x))
    measures = []
    for _, query, key, _ in heads:
        scale = query.size(1) ** -0.5
        scores = [[float((q * key[j]).sum() * scale) for j in places] for q in query]
        most = (
            max
            if options.measure == "max_mean"
            else lambda row: math.log(sum(math.e**score for score in row))
        )
        measures.append([most(row) - sum(row) / len(row) for row in scores])
    if options.head_mode == "shared":
        measures = [[sum(m) / len(heads) for m in zip(*measures)]] * len(heads)
    parts = []
    for measure, (_, query, key, value) in zip(measures, heads):
        scale = query.size(1) ** -0.5
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


KERNELS = {
    "elu1": lambda x: torch.where(x > 0, x + 1, math.e**x),
    "relu": lambda x: torch.where(x > 0, x, 0 * x),
    "sigmoid": lambda x: 1 / (1 + math.e**-x),
    "exp": lambda x: math.e**x,
}


def _linear(module, x, options, place):
    """``sum_j w_ij v_j / sum_j n_ij``, pair by pair, with ``w_ij = sum_c psi(q_i) psi(k_j) place_ij``.

    n is w, or w without positions. ``place(head, i, j)`` broadcasts with ``(d_h,)``.
    """
    psi = KERNELS[options.kernel]
    parts = []
    for head, (_, query, key, value) in enumerate(_heads(module, x)):
        rows = []
        for i, q in enumerate(query):
            pairs = [psi(q) * psi(k) for k in key]
            weights = [(pair * place(head, i, j)).sum() for j, pair in enumerate(pairs)]
            plain = options.normalizer == "kernel"
            total = sum(pair.sum() for pair in pairs) if plain else sum(weights)
            # all 0 if psi is: then the result is 0
            total = total if abs(total) > 1e-6 else 1e-6
            rows.append(sum(w * v for w, v in zip(weights, value)) / total)
        parts.append(torch.stack(rows))
    return module.out(torch.cat(parts, dim=1))


def cosformer(module, x, options):
    """``psi(q_i) psi(k_j) cos(pi (i - j) / 2M)``."""
    period = options.period or x.size(0)
    return _linear(
        module, x, options, lambda _, i, j: math.cos(math.pi * (i - j) / (2 * period))
    )


def m_ape(module, x, options):
    """``psi(q_i) (psi(k_j) cos(pi j / 2M) W)``, W being 1 if it is not learned."""
    period = options.period or x.size(0)
    extension = module.extension if options.extend else 1.0
    return _linear(
        module,
        x,
        options,
        lambda _, i, j: math.cos(math.pi * j / (2 * period))
        * extension
        * torch.ones(x.size(1) // module.heads, dtype=x.dtype),
    )


def lmla(module, x, options):
    """``psi(q_i) (psi(k_j) cos(R_j))``, R of each head or of all; a longer one is clamped or stretched."""
    table, frames = module.table, x.size(0)

    def place(head, i, j):
        rows = table[head if options.scope == "model" else 0]
        last = rows.size(0) - 1
        if frames <= last + 1:
            return torch.cos(rows[j])
        if options.beyond == "clamp":
            return torch.cos(rows[min(j, last)])
        at = j * last / (frames - 1)
        low = min(int(at), last - 1) if last > 0 else 0
        high = min(low + 1, last)
        return torch.cos(rows[low] + (at - low) * (rows[high] - rows[low]))

    return _linear(module, x, options, place)


REFERENCES = {
    "full": full,
    "rel_pos": rel_pos,
    "prob_sparse": prob_sparse,
    "cosformer": cosformer,
    "lbla": cosformer,
    "m_ape": m_ape,
    "lmla": lmla,
}

LINEAR = [
    {"kernel": kernel, "normalizer": normalizer, "product": product}
    for kernel in KERNELS
    for normalizer in ("reweighted", "kernel")
    for product in ("left", "right")
]
VARIANTS = {
    "rel_pos": [{"legacy_symmetric": True}, {"scale": "embed_dim"}],
    "prob_sparse": [
        {"measure": "lse", "r_sample": 1.0},
        {"head_mode": "shared", "r_sparse": 0.3},
        {"measure": "lse", "head_mode": "shared"},
        {"min_len": 5, "r_sparse": 0.1},
        {"r_sparse": 1.0},
    ],
    "cosformer": LINEAR + [{"period": 12}],
    "lbla": LINEAR + [{"period": 12}],
    "m_ape": LINEAR + [{"period": 12}, {"extend": False}],
    "lmla": LINEAR
    + [
        {"scope": scope, "max_length": 3, "beyond": beyond, "init": init}
        for scope in ("head", "model")
        for beyond in ("clamp", "interpolate")
        for init in ("normal", "m_ape")
    ],
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
            psi = KERNELS[module.kernel]
            w = (psi(q) * psi(key) * place).sum()
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
