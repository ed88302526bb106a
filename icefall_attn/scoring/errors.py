"""Error rates of a corpus."""

import math
from dataclasses import dataclass
from typing import Dict, List, Mapping, Tuple

import kaldialign

from icefall_attn.errors import UserError

#: The empty side of an insertion or a deletion in an alignment; no word is empty.
EPSILON = ""


@dataclass
class Utterance:
    """One aligned utterance.

    Args:
      id: of the cut.
      ref: reference units (words or characters).
      hyp: recognised units; empty if there was no hypothesis.
      alignment: pairs (ref, hyp), the empty string where one side has nothing.
      missing: True if there was no hypothesis for this utterance.
    """

    id: str
    ref: List[str]
    hyp: List[str]
    alignment: List[Tuple[str, str]]
    missing: bool = False


@dataclass
class Score:
    """Errors of a corpus; ``substitutions + deletions + correct == reference units``.

    Args:
      unit: ``word`` or ``char``.
      utterances: in the order of the references.
      correct, substitutions, deletions, insertions: counts over the corpus.
    """

    unit: str
    utterances: List[Utterance]
    correct: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def ref_units(self) -> int:
        """N, the number of words (or characters) of all references."""
        return self.correct + self.substitutions + self.deletions

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def missing(self) -> List[str]:
        """Ids of utterances without a hypothesis; all their words count as deleted."""
        return [u.id for u in self.utterances if u.missing]

    @property
    def rate(self) -> float:
        """100 * errors / N in percent; without any reference word 0 or infinite."""
        if self.ref_units == 0:
            return math.inf if self.errors else 0.0
        return 100.0 * self.errors / self.ref_units

    @property
    def name(self) -> str:
        """``WER`` or ``CER``."""
        return {"word": "WER", "char": "CER"}[self.unit]

    def console_line(self, label: str) -> str:
        """icefall's line: ``[test-greedy_search] %WER 5.30% [41 / 773, 5 ins, ...]``."""
        return (
            f"[{label}] %{self.name} {self.rate:.2f}% [{self.errors} / {self.ref_units}, "
            f"{self.insertions} ins, {self.deletions} del, {self.substitutions} sub ]"
        )


def score(
    references: Mapping[str, str], hypotheses: Mapping[str, str], unit: str = "word"
) -> Score:
    """Aligns every reference with its hypothesis and counts the errors of the corpus.

    The rate is errors over reference words of the whole corpus, not a mean of the
    utterances' rates; inserted words are not counted in N.

    Args:
      references: text by utterance id.
      hypotheses: text by utterance id; an utterance that is missing here counts as
        deleted and is listed in `Score.missing`.
      unit: ``word`` (separated by white space) or ``char`` (white space removed).

    Raises:
      UserError: a hypothesis without a reference; an unknown unit.
    """
    unknown = [id for id in hypotheses if id not in references]
    if unknown:
        raise UserError(f"hypothesis for '{unknown[0]}', which has no reference")
    result = Score(unit, [])
    for id, text in references.items():
        ref = split_units(text, unit)
        hyp = split_units(hypotheses.get(id, ""), unit)
        alignment = kaldialign.align(ref, hyp, EPSILON)
        missing = id not in hypotheses
        result.utterances.append(Utterance(id, ref, hyp, alignment, missing))
        for ref_unit, hyp_unit in alignment:
            if ref_unit == hyp_unit:
                result.correct += 1
            elif ref_unit == EPSILON:
                result.insertions += 1
            elif hyp_unit == EPSILON:
                result.deletions += 1
            else:
                result.substitutions += 1
    return result


def split_units(text: str, unit: str) -> List[str]:
    """Words, or characters without white space, of a text."""
    words = text.split()
    if unit == "word":
        return words
    if unit == "char":
        return list("".join(words))
    raise UserError(f"unit must be 'word' or 'char', not '{unit}'")


def counts_by_pair(result: Score) -> Dict[Tuple[str, str], int]:
    """How often each (ref, hyp) pair was aligned, equal ones included."""
    counts: Dict[Tuple[str, str], int] = {}
    for utterance in result.utterances:
        for pair in utterance.alignment:
            counts[pair] = counts.get(pair, 0) + 1
    return counts
