"""Records of experiments, and what the table says of them."""

import pytest

from icefall_attn.errors import UserError
from icefall_attn.scoring.comparison import (
    Record,
    markdown,
    merge,
    plot,
    read_records,
    write_records,
)


def make(name, seed, rate, init=""):
    rates = {"test": {"greedy_search": rate, "modified_beam_search": rate - 1.0}}
    rtf = {"test": {"greedy_search": 0.01}}
    return Record(name, seed, 100, init, 60.0, 1.5, 2_000_000, 3e9, "a CPU", rates, rtf)


def cells(table, name):
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


RECORDS = [make("full", 1, 10.0), make("full", 2, 12.0), make("near", 1, 13.0)]
RECORDS += [make("far", 1, 13.5, init="full")]


def test_table():
    table = markdown(RECORDS, "full")
    head = cells(table, "variant")
    full = dict(zip(head, cells(table, "full")))
    assert full["seeds"] == "1, 2" and full["steps"] == "100"
    assert full["test greedy"] == "11.00 (10.00-12.00)"
    assert full["test beam"] == "10.00 (9.00-11.00)"
    assert full["test graph"] == ""
    assert full["params, M"] == "2.00" and full["mult-adds, G"] == "3.00"
    assert full["training, CPU s"] == "60" and full["memory, GiB"] == "1.50"
    far = dict(zip(head, cells(table, "far")))
    assert far["steps"] == "100 after full" and far["test greedy"] == "13.50"


def test_differences_within_the_spread_are_named():
    """Seeds of full lie 2 apart around 11: 13 is within that, 13.5 is not."""
    table = markdown(RECORDS, "full")
    line = "- test greedy: 2.00 between 2 seeds; not told apart from `full`: `near`."
    assert line in table.splitlines()
    later = [make("B1", 1, 9.0, "full"), make("E1", 1, 10.5, "full")]
    table = markdown(RECORDS + later, "full", control="B1")
    line = line[:-1] + "; not told apart from `B1`: `E1`."
    assert line in table.splitlines()
    assert "between" not in markdown(RECORDS[1:], "full")  # one seed has no spread


def test_each_search_has_its_spread():
    """What greedy search does not tell apart, beam search may."""
    records = [make("full", 1, 10.0), make("full", 2, 12.0), make("near", 1, 13.0)]
    records[1].rates["test"]["modified_beam_search"] = 9.1  # 0.1 from the first seed
    table = markdown(records, "full")
    assert "greedy: 2.00 between 2 seeds; not told apart from `full`: `near`." in table
    assert "beam: 0.10 between 2 seeds; not told apart from `full`: none." in table
    assert "graph" not in table[table.index("lie apart") :]  # it was not used


def test_machines():
    elsewhere = make("full", 3, 9.0)
    elsewhere.machine = ""  # trained before machines were remembered
    assert "Trained on: a CPU." in markdown(RECORDS + [elsewhere], "full")
    assert "Trained on" not in markdown([elsewhere], "full")


def test_records_are_kept_and_replaced(tmp_path):
    path = tmp_path / "records.jsonl"
    assert read_records(path) == []
    write_records(path, RECORDS)
    assert read_records(path) == RECORDS
    newer = make("full", 2, 9.0)
    merged = merge(read_records(path), [newer, make("new", 1, 5.0)])
    assert [r.name for r in merged] == ["full", "full", "near", "far", "new"]
    assert merged[1] == newer and merged[0] == RECORDS[0]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"name": "full"}\n')
    with pytest.raises(UserError, match="records.jsonl is not a file of records"):
        read_records(path)


def test_plot(tmp_path):
    plot(RECORDS, "test", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
