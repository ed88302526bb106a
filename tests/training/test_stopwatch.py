"""Where the time of a step goes, and what several processes get through."""

import logging
import re
import time

import pytest
import torch
from training.test_trainer import make_trainer

from icefall_attn.training.metrics import Metrics
from icefall_attn.training.stopwatch import Stopwatch


def test_parts_are_added_up_and_taken():
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(3):
        with watch.part("forward"):
            time.sleep(0.01)
    with pytest.raises(KeyError), watch.part("backward"):
        raise KeyError
    taken = watch.take()
    assert 0.03 <= taken["forward"] < 0.3 and 0 <= taken["backward"] < 0.01
    assert watch.take() == {}


class Three:
    """A group whose other processes went through twice and half as much, one of them waiting."""

    size = 3

    def gather(self, value):
        sums, counts, parts = value
        fast = {**counts, "audio": 2 * counts["audio"]}
        slow = {**counts, "audio": counts["audio"] / 2}
        return [value, (sums, fast, {**parts, "exchange": 5.0}), (sums, slow, parts)]


def test_speeds_leave_out_what_a_process_waits_for_the_others():
    metrics = Metrics()
    metrics.count(audio=100.0, seconds=10.0, steps=4, frames=50)
    measured = metrics.take({"forward": 3.0, "exchange": 0.0}, Three())
    assert measured.speeds == [10.0, 40.0, 5.0]
    assert measured.counts["audio"] == 350 and measured.counts["steps"] == 4
    assert measured.parts == pytest.approx({"forward": 3.0, "exchange": 5.0 / 3})


def test_the_console_line_accounts_for_a_step(corpus_dir, tokenizer, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    options = {"max_steps": 4, "log_every": 2, "check_memory": False}
    make_trainer(corpus_dir, tmp_path / "exp", tokenizer, **options).run()
    lines = [r.getMessage() for r in caplog.records if "s/step" in r.getMessage()]
    assert len(lines) == 2
    parts = dict(re.findall(r"(forward|backward|exchange|update) (\d+)%", lines[1]))
    assert len(parts) == 4
    assert 20 < sum(map(int, parts.values())) <= 102
    assert re.search(r"clipped: encoder \d.*predictor \d.*joiner \d", lines[1])
    assert "processes" not in lines[1]
