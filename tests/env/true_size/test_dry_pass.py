# SPDX-License-Identifier: Apache-2.0
"""A forward without data runs what one with data runs, and knows the shapes of what it returns."""

import contextlib
import subprocess
import sys

import pytest
import torch

from tests.env.programs import reference
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.dataless import AddressSpace, Undecidable, is_dataless
from verl_kernel.env.true_size.dry_pass import dry_forward, without_data

PROGRAMS = {
    "convolution": ("self.c = nn.Conv2d(6, 8, 3, padding=1)", "F.relu(self.c(x)).mean((2, 3))", "2, 6, 16, 16"),
    "transposed convolution": ("self.c = nn.ConvTranspose2d(6, 4, 3, stride=2)", "self.c(x) + 1", "2, 6, 9, 9"),
    "norms": (
        "self.b, self.l = nn.InstanceNorm2d(6), nn.LayerNorm(16)",
        "F.group_norm(self.l(self.b(x)), 3)",
        "2, 6, 16, 16",
    ),
    "linear": ("self.c = nn.Linear(32, 64)", "F.gelu(self.c(x)).logsumexp(1, keepdim=True)", "40, 32"),
    "attention": ("", "F.scaled_dot_product_attention(x, x, x)", "2, 4, 32, 16"),
    "views": ("", "torch.cat([x.t()[::2], x.t()[1::2]], 0).reshape(2, -1).transpose(0, 1)", "64, 128"),
    "in place": ("", "(y := x.clone(), y[:, :8].mul_(2).add_(x[:, 8:16]), y.sort(1)[0])[-1]", "64, 128"),
    "scan and pool": ("", "F.max_pool1d(torch.cumsum(x, 1)[None], 4)[0].softmax(1)", "64, 128"),
    "indices": ("", "x.index_select(0, i := torch.arange(0, 64, 2))[:, i] * len(i)", "64, 128"),
    "recurrent": ("self.c = nn.LSTM(16, 24)", "self.c(x)[0]", "5, 3, 16"),
    "loss": ("", "F.cross_entropy(x, torch.zeros(64, dtype=torch.long))", "64, 128"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_events_are_those_of_a_forward_with_data(device, name):
    init, forward, shape = PROGRAMS[name]
    task = Task(reference(forward, f"torch.randn({shape})", members=init or "pass"))
    dry = dry_forward(task, device)
    program = ReferenceProgram(task, device)
    with torch.no_grad():
        program.build(program.init_inputs())
        output, events = program.traced(program.draw(0))
    found, shapes = dry.events, [(tensor.shape, tensor.stride()) for tensor in dry.output.tensors]
    assert found == events
    assert shapes == [(tensor.shape, tensor.stride()) for tensor in output.tensors]


def test_tensors_of_any_size_cost_nothing(device):
    with without_data(AddressSpace()) as mode:
        x = torch.randn(1 << 20, 1 << 18) + 1
        y = x[:, ::2].t()
    assert is_dataless(y)
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert y.shape == (1 << 17, 1 << 20)
    assert mode.ops == ["aten::randn", "aten::add"]


def test_alignment_does_not_tell_a_tensor_without_data(device):
    space = AddressSpace(3)
    tensors = [space.tensor((1 << 20,), (1,), torch.float32) for _ in range(32)]
    assert {tensor.data_ptr() % 1024 for tensor in tensors} == {0, 256, 512, 768}


def test_small_numbers_stay_known_until_overwritten(device):
    space = AddressSpace()
    with without_data(space):
        bounds = torch.tensor([3, 4]).cumsum(0)
        assert bounds.tolist() == [3, 7]
        assert (bounds[1] - 1).item() == 6
        bounds[0] = torch.empty(4096, 4096).sum().long()
        with pytest.raises(Undecidable, match="on the host"):
            bounds[1].item()
        with pytest.raises(Undecidable):
            torch.empty(2, dtype=torch.int64).tolist()
    assert len(space.reasons) == 2


def test_a_refusal_is_remembered_where_the_program_catches_it(device):
    space = AddressSpace()
    with without_data(space), contextlib.suppress(RuntimeError):
        torch.randn(1 << 20).sum().item()
    assert len(space.reasons) == 1


@pytest.mark.slow
def test_the_compiler_is_not_loaded():
    code = (
        "import sys; from verl_kernel.env.true_size import dataless; dataless.load(); "
        "import torch; assert 'torch._dynamo' not in sys.modules; torch.compile; assert hasattr(torch, '_dynamo')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
