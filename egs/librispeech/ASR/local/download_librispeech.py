#!/usr/bin/env python3
"""Fetches parts of LibriSpeech unless they are there already.

    download_librispeech.py --dl-dir download --parts train-clean-100 dev-clean test-clean

leaves DIR/LibriSpeech/PART. A download that breaks off goes on where it stopped when it is called
again. A part that was put there by other means is taken as it is.
"""

import argparse
import logging
from pathlib import Path

from lhotse.recipes import download_librispeech

from icefall_attn.data.download import downloading
from icefall_attn.errors import UserError, run_main
from prepare_librispeech import check_parts, find_corpus


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dl-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the corpus is (the directory itself or its parent), or goes to",
    )
    parser.add_argument(
        "--parts", nargs="+", required=True, metavar="PART", help="such as dev-clean"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    check_parts(args.parts)
    for part in args.parts:
        if is_there(args.dl_dir, part):
            logging.info("%s is there", part)
            continue
        with downloading(f"LibriSpeech's {part}", args.dl_dir / "LibriSpeech" / part):
            download_librispeech(args.dl_dir, part)


def is_there(dl_dir: Path, part: str) -> bool:
    """Whether a part is unpacked: its archive, as long as it is beside it, must have been unpacked to the end."""
    try:
        directory = find_corpus(dl_dir) / part
    except UserError:
        return False
    by_us = (dl_dir / f"{part}.tar.gz").exists()
    return directory.is_dir() and (not by_us or (directory / ".completed").exists())


if __name__ == "__main__":
    run_main(main)
