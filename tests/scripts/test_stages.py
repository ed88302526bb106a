"""Stages of a recipe: skipped when done, run again when something changed, stopped by a failure."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from toy import ROOT, STAGES, Toy  # noqa: E402


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path, STAGES)


def test_a_second_run_skips_what_is_done(toy: Toy) -> None:
    first = toy.run()
    assert first.returncode == 0, first.stderr
    assert toy.said().split() == ["ahello", "b", "c"]
    assert first.stdout.count("done in") == 3
    second = toy.run()
    assert toy.said().split() == ["ahello", "b", "c"]
    assert second.stdout.splitlines() == [
        f"toy {n} {name}: done before, skipped"
        for n, name in enumerate(("first", "second", "third"), 1)
    ]


def test_stages_outside_the_range_are_left_alone(toy: Toy) -> None:
    result = toy.run("--stage", "2", "--stop-stage", "2")
    assert toy.said().split() == ["b"]
    assert len(result.stdout.splitlines()) == 1


def test_a_changed_option_runs_its_stage_and_the_later_ones_again(toy: Toy) -> None:
    toy.run()
    result = toy.run("--word", "two words")
    assert toy.said().splitlines()[3:] == ["atwo words", "b", "c"]
    assert "again: its command or its inputs changed" in result.stdout


def test_an_earlier_stage_run_again_by_itself_is_noticed_later(toy: Toy) -> None:
    toy.run()
    toy.run("--stop-stage", "1", "--force", "true")
    assert toy.said().split()[3:] == ["ahello"]
    toy.run()
    assert toy.said().split()[4:] == ["b", "c"]


def test_the_number_of_jobs_is_no_reason_to_run_again(toy: Toy) -> None:
    toy.run("--nj", "1")
    toy.run("--nj", "3")
    assert toy.said().split() == ["ahello", "b", "c"]


def test_force_runs_again(toy: Toy) -> None:
    toy.run()
    toy.run("--stage", "3", "--force", "true")
    assert toy.said().split() == ["ahello", "b", "c", "c"]


def test_called_from_anywhere(toy: Toy, tmp_path: Path) -> None:
    toy.run(cwd=tmp_path)
    assert "skipped" in toy.run(cwd=Path("/")).stdout
    assert toy.said().split() == ["ahello", "b", "c"]


def test_log_has_head_and_foot(toy: Toy) -> None:
    toy.run("--word", "it's")
    lines = toy.log("first").splitlines()
    assert lines[0] == "# toy 1 first"
    assert lines[1] == r"# command: 'say' 'ait'\''s' '--nj' '2'"
    assert lines[2].startswith("# started: 2") and str(toy.dir) in lines[2]
    assert lines[3] == "# python: a toy"
    assert lines[4] == "in the log"
    assert lines[5].startswith("# ended: 2") and "exit code 0 after" in lines[5]


def test_environment_report_heads_a_log(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy, "environ", lambda: {**os.environ, "PYTHONPATH": str(ROOT)})
    toy.run("--stop-stage", "1")
    assert "# numpy: " in toy.log("first")


def test_failure_stops_and_names_the_log(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\n'
        "broken() { echo before; ls /no/such; echo after; }\n"
        "run_stage 1 broken broken\n"
        "run_stage 2 next touch reached\n",
    )
    result = toy.run()
    assert result.returncode == 2  # that of ls
    assert "FAILED with exit code 2" in result.stdout
    assert "data/log/toy-broken.log ends:" in result.stdout
    assert "/no/such" in result.stderr  # the last lines of the log
    assert "after" not in result.stderr  # an error inside a function ends it
    assert "exit code 2" in toy.log("broken").splitlines()[-1]
    assert not (toy.dir / "reached").exists()
    assert not list(toy.dir.glob("data/.done/*"))


def test_failure_that_a_program_told_in_one_line(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\n'
        "broken() { echo chatter; echo 'error: no such thing; do that' >&2; exit 1; }\n"
        "run_stage 1 broken broken\n",
    )
    result = toy.run()
    assert result.returncode == 1
    assert result.stderr == "    error: no such thing; do that\n"


def test_overwrite_goes_with_force_alone(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\n'
        '[ "$force" = false ] || set -- --overwrite\n'
        '[ "$force" = true ] || set --\n'
        'say() { echo "$*" >>said; }\n'
        'run_stage 1 say say words "$@"\n',
    )
    toy.run()
    toy.run("--force", "true")
    assert "skipped" in toy.run().stdout
    assert toy.said().splitlines() == ["words", "words --overwrite"]


def test_a_failed_rerun_takes_the_marker_away(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\nrun_stage 1 one test "$word" = hello\n',
    )
    assert toy.run().returncode == 0
    assert toy.run("--word", "other").returncode == 1
    assert "done in" in toy.run().stdout


def test_needs_names_the_missing_file_and_notices_a_new_one(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\n'
        'needs "run ./prepare.sh first" "the input"\n'
        'run_stage 1 copy cp "the input" copied\n',
    )
    missing = toy.run()
    assert missing.returncode == 1
    assert (
        missing.stderr
        == "toy.sh: error: the input is missing; run ./prepare.sh first\n"
    )
    (toy.dir / "the input").write_text("1")
    toy.run()
    assert "skipped" in toy.run().stdout
    (toy.dir / "the input").write_text("2")
    toy.run()
    assert (toy.dir / "copied").read_text() == "2"


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_stage_leaves_no_marker(tmp_path: Path, kind: signal.Signals) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\n'
        "slow() { sleep 60 & echo $! >pid; wait; }\n"
        "run_stage 1 slow slow\n",
    )
    process = subprocess.Popen(
        [str(toy.script), "--python", sys.executable],
        env=toy.environ(),
        cwd=toy.dir,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Started in the background, a shell ignores interrupts for good.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    pid_file = toy.dir / "pid"
    _wait_for(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    pid = int(pid_file.read_text())
    try:
        process.send_signal(kind)
        code = process.wait(timeout=20)
        assert not list(toy.dir.glob("data/.done/*"))
        if kind != signal.SIGKILL:
            assert code == 128 + kind
            _wait_for(lambda: not _runs(pid))  # what the stage had started is gone too
            assert f"exit code {code}" in toy.log("slow").splitlines()[-1]
    finally:
        if _runs(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("stage", ["victim", "bash victim.sh"])
def test_a_stage_without_memory_is_told_in_our_words(tmp_path: Path, stage) -> None:
    """A function of the script, and a program."""
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\n'
        "victim() { echo the last words; kill -KILL $BASHPID; }\n"
        f"run_stage 1 victim {stage}\n",
    )
    (toy.dir / "victim.sh").write_text("echo the last words; kill -KILL $$\n")
    done = toy.run()
    assert done.returncode == 137
    assert "KILLED, perhaps for want of memory" in done.stdout
    assert done.stderr.strip() == "the last words"


BAR = """
import sys
from icefall_attn.progress import progress_bar

print("out", flush=True)
for _ in progress_bar(range(4), desc="bar", mininterval=0):
    pass
print("a warning", file=sys.stderr)
"""


@pytest.fixture
def bar_toy(tmp_path: Path) -> Toy:
    toy = Toy(
        tmp_path,
        'parse_options "$@"; work_dir=data\nrun_stage 1 bar python bar.py\n',
    )
    (toy.dir / "bar.py").write_text(BAR)
    return toy


def test_progress_bar_reaches_the_terminal(bar_toy: Toy) -> None:
    toy = bar_toy
    terminal, terminal_of_child = pty.openpty()
    result = subprocess.run(
        [str(toy.script), "--python", sys.executable],
        env=toy.environ(),
        cwd=toy.dir,
        stdout=subprocess.PIPE,
        stderr=terminal_of_child,
        text=True,
        timeout=60,
    )
    os.close(terminal_of_child)
    shown = os.read(terminal, 10000).decode()
    os.close(terminal)
    assert result.returncode == 0
    assert "50%" in shown and "a warning" not in shown
    assert result.stdout.startswith("toy 1 bar: done in")
    lines = toy.log("bar").splitlines()
    assert "a warning" in lines and "out" in lines
    assert any(line.startswith("bar: 100%") for line in lines)  # its last state alone
    assert "50%" not in toy.log("bar")


def test_no_progress_bar_without_a_terminal(bar_toy: Toy) -> None:
    assert bar_toy.run().returncode == 0
    assert "a warning" in bar_toy.log("bar") and "%|" not in bar_toy.log("bar")


def test_parts_stop_with_their_exit_code(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'parse_options "$@"\n'
        "run_part 1 touch one\nrun_part 2 bash -c 'exit 5'\nrun_part 3 touch three\n",
    )
    assert toy.run("--stop-stage", "1").returncode == 0
    assert (toy.dir / "one").exists()
    assert toy.run().returncode == 5
    assert not (toy.dir / "three").exists()


def _wait_for(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        # A process that has ended but was not waited for is still listed, as a zombie.
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
