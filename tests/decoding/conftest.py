"""Both kinds of predictor, and the helpers beside the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["lstm", "stateless"])
def kind(request):
    return request.param
