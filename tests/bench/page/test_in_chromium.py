# SPDX-License-Identifier: Apache-2.0
"""The page in a browser, as a person uses it: with a mouse, and with keys alone."""

import pytest

from tests.bench.page.chromium import Chromium, executable
from tests.bench.page.runs import HOSTILE, answer, right, write_run
from verl_kernel.bench.page.page import write_page
from verl_kernel.env import EvalError, EvalStatus, MemoryFinding

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(executable() is None, reason="no Chromium (Debian's package `chromium`) on this machine"),
]
CODE = (
    "import triton\n\n@triton.jit\ndef fused(x):\n    # nothing is masked\n    y = tl.load(x + 4096)\n    return 'y'\n"
)
FINDING = MemoryFinding(kind="race", kernel="fused", line=6, message="block 3 has stored to x, too")
SOFTMAX = {"code": CODE, "level": 1, "family": "softmax"}
TURNS = [
    answer(f"task {HOSTILE}", 0, 1, code=HOSTILE, completion=HOSTILE, level=3, family="matmul",
           error=EvalError(stage="load", type="ValueError", message=f"line 1: {HOSTILE}")),
    answer("softmax-a", 0, 1, status=EvalStatus.UNSAFE, memory_findings=(FINDING,), **SOFTMAX),
    right("softmax-a", 0, 2, 1.25, top_kernels=(("fused", 0.3), ("aten::add", 0.1)), **SOFTMAX),
    answer("softmax-a", 1, 1, status=EvalStatus.DECOY, **SOFTMAX),
    right("matmul-b", 0, 1, 10.5, code=CODE, level=2, family="matmul"),
    right("relu-c", 0, 1, 2.0, code=CODE, level=10, family="elementwise"),
]  # fmt: skip
NAMES = "[...document.querySelectorAll('#table tbody tr:not([hidden]) th')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_page(write_run(tmp_path_factory.mktemp("bench"), TURNS))


@pytest.fixture
def opened(browser, path):
    browser.resize(1300, 900)
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(path)
    yield browser
    assert browser.complaints == []
    assert {address.partition("#")[0] for address in browser.requests} == {path.as_uri()}
    assert not browser.value("Boolean(window.hostile)")


def names(browser):
    return [name[:9] for name in browser.value(NAMES)]


def sort(browser, head):
    browser.value(
        f"[...document.querySelectorAll('#table thead button')].find(e => e.textContent === '{head}').id = 'head'"
    )
    browser.click("#head")
    found = browser.value("document.getElementById('head').closest('th').getAttribute('aria-sort')")
    browser.value("document.getElementById('head').removeAttribute('id')")
    return found


def choose(browser, field, value):
    element = f"document.getElementById('{field}')"
    browser.value(f"(e => {{ e.value = '{value}'; e.dispatchEvent(new Event('input')); }})({element})")


def test_it_renders_without_a_complaint(opened):
    assert opened.value("document.title") == "a-model on cpu"
    assert names(opened) == ["task </sc", "softmax-a", "matmul-b", "relu-c"]
    assert opened.value("getComputedStyle(document.querySelector('.verdict')).fontWeight") == "600"
    assert opened.value("document.querySelectorAll('figure svg circle').length") > 0


def test_a_column_sorts_both_ways_with_unknowns_last(opened):
    assert sort(opened, "Speedup") == "descending"
    assert names(opened) == ["matmul-b", "relu-c", "softmax-a", "task </sc"]
    assert sort(opened, "Speedup") == "ascending"
    assert names(opened) == ["softmax-a", "relu-c", "matmul-b", "task </sc"]
    assert sort(opened, "Level") == "descending"
    assert names(opened)[0] == "relu-c"
    assert sort(opened, "Task") == "ascending"
    assert names(opened)[0] == "matmul-b"
    assert opened.value("[...document.querySelectorAll('[aria-sort]')].filter(e => e.ariaSort !== 'none').length") == 1


def test_filters_narrow_the_table_together(opened):
    opened.click("#find")
    opened.write("MATMUL")
    assert names(opened) == ["task </sc", "matmul-b"]
    assert opened.value("document.getElementById('count').textContent") == "2 of 4 tasks"
    choose(opened, "status", "ok")
    assert names(opened) == ["matmul-b"]
    choose(opened, "level", "1")
    assert names(opened) == []
    assert opened.value("!document.getElementById('nothing').hidden")
    for field in ("find", "level"):
        choose(opened, field, "")
    choose(opened, "status", "unsafe")
    assert names(opened) == ["softmax-a"]
    choose(opened, "status", "")
    choose(opened, "family", "elementwise")
    assert names(opened) == ["relu-c"]


def test_a_click_opens_a_task_with_its_turns_side_by_side(opened):
    opened.click("#task-1 .strip")
    opened.wait("document.querySelector('dialog').open")
    samples = opened.value("[...document.querySelectorAll('.sample summary b')].map(e => e.textContent)")
    assert samples == ["Sample 0", "Sample 1"]
    boxes = opened.value(
        "[...document.querySelectorAll('.turn .code')].slice(0, 2).map(e => e.getBoundingClientRect().toJSON())"
    )
    assert boxes[0]["top"] == boxes[1]["top"]
    assert boxes[0]["right"] < boxes[1]["left"]
    marked = "document.querySelector('.turn .marked')"
    assert opened.value(f"{marked}.dataset.number") == "6"
    assert "tl.load" in opened.value(f"{marked}.textContent")
    assert "block 3 has stored to x" in opened.value(f"{marked}.nextElementSibling.textContent")
    assert opened.value("document.querySelector('.turn .code').textContent.startsWith('import triton\\n\\n@triton')")
    assert opened.value("[...document.querySelectorAll('.bar span')].map(e => e.style.width)") == ["75%", "25%"]
    assert opened.value("document.querySelector('.turn:nth-child(2) .best').textContent") == "best answer"
    opened.click(".reference summary")
    assert opened.value("document.querySelector('.reference .code').textContent") == f"class Model: {HOSTILE}\n"


def test_no_wrong_answer_is_called_the_best(opened):
    opened.click("#task-0 .strip")
    opened.wait("document.querySelector('dialog').open")
    assert opened.value("document.querySelectorAll('.turn').length") == 1
    assert opened.value("document.querySelectorAll('.turn .best').length") == 0


def test_keys_alone_open_and_close_a_task(opened):
    opened.value("document.querySelector('#task-1 a').focus()")
    opened.press("ArrowDown")
    opened.press("Enter")
    opened.wait("document.querySelector('dialog').open")
    assert opened.value("document.getElementById('dialog-title').textContent") == "matmul-b"
    opened.press("Escape")
    opened.wait("!document.querySelector('dialog').open")
    opened.wait("location.hash === ''")  # the close event, which clears it, comes after the dialog has closed
    assert opened.value("document.activeElement.textContent") == "matmul-b"


def test_the_next_task_is_the_next_row_that_is_shown(opened):
    sort(opened, "Speedup")
    choose(opened, "family", "matmul")
    opened.click("#task-2 a")
    opened.wait("document.querySelector('dialog').open")
    assert opened.value("document.querySelector('[aria-label=\"Previous task\"]').disabled")
    opened.click("[aria-label='Next task']")
    opened.wait("document.getElementById('dialog-title').textContent.startsWith('task ')")
    opened.value("history.back()")
    opened.wait("document.getElementById('dialog-title').textContent === 'matmul-b'")


def test_an_address_opens_its_task(opened, path):
    opened.open(path, "#task=3")
    opened.wait("document.getElementById('dialog-title')?.textContent === 'relu-c'")
    opened.open(path, "#task=99")
    assert not opened.value("document.querySelector('dialog').open")


def test_what_a_model_wrote_stays_text(opened):
    opened.click("#task-0 a")
    opened.wait("document.querySelector('dialog').open")
    opened.click(".completion summary")
    assert opened.value("document.querySelector('.completion pre').textContent") == HOSTILE
    assert opened.value("document.querySelector('.turn .code .line').textContent.trim()") == HOSTILE
    assert HOSTILE in opened.value("document.querySelector('.remark').textContent")
    assert opened.value("document.querySelectorAll('dialog script, dialog img').length") == 0


def test_a_browser_that_cannot_unpack_answers_says_so(opened):
    opened.value("delete window.DecompressionStream")
    opened.click("#task-1 a")
    opened.wait("document.querySelector('dialog').open")
    assert "cannot unpack the answers" in opened.value("document.querySelector('dialog').textContent")


def test_a_script_that_came_in_all_the_same_does_not_run(opened):
    opened.value(
        "(e => { e.textContent = 'window.hostile = true'; document.body.append(e); })(document.createElement('script'))"
    )
    assert not opened.value("Boolean(window.hostile)")
    assert "Content Security Policy" in opened.complaints[0]
    opened.complaints.clear()


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_it_without_moving_sideways(opened, path, dark):
    opened.resize(390, 844, dark)
    opened.open(path, "#task=1")
    opened.wait("document.querySelector('dialog').open")
    assert opened.value("document.documentElement.scrollWidth") <= 390
    assert opened.value("document.querySelector('.turn').getBoundingClientRect().right") <= 390
    paper = opened.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(252, 252, 250)") is not dark
