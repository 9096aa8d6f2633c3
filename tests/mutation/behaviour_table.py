# SPDX-License-Identifier: Apache-2.0
"""Checks that are no single statement: kinds of trials, modes, ablations, flags, what other processes do."""

from collections.abc import Callable
from typing import Any

import torch

from tests.env.judge.test_ablation import SECOND_HALF
from tests.env.judge.test_memory_checks import RACING, TWICE, keeping
from tests.env.judge.test_native_trials import CUMSUM, IN_ORDER
from tests.env.programs import REFERENCE
from tests.env.tamper.test_tripwire import COPY
from tests.exploits.corpus import beginning, load
from tests.exploits.families import ATTACKS as FAMILIES
from tests.exploits.tasks import TASKS
from tests.mutation.shown import Shown, attack, body, program
from verl_kernel.env.comparison.compare import _judge
from verl_kernel.env.reference.kinds import KINDS
from verl_kernel.env.reference.reference import Reference

_TRIAL, _JUDGE = Reference.trial, _judge
FAR = "(x.abs().max() > 60)"
ALL_BELOW, ALL_ABOVE = "(x.max() < 0) * (y.max() < 0)", "(x.min() > 0) * (y.min() > 0)"
WRONG_ON = {
    "varied": f"((x > 0).all(-1).any() | (y > 0).all(-1).any()) * ~{FAR}",
    "large": f"{FAR} * ~({ALL_BELOW}) * ~({ALL_ABOVE})", "negative": ALL_BELOW, "positive": ALL_ABOVE,
}  # fmt: skip
"""By kind of trial, what holds of inputs of that kind alone."""
MANY = "for _ in range(12):\n    self.right(x, y)\nreturn self.right(x, y)"
SLIGHT = TASKS["add"].replace("torch.relu(x + y) * 2.0", "torch.relu(x + y) * 2.0 + torch.erf(x) * 1e-9")


def drawn_for(kind: str) -> dict[str, Callable[..., Any]]:
    """No trial of this kind."""

    def trial(self: Reference, secret: bytes, number: int, asked: str) -> Any:
        return _TRIAL(self, secret, number, "drawn" if asked == kind else asked)

    return {"reference.reference:Reference.trial": trial}


def lenient(wanted: torch.Tensor, given: torch.Tensor, *more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A comparison that takes NaN for anything."""
    good, error = _JUDGE(wanted, given, *more)
    return good | given.isnan(), error


def usual(session: Any, number: int, kind: Any, inspect: bool) -> Any:
    """A trial in the other mode, in the usual one."""
    return session.forward(number, kind=kind, inspect=inspect), None


ONES = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return sm(x, torch.ones(64)).sum(-1) / 128\n"
DOUBLED = next(case.source for case in load() if case.name == "in_place")
TABLE: dict[str, tuple[dict[str, Callable[..., Any]], str, Shown]] = {
    **{
        f"trials: {kind}": (
            drawn_for(kind), "incorrect/WrongValues",
            body(f"return self.right(x, y) + {WRONG_ON[kind]}", correctness_trials=6),
        )
        for kind in KINDS[1:]
    },
    "trials: the other mode": (
        {"judge.trials.correctness:forward_in_other_mode": usual}, "decoy/NoLaunch", attack("modes_eval"),
    ),
    "ablation": ({"judge.ablation:Ablation.finds_decoy": lambda self: False}, "decoy", attack("torch_only+token")),
    "ablation in the other mode": (
        {"judge.trials.correctness:differs": lambda session: False}, "decoy/LaunchIrrelevant",
        attack("modes_eval+token"),
    ),
    "ablation of one launch at a time": (
        {"judge.ablation:Ablation.find_ineffective": lambda self: None}, "coverage 0.20",
        body("self.right(x + 1, y)\nreturn finish(x * self.weight + y, self.scale)", SECOND_HALF),
    ),
    "ablation beside torch's results": (
        {"judge.candidate_session:hold": lambda *args: False}, "coverage 0.00",
        program(*FAMILIES["p01/added_beside_torch"]),
    ),
    "ablation of some of many launches": (
        {"judge.ablation:Ablation._sample": lambda self, parts: None}, "coverage 0.", body(MANY),
    ),
    "coverage of what only moves": (
        {"tamper.trace_checks:_computed": lambda event: 1.0}, "coverage 0.50",
        body("return moved(self.right(x, y)) + 0", COPY),
    ),
    "remarks": ({"judge.size_evaluation:lazy_flags": lambda *args: ()}, "only_moves", attack("torch_then_copy")),
    "weights that start alike": (
        {"reference.exploration:_change_weights": lambda program, probe: ({}, program.state())},
        "incorrect/WrongValues", attack("bias_ignored"),
    ),
    "a constant output": (
        {"reference.exploration:_flags": lambda *args: []}, "ok, not paid",
        program(TASKS["constant"], f"{beginning('attack')}\n{ONES}"),
    ),
    "what of the reference is needed": (
        {"judge.size_evaluation:bounded": lambda measured, *more: measured}, "ok, paid", program(SLIGHT, DOUBLED),
    ),
    "numbers that are none": ({"comparison.compare:_judge": lenient}, "incorrect/WrongValues", attack("nan")),
    "sharp scales": (
        {"reference.exploration:_smallest_scale": lambda *args: 1.0}, "incorrect/WrongValues",
        attack("small_parts_small_rows", correctness_trials=1),
    ),
}  # fmt: skip
REMOTE: dict[str, tuple[str, Shown]] = {
    "the order of programs": ("incorrect/WrongValues", program(CUMSUM.reference, IN_ORDER)),
    "memory checks": ("unsafe/CompiledRace", program(TWICE.reference, RACING, memory_checks="refuse")),
    "landlock": ("runtime_error/PermissionError", body("open('/etc/passwd').read(1)\nreturn self.right(x, y)")),
    "seccomp": ("runtime_error/PermissionError", attack("memory_files")),
    "bulk reads": ("hacking/HostAccess", attack("pickled")),
    "poison where nothing was written": ("incorrect/WrongValues", program(REFERENCE, keeping("empty"))),
}
