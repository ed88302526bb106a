"""The hypotheses of a beam as tensors: candidates merged, cut and traced back."""

from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from icefall_attn.decoding.results import Hypothesis
from icefall_attn.decoding.streams import Stream


class Beams(NamedTuple):
    """What is alive of one utterance; see `Stream`."""

    hypotheses: List[Hypothesis]
    scores: Tensor
    offset: Tensor


class Beam:
    """N hypotheses of each of B utterances; row ``b * N + n`` is slot n of utterance b.

    A label sequence has a node number, one per sequence and utterance, so that equal
    sequences are recognised by comparing numbers. New labels and frames are not stored with
    the hypotheses but read back at the end from what each frame chose.

    Args:
      streams: B of them, by the falling number of frames that will be read.
      size: N.
      blank: id of blank.
      device: where the scores live.
    """

    def __init__(
        self, streams: Sequence[Stream], size: int, blank: int, device
    ) -> None:
        self.batch = len(streams)
        self.size = size
        self.blank = blank
        self.device = device
        self._streams = streams
        # A dead slot has score -inf and node -1. Scores are relative to `_offset`, so that float32
        # keeps its digits over long speech.
        dead = torch.full((size,), -torch.inf, device=device)
        self._scores = torch.stack(
            [torch.cat([s.scores, dead[len(s.scores) :]]) for s in streams]
        )
        self._offset = torch.stack([s.offset for s in streams]).unsqueeze(1)
        self._children: Dict[Tuple[int, int], int] = {}
        self._next_node = self.batch
        places = [
            [self._place(b, hypothesis.tokens) for hypothesis in stream.hypotheses]
            + [(-1, -1, blank)] * (size - len(stream.hypotheses))
            for b, stream in enumerate(streams)
        ]
        ids = torch.tensor(places, dtype=torch.int64, device=device)
        # Numbers of the sequences, of these without their last labels, and the last labels.
        self._nodes, self._parents, self._last = ids.unbind(2)
        # Per frame (slot before, token or blank), each (B_t, N), of the more probable way.
        self._history: List[Tuple[Tensor, Tensor]] = []
        self._finished: List[Tuple[Tensor, Tensor]] = []  # last utterances first

    def _place(self, root: int, tokens: Sequence[int]) -> Tuple[int, int, int]:
        """Node, parent and last label of a sequence of utterance ``root``."""
        node, parent, last = root, -1, self.blank
        for last in tokens:
            parent, node = node, self._child(node, last)
        return node, parent, last

    def _child(self, parent: int, token: int) -> int:
        node = self._children.setdefault((parent, token), self._next_node)
        self._next_node += node == self._next_node
        return node

    def advance(self, log_probs: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Reads one frame.

        Args:
          log_probs: (B, N, V) float32 of what each hypothesis may do: blank or a symbol.

        Returns:
          source (B * N,): the row each new row continues; grown (M,): the rows whose
          sequence has one more label; tokens (M,): these labels.
        """
        vocab = log_probs.shape[-1]
        ways = log_probs + self._scores.unsqueeze(-1)
        way_slot = self._merge(ways)
        scores, index = _top(ways.view(self.batch, -1), self.size)
        slot = torch.div(index, vocab, rounding_mode="floor")
        token = index - slot * vocab
        alive = scores > -torch.inf
        stayed = alive & (token == self.blank)
        grown = alive & (token != self.blank)

        # A merged sequence may have come mainly from elsewhere, by its last label.
        last = self._last.gather(1, slot)
        before = torch.where(stayed, way_slot.gather(1, slot), slot)
        self._history.append((before, torch.where(before != slot, last, token)))

        nodes = self._nodes.gather(1, slot)
        self._parents = torch.where(grown, nodes, self._parents.gather(1, slot))
        self._last = torch.where(grown, token, last)
        self._nodes = torch.where(stayed, nodes, torch.full_like(nodes, -1))
        rows = grown.view(-1).nonzero().squeeze(1)
        tokens = token.view(-1)[rows]
        self._name(rows, tokens)

        best = scores[:, :1]
        self._scores = scores - best
        self._offset = self._offset + best.double()
        base = torch.arange(self.batch, device=self.device).unsqueeze(1) * self.size
        return (base + slot).view(-1), rows, tokens

    def shrink(self, batch: int) -> None:
        """Ends the utterances at positions ``batch`` and up."""
        ended = (self._scores[batch:].flip(0), self._offset[batch:].flip(0))
        self._finished.append(ended)
        self.batch = batch
        for name in ("_scores", "_offset", "_nodes", "_parents", "_last"):
            setattr(self, name, getattr(self, name)[:batch])

    def finish(self) -> List[Beams]:
        """Ends all utterances; returns their live hypotheses, the most probable first."""
        self.shrink(0)
        scores = torch.cat([scores for scores, _ in self._finished]).flip(0)
        offsets = torch.cat([offset for _, offset in self._finished]).flip(0)
        labels, slots = self._trace(len(scores))
        beams = []
        for b, alive in enumerate((scores > -torch.inf).sum(dim=1).tolist()):
            begun, before = self._streams[b].hypotheses, self._streams[b].frames
            found = []
            for n in range(alive):
                old = begun[slots[b, n]]
                frames = np.flatnonzero(labels[:, b, n] != self.blank)
                tokens = old.tokens + labels[frames, b, n].tolist()
                found.append(
                    Hypothesis(tokens, old.frames + (frames + before).tolist())
                )
            # Nothing is alive only if the model's output was not a number.
            beams.append(
                Beams(
                    found or [Hypothesis()], scores[b, : max(alive, 1)], offsets[b, 0]
                )
            )
        return beams

    def _merge(self, ways: Tensor) -> Tensor:
        """Merges, in place, sequence j + label into the equal sequence i + blank.

        The sequences of a beam differ, so these are the only equal candidates of a frame,
        and a slot i has at most one such j.

        Args:
          ways: (B, N, V) scores of all candidates.

        Returns:
          (B, N): for slot i the slot of the more probable way, i itself or j.
        """
        own = torch.arange(self.size, device=self.device).expand(self.batch, -1)
        if self.size == 1:
            return own
        # equal[b, i, j]: sequence i is sequence j and one more label.
        equal = self._parents.unsqueeze(2) == self._nodes.unsqueeze(1)
        equal &= ((self._parents >= 0) & (self._nodes >= 0)).unsqueeze(2)
        found = equal.any(dim=2)
        other = equal.int().argmax(dim=2)
        flat = ways.view(self.batch, -1)
        vocab = ways.shape[-1]
        position = torch.where(
            found, other * vocab + self._last, own * vocab + self.blank
        )
        by_label = flat.gather(1, position).masked_fill(~found, -torch.inf)
        by_blank = ways[..., self.blank].clone()
        merged = torch.logaddexp(by_blank, by_label)
        ways[..., self.blank] = merged
        # All positions differ; where nothing was found, the blank itself is written again.
        flat.scatter_(1, position, merged.masked_fill(found, -torch.inf))
        return torch.where(by_label > by_blank, other, own)

    def _name(self, rows: Tensor, tokens: Tensor) -> None:
        """Gives the sequences in ``rows`` (M,) that grew by ``tokens`` (M,) their nodes."""
        parents = self._parents.reshape(-1)[rows].tolist()
        names = [self._child(*key) for key in zip(parents, tokens.tolist())]
        names = torch.tensor(names, dtype=torch.int64, device=self.device)
        self._nodes.view(-1)[rows] = names

    def _trace(self, batch: int) -> Tuple[np.ndarray, np.ndarray]:
        """Labels (T', B, N), blank where a frame emitted none or lies past the end.

        And (B, N), the slots in which they began.
        """
        labels = np.full((len(self._history), batch, self.size), self.blank)
        slots = np.tile(np.arange(self.size), (batch, 1))
        if not self._history:
            return labels, slots
        # One transfer from the device for all frames.
        before = torch.cat([b for b, _ in self._history]).cpu().numpy()
        tokens = torch.cat([t for _, t in self._history]).cpu().numpy()
        end = len(before)
        for t in range(len(self._history) - 1, -1, -1):
            active = len(self._history[t][0])
            frame = slice(end - active, end)
            labels[t, :active] = np.take_along_axis(tokens[frame], slots[:active], 1)
            slots[:active] = np.take_along_axis(before[frame], slots[:active], 1)
            end -= active
        return labels, slots


def _top(values: Tensor, count: int) -> Tuple[Tensor, Tensor]:
    """The ``count`` largest of each row (B, C) and their columns, falling."""
    if count == 1:
        # As greedy_search chooses, ties included.
        return values.max(dim=-1, keepdim=True)
    return values.topk(count, dim=-1)
