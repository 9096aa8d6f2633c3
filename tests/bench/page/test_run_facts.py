# SPDX-License-Identifier: Apache-2.0
from tests.bench.page.runs import answer, header, right
from verl_kernel.bench.page.overview import run_facts
from verl_kernel.bench.scores import asked_of, attempt, clock
from verl_kernel.env import EvalStatus
from verl_kernel.figures.scoring import score


def facts(turns, head):
    return run_facts(head, score([attempt(one) for one in turns], asked_of(head, [], turns)), turns)


def test_the_source_of_times_is_said_plainly():
    assert clock([right()]).startswith("simulated: a model of a GPU")
    assert clock([right(timing_source="cuda_event"), answer()]) == "measured on a GPU"
    assert clock([right(timing_source="simulated_unvalidated")]).startswith("simulated_unvalidated: a model of a GPU")
    assert clock([right(timing_source="simulated_unvalidated"), right(turn=2)]).startswith("mixed, and not comparable")
    assert clock([right(timing_source="cuda_event"), right(turn=2)]).startswith("mixed, and not comparable")
    assert clock([answer()]).startswith("none")


def test_answers_that_are_lost_or_missing_are_counted():
    turns = [right(), right(turn=2), right(turn=3), answer(sample=1, status=EvalStatus.INFRA_ERROR)]
    found = facts(turns, header(2, samples=2, turns=3))
    assert found["answers"] == (
        "3 judged, 1 lost by the gym (in no figure), 2 samples without any answer (each counts as a failure), "
        "1 samples ended before the last turn"
    )
    assert found["asked for"] == "2 samples a task, 3 turns each"
    assert found["prompts"] == "show the best turns, at most 4 (`top_w`)"


def test_saved_kernels_were_not_sampled():
    assert "sampling" in facts([right()], header(1))
    assert not {"sampling", "prompts"} & set(facts([right()], header(1, source="kernels")))


def test_the_device_names_its_gpu():
    turns = [right(env={"gpu_name": "H200"}, timing_source="cuda_event")]
    assert facts(turns, header(1, device="cuda"))["device"] == "cuda, H200"
    assert facts([right(env={"gpu_profile": "h100"})], header(1))["device"] == "cpu, clock of a simulated h100"
