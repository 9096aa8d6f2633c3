# SPDX-License-Identifier: Apache-2.0
"""Why trials have no far common offset and no few huge elements (docs/judging.md): right programs differ there."""

import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.comparison.scale import SHARP
from verl_kernel.env.reference.jitter import jittered


def agrees(one, other):
    return compare(one, other, least=SHARP[torch.float32][0]).ok


def normed(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def normed_in_one_pass(x):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)


def convolved(x, kernel):
    padded = torch.nn.functional.pad(x[:, None], (len(kernel) - 1, 0))
    return torch.nn.functional.conv1d(padded, kernel.flip(0)[None, None])[:, 0]


def convolved_by_fourier(x, kernel):
    size = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)[:, : x.shape[-1]]


def test_a_one_pass_variance_is_refused_at_a_far_offset():
    noise = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    near, far = noise + 8, noise + 64
    assert agrees(normed(near), normed_in_one_pass(near))
    assert agrees(normed(far), normed(jittered([far])[0]))
    assert agrees(normed(far.double()).float(), normed(far))
    assert not agrees(normed(far), normed_in_one_pass(far))


def test_a_fourier_transform_is_refused_beside_huge_elements():
    generator = torch.Generator().manual_seed(1)
    x, kernel = torch.randn(16, 512, generator=generator), torch.randn(64, generator=generator)
    assert agrees(convolved(x, kernel), convolved_by_fourier(x, kernel))
    x[:, 400:403] *= 4096
    assert agrees(convolved(x.double(), kernel.double()).float(), convolved(x, kernel))
    assert not agrees(convolved(x, kernel), convolved_by_fourier(x, kernel))
