# SPDX-License-Identifier: Apache-2.0
"""Checks of an output against the reference's: its form, its values, and that it is not an earlier trial's answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from math import isfinite

import torch

from verl_kernel.env.comparison.compare import Agreement, compare
from verl_kernel.env.comparison.tf32 import has_products
from verl_kernel.env.comparison.tf32_tolerance import Room, limits
from verl_kernel.env.ipc.messages import Claims
from verl_kernel.env.ipc.structure import structural_difference
from verl_kernel.env.ipc.tensor_facts import disagreement, read_facts
from verl_kernel.env.judge.runner_client import RunnerClient, Verdict
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.tamper.hack_flags import HackFlag

Rooms = list[Room | None] | None
_OTHER_STRUCTURE = "the output is not structured like the reference's"
_PRECISE = (torch.float32, torch.complex64, torch.float64, torch.complex128)
_PRECISION = (
    '; TF32 explains that: multiply float32 with tl.dot(..., input_precision="ieee"), unless kernelgym.float32 is tf32'
)


class OutputCheck:
    """Compares the outputs of one candidate.

    Args:
        reference: the outputs are compared with its outputs.
        client: makes verdicts of findings.
        guard: is entered around every call of the reference.
        tolerance: `kernelgym.tolerance`.
        float32: `kernelgym.float32`.
        strides: `kernelgym.strides`.
    """

    def __init__(
        self,
        *,
        reference: Reference,
        client: RunnerClient,
        guard: Callable[[], AbstractContextManager[object]],
        tolerance: str,
        float32: str,
        strides: str,
    ) -> None:
        self._reference, self._client, self._guard = reference, client, guard
        self._tolerance, self._float32, self._strides = tolerance, float32, strides
        self._past: list[tuple[list[torch.Tensor], Rooms]] = []
        """Expected outputs of earlier trials, in the host's memory: a GPU needs its memory for the current trial."""

    def form(self, trial: Trial, form: Claims) -> None:
        """Check that the output has the form of the reference's, by the candidate's report (raises Verdict)."""
        facts = self._client.parse(lambda: read_facts(form["tensors"]))
        if form.get("output") != trial.expected.tree or len(facts) != len(trial.facts):
            text = structural_difference(trial.expected.tree, form.get("output")) or _OTHER_STRUCTURE
            raise self.wrong("WrongStructure", text)  # check: output-has-the-structure
        if mismatch := disagreement(trial.facts, facts, self._strides):
            raise self.wrong(*mismatch)  # check: output-has-the-form

    def values(self, trial: Trial, actual: list[torch.Tensor]) -> None:
        """Check every element of an output outside the trials (raises Verdict)."""
        agreement, _ = self._agreement(trial, actual, True)
        if not agreement.ok:
            raise self.wrong("WrongValues", difference(agreement))  # check: output-outside-the-trials-is-right

    def trial(self, trial: Trial, actual: list[torch.Tensor], *, ablated: bool) -> Agreement:
        """Return how far the output of a trial agrees (raises Verdict if it is the answer to an earlier trial)."""
        agreement, rooms = self._agreement(trial, actual, not ablated)
        if not agreement.ok and not ablated:
            self._refuse_replay(actual)
        self._past.append(([tensor.cpu() for tensor in trial.expected.tensors], _on_device(rooms, "cpu")))
        return agreement

    def wrong(self, kind: str, message: str) -> Verdict:
        """Make the verdict on a wrong output."""
        return self._client.verdict(EvalStatus.INCORRECT, kind, message)

    def _agreement(self, trial: Trial, actual: list[torch.Tensor], explain: bool) -> tuple[Agreement, Rooms]:
        """Compare an output with the trial's; return the agreement and the room that it needed, if any.

        Args:
            trial: with the expected output.
            actual: the output.
            explain: whether to look for an explanation of a difference, such as TF32.
        """
        expected = trial.expected.tensors
        plain = self._compare(expected, actual)
        if not plain.ok and explain:
            for tied_output in self._reference.tied_outputs(trial, self._guard):
                if (tied := self._compare(tied_output, actual)).ok:
                    return tied, None
        # Each explanation costs forwards of the reference, so they are tried from the cheapest on.
        if plain.has_few and explain:
            steps = self._reference.step_room(trial, self._guard)
            if steps is not None and (stepped := self._compare(expected, actual, steps)).ok:
                return stepped, steps
        if plain.ok or not (explain or self._float32 == "tf32") or not self._may_be_tf32(trial):
            return plain, None
        # The bound of any allowance for TF32 is known without a forward: beyond it nothing can be explained.
        if not self._compare(expected, actual, limits(expected, self._reference.smallest_scale)).ok:
            return plain, None
        rooms = self._reference.room(trial, self._guard)
        roomy = plain if rooms is None else self._compare(expected, actual, rooms)
        return (roomy, rooms) if self._float32 == "tf32" else (replace(plain, is_tf32=roomy.ok), None)

    def _may_be_tf32(self, trial: Trial) -> bool:
        """Whether the reference has products, and an output more precise than TF32."""
        precise = any(tensor.dtype in _PRECISE for tensor in trial.expected.tensors)
        return precise and has_products(trial.events)

    def _compare(self, expected: list[torch.Tensor], actual: list[torch.Tensor], rooms: Rooms = None) -> Agreement:
        triples = zip(expected, actual, rooms or [None] * len(expected), strict=True)
        smallest_scale = self._reference.smallest_scale
        agreements = [
            compare(expected_tensor, actual_tensor, self._tolerance, smallest_scale, room)
            for expected_tensor, actual_tensor, room in triples
        ]
        return min(agreements, key=lambda agreement: (agreement.ok, -(agreement.max_abs or 0.0)))

    def _refuse_replay(self, actual: list[torch.Tensor]) -> None:
        device = actual[0].device
        for past, rooms in self._past:
            if all(bool((tensor == tensor.reshape(-1)[:1]).all()) for tensor in past):
                continue  # a wrong program may return one number everywhere without a replay
            past_outputs = [tensor.to(device) for tensor in past]
            if self._compare(past_outputs, actual, _on_device(rooms, device)).ok:
                text = "the output is the answer to an earlier trial"
                raise self._client.hacking(HackFlag.REPLAYED_OUTPUT, text)  # check: output-is-not-replayed


def difference(agreement: Agreement) -> str:
    """Return a sentence on how an output differs from the reference's."""
    where = f", first at index {list(agreement.first_bad_index)}" if agreement.first_bad_index is not None else ""
    expected, actual = agreement.first_bad or (0.0, 0.0)
    where += f": {_as_text(actual, expected)} instead of {_as_text(expected, actual)}" if agreement.first_bad else ""
    if (
        agreement.max_abs == 0.0 or not isfinite(expected) or not isfinite(actual)
    ):  # a numeric difference would say little
        return f"the output is NaN or infinite where the reference's is not, or the other way round{where}"
    size = "" if agreement.max_abs is None else f" by up to {agreement.max_abs:.3g}"
    return f"the output differs from the reference's{size}{where}{_PRECISION if agreement.is_tf32 else ''}"


def _as_text(value: float, distinct_from: float) -> str:
    """Return a number as text, with enough digits to distinguish it from another."""
    forms = ("{:.4g}", "{:.8g}", "{}")
    return next((form.format(value) for form in forms if form.format(value) != form.format(distinct_from)), str(value))


def _on_device(rooms: Rooms, device: torch.device | str) -> Rooms:
    return None if rooms is None else [None if room is None else room.on(device) for room in rooms]
