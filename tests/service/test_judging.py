# SPDX-License-Identifier: Apache-2.0
"""A service with real judges, through the client that stands in a pool's place."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.exploits.corpus import meets
from tests.exploits.test_corpus import CASES as CORPUS
from tests.exploits.test_corpus import OPTIONS as CORPUS_OPTIONS
from tests.exploits.test_corpus import REFERENCES
from tests.service.serving import KEYS, client, serving, some_keys
from tests.tiers import thinned
from verl_kernel.client import RemoteGym
from verl_kernel.env.conformance.cases import TASK, WALL_CLOCK
from verl_kernel.env.conformance.programs import HONEST, ODD_SOURCES, RAISES, WRONG
from verl_kernel.env.conformance.suite import CASES, OPTIONS, SEED, check_case
from verl_kernel.env.pool.local import LocalPool
from verl_kernel.env.result import EvalStatus

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def pool():
    with LocalPool(replace(OPTIONS, references="jailed"), SEED) as pool:
        yield pool


@pytest.fixture(scope="module")
def gym(pool, tmp_path_factory):
    with serving(pool, tmp_path_factory.mktemp("service"), OPTIONS) as address, RemoteGym(address) as gym:
        yield gym


OF_A_POOL = [name for name, case in CASES.items() if not case.__qualname__.startswith("_verdict.")]
"""All but single verdicts, of which the corpus has more (`VERDICTS`)."""
VERDICTS = list({(case.honest, case.verdict): case for case in reversed(CORPUS)}.values())


@pytest.mark.parametrize("name", thinned(OF_A_POOL, 6))
def test_conformance(gym, name):
    result = check_case(gym, name)
    assert result.passed, result.detail


@pytest.mark.parametrize("source", thinned([HONEST, WRONG, RAISES, *ODD_SOURCES], 3))
def test_results_are_those_of_a_pool(pool, gym, source):
    pool.forget()
    (here,) = pool.evaluate_many([(TASK, source, "k.py")])
    pool.forget()
    (there,) = gym.evaluate_many([(TASK, source, "k.py")])
    assert there.model_copy(update=WALL_CLOCK) == here.model_copy(update=WALL_CLOCK)


def test_namespaces_share_no_verdict_and_no_reference(pool, tmp_path):
    with serving(pool, tmp_path, OPTIONS, some_keys(tmp_path)) as address:
        one, two = (RemoteGym(address, KEYS[name]) for name in ("one", "two"))
        job = TASK, HONEST + "# of nobody else\n", "k.py"
        before = pool.stats()
        first, second = one.evaluate_many([job])[0], two.evaluate_many([job])[0]
        after = pool.stats()
        one.close()
        two.close()
    assert after.evaluations - before.evaluations == 2
    assert after.remembered == before.remembered
    assert (first.status, first.speedup) == (second.status, second.speedup)
    assert first.seed_commit != second.seed_commit  # who knows the inputs of one knows none of the other's


def test_an_error_names_nothing_of_another_namespace(pool, tmp_path):
    reference = TASK.reference.replace("return [torch", "raise ValueError('no data')\n    return [torch", 1)
    with serving(pool, tmp_path, OPTIONS, some_keys(tmp_path)) as address:
        said = []
        for name in ("one", "two"):
            with client(address, name) as http:
                task = {"reference": reference, "task_id": f"secret-of-{name}"}
                body = {"evaluations": [{"task": task, "source": HONEST}], "wait_s": 60}
                said.append(http.post("/v1/evaluations", json=body).json()["evaluations"][0]["problem"]["message"])
    assert "secret-of-one" in said[0]
    assert "secret-of-two" in said[1]
    assert "one" not in said[1].replace("none", "")


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_a_storm_is_answered_while_judges_are_killed(tmp_path):
    clients, each, pause_s = 60, 3, 3.0
    options = replace(OPTIONS, quarantine_s=0.5)
    stop, kills = threading.Event(), []

    def kill_judges(pool):
        judged = 0
        while not stop.wait(pause_s):  # a judge takes seconds to start, on a busy machine many
            before, judged = judged, pool.stats().evaluations
            if judged > before and (running := pool.pids()):
                kills.append(running[len(kills) % len(running)])
                os.kill(kills[-1], signal.SIGKILL)

    def ask(number):
        with RemoteGym(address) as gym:
            sources = [f"{HONEST if turn % 2 else WRONG}# {number} {turn}\n" for turn in range(each)]
            return gym.evaluate_many([(TASK, source, f"{number}/{turn}") for turn, source in enumerate(sources)])

    with LocalPool(options, SEED) as pool, serving(pool, tmp_path, options, most_waiting=50) as address:
        killer = threading.Thread(target=kill_judges, args=[pool])
        killer.start()
        try:
            with ThreadPoolExecutor(clients) as threads:
                found = list(threads.map(ask, range(clients)))
        finally:
            stop.set()
            killer.join()
    assert kills
    assert [len(results) for results in found] == [each] * clients
    for number, results in enumerate(found):
        for turn, result in enumerate(results):
            assert result.kernel == f"{number}/{turn}"
            wanted = EvalStatus.OK if turn % 2 else EvalStatus.INCORRECT
            assert result.status in (wanted, EvalStatus.INFRA_ERROR), (result.status, result.error)
    assert sum(result.status is EvalStatus.INFRA_ERROR for results in found for result in results) <= len(kills)


def is_as_wanted(case, result):
    if case.honest:
        return result.rewarded
    if case.verdict.startswith("rejected_static"):  # several rules may refuse it, and the first one is told
        return result.status is EvalStatus.REJECTED_STATIC
    return meets(result, case.verdict)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_each_verdict_of_the_corpus_comes_through_a_service(tmp_path):
    """One program of each verdict: what a program is worth, tests/exploits/test_corpus.py says."""
    options = replace(CORPUS_OPTIONS, num_judges=2)
    with LocalPool(options, 5) as pool, serving(pool, tmp_path, options) as address, RemoteGym(address) as gym:
        results = gym.evaluate_many([(REFERENCES[case.task], case.source, case.name) for case in VERDICTS])
    pairs = zip(VERDICTS, results, strict=True)
    others = [(case.name, result.status, result.error) for case, result in pairs if not is_as_wanted(case, result)]
    assert others == []
