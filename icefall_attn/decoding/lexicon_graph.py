"""Compiles LG = determinised lexicon o grammar, with k2 and kaldilm."""

import logging
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from icefall_attn.data.tokenizer import UNK_ID, WORD_BOUNDARY, CharTokenizer, Tokenizer
from icefall_attn.decoding.word_graph import WordGraph
from icefall_attn.errors import UserError
from icefall_attn.ngram.arpa import open_arpa, read_words

#: Takes the grammar's ways to shorter histories through the lexicon.
_BACKOFF = "#0"


def compile_word_graph(arpa: Path, tokenizer: Tokenizer) -> WordGraph:
    """Makes the graph of all sentences of an n-gram model, spelled by a tokenizer.

    Words that the tokens cannot spell are left out, and the n-grams that have one with them.
    As in icefall, a word has all its ways through the grammar: its n-gram, and by backing off.
    Where the model is interpolated the former is never less probable, so that the best path
    has the model's probability; sums over paths count the others, too.

    Args:
      arpa: the model, plain or gzipped.
      tokenizer: the tokens of the transducer.

    Raises:
      UserError: no ARPA file, no word that can be spelled; kaldilm or k2 missing.
    """
    k2 = _import_compilers()
    with open_arpa(arpa) as file:
        every = read_words(file, arpa)
    lexicon = spell(every, tokenizer)
    if not lexicon:
        raise UserError(
            f"the tokens cannot spell any of the {len(every)} words of {arpa}"
        )
    left_out = [word for word in every if word not in lexicon]
    logging.info(
        "%d words; %d left out that the tokens cannot spell%s",
        len(lexicon),
        len(left_out),
        ": " + " ".join(left_out[:10]) if left_out else "",
    )
    words = ["<eps>", *lexicon]
    boundary = None
    if isinstance(tokenizer, CharTokenizer) and WORD_BOUNDARY in tokenizer.tokens:
        boundary = tokenizer.tokens.index(WORD_BOUNDARY)
    first_symbol = tokenizer.vocab_size
    rows = lexicon_arcs(list(lexicon.values()), first_symbol, boundary)
    lexicon_fst = k2.Fsa(
        torch.tensor([row[:4] for row in rows], dtype=torch.int32),
        aux_labels=torch.tensor([row[4] for row in rows], dtype=torch.int32),
    )
    grammar = k2.Fsa.from_openfst(_grammar(arpa, words), acceptor=False)
    logging.info("L has %d arcs, G %d", lexicon_fst.num_arcs, grammar.num_arcs)

    graph = k2.connect(k2.compose(k2.arc_sort(lexicon_fst), k2.arc_sort(grammar)))
    logging.info("LG has %d arcs before it is determinised", graph.num_arcs)
    graph = k2.connect(k2.determinize(graph))
    labels = graph.labels.clone()
    labels[labels >= first_symbol] = 0
    graph.labels = labels
    graph = k2.arc_sort(k2.connect(k2.remove_epsilon(graph)))
    if graph.num_arcs == 0:
        raise UserError(f"{arpa} has no sentence that the tokens can spell")
    spoken = graph.aux_labels.remove_values_leq(0)
    logging.info("LG has %d states and %d arcs", graph.shape[0], graph.num_arcs)
    return WordGraph(
        graph.arcs.values().clone(),
        spoken.shape.row_splits(1).clone(),
        spoken.values.clone(),
        words,
        list(tokenizer.tokens),
    )


def spell(words: Sequence[str], tokenizer: Tokenizer) -> Dict[str, List[int]]:
    """The tokens of each word that they can spell."""
    spelled = {word: tokenizer.encode(word) for word in words}
    return {w: ids for w, ids in spelled.items() if ids and UNK_ID not in ids}


def lexicon_arcs(
    spellings: Sequence[Sequence[int]], first_symbol: int, boundary: Optional[int]
) -> List[Tuple[int, int, int, int, int]]:
    """L: sequences of words as sequences of tokens.

    Words that are spelled alike, or like the beginning of another, end in a symbol of their
    own, so that LG can be determinised: ``first_symbol + 1`` and up. ``first_symbol`` itself
    is the grammar's backing off, which may happen after every word and at the start.

    Args:
      spellings: tokens of the words 1, 2, ...
      first_symbol: the first id that is no token.
      boundary: the token between two words, if there is one.

    Returns:
      (source, destination, token, 0, word or 0) by rising source; the last state is final.
    """
    # `after` a word comes `before` the next; without boundaries these are one state, and it
    # is the start as well.
    start, after, before = (0, 0, 0) if boundary is None else (0, 1, 2)
    rows = []
    state = before
    for word, tokens in enumerate(disambiguate(spellings, first_symbol + 1), 1):
        source, said = None, word
        for position, token in enumerate(tokens):
            state += 1
            last = position == len(tokens) - 1
            destination = after if last else state
            for origin in {start, before} if position == 0 else (source,):
                rows.append((origin, destination, token, 0, said))
            source, said = state, 0
    final = state + 1
    # In the grammar the symbol of backing off comes after all words.
    backoff = len(spellings) + 1
    for each in {start, after}:
        rows.append((each, each, first_symbol, 0, backoff))
        rows.append((each, final, -1, 0, -1))
    if boundary is not None:
        rows.append((after, before, boundary, 0, 0))
    return sorted(rows, key=lambda row: row[0])


def disambiguate(
    spellings: Sequence[Sequence[int]], first_symbol: int
) -> List[List[int]]:
    """Spellings none of which is another one or its beginning: symbols are added at the end."""
    keys = [tuple(tokens) for tokens in spellings]
    same = Counter(keys)
    beginnings = {key[:length] for key in same for length in range(1, len(key))}
    used: Counter = Counter()
    result = []
    for key in keys:
        tokens = list(key)
        if same[key] > 1 or key in beginnings:
            tokens.append(first_symbol + used[key])
            used[key] += 1
        result.append(tokens)
    return result


def _grammar(arpa: Path, words: Sequence[str]) -> str:
    """G in OpenFst's text format; backing off has the id after the last word."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "words.txt"
        lines = [f"{word} {id}\n" for id, word in enumerate([*words, _BACKOFF])]
        table.write_text("".join(lines), encoding="utf-8")
        plain = Path(folder) / "lm.arpa"
        with open_arpa(arpa) as source, open(plain, "wb") as target:
            shutil.copyfileobj(source, target)
        # A program of its own: kaldilm aborts where it does not like a file.
        program = (
            "import kaldilm, sys; print(kaldilm.arpa2fst(sys.argv[1], "
            "disambig_symbol='#0', read_symbol_table=sys.argv[2], max_arpa_warnings=0))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(plain), str(table)],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    if done.returncode != 0:
        reason = [line for line in done.stderr.splitlines() if line.startswith("[E]")]
        raise UserError(f"kaldilm refuses {arpa}: {(reason or ['it ended'])[-1]}")
    return done.stdout.strip() + "\n"


def _import_compilers():
    try:
        import k2

        import_module("kaldilm")  # used by a process of its own
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"a graph needs k2 and kaldilm, which cannot be imported ({reason}); install them"
        ) from error
    return k2
