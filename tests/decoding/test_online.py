"""Streams of samples: many side by side find what each finds alone, and end their segments."""

import pytest
import torch
from test_streaming import CONTEXTS, make_model

from icefall_attn.attention.contexts import ContextConfig
from icefall_attn.data.features import compute_features
from icefall_attn.decoding import SearchConfig, recognize
from icefall_attn.decoding.endpoint import EndpointConfig
from icefall_attn.decoding.online import StreamingRecognizer
from icefall_attn.errors import UserError


class Numbers:
    """Tokens are read as their numbers."""

    def decode(self, ids):
        return " ".join(map(str, ids))


def make_recognizer(context, method="greedy_search", **options):
    model = make_model(CONTEXTS[context], feature_dim=80).float()
    with torch.no_grad():
        model.joiner.output.bias[0] -= 2.5  # talkative
    return StreamingRecognizer(model, Numbers(), SearchConfig(method), **options)


def feed(recognizer, utterances, sizes):
    """Streams that begin one after the other and take pieces of different sizes."""
    streams = []
    positions = [0] * len(utterances)
    while any(p < len(u) for p, u in zip(positions, utterances)):
        if len(streams) < len(utterances):
            streams.append(recognizer.open())
        for i, stream in enumerate(streams):
            end = positions[i] + sizes[i]
            if positions[i] < len(utterances[i]):
                stream.accept(utterances[i][positions[i] : end])
                positions[i] = end
                if end >= len(utterances[i]):
                    stream.finish()
        recognizer.step(streams)
    recognizer.run(streams)
    return streams


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("method", ["greedy_search", "modified_beam_search"])
def test_streams_find_what_whole_utterances_find(context, method):
    recognizer = make_recognizer(context, method, piece=16)
    generator = torch.Generator().manual_seed(0)
    utterances = [torch.randn(n, generator=generator) / 9 for n in (16000, 4000, 9001)]
    streams = feed(recognizer, utterances, [700, 160, 5000])
    said = 0
    for samples, stream in zip(utterances, streams):
        features = compute_features(samples)
        lengths = torch.tensor([len(features)])
        ((best, *_),) = recognize(
            recognizer.model, features.unsqueeze(0), lengths, recognizer.config
        )
        found = [t for segment in stream.segments for t in segment.tokens]
        assert found == best.tokens and stream.done
        assert stream.text == recognizer.tokenizer.decode(best.tokens)
        times = [t for segment in stream.segments for t in segment.times]
        assert times == [round(0.04 * frame, 2) for frame in best.frames]
        said += len(found)
    assert said > 10


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_stream_that_waits_keeps_its_own_state_alone(context):
    """Whoever it stepped with before: not a byte of theirs, and of its own nothing is lost."""
    recognizer = make_recognizer(context, piece=8)
    generator = torch.Generator().manual_seed(0)
    first, second, third = (torch.randn(16000, generator=generator) / 9 for _ in "abc")
    one, two, three = streams = [recognizer.open() for _ in "abc"]
    for stream, samples in zip(streams, (first, second, third)):
        stream.accept(samples[:8000])
    recognizer.run(streams)
    assert one.group is two.group is three.group
    two.accept(second[8000:12000])
    recognizer.run(streams)
    assert two.group.members == [two] and one.group.members == [one, three]
    assert len(two.encoder_state.encoder.arrived) == 1
    assert len(one.group.state.encoder.arrived) == 2
    one.accept(first[8000:])
    two.accept(second[12000:])
    three.accept(third[8000:])
    for stream in streams:
        stream.finish()
    recognizer.run([three, one, two])
    alone = feed(recognizer, [first, second, third], [16000] * 3)
    assert [s.text for s in streams] == [s.text for s in alone]


def test_segments_cut_the_search_but_not_the_encoder():
    """With rules, times go on through the stream; blanks after a token end its segment."""
    endpoint = EndpointConfig(silence=0, pause=0, longest=0.4)
    recognizer = make_recognizer("causal", endpoint=endpoint, piece=4)
    samples = torch.randn(32000, generator=torch.Generator().manual_seed(0)) / 9
    (stream,) = feed(recognizer, [samples], [640])
    assert len(stream.segments) > 2
    times = [t for segment in stream.segments for t in segment.times]
    assert times == sorted(times) and times[-1] > 1.0
    for segment in stream.segments:
        assert segment.times[-1] - segment.times[0] < 0.4
        assert int(segment.times[0] / 0.4 + 1e-6) == int(segment.times[-1] / 0.4 + 1e-6)


def test_rules():
    rules = EndpointConfig(silence=2.4, pause=1.2, longest=20.0)
    assert not rules.reached(59, -1) and rules.reached(60, -1)
    assert not rules.reached(39, 9) and rules.reached(40, 9)
    assert not rules.reached(499, 490) and rules.reached(500, 499)
    none = EndpointConfig(0, 0, 0)
    assert not none.reached(10**6, -1) and not none.reached(10**6, 3)
    with pytest.raises(UserError, match="endpoint.pause must be 0 or more"):
        EndpointConfig(pause=-1).validate()


def test_what_cannot_stream_is_refused():
    whole = make_model(ContextConfig("full"), "utterance", feature_dim=80)
    with pytest.raises(UserError, match="context.kind=full needs whole utterances"):
        StreamingRecognizer(whole, Numbers(), SearchConfig())
    with pytest.raises(UserError, match="fast_beam_search needs whole utterances"):
        make_recognizer("dcn", "fast_beam_search")
    with pytest.raises(UserError, match="features=fbank_pitch"):
        make_recognizer("dcn", features="fbank_pitch")
    stream = make_recognizer("dcn").open()
    with pytest.raises(UserError, match="not numbers"):
        stream.accept(torch.tensor([0.0, float("nan")]))
