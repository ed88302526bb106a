"""Pictures for TensorBoard: what attention looks at, and where the lattice is alive."""

from typing import Dict, List

import torch
from torch import Tensor, nn

from icefall_attn.data.batch import Batch
from icefall_attn.encoder.maps import attention_maps
from icefall_attn.rnnt.arcs import close, smoothed_arcs
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.lattice import choose_backend
from icefall_attn.rnnt.lattice import occupation as arc_occupation
from icefall_attn.training.objective import pad_labels
from icefall_attn.training.usable import select


@torch.no_grad()
def draw(model: nn.Module, batch: Batch, loss: LossConfig) -> Dict[str, object]:
    """Matplotlib figures by name, of the batch's first utterance; nothing changes in the model."""
    was_training = model.training
    model.eval()
    batch = select(batch, [0])
    figures = {"lattice": _lattice_figure(occupation(model, batch, loss), batch.ids[0])}
    features = model.feature_norm(batch.features, batch.feature_lengths)
    maps = attention_maps(model.encoder, features, batch.feature_lengths)
    figures["attention"] = _attention_figure([each[0].float().cpu() for each in maps])
    model.train(was_training)
    return figures


def occupation(model: nn.Module, batch: Batch, loss: LossConfig) -> Tensor:
    """How probable it is to be after u labels at frame t, by the simple joiner: ``(U + 1, T')``."""
    labels, label_lengths = pad_labels(batch.tokens, batch.features.device)
    encoder_out, lengths = model.encode(batch.features, batch.feature_lengths)
    am = model.simple_encoder(encoder_out).float()
    lm = model.simple_predictor(model.predictor(labels)).float()
    px, py = smoothed_arcs(am, lm, labels, label_lengths, loss)
    px, py = close(px, py, lengths, loss)
    backend = choose_backend(loss.backend, am.device.type)
    _, _, blank_arcs = arc_occupation(px, py, label_lengths, lengths, backend)
    return blank_arcs[0].cpu()


def _attention_figure(maps: List[Tensor]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.5 * len(maps), 3), constrained_layout=True)
    for index, (axes, weight) in enumerate(
        zip(figure.subplots(1, len(maps), squeeze=False)[0], maps)
    ):
        axes.imshow(weight.mean(dim=0), aspect="auto", interpolation="nearest")
        axes.set_title(f"block {index + 1}, mean of heads", fontsize=8)
        axes.set_xlabel("key (40 ms)", fontsize=8)
    return figure


def _lattice_figure(blank_arcs: Tensor, name: str):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), constrained_layout=True)
    axes = figure.subplots()
    axes.imshow(blank_arcs, aspect="auto", origin="lower", interpolation="nearest")
    axes.set_title(f"occupation of {name}", fontsize=8)
    axes.set_xlabel("encoder frame (40 ms)")
    axes.set_ylabel("labels emitted")
    return figure
