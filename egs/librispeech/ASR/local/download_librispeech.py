#!/usr/bin/env python3
"""Fetches parts of LibriSpeech unless they are there already.

    download_librispeech.py --dl-dir download --parts train-clean-100 dev-clean test-clean

leaves DIR/LibriSpeech/PART. A download that breaks off goes on where it stopped when it is called
again. A part that was put there by other means is taken as it is.
"""

import logging
from pathlib import Path
from typing import List

from lhotse.recipes import download_librispeech

from icefall_attn.data.download import downloading
from icefall_attn.errors import UserError
from icefall_attn.program import run_program
from prepare_librispeech import check_parts, find_corpus


def download(dl_dir: Path, parts: List[str]) -> None:
    """Fetches what is missing.

    Args:
      dl_dir: where the corpus is (the directory itself or its parent), or goes to.
      parts: of the corpus, such as dev-clean.

    Raises:
      UserError: if it cannot be fetched.
    """
    check_parts(parts)
    if dl_dir.name == "LibriSpeech" and not (dl_dir / "LibriSpeech").exists():
        dl_dir = dl_dir.absolute().parent  # the directory itself was named
    for part in parts:
        if is_there(dl_dir, part):
            logging.info("%s is there", part)
            continue
        with downloading(f"LibriSpeech's {part}", dl_dir / "LibriSpeech" / part):
            download_librispeech(dl_dir, part)


def is_there(dl_dir: Path, part: str) -> bool:
    """Whether a part is unpacked: its archive, as long as it is beside it, must have been unpacked to the end."""
    try:
        directory = find_corpus(dl_dir) / part
    except UserError:
        return False
    by_us = (dl_dir / f"{part}.tar.gz").exists()
    return directory.is_dir() and (not by_us or (directory / ".completed").exists())


if __name__ == "__main__":
    run_program(download, __doc__)
