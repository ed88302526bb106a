"""Shared by all tests."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(1234)
