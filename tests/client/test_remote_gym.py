# SPDX-License-Identifier: Apache-2.0
import pickle
from dataclasses import replace

import pytest

from tests.service.serving import GYM, KEYS, Pool, serving, some_keys
from verl_kernel.client import RemoteGym
from verl_kernel.env.conformance.cases import TASK
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError, EnvironmentNotReady, TaskError


@pytest.fixture
def address(tmp_path):
    with serving(Pool(), tmp_path, GYM) as address:
        yield address


def connected(address, **given):
    return RemoteGym.connect(replace(GYM, address=address, **given))


def test_the_same_options_are_accepted_wherever_judges_are(address):
    with connected(address, device="auto", num_judges=7, queue_size=5) as gym:
        assert gym.evaluate_many([(TASK, "a", "k.py")])[0].kernel == "k.py"


@pytest.mark.parametrize(
    "other",
    [{"true_size": "auto"}, {"correctness_trials": 2}, {"compile_for": ("sm_90", "gfx942")}, {"device": "cuda"}],
)
def test_a_service_with_other_options_is_refused(address, other):
    (key,) = other
    with pytest.raises(ConfigError, match=f"kernelgym.{key} is .*, but the service at {address} judges with"):
        connected(address, **other)


def test_all_options_that_differ_are_named_at_once(address):
    with pytest.raises(ConfigError, match="kernelgym.correctness_trials is 2 and kernelgym.true_size is 'auto', but"):
        connected(address, true_size="auto", correctness_trials=2)


def test_the_services_own_file_of_keys_is_no_key(address, tmp_path):
    file = tmp_path / "keys"
    file.write_text("team-a a-key-of-this-team\n")
    with pytest.raises(ConfigError, match="address_key is .*keys, which holds no key alone: leave out the namespace"):
        connected(address, address_key=str(file))


def names(results):
    return [result.kernel for result in results]


def test_many_are_sent_together(tmp_path, monkeypatch):
    paths, sent = [], RemoteGym._request
    monkeypatch.setattr(RemoteGym, "_request", lambda gym, *given: paths.append(given[1]) or sent(gym, *given))
    with serving(Pool(), tmp_path, GYM) as address, RemoteGym(address) as gym:
        found = gym.evaluate_many([(TASK, f"a{number}", f"{number}.py") for number in range(70)])
    assert names(found) == [f"{number}.py" for number in range(70)]
    assert [path for path in paths if path != "/v1/tasks"] == ["/v1/evaluations"] * 3


def test_one_that_is_unfit_leaves_the_others_their_results(address):
    with RemoteGym(address) as gym:
        found = gym.evaluate_many([(TASK, "a", "x" * 300), *((TASK, "a", f"{number}") for number in range(5))])
    assert [result.status.value for result in found] == ["infra_error", *["ok"] * 5]


@pytest.mark.parametrize(("limit", "size"), [({"most_waiting": 3}, 1), ({"request_mb": 0.1}, 20_000)])
def test_what_is_refused_together_is_sent_in_parts(tmp_path, limit, size):
    jobs = [(TASK, f"{number}{'#' * size}", f"{number}.py") for number in range(10)]
    with serving(Pool(), tmp_path, GYM, **limit) as address, RemoteGym(address) as gym:
        assert names(gym.evaluate_many(jobs)) == [job[2] for job in jobs]


def test_a_handle_goes_to_another_process(address):
    with RemoteGym(address) as first, pickle.loads(pickle.dumps(first)) as second:
        assert second.evaluate_many([(TASK, "a", "")])[0].rewarded == first.evaluate_many([(TASK, "a", "")])[0].rewarded


def test_an_unusable_reference_is_a_task_error(address):
    with RemoteGym(address) as gym, pytest.raises(TaskError, match="no data"):
        gym.evaluate_many([(TASK, "unfit", "")])


def test_a_service_that_stays_away_is_our_failure():
    with RemoteGym("http://127.0.0.1:9", return_s=0.1) as gym:
        (result,) = gym.evaluate_many([(TASK, "a", "")])
    assert result.status.value == "infra_error"
    assert "has been away for 0.1 s" in result.error.message


def test_a_wrong_key_is_a_sentence(tmp_path):
    with serving(Pool(), tmp_path, GYM, some_keys(tmp_path)) as address:
        with RemoteGym(address, KEYS["one"]) as gym:
            assert gym.options()["device"] == "cpu"
        with RemoteGym(address, "another-key-of-all") as gym, pytest.raises(EnvironmentNotReady, match="address_key"):
            gym.evaluate_many([(TASK, "a", "")])


@pytest.mark.parametrize(("scheme", "remedy"), [("http", "start one with"), ("https", "write http://")])
def test_where_no_service_answers_a_remedy_fits_the_address(scheme, remedy):
    with pytest.raises(EnvironmentNotReady, match=f"no service answers at {scheme}://127.0.0.1:9 .*{remedy}"):
        RemoteGym(f"{scheme}://127.0.0.1:9").options()


@pytest.mark.parametrize("address", [
    "judges:8008", "http://judges/path", "ftp://judges", "",
    "http://", "http://a b", "http://a..b", "https://:80", "http://1.2.3.400",
])  # fmt: skip
def test_an_address_is_that_of_a_host(address):
    with pytest.raises(ConfigError, match="kernelgym.address is .*must be an address as in http://judges:8008"):
        GymOptions(address=address)
