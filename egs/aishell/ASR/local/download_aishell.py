#!/usr/bin/env python3
"""Fetches AISHELL-1 (15 GB) unless it is there already.

    download_aishell.py --dl-dir download

leaves DIR/aishell/data_aishell. A download that breaks off goes on where it stopped when it is
called again. A corpus that was put there by other means is taken as it is.
"""

import logging
from pathlib import Path

from lhotse.recipes import download_aishell

from icefall_attn.data.download import downloading
from icefall_attn.errors import UserError
from icefall_attn.program import run_program
from prepare_aishell import find_corpus


def download(dl_dir: Path) -> None:
    """Fetches the corpus if it is missing.

    Args:
      dl_dir: where the corpus is (the directory itself or its parent), or goes to.

    Raises:
      UserError: if it cannot be fetched.
    """
    if is_there(dl_dir):
        logging.info("%s holds the corpus", find_corpus(dl_dir))
        return
    with downloading("AISHELL-1", dl_dir / "aishell/data_aishell"):
        download_aishell(dl_dir)


def is_there(dl_dir: Path) -> bool:
    """Whether the corpus is unpacked: archives beside it must have been unpacked to the end."""
    try:
        corpus = find_corpus(dl_dir)
    except UserError:
        return False
    archives = {
        "data_aishell": corpus,
        "resource_aishell": corpus.parent / "resource_aishell",
    }
    return all(
        (directory / ".completed").exists()
        for name, directory in archives.items()
        if any(
            (place / f"{name}.tgz").exists() for place in (dl_dir, dl_dir / "aishell")
        )
    )


if __name__ == "__main__":
    run_program(download, __doc__)
