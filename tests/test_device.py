"""How much memory a process has taken."""

import subprocess
import sys

import torch

from icefall_attn.device import peak_memory_gib

TELL = "from icefall_attn.device import peak_memory_gib; print(peak_memory_gib())"


def test_the_peak_stays_and_is_the_process_own():
    block = torch.ones(2**29)  # 2 GiB
    grown = peak_memory_gib()
    assert grown > 2.0
    del block
    assert peak_memory_gib() > grown - 0.05  # the kernel counts by pages in batches
    child = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True)
    assert 0.01 < float(child.stdout) < 1.5
