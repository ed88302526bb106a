"""The command line and the files that describe a run."""

from pathlib import Path

import pytest
import yaml

from icefall_attn.attention import MECHANISMS
from icefall_attn.config import RunConfig, from_dict, parse, save_yaml, to_dict
from icefall_attn.encoder.latency import latency
from icefall_attn.errors import UserError
from icefall_attn.transducer.model import Transducer

ROOT = Path(__file__).parents[1]


def test_defaults_survive_a_dictionary():
    config = RunConfig()
    assert from_dict(RunConfig, to_dict(config)) == config


def test_later_values_win(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(
        "train:\n  seed: 7\nmodel:\n  encoder:\n    dim: 96\n    num_layers: 3\n"
    )
    config = parse(RunConfig, ["--config", str(path), "--model.encoder.dim", "64"])
    assert (config.train.seed, config.model.encoder.dim) == (7, 64)
    assert config.model.encoder.num_layers == 3


def test_dashes_and_equals_signs():
    config = parse(RunConfig, ["--exp-dir=a-b", "--train.max-steps", "5"])
    assert (config.exp_dir, config.train.max_steps) == ("a-b", 5)


def test_options_of_a_mechanism_are_on_the_command_line():
    arguments = ["--model.encoder.attention.kind", "rel_pos"]
    arguments += ["--model.encoder.attention.rel_pos.legacy_symmetric", "true"]
    attention = parse(RunConfig, arguments).model.encoder.attention
    assert attention.kind == "rel_pos" and attention.rel_pos.legacy_symmetric is True
    assert set(to_dict(attention)) <= {"kind", *MECHANISMS}


def test_a_saved_file_gives_the_same_run(tmp_path):
    config = parse(
        RunConfig, ["--optim.lr", "3e-3", "--model.encoder.attention.kind", "full"]
    )
    save_yaml(config, tmp_path / "config.yaml")
    assert parse(RunConfig, ["--config", str(tmp_path / "config.yaml")]) == config
    plain = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert plain["optim"]["lr"] == 3e-3


ATTENTION = "--model.encoder.attention"
COMBINED = [f"{ATTENTION}.kind"]
CAUSAL = ["--model.encoder.context.kind", "causal"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            ["--model.encoder.attention.kind", "none"],
            "attention.kind must be one of ",
        ),
        (["--train.num_layer", "3"], "--train.num_layer"),
        (["--optim.lr", "fast"], "fast"),
        (["--train.accumulate", "0"], "train.accumulate must be at least 1, not 0"),
        (["--model.encoder.dim", "10"], "not 10"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--model.encoder.conv_norm", "group"], "'group'"),
        (
            ["--model.encoder.num_layers", "0"],
            "encoder.num_layers must be at least 1, not 0",
        ),
        (["--spec_augment.probability", "3"], "spec_augment.probability"),
        (["--loss.simple_scale", "-1"], "loss.simple_scale"),
        (["--loss.backend", "cuda"], "'cuda'"),
        (["--model.encoder.context.kind", "past"], "'past'"),
        (CAUSAL, "feature_norm=utterance needs whole utterances"),
        (
            COMBINED + ["prob_sparse", *CAUSAL],
            "attention.kind=prob_sparse: which of its queries attend depends",
        ),
        (
            COMBINED + ["prob_sparse", f"{ATTENTION}.prob_sparse.n_share", "16"],
            "n_share=16 layers, but there are num_layers=12",
        ),
        (
            COMBINED + ["lmla", f"{ATTENTION}.lmla.max_length", "500"],
            "data.max_utterance=30 s is longer than the 500 frames",
        ),
        (COMBINED + ["cosformer", *CAUSAL], "set period to the longest length"),
        (COMBINED + ["lbla", *CAUSAL], "set period to the longest length"),
        (COMBINED + ["m_ape", *CAUSAL], "set period to the longest length"),
        (
            COMBINED + ["lmla", f"{ATTENTION}.lmla.beyond", "interpolate", *CAUSAL],
            "use clamp",
        ),
    ],
)
def test_mistakes_are_one_line_that_names_them(arguments, words):
    with pytest.raises(UserError) as error:
        parse(RunConfig, arguments)
    message = str(error.value)
    assert words in message and "\n" not in message


def test_unknown_names_in_a_checkpoint_are_refused():
    values = to_dict(RunConfig())
    values["model"]["encoder"]["flux"] = 1
    with pytest.raises(UserError, match="'flux' for ConformerConfig"):
        from_dict(RunConfig, values)


@pytest.mark.parametrize("path", sorted(ROOT.glob("egs/*/ASR/conf/*.yaml")), ids=str)
def test_files_of_the_recipes_are_sound(path):
    config = parse(RunConfig, ["--config", str(path)])
    assert config.data.train_cuts and config.data.valid_cuts


def test_the_encoder_takes_the_features_of_the_data():
    pitch = ["--data.features", "fbank_pitch"]
    with pytest.raises(
        UserError, match="feature_dim=80 but .* has 83 .*; set it to 83"
    ):
        parse(RunConfig, pitch)
    config = parse(RunConfig, [*pitch, "--model.encoder.feature_dim", "83"])
    assert from_dict(RunConfig, to_dict(config)) == config


# Tokens, and parameters in millions of encoder, predictor and joiner in the paper's sizes.
SOURCES = {
    "aishell/ASR/conf/prob_sparse.yaml": (4231, 30.20),
    "librispeech/ASR/conf/prob_sparse.yaml": (5000, 30.79),
}


@pytest.mark.parametrize("path", SOURCES)
def test_configurations_of_the_prob_sparse_paper(path):
    """16 x 256, FF 1024, 4 heads, kernel 3, absolute positions, LSTM 256, joint 512, 83 features."""
    config = parse(RunConfig, ["--config", str(ROOT / "egs" / path)])
    assert config.data.features == "fbank_pitch"
    config.model.vocab_size, millions = SOURCES[path]
    model = Transducer(config.model)
    parts = [model.encoder, model.predictor, model.joiner]
    total = sum(p.numel() for part in parts for p in part.parameters())
    assert round(total / 1e6, 2) == millions
    assert (
        config.optim.rate(config.optim.warm_steps, 0) == 1e-3
        and config.optim.clip_norm == 5.0
    )


def test_configuration_of_the_lmec_paper():
    """12 x 256, 4 heads, kernel 15, gated feed-forward of 2/3 x 2048, AdamW 1e-3, warm-up 10000, cosine."""
    path = ROOT / "egs/librispeech/ASR/conf/lmec.yaml"
    config = parse(RunConfig, ["--config", str(path)])
    config.model.vocab_size = 5000
    blocks = Transducer(config.model).encoder.blocks
    d, h, k = 256, 1365, 15
    norm = 2 * d
    gated = norm + 2 * (d * h + h) + h * d + d
    attention = norm + 4 * (d * d + d) + 2000 * (d // 4)
    convolution = norm + 2 * (d * d + d) + d * k + d + norm + d * d + d
    assert sum(p.numel() for p in blocks[0].parameters()) == (
        2 * gated + attention + convolution + norm
    )
    assert len(blocks) == 12
    rate = config.optim.rate
    assert rate(10000, config.train.max_steps) == 1e-3
    assert rate(config.train.max_steps, config.train.max_steps) < 1e-8


def test_configuration_of_the_dcn_paper():
    """270 ms of latency, 16 past frames in the convolution; two streams that share all but the norms."""
    path = str(ROOT / "egs/librispeech/ASR/conf/dcn.yaml")

    def encoder_of(*options):
        config = parse(RunConfig, ["--config", path, *options])
        config.model.vocab_size = 5000
        return config, Transducer(config.model).encoder

    def size(encoder):
        return sum(p.numel() for p in encoder.parameters())

    config, dual = encoder_of()
    assert latency(config.model.encoder).most == 270.0
    assert (
        config.model.encoder.kernel_size == 17 and config.loss.distillation_scale == 1
    )
    _, causal = encoder_of("--model.encoder.context.kind", "causal")
    norms = 12 * 6 * 2 * 256  # five LayerNorms and the convolution's norm in each block
    assert size(dual) - size(causal) == norms
    _, transformer = encoder_of("--model.encoder.convolution", "false")
    convolution = 2 * (256**2 + 256) + 256 * 17 + 256 + 256**2 + 256
    convolution += 2 * 2 * 2 * 256  # its two norms, of two streams
    assert size(dual) - size(transformer) == 12 * convolution
