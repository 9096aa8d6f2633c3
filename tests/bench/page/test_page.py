# SPDX-License-Identifier: Apache-2.0
import base64
import errno
import gzip
import hashlib
import json
from pathlib import Path

import pytest

from tests.bench.page.runs import HOSTILE, answer, generated, header, right, write_run
from tests.reporting.elements import OWN, Elements
from verl_kernel.bench.page.page import write_page
from verl_kernel.bench.records import SuiteTask
from verl_kernel.env import EvalError
from verl_kernel.errors import DataError


def page(folder, turns, head=None):
    return Elements(write_page(write_run(folder, turns, head)).read_text(encoding="utf-8"))


def packs(elements):
    raw = [text for tag, attributes, text in elements.raw if attributes.get("type") == "text/plain"]
    return [json.loads(gzip.decompress(base64.b64decode(text))) for text in raw]


def test_what_models_and_endpoints_wrote_is_text(tmp_path):
    error = EvalError(stage="load", type=HOSTILE, message=HOSTILE, traceback_tail=HOSTILE)
    turn = answer(HOSTILE, code=HOSTILE, completion=HOSTILE, error=error, family=HOSTILE, env={"gpu_name": HOSTILE})
    head = header(1, model=HOSTILE, suite=HOSTILE, versions={HOSTILE: HOSTILE}, gym={HOSTILE: HOSTILE}, started=HOSTILE)
    elements = page(tmp_path, [turn], head)
    scripts = [attributes for tag, attributes in elements.found if tag == "script"]
    assert scripts == [{"type": "text/plain", "id": "pack-0"}, {}]
    assert not {tag for tag, _ in elements.found} & {"img", "iframe", "object", "link", "base", "form"}
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert elements.text.count(HOSTILE) >= 8
    (task,) = packs(elements)
    (shown,) = task["samples"][0]["turns"]
    assert (task["task"], shown["completion"], shown["code"]) == (HOSTILE, HOSTILE, [HOSTILE])


def test_the_policy_allows_the_pages_own_scripts_only(tmp_path):
    elements = page(tmp_path, [right()])
    (policy,) = [a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"]
    for tag in OWN:
        (text,) = [text for name, attributes, text in elements.raw if name == tag and not attributes]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    addresses = [value for _, a in elements.found for name, value in a.items() if name in ("src", "href")]
    assert addresses == ["#task=0"]


def test_a_row_for_each_task_and_a_pack_for_each_row(tmp_path):
    folder = write_run(tmp_path, [right("t2", speedup=1.75)], header(2))
    tasks = [SuiteTask(task_id=name, task_hash="h") for name in ("t1", "t2")]
    (folder / "tasks.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in tasks))
    elements = Elements(write_page(folder).read_text(encoding="utf-8"))
    assert "1.75x" in elements.text
    assert "simulated: a model of a GPU" in elements.text
    assert [len(pack["samples"]) for pack in packs(elements)] == [0, 1]
    assert [a["href"] for tag, a in elements.found if tag == "a"] == ["#task=0", "#task=1"]


def test_a_run_without_an_answer_has_a_page(tmp_path):
    text = page(tmp_path, [], header(3)).text
    assert "unanswered task 3" in text
    assert "none: no kernel was timed" in text


def test_names_that_are_no_unicode_can_be_written(tmp_path):
    folder = write_run(tmp_path, [], header(1))
    text = (folder / "run.json").read_text().replace("a-model", "a \\ud800 model")
    (folder / "run.json").write_text(text)
    try:
        written = write_page(folder).read_text(encoding="utf-8")
    except DataError as exc:
        assert "run.json is damaged" in str(exc)
    else:
        assert "a \\ud800 model" in written


def test_an_older_page_outlives_a_full_disk(tmp_path, monkeypatch):
    path = write_page(write_run(tmp_path, [right()]))
    older, whole = path.read_text(), Path.write_text

    def half(self, text, **options):
        whole(self, text[: len(text) // 2], **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        write_page(tmp_path)
    assert path.read_text() == older
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.exhaustive
def test_the_page_of_a_thousand_answers_is_small(tmp_path):
    turns = generated(tasks=50, samples=4, turns=5)
    path = write_page(write_run(tmp_path, turns, header(50, samples=4, turns=5)))
    raw = (tmp_path / "turns.jsonl").stat().st_size
    assert len(turns) == 1000
    assert raw > 4e6
    assert path.stat().st_size < 5e6
