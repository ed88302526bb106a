"""The transducer: encoder, predictor, joiner, and the heads that only training uses."""

from dataclasses import dataclass, field
from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.encoder.conformer import Conformer, ConformerConfig
from icefall_attn.encoder.stream import EncoderState
from icefall_attn.nn.normalize import FeatureNorm, NormState
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.pruned import pruned_transducer_loss
from icefall_attn.transducer.joiner import Joiner
from icefall_attn.transducer.predictor import BLANK_ID, PredictorConfig, make_predictor


@dataclass
class TransducerConfig:
    """The model.

    Attributes:
      encoder: the Conformer.
      predictor: the prediction network.
      joiner_dim: width of the joint network.
      feature_norm: ``utterance`` takes each utterance's mean from its features, ``running`` the mean of the
        frames so far (for streams), or ``none``.
      ctc: add a CTC head on the encoder (an auxiliary loss; it makes small corpora start).
      inter_ctc_layer: a second CTC head after this block; 0 for none.
      inter_ctc_vocab_size: its labels with blank, if they are not the tokens (phones of
        ``data.lexicon_dir``, from which it is taken); 0 for the tokens.
      vocab_size: tokens with blank; 0 takes it from the tokenizer.
    """

    encoder: ConformerConfig = field(default_factory=ConformerConfig)
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    joiner_dim: int = 512
    feature_norm: str = "utterance"
    ctc: bool = False
    inter_ctc_layer: int = 0
    inter_ctc_vocab_size: int = 0
    vocab_size: int = 0

    def __post_init__(self):
        if self.feature_norm not in FeatureNorm.KINDS:
            raise ValueError(
                f"model.feature_norm must be one of {', '.join(FeatureNorm.KINDS)}, "
                f"not {self.feature_norm!r}"
            )
        context = self.encoder.context.kind
        if self.feature_norm == "utterance" and context != "full":
            raise ValueError(
                f"model.feature_norm=utterance needs whole utterances, which context.kind={context} does "
                "without; choose running or none"
            )
        if not 0 <= self.inter_ctc_layer < self.encoder.num_layers:
            raise ValueError(
                f"model.inter_ctc_layer must be below num_layers={self.encoder.num_layers}, "
                f"not {self.inter_ctc_layer}"
            )


class Losses(NamedTuple):
    """Losses per utterance, each ``(B,)`` float32; those that are not computed are None."""

    simple: Tensor
    pruned: Tensor
    ctc: Optional[Tensor]
    distillation: Optional[Tensor] = None


class StreamState(NamedTuple):
    """What the encoder and what is before it keep of streams; see `encoder.stream`."""

    norm: Optional[NormState]
    encoder: EncoderState


class Transducer(nn.Module):
    """A Conformer transducer.

    Searches know it as `encode`, ``predictor.init_state/step`` and ``joiner``.
    """

    blank_id = BLANK_ID

    def __init__(self, config: TransducerConfig):
        super().__init__()
        if config.vocab_size < 2:
            raise ValueError(f"vocab_size must be at least 2, not {config.vocab_size}")
        self.config = config
        self.vocab_size = config.vocab_size
        dim, predictor_dim = config.encoder.dim, config.predictor.dim
        self.feature_norm = FeatureNorm(config.feature_norm, config.encoder.feature_dim)
        self.encoder = Conformer(config.encoder)
        self.predictor = make_predictor(config.vocab_size, config.predictor)
        self.joiner = Joiner(dim, predictor_dim, config.joiner_dim, config.vocab_size)
        self.simple_encoder = nn.Linear(dim, config.vocab_size)
        self.simple_predictor = nn.Linear(predictor_dim, config.vocab_size)
        self.ctc_head = nn.Linear(dim, config.vocab_size) if config.ctc else None
        self.inter_ctc_head = None
        if config.inter_ctc_layer > 0:
            labels = config.inter_ctc_vocab_size or config.vocab_size
            self.inter_ctc_head = nn.Linear(dim, labels)
        self.spec_augment: Optional[nn.Module] = None  # set by the trainer

    def encode(self, features: Tensor, lengths: Tensor) -> Tuple[Tensor, Tensor]:
        """``(B, T, F)`` features and ``(B,)`` lengths to ``(B, T', D)`` and ``(B,)``."""
        return self.encoder(self.feature_norm(features, lengths), lengths)

    def init_stream(self, batch_size: int) -> StreamState:
        """The state of ``batch_size`` streams that begin together.

        Raises:
          UserError: if the model's context is the whole utterance.
        """
        norm = None
        if self.config.feature_norm == "running":
            norm = self.feature_norm.init_state(batch_size)
        return StreamState(norm, self.encoder.init_stream(batch_size))

    def encode_step(
        self, features: Tensor, lengths: Tensor, state: StreamState, final: Tensor
    ) -> Tuple[Tensor, Tensor, StreamState]:
        """What `encode` gives, piece by piece.

        Args:
          features: ``(B, n, F)``, the next frames of each stream.
          lengths: ``(B,)``, how many of them are valid; 0 allowed.
          state: of the streams, from `init_stream`, a step, `select` or `stack_states`.
          final: ``(B,)`` bool: the stream ends here, and all that is left comes out.

        Returns:
          ``(B, m, D)``, the encoder frames that became ready, ``(B,)``, how many, and the next state.
        """
        norm = state.norm
        if norm is not None:
            features, norm = self.feature_norm.step(features, lengths, norm)
        out, ready, encoder = self.encoder.step(features, lengths, state.encoder, final)
        return out, ready, StreamState(norm, encoder)

    def forward(
        self,
        features: Tensor,
        feature_lengths: Tensor,
        labels: Tensor,
        label_lengths: Tensor,
        loss: LossConfig,
        inter_labels: Optional[Tuple[Tensor, Tensor]] = None,
    ) -> Tuple[Losses, Tensor]:
        """The training losses of a batch.

        Args:
          features: ``(B, T, F)``.
          feature_lengths: ``(B,)``.
          labels: ``(B, U)`` token ids, padding of any value.
          label_lengths: ``(B,)``, each at least 1 and at most the utterance's encoder frames.
          loss: how the losses are computed.
          inter_labels: labels ``(B, U')`` and lengths ``(B,)`` of the inner CTC head, if they are not
            the labels above.

        Returns:
          The losses and the encoder's lengths ``(B,)``.
        """
        x = self.feature_norm(features, feature_lengths)
        if self.spec_augment is not None:
            x = self.spec_augment(x, feature_lengths)
        tap = self.config.inter_ctc_layer
        outputs, lengths, distance = self.encoder.layers(
            x, feature_lengths, [tap] if tap else []
        )
        # small, and not every device has an LSTM of half precision
        with torch.autocast(labels.device.type, enabled=False):
            predicted = self.predictor(labels)
        simple, pruned = pruned_transducer_loss(
            simple_encoder=self.simple_encoder(outputs[-1]),
            simple_predictor=self.simple_predictor(predicted),
            encoder=self.joiner.project_encoder(outputs[-1]),
            predictor=self.joiner.project_predictor(predicted),
            output=self.joiner.output,
            labels=labels,
            label_lengths=label_lengths,
            lengths=lengths,
            config=loss,
        )
        terms = []
        if self.ctc_head is not None:
            logits = self.ctc_head(outputs[-1])
            terms.append(ctc_loss(logits, lengths, labels, label_lengths))
        if self.inter_ctc_head is not None:
            logits = self.inter_ctc_head(outputs[0])
            inner = (labels, label_lengths) if inter_labels is None else inter_labels
            terms.append(ctc_loss(logits, lengths, *inner))
        ctc = torch.stack(terms).mean(dim=0) if terms else None
        return Losses(simple, pruned, ctc, distance), lengths


def ctc_loss(
    logits: Tensor, lengths: Tensor, labels: Tensor, label_lengths: Tensor
) -> Tensor:
    """CTC of ``(B, T', V)`` logits per utterance, ``(B,)``, in float32.

    0 where the labels do not fit (repeats need a blank between them).
    """
    log_probs = F.log_softmax(logits.float(), dim=-1).transpose(0, 1)
    return F.ctc_loss(
        log_probs, labels, lengths, label_lengths, BLANK_ID, "none", zero_infinity=True
    )
