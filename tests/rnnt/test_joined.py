"""The fused joiner: the joiner itself, its gradients, and cells left out."""

import pytest
import torch
from rnnt.loss_inputs import Inputs, close, grads
from torch.utils._python_dispatch import TorchDispatchMode

from icefall_attn.rnnt.joined import CHUNK, join_cells


@pytest.mark.parametrize("negligible", [1e-3, 1e-2, 0.1])
def test_leaving_cells_out_costs_no_more_than_it_says(negligible):
    """The output layer's bias: a cell's Jacobian there has at most the norm sqrt(2)."""
    inputs = Inputs(counts=(9, 8), lengths=(30, 24), vocab=20)
    ranges = torch.randint(0, 10, (2, 30, 4))
    bias = inputs.output.bias
    arguments = (
        inputs.encoder,
        inputs.predictor,
        inputs.output.weight,
        bias,
        inputs.labels,
        ranges,
    )
    upstream = (
        torch.rand(2, 2, 30, 4) ** 8
    )  # few cells carry nearly all, as in a trained model
    found = []
    for limit in (0.0, negligible):
        pair = join_cells(*arguments, limit)
        loss = (upstream[0] * pair[0] + upstream[1] * pair[1]).sum()
        found.append(torch.autograd.grad(loss, bias)[0])
    size = upstream.sum(0)
    left_out = size[size <= negligible * size.max()]
    assert 0 < len(left_out) < size.numel()
    lost = (found[0] - found[1]).norm()
    assert 0 < lost <= 2**0.5 * left_out.sum() + 1e-5


def test_gradients_of_joined_cells_by_differences():
    """In float64, through chunks of a few cells."""
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    labels, ranges = torch.tensor([[1, 3], [2, 2]]), torch.randint(0, 3, (2, 4, 2))
    tensors = make(2, 4, 3), make(2, 3, 3), make(5, 3), make(5)
    assert torch.autograd.gradcheck(lambda *x: join_cells(*x, labels, ranges), tensors)


def test_joined_cells_are_the_joiner_itself(monkeypatch):
    from icefall_attn.rnnt import joined

    monkeypatch.setattr(joined, "CHUNK", 40)  # many small pieces
    inputs = Inputs()
    ranges = torch.randint(0, 8, (4, 12, 3))
    got = join_cells(
        inputs.encoder,
        inputs.predictor,
        inputs.output.weight,
        inputs.output.bias,
        inputs.labels,
        ranges,
    )
    batch = torch.arange(4)[:, None, None]
    hidden = torch.tanh(inputs.encoder[:, :, None] + inputs.predictor[batch, ranges])
    log_probs = inputs.output(hidden).log_softmax(3)
    following = torch.nn.functional.pad(inputs.labels, (0, 1))[batch, ranges]
    wanted = log_probs[..., 0], log_probs.gather(3, following[..., None]).squeeze(3)
    close(got, wanted)
    weight = torch.randn(2, 4, 12, 3)
    sums = [(weight[0] * pair[0] + weight[1] * pair[1]).sum() for pair in (got, wanted)]
    close(grads(sums[0], inputs.tensors[2:]), grads(sums[1], inputs.tensors[2:]))


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(each, torch.Tensor):
                self.numel = max(self.numel, each.numel())
        return result


def test_neither_logits_nor_their_gradient_ever_exist_whole():
    inputs = Inputs(counts=(40, 30), lengths=(200, 150), vocab=3000)
    with Largest() as largest:
        simple, pruned = inputs.losses(prune_range=5)
        torch.autograd.grad((simple + pruned).sum(), inputs.tensors)
    logits = 2 * 200 * 5 * 3000
    assert largest.numel <= 2 * 200 * 3000 + CHUNK < logits / 1.5


def test_a_gradient_that_is_not_a_number_hides_no_other():
    inputs = Inputs()
    ranges = torch.randint(0, 8, (4, 12, 3))
    pair = join_cells(
        inputs.encoder,
        inputs.predictor,
        inputs.output.weight,
        inputs.output.bias,
        inputs.labels,
        ranges,
        1e-3,
    )
    weight = torch.ones(4, 12, 3)
    weight[0, 0, 0] = float("nan")
    (grad,) = torch.autograd.grad((weight * pair[0]).sum(), inputs.encoder)
    assert grad[0, 0].isnan().all()
    assert torch.isfinite(grad[1:]).all() and grad[1:].abs().sum() > 0.1
