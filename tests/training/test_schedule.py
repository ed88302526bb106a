"""Learning rates, and the flat optimiser against torch's own."""

import copy
import math

import pytest
import torch
from torch import nn

from icefall_attn.errors import UserError
from icefall_attn.training.schedule import FlatOptimizer, OptimConfig


def test_noam_peaks_at_the_warm_up():
    config = OptimConfig(schedule="noam", lr=1e-3, warm_steps=100)
    rates = [config.rate(step, 0) for step in range(1, 1000)]
    assert max(rates) == rates[99] == 1e-3
    assert rates[49] == 0.5e-3
    assert math.isclose(rates[399], 0.5e-3)


def test_cosine_ends_at_zero():
    config = OptimConfig(schedule="cosine", lr=1.0, warm_steps=10)
    rates = [config.rate(step, 110) for step in range(1, 130)]
    assert rates[4] == 0.5 and rates[9] == 1.0
    assert math.isclose(rates[59], 0.5)
    assert abs(rates[109]) < 1e-12 and abs(rates[128]) < 1e-12
    assert all(a >= b for a, b in zip(rates[9:], rates[10:]))
    with pytest.raises(UserError, match="max_steps"):
        config.rate(1, 0)


def test_flat_optimiser_is_adamw_with_clipping():
    def build():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3)
        )

    config = OptimConfig(weight_decay=0.1, clip_norm=0.5)
    model, reference = build(), build()
    flat = FlatOptimizer(model, config)
    groups = [
        {
            "params": [p for p in reference.parameters() if p.dim() > 1],
            "weight_decay": 0.1,
        },
        {
            "params": [p for p in reference.parameters() if p.dim() == 1],
            "weight_decay": 0.0,
        },
    ]
    adamw = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9)
    clipped = []
    for step in range(6):
        x, size = torch.randn(5, 4), 10.0 if step % 2 else 1e-3  # clipped and not
        flat.zero_grad()
        (size * model(x).pow(2).sum()).backward()
        flat.step(1e-2, float(flat.grad_norm()))
        adamw.zero_grad()
        (size * reference(x).pow(2).sum()).backward()
        norm = nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        clipped.append(bool(norm > 0.5))
        for group in adamw.param_groups:
            group["lr"] = 1e-2
        adamw.step()
    assert True in clipped and False in clipped
    for one, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_state_can_be_saved_and_loaded():
    def run(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).pow(2).sum().backward()
            optimizer.step(1e-2, float(optimizer.grad_norm()))

    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = FlatOptimizer(model, OptimConfig())
    run(model, optimizer, 3)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    run(model, optimizer, 3)
    other = nn.Linear(3, 2)
    resumed = FlatOptimizer(other, OptimConfig())
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    run(other, resumed, 3)
    assert torch.equal(other.weight, model.weight) and torch.equal(
        other.bias, model.bias
    )


def test_unknown_schedule_is_named():
    with pytest.raises(ValueError, match="'eden'"):
        OptimConfig(schedule="eden")
