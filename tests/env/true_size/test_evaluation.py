# SPDX-License-Identifier: Apache-2.0
"""Whole evaluations of tasks that are too large to run whole: honest kernels are charged what they do at the true size,
and what does less there than where it is verified has no speedup.
"""

import pytest

from tests.env.programs import HONEST as SMALL
from tests.env.programs import REFERENCE
from tests.env.true_size import programs as made
from tests.env.true_size.programs import HALF, PRODUCT, ROWS, gather_task, product, product_task, rows, sum_task, sums
from tests.tiers import thinned
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Task, check
from verl_kernel.errors import TaskError

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=2, true_size="auto", memory_checks="refuse", run_timeout_s=120,
    reference_timeout_s=300,  # tensors of 3 GB take half a minute on a quiet machine, over one on a machine that swaps
)  # fmt: skip


@pytest.fixture(scope="module")
def judge_of_tiles(judge_with):
    """One for all products, which makes and prepares the copies of a task once."""
    with judge_with(compile_for="sm_90") as judge:
        yield judge


def same(one: EvalResult, other: EvalResult) -> bool:
    return one.model_copy(update={"stage_seconds": {}}) == other.model_copy(update={"stage_seconds": {}})


def test_an_honest_kernel_is_charged_the_true_size(judge):
    result = judge.evaluate(Task(ROWS), rows())
    assert result.rewarded
    assert result.hack_flags == ()
    assert len(result.true_size.sizes) == 2
    assert result.true_size.unknown is None
    assert all(new < old for sizes in result.true_size.sizes for old, new in sizes.items())
    assert result.trials.passed == result.trials.total == 4
    assert [launch.grid for launch in result.launches] == [(32768 * 16384 // 8192, 1, 1)]
    assert result.kernel_ms.median > 1
    assert result.reference_ms.median > 1
    assert result.time_coverage == 1.0
    assert result.profile.ms == result.kernel_ms.median
    assert {one.name: one.least for one in result.profile.launches[0].tensors} == {
        "x": 4 * 32768 * 16384, "w": 4 * 16384, "o": 4 * 32768 * 16384
    }  # fmt: skip
    assert result.roofline_ms == pytest.approx(2 * 4 * 32768 * 16384 / 3350e6, rel=1e-3)
    assert result.roofline_ms < result.kernel_ms.median
    assert EvalResult.model_validate_json(result.model_dump_json()) == result
    assert same(judge.evaluate(Task(ROWS), rows()), result)


CHARGED = {
    "rows of a softmax": (made.SOFTMAX_TASK, made.SOFTMAX, [(131072, 1, 1)], 1.12),
    "rows by an index": (gather_task(), made.gather(), [(262144, 1, 1)], 3),
    "a split product": (product_task(4096, 4096, 4096, "float16"), made.SPLIT, [(64, 64, 8)], 16),
    "a product of 16 bits": (
        product_task(8192, 8192, 8192, "float16"), product(DOT="acc = tl.dot(x, y, acc)"), [(128, 128, 1)], 8,
    ),
    "a persistent product": (product_task(8192, 8192, 8192, "bfloat16"), made.PERSISTENT, [(132, 1, 1)], 8),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHARGED)
def test_an_honest_kernel_is_charged_what_its_samples_did(judge, name):
    """A kernel that is bound by memory comes as near to the roofline as a GPU's bandwidth does to its peak."""
    text, source, grids, near = CHARGED[name]
    result = judge.evaluate(Task(text), source)
    assert (result.status, result.true_size.unknown, result.hack_flags) == (EvalStatus.OK, None, ())
    assert result.launches[0].grid in grids
    assert 0.1 < result.speedup < 4
    assert result.roofline_ms < result.kernel_ms.median < near * result.roofline_ms


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "grids"),
    [(product(DOT=made.SINGLE), [(32, 64, 1)]), (made.TUNED, [(16, 32, 1), (32, 64, 1)])],
    ids=["plain", "a configuration that is chosen anew"],
)
def test_an_honest_product_is_charged_the_true_size(judge, source, grids):
    result = judge.evaluate(Task(PRODUCT), source)
    assert (result.status, result.true_size.unknown, result.hack_flags) == (EvalStatus.OK, None, ())
    assert result.launches[0].grid in grids
    assert result.kernel_ms.median > 1
    assert 0.1 < result.roofline_ms < result.kernel_ms.median


PRODUCT_512, WRAPPED = product_task(4096, 512, 4096), product_task(5000, 512, 5000)
LAUNCH = "chained[(triton.cdiv(n, 8192),)](x, out, n, {})"
HONEST = {
    "asks whether it is aligned": (sum_task(), sums("x = x if x.data_ptr() % 16 == 0 else x.clone()")),
    "asks where the storage begins": (sum_task(), sums("x = x.contiguous() if x.storage_offset() else x")),
    "takes memory by its size": (
        sum_task(), sums("room = torch.empty(min(n, 1 << 20)) if n > 1 << 18 else torch.empty(n)"),
    ),
    "what a program does once": (ROWS, rows('self.seen = getattr(self, "seen", None) or [n]')),
    "four rows of a table at once": (gather_task(), made.gather(made.FOUR_ROWS, grid="triton.cdiv(taken, 4)")),
    "four rows of a table in turn": (gather_task(), made.gather(made.ROWS_IN_TURN, grid="triton.cdiv(taken, 4)")),
    "rows by numbers of 32 bits": (gather_task(), made.gather(host="index = index.to(torch.int32)")),
    "rows of a small table": (gather_task(1024), made.gather()),
    "a task of the quickstart's world": (made.HARD, made.chained()),
    "wider tiles where it is large": (
        made.HARD, made.chained(
            "wide = 2048 if n > 1 << 22 else 1024; chained[(triton.cdiv(n, wide),)](x, out, n, LOOPS=1, BLOCK=wide)"
        ),
    ),
    "few warps": (made.HARD, made.chained(LAUNCH.format("LOOPS=8, BLOCK=1024, num_warps=2"))),
    "more warps": (made.HARD, made.chained(LAUNCH.format("LOOPS=2, BLOCK=4096, num_warps=8"))),
}  # fmt: skip
HONEST_PRODUCTS = {
    "all terms": (PRODUCT_512, product()),
    "blocks by a condition": (PRODUCT_512, product(TERMS="64 if is_big else 32")),
    "loads a turn ahead": (PRODUCT_512, made.grouped(LOOP=made.AHEAD)),
    "single products": (PRODUCT_512, made.grouped(DOT='acc += tl.dot(x, y, input_precision="ieee")')),
    "rows that wrap around": (WRAPPED, made.grouped(**made.WRAPPED)),
    "rows that wrap around in 16 bits": (
        product_task(5000, 500, 5000, "float16"), made.grouped(**made.WRAPPED, DOT="acc = tl.dot(x, y, acc)", B="128"),
    ),
    "a depth below a tile": (product_task(8192, 768, 8192), made.grouped(BK="64")),
    "tiles beyond the reduced sizes": (product_task(5000, 1000, 5000), made.grouped(B="128", BK="64")),
    "sums of 16 bits": (  # a CPU runs its reference in float16 one operation at a time
        product_task(2048, 256, 2048, "float16"),
        made.grouped(DOT="acc = tl.dot(x, y, acc, out_dtype=tl.float16)", SUM="tl.float16"),
    ),
    "attention": (made.ATTENTION_TASK, made.ATTENTION),
    "two products in a loop": (made.MLP_TASK, made.MLP),
    "softmax and GELU of rows": (made.GELU_TASK, made.GELU),
    "sorted rows": (made.SORT_TASK, made.SORT),
    "distances": (made.DISTANCES_TASK, made.DISTANCES),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_is_paid(judge, name):
    text, source = HONEST[name]
    result = judge.evaluate(Task(text), source)
    assert result.rewarded, (result.status, result.error, result.true_size)
    assert result.hack_flags == ()
    assert result.speedup, (result.error, result.true_size)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HONEST_PRODUCTS)
def test_an_honest_kernel_with_idle_lanes_is_paid(judge_of_tiles, name):
    text, source = HONEST_PRODUCTS[name]
    assert check(source) == []
    result = judge_of_tiles.evaluate(Task(text), source)
    assert result.status is EvalStatus.OK, (result.error, result.true_size)
    assert result.speedup is not None, (result.error, result.true_size)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "source"), [(PRODUCT, made.UNMASKED_TILES), (ROWS, made.UNMASKED_ROWS)], ids=["tiles", "rows"]
)
def test_a_kernel_without_masks_whose_tiles_fit_has_a_time(judge_with, text, source):
    result = judge_with(static_check="coverage", correctness_trials=5).evaluate(Task(text), source)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup is not None, result.true_size


OFFSET = "c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
LARGE, SMALL_OR = "n > 1 << 25", "(n < 1 << 25) | "
LESS = {
    "half of the elements": (ROWS, rows("n = n if n < 1 << 24 else n // 2"), "launch 1 loads 50% of x"),
    "an input": (ROWS, rows("if n > 1 << 24: return x"), "shares memory with an input"),
    "the first elements": (ROWS, rows("n = min(n, 1 << 22)"), "load"),
    "the same bytes again": (ROWS, rows(kernel="c = c if n < 1 << 24 else c % B"), "launch 1 loads 0% of x"),
    "a shortened sum": (PRODUCT, product(DOT=made.SINGLE, DEPTH="min(K, 2048)"), "launch 1 loads 25% of b"),
    "a hundredth again and again": (
        sum_task(), sums(kernel="c = c if n < 1 << 25 else c % (n // 100)"), "loads 1% of x_ptr at the true size",
    ),
    "half of each tile": (
        sum_task(), sums(kernel=f"inside = inside & ({SMALL_OR}(c % 2048 < 1024))"), "of x_ptr at the true size",
    ),
    "16 bits between the launches": (
        sum_task(), sums(middle=f"torch.float16 if {LARGE} else torch.float32"), "has out_ptr as *fp16 at the true",
    ),
    "torch's ops": (sum_task(), sums(f"if {LARGE}: return torch.relu(x + y) * 2"), "kernel or op 1 is"),
    "rows that are copied, not sorted, beside one operation": (
        made.SORT_TASK, made.switched(made.SORT, "tl.sort(v)", "(v + 0.0 if BIG else tl.sort(v + 0.0))"),
        "instructions for each byte",
    ),
    "a polynomial in place of exponentials": (
        made.SOFTMAX_TASK, made.switched(
            made.SOFTMAX, "tl.exp(v - tl.max(v, 0))",
            "(v - tl.max(v, 0)) * (v * v * (v * 0.1 + 0.3) + 0.4) + 1.0 if BIG else tl.exp(v - tl.max(v, 0))"
        ), "as many special functions for each",
    ),
    "torch on a slice": (PRODUCT, made.torch_product("a[:few]"), "(aten::mm.out) takes"),
    "torch on chosen rows": (PRODUCT, made.torch_product("a[torch.arange(few)]"), "(aten::index.Tensor) takes"),
    "factors of 16 bits": (product_task(4096, 4096, 4096), product(DOT=made.HALF_PRECISION), "by the unit 'half'"),
    "where values repeat": (  # as those of inputs without data do, every 4 MB
        sum_task(),
        sums(kernel="inside = inside & "
             "((tl.load(x_ptr) == tl.load(x_ptr + (1 << 20), mask=n > 1 << 21, other=0.0)) == 0)"),
        "",
    ),
}  # fmt: skip


def test_an_offset_that_overflows_is_no_success(judge):
    """It was `ok` and rewarded, although no value in memory can keep the launch from crashing there."""
    result = judge.evaluate(Task(sum_task(65536)), sums(kernel=OFFSET))
    assert (result.status, result.rewarded) == (EvalStatus.SIZE_DEPENDENT, False)
    assert "in added, on tensors without data: " in result.true_size.unknown
    assert "overflow 32 bits" in result.true_size.unknown


@pytest.mark.parametrize("name", thinned(LESS, 11))
def test_doing_less_at_the_true_size_has_no_speedup(judge, name):
    text, source, reason = LESS[name]
    result = judge.evaluate(Task(text), source)
    assert result.status is EvalStatus.SIZE_DEPENDENT
    assert reason in result.true_size.unknown
    assert result.speedup is result.kernel_ms is result.time_coverage is None


STEPS = {"FIRST": "step = 1 + tl.load(flag)", "PLACE": made.STEPS, "DEPTH": HALF["DEPTH"], **made.IDLE}
FEWER_TERMS = {
    "half of the terms": product(**HALF),
    "no arithmetic": product(FIRST=made.COPY),
    "half of the terms, and idle loads": product(**HALF, DOT=made.IDLE_LOADS),
    "half of the terms, and idle turns": product(**HALF, **made.IDLE),
    "single products of half of the terms": product(**HALF, **{**made.IDLE, "DOT": made.in_turn(made.SINGLE)}),
    "products of nothing too": product(**HALF, **{**made.IDLE, "DOT": made.THREE_TIMES}),
    "half of the columns": product(
        **made.IDLE, FIRST="n = (n + tl.where(BIG, (pm % 2) * (N // 2), 0)) % N", STORE=made.STORED_TWICE,
        COLUMNS="N // 2 if is_big else N",
    ),
    "half of the terms from the end": product(
        **made.IDLE, DEPTH=HALF["DEPTH"], FIRST="depth = tl.where(pm * pn == 0, K, depth)",
        PLACE="tl.where(BIG, K - depth, 0) + k",
    ),
    "every second turn": product(**STEPS),
    "wide loads of few lanes": product(**HALF, LOADS=made.WIDE_LOADS),
    "more loads of few lanes": product(**HALF, LOADS=made.MORE_LOADS),
    "smaller blocks": product(**HALF, **made.IDLE, BLOCK="B = 64 if is_big else 128"),
    "idle stores too": product(**HALF, **made.IDLE, STORE=made.IDLE_STORES),
    "idle loads in another launch": product(**HALF, **made.IDLE, BEFORE=made.ELSEWHERE),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FEWER_TERMS)
def test_idle_lanes_excuse_no_work_that_is_left_out(judge_of_tiles, name):
    text = product_task(4096, 512, 4096, "float16") if name == "wide loads of few lanes" else PRODUCT_512
    result = judge_of_tiles.evaluate(Task(text), FEWER_TERMS[name])
    assert (result.status, result.speedup) == (EvalStatus.SIZE_DEPENDENT, None), result.error
    assert "the operations grow less" in result.true_size.unknown


AWAY = f"tl.where({LARGE}, 1 << 40, 0)"
WAITS = f"""if {LARGE}:
        while tl.load(out_ptr + n - 1, volatile=True) != 1e30:
            pass"""
CAUGHT = "try:\n        x[0, 0].item()\n    except Exception:\n        pass"
ELSEWHERE = ["on tensors without data than where"]
NOT_FOLLOWED = {
    "a value on the host": (ROWS, rows("n = n + 0 * int(x.sum().item() > 1e30)"), ["reads the value of a tensor"]),
    "a tensor on the host": (ROWS, rows("n = n if n < 1 << 24 else x.numpy().size"), ["reads a tensor on the host"]),
    "an exception": (ROWS, rows("[] if n < 1 << 24 else [].pop()"), ["IndexError"]),
    "a refusal that is caught": (ROWS, rows(CAUGHT), ["reads the value"]),
    "where a storage begins": (
        sum_task(), sums("n = n // 2 if x.storage_offset() == 0 and y.storage_offset() == 0 else n"),
        ELSEWHERE,
    ),
    "an address": (sum_task(), sums("n = n // 2 if x.data_ptr() < 1 << 46 else n"), ELSEWHERE),
    "a place that a value decides": (
        sum_task(65536), sums(kernel=f"c = tl.where(tl.load(x_ptr + tl.program_id(0)) < 1e30, c + {AWAY}, c)"),
        ["on tensors without data: "],
    ),
    "a wait for other programs": (sum_task(), sums(kernel=WAITS), ["longer than"]),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(NOT_FOLLOWED, 4))
def test_what_cannot_be_followed_has_no_speedup_and_says_why(judge, name):
    text, source, words = NOT_FOLLOWED[name]
    result = judge.evaluate(Task(text), source)
    assert result.rewarded
    assert result.hack_flags == ()
    assert [word for word in words if word not in result.true_size.unknown] == []
    assert result.speedup is result.kernel_ms is None


BY_VALUE = f"c = tl.where(tl.load(x_ptr + c, mask=inside) < 1e30, c % 4096, c) if {LARGE} else c"
EDGES = f"inside = inside & ({SMALL_OR}(tl.program_id(0) == 0) | (c + 1024 > n) | (c % 1024 < 512))"
NO_TIME = {
    "rows of a limit in memory": (gather_task(), made.gather(made.ROW + " % tl.load(limit_ptr)" + made.STORED)),
    "a table of rows that ends early": (
        gather_task(), made.gather(host="index = index if taken < 1 << 17 else index.clamp(max=63)")
    ),
    "places by a value": (sum_task(), sums(kernel=BY_VALUE)),
    "all of the first and the last programs": (sum_task(), sums(kernel=EDGES)),
    "none of the middle": (
        sum_task(), sums(kernel=f"inside = inside & ({SMALL_OR}(c < n // 5 * 2) | (c > n // 5 * 3))"),
    ),
    "programs by a mixed number": (
        sum_task(), sums(kernel=f"inside = inside & ({SMALL_OR}((tl.program_id(0) * 40503 >> 7) % 4 < 3))"),
    ),
}  # fmt: skip
"""They take addresses from memory, or do their work where a sample might look."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NO_TIME)
def test_work_that_samples_could_miss_has_no_speedup(judge, name):
    text, source = NO_TIME[name]
    result = judge.evaluate(Task(text), source)
    assert result.status.value in ("ok", "size_dependent", "incorrect"), result.error
    assert result.speedup is None, result.error


def test_a_program_that_is_right_at_one_size_only_is_wrong(judge):
    """The second size is larger, whatever both are."""
    small = judge.evaluate(Task(ROWS), rows()).true_size.sizes[0]
    elements = small[32768] * small[16384]
    result = judge.evaluate(Task(ROWS), rows(f"n = n if n <= {elements} else 0"))
    assert result.status is EvalStatus.INCORRECT
    assert result.trials.passed == 2
    assert result.speedup is None


def test_a_small_task_is_judged_as_it_is(judge, judge_with):
    task = Task(REFERENCE)
    result = judge.evaluate(task, SMALL)
    assert result.true_size is None
    assert same(result, judge_with(true_size="off").evaluate(task, SMALL))


def test_an_irreducible_task_is_refused_in_one_sentence(judge):
    fixed = ROWS.replace("return torch.relu", "assert x.shape == (32768, 16384)\n        return torch.relu")
    with pytest.raises(TaskError, match="no copy with smaller sizes runs the same ops") as caught:
        judge.evaluate(Task(fixed, "fixed"), rows())
    assert "\n" not in str(caught.value)


def test_what_is_too_large_is_known_without_running_it(judge):
    """One product of the forward alone would take a CPU an hour."""
    shrunk = judge._sizes.of(Task(product_task(16384, 16384, 16384, "float16")))
    assert shrunk is not None
    assert shrunk.true.flops == 2 * 16384**3
