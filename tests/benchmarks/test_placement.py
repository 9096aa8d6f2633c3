# SPDX-License-Identifier: Apache-2.0
"""Programs of the corpus reach their own tensors on a GPU, and are otherwise what they were."""

import ast

from benchmarks.gpu.placement import on_gpu
from tests.exploits.corpus import load


def test_factories_get_a_device():
    assert on_gpu("x = torch.zeros(4)  # four") == "x = torch.zeros(4, device='cuda')"
    assert on_gpu("k(torch.full((2,), 1.0), torch.arange(3))") == (
        "k(torch.full((2,), 1.0, device='cuda'), torch.arange(3, device='cuda'))"
    )


def test_nothing_else_changes():
    same = (
        "x = torch.zeros(4, device=y.device)  # there", "x = torch.randn(4)", "x = np.zeros(4)", "torch.empty_like(x)",
        "x = torch.zeros(4, **options)", "def f(:", "x = torch.zeros",
    )  # fmt: skip
    for source in same:
        assert on_gpu(source) == source


def test_every_program_of_the_corpus_stays_a_program():
    changed = 0
    for case in load():
        placed = on_gpu(case.source)
        changed += placed != case.source
        if placed != case.source:
            ast.parse(placed)
            assert on_gpu(placed) == placed  # once is enough
    assert changed > 50
