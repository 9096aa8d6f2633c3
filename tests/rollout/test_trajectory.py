# SPDX-License-Identifier: Apache-2.0
import torch

from verl_kernel.advantage.turns import find_turns
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.reward.judging import Judged
from verl_kernel.reward.novelty import ColdStart
from verl_kernel.reward.turn_end import TurnEnd
from verl_kernel.rollout.trajectory import Trajectory, summarise

OK = EvalResult(
    task_id="t", status=EvalStatus.OK, correctness=True, decoy_kernel=False, speedup=2.0, timing_source="simulated"
)
BAD = EvalResult(task_id="t", status=EvalStatus.INCORRECT, correctness=False)
END = 9


def two_turns(first: float, second: float) -> Trajectory:
    """Prompt of 3 tokens; turns at response positions [0, 2) and [5, 8); 2 tokens of feedback after each end."""
    trajectory = Trajectory(prompt_length=3, ids=[1, 1, 1], logprobs=[])
    trajectory.ids += [5, END]
    trajectory.mask += [1, 1]
    trajectory.record_turn(0, 2, Judged(None, BAD, first))
    trajectory.ids += [7, 7, 7, 5, 6, END, 7, 7]
    trajectory.mask += [0, 0, 0, 1, 1, 1, 0, 0]
    trajectory.logprobs = [-0.5] * len(trajectory.mask)
    trajectory.record_turn(5, 8, Judged(None, OK, second))
    return trajectory


def test_the_row_ends_with_its_last_judged_turn():
    output = two_turns(0.5, 1.5).output({"tool_calls": 1.5, "generate_sequences": 0.5})
    assert (output.reward_score, output.num_turns) == (2.0, 4)
    row, fields = output.as_dict(), output.extra_fields
    assert len(row["responses"]) == len(row["rollout_log_probs"]) == 8
    assert (fields["kernel_gym_seconds"], fields["kernel_generate_seconds"]) == (1.5, 0.5)


def test_rewards_sit_on_the_last_token_of_their_turns():
    row = two_turns(0.0, 1.5).output({}).as_dict()
    assert row["prompts"].tolist() == [1, 1, 1]
    assert row["response_mask"].tolist() == [1, 1, 0, 0, 0, 1, 1, 1]
    assert row["rm_scores"].nonzero().flatten().tolist() == [1, 7]
    assert row["rm_scores"].dtype is torch.float32
    assert find_turns(row["rm_scores"][None]).rewards.tolist() == [[0.0, 1.5]]


def test_a_cut_off_turn_is_closed_without_training_on_it():
    trajectory = Trajectory(prompt_length=1, ids=[1, 5], mask=[1], logprobs=[-0.1])
    trajectory.close_turn(TurnEnd(END, opens_next=False))
    trajectory.close_turn(TurnEnd(END, opens_next=False))
    assert (trajectory.ids, trajectory.mask, trajectory.logprobs) == ([1, 5, END], [1, 0], [-0.1, 0.0])


def test_an_end_that_opens_the_next_message_stays_there():
    end = TurnEnd(END, opens_next=True)
    trajectory = Trajectory(prompt_length=1, ids=[END, 5, END], mask=[1, 1], logprobs=[-0.1, -0.2])
    for _ in range(2):
        trajectory.close_turn(end)
        assert (trajectory.ids, trajectory.mask, trajectory.logprobs) == ([END, 5], [1], [-0.1])
    empty = Trajectory(prompt_length=1, ids=[END])
    empty.close_turn(end)
    assert empty.ids == [END]
    assert empty.logprobs is None


def test_only_a_correct_turn_has_a_speedup():
    wrong = two_turns(0.0, 0.0).turns[0]
    fast = wrong.model_copy(update={"result": BAD.model_copy(update={"speedup": 3.0})})
    for turn in (fast, wrong.model_copy(update={"result": OK.model_copy(update={"speedup": None})})):
        figures = summarise([turn])
        assert (figures["last_turn_speedup"], figures["best_turn_speedup"]) == (0.0, 0.0)
    right = wrong.model_copy(update={"result": OK.model_copy(update={"speedup": 1.3})})
    assert summarise([right, fast])["best_turn_fast@1.2"] == 1.0
    assert summarise([right, fast])["last_turn_fast@1.2"] == 0.0


def test_what_is_sure_has_figures_of_its_own():
    sure = OK.model_copy(update={"timing_source": "cuda_event", "speedup_low": 1.1})
    turns = [turn.model_copy(update={"result": seen}) for turn in two_turns(1.0, 1.0).turns[:1] for seen in (OK, sure)]
    figures = summarise(turns)
    assert (figures["last_turn_fast@1.2"], figures["last_turn_fast@1.2_sure"]) == (1.0, 0.0)
    assert figures["best_turn_fast@1.2_sure"] == 1.0


def test_validation_figures_name_last_and_best_turn():
    turns = two_turns(0.0, 1.5).turns
    best = {"best_turn_acc": 1.0, "best_turn_fast@1.2": 1.0, "best_turn_speedup": 2.0}
    best |= {"unjudged": 0.0, "best_turn_fast@1.2_sure": 1.0}
    last = dict.fromkeys(["last_turn_fast@1.2", "last_turn_fast@1.2_sure"], 1.0) | {"last_turn_speedup": 2.0}
    assert summarise(turns) == best | last | {"acc": 1.0}
    assert summarise(turns[::-1]) == best | dict.fromkeys(last, 0.0) | {"acc": 0.0}
    assert set(summarise(turns[:1]).values()) == {0.0}


def test_novelty_has_figures_where_it_is_measured():
    known, new = "class ModelNew: pass\n", "class ModelNew:\n    x = 1\n"
    trajectory = Trajectory(prompt_length=1, ids=[1], cold_start=ColdStart([f"```python\n{known}```"]))
    for code, result in ((new, OK), (known, BAD), (new, BAD), (None, BAD), (known, OK)):
        trajectory.record_turn(0, 1, Judged(code, result, 0.0))
    names = ("novel", "novel_bytes", "novel_acc", "best_turn_novel_acc")
    found = [[summarise([turn])[name] for name in names] for turn in trajectory.turns]
    assert found == [[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert summarise(trajectory.turns)["best_turn_novel_acc"] == 1
    assert summarise(trajectory.turns)["novel_acc"] == 0
