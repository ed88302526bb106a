#!/usr/bin/env python3
"""Statistics of cuts that a person reads.

    describe_data.py --cuts data/fbank/an4_cuts_train.jsonl.gz [more] --lang-dir data/lang

Copies of an utterance at other speeds count in utterances and hours, but not in speakers and words.
"""

from array import array
from collections import Counter
from pathlib import Path
from typing import List

import numpy as np

from icefall_attn.data.corpus import open_corpus
from icefall_attn.data.features import FRAME_SHIFT
from icefall_attn.data.tokenizer import UNK_ID, Tokenizer, load_tokenizer
from icefall_attn.nn.lengths import subsampled
from icefall_attn.program import run_program

SHARES = (0, 0.01, 0.1, 0.5, 0.9, 0.99, 1)


def describe_data(cuts: List[str], lang_dir: Path) -> None:
    """Prints them.

    Args:
      cuts: files of cuts with features.
      lang_dir: of the tokens.
    """
    tokenizer = load_tokenizer(lang_dir)
    print(f"{lang_dir}: {tokenizer.vocab_size} tokens")
    for path in cuts:
        print("\n".join(describe(path, tokenizer)))


def describe(path: str, tokenizer: Tokenizer) -> List[str]:
    """The lines about one file of cuts."""
    # Not lists: files may have millions of utterances.
    durations, lengths, density = array("d"), array("l"), array("d")
    speakers: Counter = Counter()
    words: Counter = Counter()
    unknown = too_long = copies = 0
    for cut in open_corpus(path):
        supervision = cut.supervisions[0]
        text = supervision.text or ""
        tokens = tokenizer.encode(text)
        frames = subsampled(round(cut.duration / FRAME_SHIFT))
        durations.append(cut.duration)
        lengths.append(len(tokens))
        density.append(len(tokens) / max(1, frames))
        unknown += tokens.count(UNK_ID)
        too_long += len(tokens) > frames
        if "_sp" in cut.id and cut.id.rsplit("_sp", 1)[1].replace(".", "").isdigit():
            copies += 1
        else:
            speakers[supervision.speaker] += 1
            words.update(text.split())
    hours = sum(durations) / 3600
    lines = [
        "",
        path,
        f"  utterances        {len(durations)}"
        + (f", {copies} of them copies at another speed" if copies else ""),
        f"  hours             {hours:.2f}",
        f"  speakers          {len(speakers)}, {min(speakers.values(), default=0)}"
        f" to {max(speakers.values(), default=0)} utterances each",
        f"  words             {sum(words.values())}, {len(words)} different",
        "  shares            " + "".join(f"{f'{s:.0%}':>8}" for s in SHARES),
        "  seconds           " + _row(durations, ".2f"),
        "  tokens            " + _row(lengths, "d"),
        "  tokens per frame  " + _row(density, ".2f"),
        f"  unknown tokens    {unknown}",
        f"  more tokens than encoder frames: {too_long} utterances",
    ]
    if words:
        common = ", ".join(f"{word} {n}" for word, n in words.most_common(8))
        lines.append(f"  most frequent     {common}")
    return lines


def _row(values: array, form: str) -> str:
    """The values below which the given shares of all lie."""
    picked = np.quantile(values, SHARES, method="nearest").tolist()
    return "".join(f"{format(value, form):>8}" for value in picked)


if __name__ == "__main__":
    run_program(describe_data, __doc__)
