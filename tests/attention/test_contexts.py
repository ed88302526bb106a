"""Every mechanism in every context: against loops, and how far frames can see."""

import json
from pathlib import Path

import pytest
import torch
from properties.references import row

from icefall_attn.attention import (
    MECHANISMS,
    AttentionConfig,
    make_attention,
    make_shared,
    make_view,
)
from icefall_attn.attention import contexts, dual
from icefall_attn.attention.contexts import (
    Causal,
    Chunk,
    ContextConfig,
    Csa,
    Dcn,
    Rsa,
    Window,
)
from icefall_attn.attention.view import View
from icefall_attn.nn.lengths import valid_mask

DIM, HEADS, PERIOD = 8, 2, 100
STREAMABLE = [kind for kind in MECHANISMS if kind != "prob_sparse"]
VECTORS = Path(__file__).parents[1] / "vectors"


def make(kind, config):
    torch.manual_seed(0)
    attention = AttentionConfig(kind=kind)
    if hasattr(getattr(attention, kind, None), "period"):
        getattr(attention, kind).period = PERIOD
    module = make_attention(attention, DIM, HEADS, 0.0, 0, config.kind).double()
    return module, make_view(config, kind), make_shared(attention, DIM)


def passed(kind, config, x, lengths):
    """The module and what its pass gives, with the frames as the blocks get them."""
    module, view, shared = make(kind, config)
    seen, valid = view.enter(x, valid_mask(torch.tensor(lengths), x.size(1)))
    context = view.context(valid, x.dtype, shared(x.size(1)))
    return module, module(seen, context)


def same(fast, slow, module, x):
    """Values and gradients."""
    torch.testing.assert_close(fast, slow, rtol=1e-6, atol=1e-7)  # float32 positions
    weight = torch.randn_like(fast)
    leaves = [x, *(p for p in module.parameters() if p.requires_grad)]
    grads = [
        torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
        for out in (fast, slow)
    ]
    for one, other in zip(*grads):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def loops(kind, module, frames, keys_of):
    """Query by query; ``keys_of(n)`` gives its time, and frames and times of its keys."""
    rows = []
    for n, query in enumerate(frames):
        time, keys, times = keys_of(n)
        rows.append(row(kind, module, query, time, torch.stack(keys), times, PERIOD))
    return module.out(torch.stack(rows))


WINDOWS = {
    "causal": (ContextConfig("causal"), lambda i, j: j <= i),
    "causal-back": (
        ContextConfig("causal", causal=Causal(look_back=3)),
        lambda i, j: i - 3 <= j <= i,
    ),
    "rsa": (ContextConfig("rsa", rsa=Rsa(look_ahead=2)), lambda i, j: j <= i + 2),
    "rsa-back": (
        ContextConfig("rsa", rsa=Rsa(look_ahead=1, look_back=2)),
        lambda i, j: i - 2 <= j <= i + 1,
    ),
    "chunk": (
        ContextConfig("chunk", chunk=Chunk(chunk_size=3)),
        lambda i, j: j // 3 <= i // 3,
    ),
    "chunk-left": (
        ContextConfig("chunk", chunk=Chunk(chunk_size=2, left_chunks=1)),
        lambda i, j: i // 2 - 1 <= j // 2 <= i // 2,
    ),
}


@pytest.mark.parametrize("name", list(WINDOWS))
@pytest.mark.parametrize("kind", STREAMABLE)
def test_windows_are_the_loops(kind, name):
    config, sees = WINDOWS[name]
    lengths = [8, 5]
    x = torch.randn(2, 8, DIM, dtype=torch.float64, requires_grad=True)
    module, out = passed(kind, config, x, lengths)
    fast, slow = [], []
    for b, length in enumerate(lengths):

        def keys_of(n, b=b, length=length):
            times = [m for m in range(length) if sees(n, m)]
            return n, [x[b, m] for m in times], times

        fast.append(out[b, :length])
        slow.append(loops(kind, module, x[b, :length], keys_of))
    same(torch.cat(fast), torch.cat(slow), module, x)


def dcn_sources(stream, n, frames, ahead, back, strict):
    """(time, stream) of the keys of query n, by the paper's sets."""
    keys = []
    for m in range(frames):
        if back and n - m > back:
            continue
        if stream == 0:
            if m < n - ahead or (m == n - ahead and not strict):
                keys.append((m, 1))
            elif m <= n:
                keys.append((m, 0))
        elif m <= n:
            keys.append((m, 1))
        elif m <= n + ahead:
            keys.append((m, 0))
    return keys


@pytest.mark.parametrize("boundary", ["strict", "inclusive"])
@pytest.mark.parametrize("ahead, back", [(0, 0), (1, 0), (3, 4), (2, 1), (20, 0)])
@pytest.mark.parametrize("kind", STREAMABLE)
def test_dcn_is_the_loops(kind, ahead, back, boundary):
    """Longer than a block of queries, too: the blocks are made small."""
    config = ContextConfig("dcn", dcn=Dcn(ahead, back, boundary))
    module, view, shared = make(kind, config)
    view.block = 3
    frames, lengths = 8, [8, 5]
    x = torch.randn(4, frames, DIM, dtype=torch.float64, requires_grad=True)
    valid = valid_mask(torch.tensor(lengths), frames)
    context = view.context(torch.cat((valid, valid)), x.dtype, shared(frames))
    out = module(x, context)
    fast, slow = [], []
    for b, length in enumerate(lengths):
        for stream in (0, 1):

            def keys_of(n, b=b, stream=stream, length=length):
                strict = boundary == "strict"
                keys = dcn_sources(stream, n, length, ahead, back, strict)
                return n, [x[2 * s + b, m] for m, s in keys], [m for m, _ in keys]

            own = 2 * stream + b
            fast.append(out[own, :length])
            slow.append(loops(kind, module, x[own, :length], keys_of))
    same(torch.cat(fast), torch.cat(slow), module, x)


def test_the_masks_of_dcn_are_the_published_ones():
    frozen = json.loads((VECTORS / "dcn_masks_T6_eps2.json").read_text())
    time = torch.arange(6)
    limits = Dcn(look_ahead=2).window()
    for stream, name in enumerate(("c", "nc")):
        for sees, key in ((dual.sees_non_causal, "nc"), (dual.sees_causal, "c")):
            mask = sees(limits, True, stream, time[:, None], time)
            expected = torch.tensor(frozen[f"{name}_query_{key}_key"]).bool()
            assert torch.equal(mask, expected)
            inner = dcn_sources  # the loops above agree with the same masks
            for n in range(6):
                own = [
                    m for m, s in inner(stream, n, 6, 2, 0, True) if s == (key == "nc")
                ]
                assert own == expected[n].nonzero().flatten().tolist()


@pytest.mark.parametrize(
    "hop, overlap, back", [(3, 3, 0), (2, 0, 0), (2, 5, 3), (4, 1, 0)]
)
@pytest.mark.parametrize("kind", STREAMABLE)
def test_csa_is_the_loops(kind, hop, overlap, back):
    """Each chunk's own copies, and the frames that earlier chunks own."""
    config = ContextConfig("csa", csa=Csa(hop, overlap, back))
    module, view, shared = make(kind, config)
    lengths, width = [7, 4], hop + overlap
    chunks = -(-7 // hop)
    x = torch.randn(2, chunks * width, DIM, dtype=torch.float64, requires_grad=True)
    _, valid = view.enter(torch.zeros(2, 7, 1), valid_mask(torch.tensor(lengths), 7))
    out = module(x, view.context(valid, x.dtype, shared(7)))
    fast, slow = [], []
    for b, length in enumerate(lengths):
        places = [
            (k, k * hop + w, k * width + w)
            for k in range(chunks)
            for w in range(width)
            if k * hop + w < length
        ]
        assert sorted(p for _, _, p in places) == valid[b].nonzero().flatten().tolist()

        def keys_of(i, b=b, places=places):
            chunk, time, _ = places[i]
            keys = [
                (t, p)
                for k, t, p in places
                if k == chunk
                or (k < chunk and t < (k + 1) * hop and not 0 < back < chunk * hop - t)
            ]
            return time, [x[b, p] for _, p in keys], [t for t, _ in keys]

        own = [p for _, _, p in places]
        fast.append(out[b, own])
        slow.append(loops(kind, module, x[b, own], keys_of))
    same(torch.cat(fast), torch.cat(slow), module, x)


def test_what_becomes_ready():
    """The first queries whose keys have all come, by trying."""
    for chunk, ahead in ((1, 0), (1, 3), (4, 0), (3, 2)):
        limits = Window(chunk, ahead)
        for arrived in range(15):
            time, key = torch.arange(40)[:, None], torch.arange(60)
            last = contexts.sees(limits, time, key).long().cumsum(1).argmax(1)
            expected = int((last < arrived).long().cumprod(0).sum())
            assert int(contexts.ready(limits, torch.tensor(arrived))) == expected


def test_chunk_sizes_are_drawn_in_training_only():
    view = View(ContextConfig("chunk", chunk=Chunk(6, 2, smallest=3)), True)
    view.train()
    torch.manual_seed(0)
    drawn = {view.window()[::2] for _ in range(100)}
    assert drawn == {(size, 2 * size) for size in (3, 4, 5, 6)}
    view.eval()
    assert {view.window() for _ in range(10)} == {Window(6, 0, 12)}


@pytest.mark.parametrize(
    "make_options, words",
    [
        (lambda: ContextConfig("past"), "'past'"),
        (
            lambda: Rsa(look_ahead=-1),
            "context.rsa.look_ahead must be at least 0, not -1",
        ),
        (lambda: Chunk(chunk_size=0), "chunk_size must be at least 1, not 0"),
        (
            lambda: Chunk(chunk_size=4, smallest=5),
            "smallest must be from 0 to chunk_size=4",
        ),
        (lambda: Csa(hop=0), "context.csa.hop must be at least 1, not 0"),
        (lambda: Dcn(boundary="open"), "'open'"),
    ],
)
def test_wrong_options_are_named(make_options, words):
    with pytest.raises(ValueError, match=words):
        make_options()
