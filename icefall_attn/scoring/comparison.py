"""Experiments side by side: a record of each, a table and a plot of all."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterable, List

from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.scoring.reports import Summary

SEARCHES = ("greedy_search", "modified_beam_search", "fast_beam_search")


@dataclass
class Record:
    """What one trained and decoded model is remembered by.

    Attributes:
      name: of the variant.
      seed: of its training.
      steps: optimiser steps.
      init: the variant that its weights came from, or "".
      seconds: processor time of its training, all threads together.
      memory_gib: peak memory of the training.
      parameters: of the whole model.
      multiply_adds: of the encoder, on ten seconds of speech.
      machine: what trained it, or "".
      rates: error rate in percent by set and search.
      rtf: real-time factor by set and search.
    """

    name: str
    seed: int
    steps: int
    init: str
    seconds: float
    memory_gib: float
    parameters: int
    multiply_adds: float
    machine: str
    rates: Dict[str, Dict[str, float]] = field(default_factory=dict)
    rtf: Dict[str, Dict[str, float]] = field(default_factory=dict)

    def add(self, method: str, summary: Summary) -> None:
        """Takes over a result."""
        self.rates.setdefault(summary.set_name, {})[method] = summary.rate
        self.rtf.setdefault(summary.set_name, {})[method] = summary.rtf


def read_records(path: Path) -> List[Record]:
    """Those of a JSON-lines file; none if there is no file.

    Raises:
      UserError: the file holds something else.
    """
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Record(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path} is not a file of records: {' '.join(str(error).split())}"
        ) from None


def merge(old: Iterable[Record], new: Iterable[Record]) -> List[Record]:
    """All records; of one variant and seed the newer one, in the place of the older."""
    merged = {(record.name, record.seed): record for record in old}
    merged.update({(record.name, record.seed): record for record in new})
    return list(merged.values())


def write_records(path: Path, records: Iterable[Record]) -> None:
    """One JSON object a line."""
    with atomic_write(path) as file:
        for record in records:
            print(json.dumps(asdict(record), ensure_ascii=False), file=file)


def markdown(records: List[Record], baseline: str, control: str = "") -> str:
    """The table, one line per variant, means over seeds; and how far seeds lie apart.

    Args:
      records: of all runs.
      baseline: the variant whose seeds say what a difference has to exceed.
      control: what variants that start from another one's weights are held against.
    """
    sets = sorted({name for record in records for name in record.rates})
    columns = [f"{name} {_short(search)}" for name in sets for search in SEARCHES]
    head = ["variant", "seeds", "steps", *columns]
    head += ["params, M", "mult-adds, G", "training, CPU s", "memory, GiB", "RTF"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, group in _by_name(records).items():
        cells = [name, _join(record.seed for record in group)]
        inherited = f" after {group[0].init}" if group[0].init else ""
        cells.append(f"{group[0].steps}{inherited}")
        for set_name in sets:
            for search in SEARCHES:
                cells.append(_rate(_rates(group, set_name, search)))
        first = group[0]
        cells += [
            f"{first.parameters / 1e6:.2f}",
            f"{first.multiply_adds / 1e9:.2f}",
            f"{_mean(group, lambda r: r.seconds):.0f}",
            f"{_mean(group, lambda r: r.memory_gib):.2f}",
            f"{_mean(group, lambda r: r.rtf.get(sets[-1], {}).get('greedy_search', 0.0)):.4f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + ["", *_remarks(records, baseline, control, sets)]) + "\n"


def _remarks(
    records: List[Record], baseline: str, control: str, sets: List[str]
) -> List[str]:
    """What the table's differences have to be held against."""
    remarks = [
        "Error rates in percent: the mean over seeds, and the range if there are several. RTF is time on the clock, "
        "which other work on the machine lengthens; training is processor time."
    ]
    groups = _by_name(records)
    spreads = [
        _spread(groups, set_name, search, baseline, control)
        for set_name in sets
        for search in SEARCHES
        if len(_rates(groups.get(baseline, []), set_name, search)) > 1
    ]
    if spreads:
        remarks += [
            f"Seeds of `{baseline}` lie apart by as much as this; what differs by less is not told apart:",
            "",
            *spreads,
            "",
        ]
    machines = sorted({record.machine for record in records if record.machine})
    if machines:
        remarks.append(f"Trained on: {'; '.join(machines)}.")
    return remarks


def _spread(
    groups: Dict[str, List[Record]],
    set_name: str,
    search: str,
    baseline: str,
    control: str,
) -> str:
    """How far the baseline's seeds lie apart, and which variants are no farther from it, or from the control."""
    rates = _rates(groups[baseline], set_name, search)
    spread = max(rates) - min(rates)
    alike = [
        f"not told apart from `{name}`: {_alike(groups, name, set_name, search, spread)}"
        for name in (baseline, control)
        if _rates(groups.get(name, []), set_name, search)
    ]
    return (
        f"- {set_name} {_short(search)}: {spread:.2f} between {len(rates)} seeds; "
        f"{'; '.join(alike)}."
    )


def _alike(
    groups: Dict[str, List[Record]],
    reference: str,
    set_name: str,
    search: str,
    spread: float,
) -> str:
    """The variants with the reference's start whose mean is within ``spread`` of its mean."""
    mean = statistics.mean(_rates(groups[reference], set_name, search))
    names = [
        f"`{name}`"
        for name, group in groups.items()
        if name != reference
        and group[0].init == groups[reference][0].init
        and _rates(group, set_name, search)
        and abs(statistics.mean(_rates(group, set_name, search)) - mean) <= spread
    ]
    return ", ".join(names) or "none"


def plot(records: List[Record], set_name: str, path: Path) -> None:
    """Error rate of greedy search by variant, a point per seed, as PNG."""
    from matplotlib.figure import Figure

    groups = _by_name(records)
    figure = Figure(figsize=(1.0 + 0.8 * len(groups), 4), constrained_layout=True)
    axes = figure.subplots()
    for place, group in enumerate(groups.values()):
        rates = _rates(group, set_name)
        axes.plot([place] * len(rates), rates, "o", color="tab:blue", alpha=0.7)
        if rates:
            axes.plot([place], [statistics.mean(rates)], "_", color="black", ms=16)
    axes.set_xticks(range(len(groups)), list(groups), rotation=45, ha="right")
    axes.set_ylabel(f"error rate on {set_name}, %")
    axes.grid(axis="y", alpha=0.3)
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=120)


def _by_name(records: Iterable[Record]) -> Dict[str, List[Record]]:
    groups: Dict[str, List[Record]] = {}
    for record in records:
        groups.setdefault(record.name, []).append(record)
    return {name: sorted(g, key=lambda r: r.seed) for name, g in groups.items()}


def _rates(
    group: Iterable[Record], set_name: str, search: str = "greedy_search"
) -> List[float]:
    """The error rates of a variant's seeds, those that there are."""
    rates = [record.rates.get(set_name, {}).get(search) for record in group]
    return [rate for rate in rates if rate is not None]


def _rate(rates: List[float]) -> str:
    if not rates:
        return ""
    text = f"{statistics.mean(rates):.2f}"
    return text if len(rates) == 1 else f"{text} ({min(rates):.2f}-{max(rates):.2f})"


def _mean(group: List[Record], value: Callable[[Record], float]) -> float:
    return statistics.mean(value(record) for record in group)


def _short(search: str) -> str:
    return {"modified_beam_search": "beam", "fast_beam_search": "graph"}.get(
        search, search.split("_")[0]
    )


def _join(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
