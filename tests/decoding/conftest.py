"""Both kinds of predictor, and the helpers beside the tests."""

import sys
from pathlib import Path

import pytest

from icefall_attn.environment import why_no_k2

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["lstm", "stateless"])
def kind(request):
    return request.param


@pytest.fixture(params=["missing", "built for another torch"])
def unusable_k2(request, monkeypatch, tmp_path):
    """An environment whose k2 cannot be imported, for one reason or another."""
    if request.param == "missing":
        monkeypatch.setitem(sys.modules, "k2", None)
    else:
        error = "raise RuntimeError('two lines:\\nwrong torch')"
        (tmp_path / "k2.py").write_text(error)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "k2", raising=False)
    why_no_k2.cache_clear()
    yield
    why_no_k2.cache_clear()
