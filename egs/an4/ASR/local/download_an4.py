#!/usr/bin/env python3
"""Fetches CMU AN4 (64 MB) unless it is there already.

    download_an4.py --dl-dir download

leaves DIR/an4/{etc,wav}. A download that breaks off goes on where it stopped when it is called
again. Without a network put the corpus, or `an4_sphere.tar.gz`, into DIR by other means.
"""

import http.client
import logging
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from icefall_attn.errors import UserError
from icefall_attn.program import run_program
from icefall_attn.progress import progress_bar
from prepare_an4 import find_corpus, read_file_ids

URL = "http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz"


def download_an4(dl_dir: Path, url: str = URL) -> None:
    """Sees to it that ``dl_dir`` holds the whole corpus.

    Args:
      dl_dir: where the corpus is (the directory itself or its parent), or goes to.
      url: of its archive.

    Raises:
      UserError: if it cannot be fetched, or is damaged.
    """
    try:
        corpus = find_corpus(dl_dir)
    except UserError:
        archive = dl_dir / "an4_sphere.tar.gz"
        if not archive.is_file():
            fetch(url, archive)
        unpack(archive, dl_dir)
        corpus = find_corpus(dl_dir)
    check(corpus)
    logging.info("%s holds the whole corpus", corpus)


def fetch(url: str, path: Path) -> None:
    """Downloads a file to ``path``, which appears when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})
    advice = f"call again to go on, or put the corpus into --dl-dir {path.parent}"
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            if response.status != 206:  # the server starts from the beginning
                have = 0
            total = have + int(response.headers["Content-Length"] or 0)
            _receive(response, partial, have, total)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to fetch, or too much was
            partial.unlink()
        raise UserError(f"{url} cannot be fetched: {error}; {advice}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{url} cannot be fetched: {reason}; {advice}")
    size = partial.stat().st_size
    if size != total:
        raise UserError(f"{url} broke off after {size} of {total} bytes; {advice}")
    os.replace(partial, path)


def unpack(archive: Path, directory: Path) -> None:
    """Unpacks the corpus to ``directory/an4``, which appears when it is whole."""
    temporary = directory / ".an4.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                target = (temporary / member.name).resolve()
                if temporary.resolve() not in target.parents and (
                    target != temporary.resolve()
                ):
                    raise UserError(f"{archive}: {member.name!r} points outside")
                if member.isfile() or member.isdir():
                    tar.extract(member, temporary)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(
            f"{archive} is damaged ({error}); delete it and call again, or put the corpus into"
            f" --dl-dir {directory}"
        )
    corpus = find_corpus(temporary)
    shutil.rmtree(directory / "an4", ignore_errors=True)
    os.replace(corpus, directory / "an4")
    shutil.rmtree(temporary, ignore_errors=True)


def check(corpus: Path) -> None:
    """Raises `UserError` if a file that the corpus's lists name is missing."""
    for part in ("train", "test"):
        for file_id in read_file_ids(corpus, part):
            path = corpus / "wav" / f"{file_id}.sph"
            if not path.is_file():
                raise UserError(
                    f"{path} is missing; delete {corpus} to fetch the corpus anew, or give"
                    " another --dl-dir"
                )


def _receive(response, path: Path, have: int, total: int) -> None:
    with (
        open(path, "ab" if have else "wb") as file,
        progress_bar(
            total=total or None,
            initial=have,
            unit="B",
            unit_scale=True,
            desc=path.name,
        ) as bar,
    ):
        while chunk := response.read(1 << 16):
            file.write(chunk)
            bar.update(len(chunk))


if __name__ == "__main__":
    run_program(download_an4, __doc__)
