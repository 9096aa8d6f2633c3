# SPDX-License-Identifier: Apache-2.0
"""The keys that fix the age of an asynchronous trainer's samples (docs: stale data without a GPU)."""

import pytest

from verl_kernel.sampler.prs import PRSReplayBuffer

BATCH = 8


def sampler(mode: str, threshold: int, strategy: str) -> PRSReplayBuffer:
    return PRSReplayBuffer(
        trainer_mode=mode, trainer_config={}, max_off_policy_threshold=threshold, max_off_policy_strategy=strategy,
        sampler_kwargs=None, refill_fn=None,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
@pytest.mark.parametrize("queued", [0, 0.5, 2, 4])
def test_samples_are_as_old_as_the_queue_is_long(mode, queued):
    buffer = sampler(mode, threshold=1, strategy="wait")
    keys = ("running_keys", "finished_keys", "prompt_global_steps")
    running, finished, steps = (getattr(buffer, name)["train"] for name in keys)
    made = 0
    for step in range(1, 9):
        for _ in range(BATCH + (int(queued * BATCH) if step == 1 else 0)):
            running.add(f"p{made}")
            steps[f"p{made}"] = step
            made += 1
        # While one prompt is in flight the step does not begin, so all of them are played by this step's weights.
        last = sorted(running)[0]
        finished |= running - {last}
        running.intersection_update({last})
        assert not buffer._has_enough_samples(step, "train", BATCH, finished)
        finished.add(last)
        running.clear()
        assert buffer._has_enough_samples(step, "train", BATCH, finished)
        chosen, _, _ = buffer._select_prompt_uids("train", set(finished), BATCH)
        ages = [step - steps[uid] for uid in chosen]
        assert sum(ages) / BATCH == min(step - 1, queued)
        assert max(ages) - min(ages) <= 1
        finished -= set(chosen)


def test_a_low_threshold_with_drop_throws_every_prompt_away():
    """The rule behind the refusal in `preflight/trainer_mode.py`."""
    buffer = sampler("separate_async", threshold=4, strategy="drop")
    buffer.finished_keys["train"] |= {"of_step_1", "of_step_2"}
    buffer.prompt_global_steps["train"] |= {"of_step_1": 1, "of_step_2": 2}
    # A queue of four batches: the turn of step 1's prompts comes in step 5.
    assert buffer._stale_terminal_keys(5, "train") == {"of_step_1"}
    assert buffer._stale_terminal_keys(4, "train") == set()
