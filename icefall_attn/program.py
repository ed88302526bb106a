"""A function as a program: its parameters are the options, its docstring says what they mean."""

import argparse
import inspect
import logging
import typing
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional

import docstring_parser

from icefall_attn.errors import run_main

__all__ = ["arguments", "run_program"]


def run_program(function: Callable[..., Any], about: Optional[str]) -> NoReturn:
    """Calls ``function`` with the options of the command line and exits.

    Progress goes to stderr; a `UserError` becomes one line there and exit code 1.

    Args:
      function: see `arguments`.
      about: what ``--help`` shows on top, a module's docstring.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    run_main(lambda: function(**arguments(function, about)))


def arguments(
    function: Callable[..., Any],
    about: Optional[str] = None,
    words: Optional[List[str]] = None,
) -> Dict[str, Any]:
    """The keyword arguments that a command line gives a function.

    ``corpus_dir: Path`` is the required option ``--corpus-dir DIR``; a parameter with a default can be
    left out; ``bool`` ones, False by default, are switches; lists take several words; ``Literal``
    ones take one of the words.

    Args:
      function: every parameter has an annotation and a line under ``Args:`` of the docstring.
      about: what ``--help`` shows on top.
      words: of the command line; by default the process's own.
    """
    parser = argparse.ArgumentParser(
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    meaning = {
        entry.arg_name: " ".join((entry.description or "").split())
        for entry in docstring_parser.parse(function.__doc__ or "").params
    }
    kinds = typing.get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        parser.add_argument(
            "--" + name.replace("_", "-"),
            **_option(kinds[name], parameter.default, meaning[name].replace("%", "%%")),
        )
    return vars(parser.parse_args(words))


def _option(kind: Any, default: Any, meaning: str) -> Dict[str, Any]:
    """How argparse is told of one parameter."""
    if kind is bool:
        return {"action": "store_true", "help": meaning}
    required = default is inspect.Parameter.empty
    option: Dict[str, Any] = {"required": required, "help": meaning}
    if not required:
        option["default"] = default
        if default not in (None, "", (), []):
            several = isinstance(default, (list, tuple))
            option["help"] += " (default: %s)" % (
                " ".join(map(str, default)) if several else default
            )
    if typing.get_origin(kind) is typing.Union:  # Optional
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is list:
        option["nargs"] = "+" if required else "*"
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is typing.Literal:
        option["choices"] = typing.get_args(kind)
    else:
        option["type"] = kind
        option["metavar"] = {Path: "PATH", int: "N", float: "X", str: "WORD"}[kind]
    return option
