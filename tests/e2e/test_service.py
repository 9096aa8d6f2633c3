# SPDX-License-Identifier: Apache-2.0
"""Two steps with TRLOO and PRS, whose answers a service judges, which is killed and started again between them."""

import subprocess
import threading

import pytest

from tests.e2e.runs import PROMPTS, SAMPLES, TRAINER, Run, command, environment, train
from tests.service.serving import Started, client, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def judged(quickstart, tmp_path_factory):
    """The run, and how many evaluations the second service judged."""
    folder = tmp_path_factory.mktemp("service")
    words = [*TRAINER, f"quickstart_dir={quickstart}", "--cfg=job", "--package=kernelgym"]
    options = folder / "gym.yaml"
    with options.open("w") as out:
        subprocess.run(words, cwd=folder, env=environment(folder), stdout=out, check=True, timeout=300)
    run, services = Run(folder), []
    with Started(folder, f"--options={options}") as first:
        port = first.address.rpartition(":")[2]

        def restart() -> None:
            wait_for(lambda: run.has_steps, 3600)
            first.process.kill()
            first.process.wait()
            services.append(Started(folder, f"--options={options}", f"--port={port}"))

        restarting = threading.Thread(target=restart)
        restarting.start()
        try:
            train(
                folder,
                command(
                    quickstart, folder, f"kernelgym.address={first.address}", "trainer.total_training_steps=2",
                    "trainer.save_freq=-1", f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/samples",
                ),
            )  # fmt: skip
        finally:
            restarting.join()
    with services[0] as second, client(second.address) as http:
        return run, http.get("/v1/stats").json()["evaluations"]


def test_every_answer_of_both_steps_has_a_verdict(judged):
    for step in (1, 2):
        rows = judged[0].rows(step)
        assert len(rows) == PROMPTS * SAMPLES
        assert all(turn["result"]["status"] != "infra_error" for row in rows for turn in row["turns"])


def test_the_sampler_and_the_estimator_did_their_work(judged):
    for step in judged[0].steps[:2]:
        assert step["kernel/correct_rate"] > 0
        assert step["prs/kept/reward/mean"] > 0
        assert step["actor/grad_norm"] > 0


def test_both_services_judged(judged):
    assert judged[1] > 0


def test_the_trainer_started_no_judges(judged):
    assert "JudgeActor" not in judged[0].log
