"""What the programs that use a trained model have in common on their command lines."""

from typing import List, Optional

from jsonargparse import ArgumentParser, Namespace

from icefall_attn.decoding import SearchConfig
from icefall_attn.errors import UserError


def experiment_parser(prog: str, description: str) -> ArgumentParser:
    """A parser with the options that choose a model and a search."""
    parser = ArgumentParser(
        prog=prog, description=description, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument(
        "--exp-dir",
        required=True,
        help="experiment directory; it holds the model's options",
    )
    parser.add_argument("--avg", type=int, default=1, help="epochs to average")
    parser.add_argument(
        "--by",
        choices=["valid-loss", "epoch"],
        default="valid-loss",
        help="average those with the lowest validation loss, or the last ones",
    )
    parser.add_argument(
        "--checkpoint", help="one file of the experiment instead, for example last.pt"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_class_arguments(SearchConfig, "search")
    return parser


def parse(parser: ArgumentParser, arguments: Optional[List[str]]) -> Namespace:
    """Parses, with any mistake as one line.

    Raises:
      UserError: what jsonargparse complains of.
    """
    try:
        return parser.parse_args(arguments)
    except Exception as error:  # ArgumentError, TypeError and more, by version
        raise UserError(" ".join(str(error).split())) from None


def search_config(options: Namespace) -> SearchConfig:
    """The checked search options of a parsed command line."""
    config = SearchConfig(**vars(options.search))
    config.validate()
    return config
