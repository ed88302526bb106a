"""What goes wrong in downloads, in one line."""

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from icefall_attn.errors import UserError


@contextmanager
def downloading(what: str, where: Path) -> Iterator[None]:
    """Turns whatever stops one of lhotse's downloads into a `UserError` that tells the way out.

    Args:
      what: is fetched.
      where: it lies afterwards, and can be put by other means.
    """
    logging.info("fetching %s to %s", what, where)
    try:
        yield
    except Exception as error:  # of the network, the archive or the disk
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"cannot fetch {what}: {reason}; run this again to go on, or put it by other means"
            f" into {where}"
        ) from None
