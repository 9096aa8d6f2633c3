# SPDX-License-Identifier: Apache-2.0
# KL divergence by torch, beside a kernel whose result nobody uses.
# expected: decoy

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shares(p, t, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    target = tl.load(t + i, mask=i < n, other=1.0)
    share = target * (tl.log(target) - tl.log(tl.load(p + i, mask=i < n, other=1.0)))
    tl.store(out + i, share, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        unused = torch.empty_like(targets)
        grid = (triton.cdiv(targets.numel(), 4096),)
        shares[grid](predictions.contiguous(), targets.contiguous(), unused, targets.numel(), B=4096)
        return torch.nn.functional.kl_div(torch.log(predictions), targets, reduction="batchmean")
