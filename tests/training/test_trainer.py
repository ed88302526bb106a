"""Training runs: killed and resumed, accumulated, skipped, watched."""

import json
import math
import shutil

import pytest
import torch
from small_corpus import WORDS
from small_training import gradient, make_config

from icefall_attn.data.loader import eval_loader
from icefall_attn.data.tokenizer import train_char
from icefall_attn.errors import UserError
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training.experiment import load_experiment
from icefall_attn.training import validation
from icefall_attn.training.trainer import Trainer


def make_trainer(corpus_dir, exp_dir, tokenizer, change=lambda config: None, **train):
    config = make_config(corpus_dir, exp_dir, **train)
    change(config)
    config.model.vocab_size = tokenizer.vocab_size
    exp_dir.mkdir(exist_ok=True)
    trainer = Trainer(config, tokenizer)
    trainer.resume()
    return trainer


def record_batches(monkeypatch):
    seen = []
    step = Trainer._step

    def recording(self, batches):
        seen.append([batch.ids for batch in batches])
        return step(self, batches)

    monkeypatch.setattr(Trainer, "_step", recording)
    return seen


class Killed(Exception):
    pass


KILLS = [
    (1, lambda t: t.progress.step == 3, "_update"),
    (1, lambda t: t.progress.step == 8, "_update"),
    (2, lambda t: t.progress.step == 4, "_update"),
    (1, lambda t: t.progress.epoch == 2, "_pictures"),  # in validation
    (1, lambda t: t.progress.epoch == 3, "note"),  # between an epoch's files
]


@pytest.mark.parametrize("accumulate, when, where", KILLS)
def test_killed_and_resumed_equals_undisturbed(
    corpus_dir, tokenizer, tmp_path, monkeypatch, accumulate, when, where
):
    """Bit for bit: weights, batches, random numbers, valid losses, best epoch."""
    options = {
        "save_every": 1,
        "accumulate": accumulate,
        "tensorboard": where == "_pictures",
    }
    seen = record_batches(monkeypatch)
    whole = make_trainer(corpus_dir, tmp_path / "whole", tokenizer, **options)
    whole.run()
    expected, seen[:] = list(seen), []

    killed = make_trainer(corpus_dir, tmp_path / "killed", tokenizer, **options)
    owner, name = (ckpt, "note_valid_loss") if where == "note" else (killed, where)
    original = getattr(owner, name)

    def kill(*args):
        if when(killed):
            raise Killed
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        with pytest.raises(Killed):
            killed.run()
    done = ckpt.load_checkpoint(tmp_path / "killed" / "last.pt")["progress"]["step"]
    del seen[done:]  # what was under way is done again
    torch.manual_seed(99)
    resumed = make_trainer(corpus_dir, tmp_path / "killed", tokenizer, **options)
    resumed.run()
    assert seen == expected
    for key, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[key], value), key
    one, other = (
        ckpt.load_checkpoint(tmp_path / d / "last.pt") for d in ("whole", "killed")
    )
    assert one["random"] == other["random"]
    losses = ckpt.read_valid_losses(tmp_path / "whole")
    assert ckpt.read_valid_losses(tmp_path / "killed") == losses and len(losses) == 3
    best = [ckpt.load_checkpoint(tmp_path / d / ckpt.BEST) for d in ("whole", "killed")]
    assert best[0]["progress"]["epoch"] == best[1]["progress"]["epoch"]


def test_finished_run_does_nothing_more(corpus_dir, tokenizer, tmp_path, monkeypatch):
    make_trainer(corpus_dir, tmp_path / "exp", tokenizer, num_epochs=1).run()
    seen = record_batches(monkeypatch)
    again = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, num_epochs=1)
    again.run()
    assert seen == [] and again.progress.epoch == 2
    more = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, num_epochs=2)
    more.run()
    assert len(seen) > 0 and more.progress.epoch == 3


def test_max_steps_ends_with_a_validated_epoch(corpus_dir, tokenizer, tmp_path):
    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, max_steps=6)
    trainer.run()
    assert trainer.progress.step == 6
    names = {p.name for p in (tmp_path / "exp").glob("*.pt")}
    last = f"epoch-{trainer.progress.epoch - 1}.pt"
    assert {"epoch-1.pt", last, "last.pt", "best-valid-loss.pt"} <= names
    line = json.loads(
        (tmp_path / "exp" / ckpt.VALID_LOSSES).read_text().splitlines()[-1]
    )
    assert line["step"] == 6 and math.isfinite(line["valid_loss"]) and line["wer"] >= 0


def test_valid_errors_are_characters_where_tokens_know_no_words(
    corpus_dir, tmp_path, monkeypatch
):
    tokenizer = train_char([" ".join(WORDS)], keep_spaces=False)
    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer)
    data = trainer.config.data
    perfect = iter(
        [
            [tokenizer.decode(tokens) for tokens in batch.tokens]
            for batch in eval_loader(data.valid_cuts, data, tokenizer)
        ]
    )
    monkeypatch.setattr(validation, "transcribe", lambda *_: next(perfect))
    result = validation.validate(
        trainer.model, tokenizer, trainer.config, torch.device("cpu")
    )
    assert result.wer == 0


def set_option(name, value):
    def change(config):
        *path, last = name.split(".")
        for part in path:
            config = getattr(config, part)
        setattr(config, last, value)

    return change


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("model.encoder.kernel_size", 7, "model.encoder.kernel_size was 3, now 7"),
        ("optim.lr", 0.5, "optim.lr was 0.01, now 0.5"),
        ("data.max_duration", 30.0, "data.max_duration was 10.0, now 30.0"),
        ("train.seed", 1, "train.seed was 42, now 1"),
        ("loss.prune_range", 3, "loss.prune_range was 5, now 3"),
    ],
)
def test_another_run_is_refused_by_name(
    corpus_dir, tokenizer, tmp_path, name, value, words
):
    make_trainer(corpus_dir, tmp_path / "exp", tokenizer, max_steps=1).run()
    with pytest.raises(UserError, match=words):
        make_trainer(
            corpus_dir,
            tmp_path / "exp",
            tokenizer,
            set_option(name, value),
            max_steps=1,
        )


def test_what_changes_nothing_may_be_changed(corpus_dir, tokenizer, tmp_path):
    plain = set_option("model.ctc", False)  # the bound decides the weight of a CTC loss

    def with_worker(config):
        plain(config)
        config.data.num_workers = 1

    make_trainer(corpus_dir, tmp_path / "exp", tokenizer, plain, max_steps=2).run()
    more = make_trainer(
        corpus_dir, tmp_path / "exp", tokenizer, with_worker, max_steps=4, log_every=1
    )
    more.run()
    assert more.progress.step == 4
    make_trainer(corpus_dir, tmp_path / "ctc", tokenizer, max_steps=2).run()
    with pytest.raises(UserError, match="train.max_steps was 2, now 4"):
        make_trainer(corpus_dir, tmp_path / "ctc", tokenizer, max_steps=4)
    cosine = set_option("optim.schedule", "cosine")
    make_trainer(corpus_dir, tmp_path / "other", tokenizer, cosine, max_steps=6).run()
    with pytest.raises(UserError, match="train.max_steps was 6, now 8"):
        make_trainer(corpus_dir, tmp_path / "other", tokenizer, cosine, max_steps=8)


def test_other_tokens_or_data_are_refused(corpus_dir, tokenizer, tmp_path):
    from icefall_attn.data.tokenizer import CharTokenizer

    data = tmp_path / "data"
    shutil.copytree(corpus_dir, data)
    make_trainer(data, tmp_path / "exp", tokenizer, max_steps=1).run()
    tokens = list(tokenizer.tokens)
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    with pytest.raises(UserError, match="other tokens"):
        make_trainer(data, tmp_path / "exp", CharTokenizer(tokens), max_steps=1)
    shutil.copy(data / "more.jsonl.gz", data / "train.jsonl.gz")
    with pytest.raises(UserError, match="other .*train.jsonl.gz"):
        make_trainer(data, tmp_path / "exp", tokenizer, max_steps=1)


def test_weights_of_another_model(corpus_dir, tokenizer, tmp_path):
    """Those of the same shape are the start; others are refused by the options that differ."""
    make_trainer(corpus_dir, tmp_path / "full", tokenizer, kind("full")).run()
    tokenizer.save(tmp_path / "full" / "lang")  # as the program does
    start = str(tmp_path / "full")
    options = {"max_steps": 1, "init_from": start}
    trainer = make_trainer(
        corpus_dir, tmp_path / "E1", tokenizer, kind("prob_sparse"), **options
    )
    saved = load_experiment(start).model.state_dict()
    assert all(torch.equal(v, saved[k]) for k, v in trainer.model.state_dict().items())
    with pytest.raises(
        UserError,
        match="model.encoder.attention.kind is full there and rel_pos here$",
    ):
        make_trainer(
            corpus_dir, tmp_path / "rel", tokenizer, kind("rel_pos"), **options
        )


def test_what_attention_counts_is_shown(corpus_dir, tokenizer, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = {"max_steps": 2, "tensorboard": True}
    make_trainer(corpus_dir, tmp_path / "exp", tokenizer, kind("lmla"), **options).run()
    events = EventAccumulator(str(tmp_path / "exp" / "tensorboard"))
    events.Reload()
    (first, *_) = events.Scalars("attention/small_divisors")
    assert first.value == 0


def kind(name):
    """A change of the configuration to a mechanism."""

    def change(config):
        config.model.encoder.attention.kind = name

    return change


def test_phones_train_the_inner_head(corpus_dir, tokenizer, tmp_path):
    from icefall_attn.data.lexicon import LexiconTokenizer
    from icefall_attn.data.loader import eval_loader

    phones = LexiconTokenizer({"ONE": ["W", "AH", "N"], "TWO": ["T", "UW"]})
    phones.save(tmp_path / "phones")

    def change(config):
        config.data.lexicon_dir = str(tmp_path / "phones")
        config.model.encoder.num_layers = 2
        config.model.inter_ctc_layer = 1
        config.model.inter_ctc_vocab_size = phones.vocab_size

    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, change, max_steps=3)
    head = trainer.model.inter_ctc_head
    assert head.out_features == phones.vocab_size != tokenizer.vocab_size
    batch = next(
        iter(
            eval_loader(trainer.config.data.train_cuts, trainer.config.data, tokenizer)
        )
    )
    trainer._step([batch])
    said = {i for text in batch.texts for i in phones.encode(text)}
    raised = (head.bias.grad < 0).nonzero().flatten().tolist()
    assert (
        set(raised) <= said | {0} and set(raised) & said
    )  # labels that were not said only fall
    trainer.run()
    again = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, change, max_steps=3)
    assert again.progress.step == 3
    LexiconTokenizer({"ONE": ["W", "AH", "M"], "TWO": ["T", "UW"]}).save(
        tmp_path / "phones"
    )
    with pytest.raises(UserError, match="other phones"):
        make_trainer(corpus_dir, tmp_path / "exp", tokenizer, change, max_steps=3)


def test_accumulated_gradient_is_that_of_one_large_batch(
    corpus_dir, tokenizer, tmp_path
):
    from icefall_attn.data.loader import eval_loader
    from icefall_attn.training.usable import select

    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer)
    data = trainer.config.data
    batch = next(iter(eval_loader(data.train_cuts, data, tokenizer)))
    assert len(batch.ids) >= 4
    parts = [select(batch, [0]), select(batch, list(range(1, len(batch.ids))))]
    whole = gradient(trainer, [batch])
    torch.testing.assert_close(gradient(trainer, parts), whole, rtol=1e-4, atol=1e-5)
    # doubling a batch changes nothing: the loss is a mean over frames
    torch.testing.assert_close(
        gradient(trainer, [batch, batch]), whole, rtol=1e-4, atol=1e-5
    )


def test_non_finite_gradient_leaves_the_weights(corpus_dir, tokenizer, tmp_path):
    from icefall_attn.data.loader import eval_loader

    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer)
    data = trainer.config.data
    batch = next(iter(eval_loader(data.train_cuts, data, tokenizer)))
    before = {k: v.clone() for k, v in trainer.model.named_parameters()}
    weight = trainer.model.encoder.subsampling.linear.weight
    hook = weight.register_hook(lambda grad: grad * float("nan"))
    trainer._step([batch, batch])
    assert trainer.progress.skipped_steps == 1
    for name, value in trainer.model.named_parameters():
        assert torch.equal(value, before[name]), name
    hook.remove()
    trainer._step([batch])
    assert torch.isfinite(torch.cat([v.grad for v in trainer.optimizer.vectors])).all()
    assert not torch.equal(weight, before["encoder.subsampling.linear.weight"])
    weight.register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(UserError, match="20 steps in a row"):
        for _ in range(20):
            trainer._step([batch])


@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_one_broken_utterance_costs_only_itself(
    corpus_dir, tokenizer, tmp_path, garbage
):
    """With the real model and batch norm: its running statistics stay finite too."""
    from icefall_attn.data.loader import eval_loader

    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer)
    data = trainer.config.data
    batch = next(iter(eval_loader(data.train_cuts, data, tokenizer)))
    batch.features[1, 5, 3] = garbage
    trainer._step([batch])
    assert trainer.progress.dropped == 1 and trainer.progress.skipped_steps == 0
    assert all(
        torch.isfinite(value).all() for value in trainer.model.state_dict().values()
    )
    features = batch.features.clone()
    trainer.model.train()
    trainer.model.encode(features, batch.feature_lengths)  # past the filter
    assert all(
        torch.isfinite(value).all() for value in trainer.model.state_dict().values()
    )


def test_a_broken_model_is_never_the_best(corpus_dir, tokenizer, tmp_path):
    from icefall_attn.training.validation import validate

    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer)
    with torch.no_grad():
        trainer.model.joiner.output.weight.fill_(float("nan"))
    result = validate(trainer.model, tokenizer, trainer.config, trainer.device)
    assert result.loss == float("inf")


def test_validation_is_deterministic(corpus_dir, tokenizer, tmp_path):
    from icefall_attn.training.validation import validate

    trainer = make_trainer(corpus_dir, tmp_path / "exp", tokenizer)
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(
            validate(trainer.model, tokenizer, trainer.config, trainer.device)
        )
    assert results[0] == results[1]


@pytest.mark.parametrize("context", ["rsa", "chunk", "csa", "dcn"])
def test_encoders_that_can_stream_learn(corpus_dir, tokenizer, tmp_path, context):
    """With pictures; the features' running mean is learned and saved with the model."""

    def stream(config):
        config.model.feature_norm = "running"
        config.model.encoder.context.kind = context
        config.model.encoder.context.chunk.smallest = 2

    trainer = make_trainer(
        corpus_dir, tmp_path / "exp", tokenizer, stream, tensorboard=True, num_epochs=2
    )
    before = trainer.model.encoder.blocks[0].attention.key.weight.clone()
    trainer.run()
    saved = ckpt.load_checkpoint(tmp_path / "exp/epoch-2.pt")["model"]
    assert not torch.equal(saved["encoder.blocks.0.attention.key.weight"], before)
    assert all(torch.isfinite(value).all() for value in saved.values())
    assert saved["feature_norm.mean"].abs().min() > 0


def test_tensorboard_and_pictures(corpus_dir, tokenizer, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    make_trainer(
        corpus_dir, tmp_path / "exp", tokenizer, max_steps=2, tensorboard=True
    ).run()
    events = EventAccumulator(str(tmp_path / "exp" / "tensorboard"))
    events.Reload()
    scalars = set(events.Tags()["scalars"])
    wanted = "total simple pruned ctc learning_rate grad_norm data_wait_share encoder_frames_per_second"
    wanted = {
        f"train/{name}" for name in wanted.split() + ["padding_share", "memory_gib"]
    }
    assert wanted | {"valid/loss", "valid/wer", "grad_norm_clipped/encoder"} <= scalars
    assert set(events.Tags()["images"]) == {"attention", "lattice"}
