"""Frames piece by piece give what they give at once."""

import random
from dataclasses import replace

import pytest
import torch
from decoding_helpers import TinyTransducer, random_batch

from icefall_attn.decoding import SearchConfig, search
from icefall_attn.decoding.beam import advance_beams
from icefall_attn.decoding.greedy import advance_greedily
from icefall_attn.decoding.results import rank
from icefall_attn.decoding.streams import start_streams

LENGTHS = [23, 0, 1, 40, 7]
METHODS = {
    "greedy": (SearchConfig("greedy_search"), advance_greedily),
    "greedy of 3": (
        SearchConfig("greedy_search", max_symbols_per_frame=3),
        advance_greedily,
    ),
    "beam": (SearchConfig("modified_beam_search"), advance_beams),
    "wide beam": (SearchConfig("modified_beam_search", beam_size=20), advance_beams),
}


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def assert_same(found, expected):
    for some, others in zip(found, expected):
        assert [(h.tokens, h.frames) for h in some] == [
            (h.tokens, h.frames) for h in others
        ]
        assert [h.score for h in some] == pytest.approx(
            [h.score for h in others], abs=1e-4
        )


def read(model, method, streams, encoder_out, lengths, begins, sizes):
    """The streams after the next ``sizes`` frames of each, from ``begins`` on."""
    config, advance = method
    sizes = torch.minimum(sizes, lengths - begins)
    piece = torch.full(
        (len(sizes), int(sizes.max()) + 1, encoder_out.size(2)), torch.nan
    )
    for row, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist())):
        piece[row, :size] = encoder_out[row, begin : begin + size]
    return advance(model, streams, piece, sizes, config), begins + sizes


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, "random"])
def test_pieces(kind, method, size):
    """All streams at once, whose pieces are of different sizes if these are random."""
    model = TinyTransducer(kind, vocab=5, seed=3, blank_bias=1.0)
    encoder_out, lengths = random_batch(LENGTHS, seed=5)
    streams = start_streams(model, len(LENGTHS), "cpu")
    begins = torch.zeros_like(lengths)
    generator = torch.Generator().manual_seed(0)
    while bool((begins < lengths).any()):
        sizes = torch.full_like(lengths, size if size != "random" else 0)
        if size == "random":
            sizes = torch.randint(0, 9, lengths.shape, generator=generator)
        streams, begins = read(
            model, method, streams, encoder_out, lengths, begins, sizes
        )
    assert [stream.frames for stream in streams] == LENGTHS
    found = [rank(stream.scored(), method[0]) for stream in streams]
    assert_same(found, search(model, encoder_out, lengths, method[0]))


def test_streams_come_and_go(kind, method):
    """Which others a stream is read with changes nothing; an earlier state can be read on again."""
    config, advance = method
    model = TinyTransducer(kind, vocab=5, seed=1, blank_bias=1.0)
    encoder_out, lengths = random_batch([30] * 6, seed=2)
    expected = search(model, encoder_out, lengths, config)
    dice = random.Random(0)
    streams = start_streams(model, 6, "cpu")
    read_so_far = [0] * 6
    while min(read_so_far) < 30:
        rows = dice.sample(range(6), dice.randint(1, 6))
        sizes = [min(dice.randint(0, 6), 30 - read_so_far[row]) for row in rows]
        piece = torch.zeros(len(rows), max(sizes) + 1, encoder_out.size(2))
        for place, (row, size) in enumerate(zip(rows, sizes)):
            begin = read_so_far[row]
            piece[place, :size] = encoder_out[row, begin : begin + size]
            read_so_far[row] += size
        chosen = [streams[row] for row in rows]
        advance(
            model, chosen, piece * 3 + 1, torch.tensor(sizes), config
        )  # to no avail
        chosen = advance(model, chosen, piece, torch.tensor(sizes), config)
        for row, stream in zip(rows, chosen):
            streams[row] = stream
    assert_same([rank(s.scored(), config) for s in streams], expected)


def test_best_so_far(kind, method):
    """A partial result is the result of what has been read."""
    config, advance = method
    model = TinyTransducer(kind, vocab=5, seed=4, blank_bias=1.0)
    encoder_out, lengths = random_batch([20], seed=4)
    streams = start_streams(model, 1, "cpu")
    assert streams[0].best().tokens == []
    for t in range(20):
        frame = encoder_out[:, t : t + 1]
        streams = advance(model, streams, frame, torch.tensor([1]), config)
        whole = replace(config, nbest=100)
        whole = search(model, encoder_out[:, : t + 1], torch.tensor([t + 1]), whole)
        best = max(whole[0], key=lambda h: h.score)
        assert streams[0].best().tokens == best.tokens
