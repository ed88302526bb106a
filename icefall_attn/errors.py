"""Errors that are the user's to mend, told in one line."""

import errno
import sys
from typing import Callable, NoReturn

# Exit codes beside the usual ones; from sysexits.h, as batch systems know them.
RESUMABLE = 75  # stopped by request: the same command goes on from there
LOST = 76  # another process of the training has ended, and tells why


class UserError(Exception):
    """A wrong option, a missing file, a full disk: the message names the value and the way out."""


def run_main(main: Callable[[], object]) -> NoReturn:
    """Runs a program's ``main``; a `UserError` becomes one line on stderr and exit code 1."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        # A full disk, a missing file, no permission: the system's words and the path say it.
        where = f": {error.filename}" if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way_out = "; make room and run this again" if full else ""
        sys.exit(f"error: {error.strerror or error}{where}{way_out}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
