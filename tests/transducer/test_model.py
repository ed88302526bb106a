"""Predictor, joiner and the whole model."""

import pytest
import torch

from icefall_attn.attention import AttentionConfig, ContextConfig
from icefall_attn.encoder.conformer import ConformerConfig
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.transducer.joiner import Joiner
from icefall_attn.transducer.model import Transducer, TransducerConfig
from icefall_attn.transducer.predictor import PredictorConfig, make_predictor

KINDS = [
    PredictorConfig(kind="lstm", dim=6, num_layers=2),
    PredictorConfig(kind="stateless", dim=6, context_size=1),
    PredictorConfig(kind="stateless", dim=6, context_size=3),
]


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.kind}{c.context_size}")
def test_steps_equal_the_whole(config):
    predictor = make_predictor(9, config).double().eval()
    labels = torch.randint(1, 9, (4, 5))
    whole = predictor(labels)
    state = predictor.init_state(4, torch.device("cpu"))
    fed = torch.cat((torch.zeros(4, 1, dtype=torch.int64), labels), dim=1)
    for position in range(6):
        out, state = predictor.step(fed[:, position], state)
        torch.testing.assert_close(out, whole[:, position])
        order = torch.tensor([2, 0, 3, 1])  # states are batch first and can be selected
        fed, whole, state = fed[order], whole[order], [s[order] for s in state]


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.kind}{c.context_size}")
def test_predictor_does_not_see_the_future(config):
    predictor = make_predictor(9, config).eval()
    labels = torch.tensor([[1, 2, 3, 4, 5]])
    changed = torch.tensor([[1, 2, 3, 8, 8]])
    same = (predictor(labels) == predictor(changed)).all(dim=2)[0]
    assert same.tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.kind}{c.context_size}")
def test_start_of_sentence_is_learned(config):
    predictor = make_predictor(9, config)
    predictor(torch.tensor([[1, 2]]))[:, 0].pow(2).sum().backward()
    assert predictor.embedding.weight.grad[0].abs().sum() > 0


def test_joiner_is_the_broadcast_formula():
    joiner = Joiner(3, 4, 5, 7).double()
    enc, pred = torch.randn(2, 6, 3).double(), torch.randn(2, 4, 4).double()
    projected = (
        joiner.project_encoder(enc)[:, :, None],
        joiner.project_predictor(pred)[:, None],
    )
    logits = joiner(*projected)
    w, v = joiner.encoder_projection, joiner.predictor_projection
    for t in range(6):
        for u in range(4):
            hidden = torch.tanh(
                enc[:, t] @ w.weight.t() + w.bias + pred[:, u] @ v.weight.t()
            )
            torch.testing.assert_close(logits[:, t, u], joiner.output(hidden))


def small(**options):
    encoder = ConformerConfig(
        dim=8, heads=2, num_layers=2, feed_forward_dim=16, kernel_size=3,
        subsampling_channels=4, dropout=0.0,
    )  # fmt: skip
    predictor = PredictorConfig(dim=6, dropout=0.0)
    return TransducerConfig(
        encoder=encoder, predictor=predictor, joiner_dim=6, vocab_size=9, **options
    )


def losses_of(model, lengths, label_lengths, garbage=0.0):
    generator = torch.Generator().manual_seed(5)
    features = torch.full((len(lengths), max(lengths), 80), garbage)
    labels = torch.full((len(lengths), max(label_lengths)), 8 if garbage else 0)
    for row, (length, count) in enumerate(zip(lengths, label_lengths)):
        features[row, :length] = torch.randn(length, 80, generator=generator)
        labels[row, :count] = torch.randint(1, 9, (count,), generator=generator)
    return features, labels


@pytest.mark.parametrize(
    "options", [{}, {"ctc": True}, {"ctc": True, "inter_ctc_layer": 1}]
)
def test_losses_do_not_depend_on_the_batch(options):
    model = Transducer(small(**options)).eval()
    lengths, counts = [90, 50, 64], [5, 3, 9]
    config = LossConfig(prune_range=5)
    features, labels = losses_of(model, lengths, counts, garbage=1e3)
    batch, out = model(
        features, torch.tensor(lengths), labels, torch.tensor(counts), config
    )
    assert (batch.ctc is not None) == ("ctc" in options)
    for row, (length, count) in enumerate(zip(lengths, counts)):
        alone, _ = model(
            features[row : row + 1, :length],
            torch.tensor([length]),
            labels[row : row + 1, :count],
            torch.tensor([count]),
            config,
        )
        for one, other in zip(batch, alone):
            if one is None:
                assert other is None
            else:
                torch.testing.assert_close(one[row], other[0], rtol=1e-4, atol=1e-4)


def streaming(context, **options):
    config = small(feature_norm="none", **options)
    config.encoder.context = ContextConfig(context)
    torch.manual_seed(0)
    return config


@torch.no_grad()
@pytest.mark.parametrize("feature_norm", ["running", "none"])
@pytest.mark.parametrize("context", ["causal", "rsa", "chunk", "csa", "dcn"])
def test_steps_are_the_whole_pass(context, feature_norm):
    """From features to encoder frames, with the running mean of the features."""
    config = streaming(context)
    config.feature_norm = feature_norm
    model = Transducer(config)
    lengths = torch.tensor([90, 47])
    x = torch.randn(2, 90, 80) + 5.0
    model(x, lengths, torch.ones(2, 3).long(), torch.tensor([3, 2]), LossConfig())
    model.eval()
    expected, frames = model.encode(x, lengths)
    state, outs = model.init_stream(2), [[], []]
    for start in range(0, 91, 13):
        count = (lengths - start).clamp(0, 13)
        final = (lengths >= start) & (lengths < start + 13)
        out, ready, state = model.encode_step(
            x[:, start : start + 13], count, state, final
        )
        for row in (0, 1):
            if start <= lengths[row]:
                outs[row].append(out[row, : ready[row]])
    for row, length in enumerate(frames):
        torch.testing.assert_close(
            torch.cat(outs[row]), expected[row, :length], rtol=0, atol=1e-5
        )


def test_two_streams_have_a_distillation_loss_in_training():
    model = Transducer(streaming("dcn", ctc=True, inter_ctc_layer=1))
    features, labels = losses_of(model, [90, 50], [5, 3])
    arguments = (features, torch.tensor([90, 50]), labels, torch.tensor([5, 3]))
    losses, _ = model.train()(*arguments, LossConfig())
    assert losses.distillation.shape == (2,) and (losses.distillation > 0).all()
    sum(loss.sum() for loss in losses).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []
    assert model.eval()(*arguments, LossConfig())[0].distillation is None


def test_ctc_loss_equals_brute_force():
    from itertools import groupby, product

    from icefall_attn.transducer.model import ctc_loss

    logits = torch.randn(1, 4, 3)
    log_probs = logits.log_softmax(dim=2)[0]
    target = [1, 1]
    total = torch.tensor(float("-inf"))
    for path in product(range(3), repeat=4):
        if [label for label, _ in groupby(path) if label != 0] == target:
            score = sum(log_probs[t, label] for t, label in enumerate(path))
            total = torch.logaddexp(total, score)
    loss = ctc_loss(
        logits, torch.tensor([4]), torch.tensor([target]), torch.tensor([2])
    )
    torch.testing.assert_close(loss, -total[None])


def test_seed_sized_model_has_the_parameters_of_the_source():
    """16 x 256, kernel 3, FF 1024, LSTM 256, joint 512, V 4231: 26.16 + 1.61 + 2.43 M."""
    config = TransducerConfig(
        encoder=ConformerConfig(
            feature_dim=83, num_layers=16, kernel_size=3, conv_norm="batch",
            attention=AttentionConfig(kind="full"),
        ),
        vocab_size=4231,
    )  # fmt: skip
    model = Transducer(config)
    count = lambda part: sum(p.numel() for p in part.parameters()) / 1e6
    assert round(count(model.encoder), 2) == 26.16
    assert round(count(model.predictor), 2) == 1.61
    assert round(count(model.joiner), 2) == 2.43
    assert sum(p.numel() for p in model.encoder.blocks[0].parameters()) == 1_515_776
    assert sum(p.numel() for p in model.encoder.subsampling.parameters()) == 1_903_616


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: PredictorConfig(kind="gru"), "'gru'"),
        (lambda: ConformerConfig(dim=10, heads=4), "not 10"),
        (lambda: ConformerConfig(attention=AttentionConfig(kind="none")), "'none'"),
        (lambda: small(inter_ctc_layer=2), "not 2"),
        (lambda: small(feature_norm="global"), "'global'"),
        (
            lambda: TransducerConfig(ConformerConfig(context=ContextConfig("rsa"))),
            "feature_norm=utterance needs whole utterances, which context.kind=rsa",
        ),
        (lambda: ConformerConfig(conv_norm="group"), "'group'"),
        (lambda: ConformerConfig(kernel_size=4), "not 4"),
        (lambda: LossConfig(prune_range=1), "not 1"),
    ],
)
def test_wrong_options_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
