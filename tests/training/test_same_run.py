"""What a resumed run checks of the data that its options only name."""

from dataclasses import replace

import pytest
from lhotse import load_manifest

from icefall_attn.config import RunConfig
from icefall_attn.data.loader import DataConfig
from icefall_attn.data.manifests import write_manifest
from icefall_attn.training.same_run import fingerprint


@pytest.mark.parametrize("option", ["train_cuts", "noise_cuts", "rir_cuts"])
@pytest.mark.parametrize("shar", [False, True])
def test_other_cuts_leave_another_mark(corpus_dir, tokenizer, tmp_path, option, shar):
    path = tmp_path / ("cuts" if shar else "cuts.jsonl.gz")
    file = path / "cuts.000000.jsonl.gz" if shar else path
    config = RunConfig(data=replace(DataConfig(), **{option: [str(path)]}))
    cuts = load_manifest(corpus_dir / "more.jsonl.gz")
    marks = []
    for count in (7, 7, 8):
        write_manifest(cuts.subset(first=count), file)
        marks.append(fingerprint(config, tokenizer))
    assert marks[0] == marks[1] != marks[2]
    assert len(marks[0]) == 2
