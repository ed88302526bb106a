"""Result files in icefall's formats; written whole or not at all."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Dict, List, Mapping, Sequence, Union

from icefall_attn.decoding.results import FRAME_SECONDS, Hypothesis
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.scoring.errors import EPSILON, Score, counts_by_pair

#: How an empty side is written in ``(ref->*)`` and ``(*->hyp)``.
_NOTHING = "*"
_COLUMNS = "settings WER ins del sub ref_units missing RTF unit set model".split()


@dataclass
class Summary:
    """One line of a ``wer-summary`` file.

    Args:
      settings: method and its options.
      rate: percent.
      insertions, deletions, substitutions, ref_units, missing: counts.
      rtf: seconds of computing per second of audio.
      unit: ``word`` or ``char``.
      set_name, model: what was decoded, and with which checkpoints.
    """

    settings: str
    rate: float
    insertions: int
    deletions: int
    substitutions: int
    ref_units: int
    missing: int
    rtf: float
    unit: str
    set_name: str
    model: str


def write_recogs(path: Union[str, Path], result: Score) -> None:
    """Two lines per utterance, ``id:\\tref=['A', 'B']`` and ``id:\\thyp=['A']``."""
    with atomic_write(path) as file:
        for utterance in result.utterances:
            print(f"{utterance.id}:\tref={utterance.ref}", file=file)
            print(f"{utterance.id}:\thyp={utterance.hyp}", file=file)


def write_errs(path: Union[str, Path], result: Score) -> None:
    """Totals, aligned utterances, then substitutions, deletions, insertions and words."""
    units = {"word": "words", "char": "characters"}[result.unit]
    with atomic_write(path) as file:
        print(f"%{result.name} = {result.rate:.2f}", file=file)
        print(
            f"Errors: {result.insertions} insertions, {result.deletions} deletions, "
            f"{result.substitutions} substitutions, over {result.ref_units} reference "
            f"{units} ({result.correct} correct)",
            file=file,
        )
        if result.missing:
            print(
                f"Missing: {len(result.missing)} utterances have no hypothesis and count "
                f"as deleted: {' '.join(result.missing)}",
                file=file,
            )
        print("\nPER-UTT DETAILS: corr or (ref->hyp)", file=file)
        for utterance in result.utterances:
            words = [_show_pair(*pair) for pair in utterance.alignment]
            print(f"{utterance.id}:\t{' '.join(words)}", file=file)
        _write_statistics(file, result)


def write_summary(path: Union[str, Path], lines: Sequence[Summary]) -> None:
    """Tab-separated: ``settings`` and ``WER`` as in icefall, then counts and speed."""
    with atomic_write(path) as file:
        print("\t".join(_COLUMNS), file=file)
        for line in lines:
            values = (
                line.settings,
                f"{line.rate:.2f}",
                line.insertions,
                line.deletions,
                line.substitutions,
                line.ref_units,
                line.missing,
                f"{line.rtf:.4f}",
                line.unit,
                line.set_name,
                line.model,
            )
            print("\t".join(map(str, values)), file=file)


def read_summary(path: Union[str, Path]) -> List[Summary]:
    """Reads what `write_summary` wrote.

    Raises:
      UserError: the file has another format.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    if not lines or lines[0].split("\t") != _COLUMNS:
        raise UserError(f"{path} was not written by icefall-attn-decode")
    summaries = []
    for line in lines[1:]:
        s, rate, ins, dels, subs, units, missing, rtf, *rest = line.split("\t")
        counts = (int(ins), int(dels), int(subs), int(units), int(missing))
        summaries.append(Summary(s, float(rate), *counts, float(rtf), *rest))
    return summaries


def write_nbest(
    path: Union[str, Path],
    references: Mapping[str, str],
    hypotheses: Mapping[str, Sequence[Hypothesis]],
    tokenizer,
) -> None:
    """One JSON object per utterance: ``id``, ``ref``, ``hyps`` best first.

    Each of ``hyps`` has ``text``, ``score`` (natural log), ``tokens`` (ids), ``pieces`` (the
    tokens as they stand in tokens.txt) and ``times`` (seconds at which each was emitted); those
    of a search through a graph of words have the ``words`` that the tokens spell, too.

    Args:
      path: the file.
      references: text by utterance id; it gives the order.
      hypotheses: n-best list by utterance id; an utterance without one gets an empty list.
      tokenizer: has ``decode(ids) -> text`` and ``tokens``, all pieces by id.
    """
    with atomic_write(path) as file:
        for id, text in references.items():
            hyps = [as_json(h, tokenizer) for h in hypotheses.get(id, [])]
            line = {"id": id, "ref": text, "hyps": hyps}
            print(json.dumps(line, ensure_ascii=False), file=file)


def as_json(hypothesis: Hypothesis, tokenizer) -> Dict:
    """A hypothesis as a line of the n-best file shows it."""
    line = {
        "text": tokenizer.decode(hypothesis.tokens),
        "score": hypothesis.score,
        "tokens": hypothesis.tokens,
        "pieces": [tokenizer.tokens[token] for token in hypothesis.tokens],
        "times": [round(frame * FRAME_SECONDS, 2) for frame in hypothesis.frames],
    }
    if hypothesis.words is not None:
        line["words"] = hypothesis.words
    return line


def _show_pair(ref: str, hyp: str) -> str:
    if ref == hyp:
        return ref
    return f"({ref or _NOTHING}->{hyp or _NOTHING})"


def _write_statistics(file: IO, result: Score) -> None:
    pairs = counts_by_pair(result)
    wrong = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
    # The most frequent first, then by name, so that two runs write the same file.
    ranked = sorted(wrong.items(), key=lambda item: (-item[1], item[0]))
    print("\nSUBSTITUTIONS: count ref -> hyp", file=file)
    for (ref, hyp), count in ranked:
        if EPSILON not in (ref, hyp):
            print(f"{count}   {ref} -> {hyp}", file=file)
    print("\nDELETIONS: count ref", file=file)
    for (ref, hyp), count in ranked:
        if hyp == EPSILON:
            print(f"{count}   {ref}", file=file)
    print("\nINSERTIONS: count hyp", file=file)
    for (ref, hyp), count in ranked:
        if ref == EPSILON:
            print(f"{count}   {hyp}", file=file)

    # word -> [correct, as a wrong reference, as a wrong hypothesis]
    words: Dict[str, List[int]] = {}
    for (ref, hyp), count in pairs.items():
        if ref == hyp:
            words.setdefault(ref, [0, 0, 0])[0] += count
            continue
        if ref != EPSILON:
            words.setdefault(ref, [0, 0, 0])[1] += count
        if hyp != EPSILON:
            words.setdefault(hyp, [0, 0, 0])[2] += count
    print("\nPER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp", file=file)
    for word, (corr, as_ref, as_hyp) in sorted(
        words.items(), key=lambda item: (-item[1][1] - item[1][2], item[0])
    ):
        print(
            f"{word}   {corr} {as_ref + as_hyp} {corr + as_ref} {corr + as_hyp}",
            file=file,
        )
