"""Progress bars, where a person watches."""

import os
import sys
from typing import Any, Iterable, Optional

from tqdm import tqdm


def progress_bar(
    iterable: Optional[Iterable] = None, shown: bool = True, **options: Any
) -> tqdm:
    """A tqdm bar on stderr, shown if that is a terminal or leads to one.

    The stderr of a recipe's stage is a pipe; where tools/recipe.sh passes the bars in it on to a
    terminal, it sets ``ICEFALL_ATTN_PROGRESS=1``.

    Args:
      iterable: what to count, if not by hand.
      shown: False for a process that is not to show one.
      options: of tqdm.
    """
    seen = sys.stderr.isatty() or os.environ.get("ICEFALL_ATTN_PROGRESS") == "1"
    return tqdm(iterable, file=sys.stderr, disable=not (shown and seen), **options)
