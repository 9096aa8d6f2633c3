# SPDX-License-Identifier: Apache-2.0
"""What events of a forward find in the cache: what others of it have used, by tensor and not by address."""

import pytest
import torch
from torch.nn.functional import interpolate

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.op_recorder import L2History

ROW = torch.zeros(1, dtype=torch.int64)


def recent_of(run):
    with torch.no_grad(), resolve_device("cpu").record() as events:
        run()
    return [event.recent for event in events]


def test_inputs_are_cold_and_results_are_not():
    x = torch.ones(256)
    for _ in range(2):  # every forward begins cold
        assert recent_of(lambda: torch.relu(torch.relu(x))) == [(), ((1024, 0),)]


LITTLE = [
    torch.trace, lambda x: x.index_select(0, ROW), lambda x: x[ROW], lambda x: x.gather(0, ROW[None]),
    lambda x: torch.embedding(x, ROW), lambda x: x.index_fill_(0, ROW, 1.0),
    lambda x: x.index_copy_(0, ROW, x[:1] + 1.0), lambda x: interpolate(x[None, None], size=(1, 1)),
]  # fmt: skip
ALL = [torch.sum, torch.relu, torch.relu_, lambda x: x.mul_(x), lambda x: torch.add(x, 1.0)]


@pytest.mark.parametrize("op", [*LITTLE, *ALL])
def test_an_op_leaves_as_much_of_a_tensor_as_it_needs(op):
    x = torch.ones(512, 512)
    *_, last = recent_of(lambda: (op(x), torch.relu(x)))
    left = sum(size for size, _ in last)
    assert left < x.nbytes // 50 if op in LITTLE else left == x.nbytes


def test_age_is_what_has_moved_since():
    x, y = torch.ones(256), torch.ones(1024)

    def run():
        z = torch.relu(x)
        torch.relu(y)
        return z + 1.0

    assert recent_of(run) == [(), (), ((1024, 2 * 4096),)]


def test_a_freed_tensor_leaves_neither_bytes_nor_its_number():
    history = L2History()
    assert [history.add([(torch.empty(4096), 16384)], []) for _ in range(50)] == [()] * 50
    assert len({history.touched([(torch.empty(4096), 16384)], [])[0][0] for _ in range(20)}) == 20


def test_parts_of_one_storage_are_tensors_of_their_own():
    whole, history = torch.empty(64), L2History()
    assert history.add([(whole[:32], 128)], []) == ()
    assert history.add([(whole[32:], 128)], []) == ()
    assert history.add([(whole[:32].view(4, 8), 128)], []) == ((128, 128),)


def test_what_was_touched_in_part_is_kept_in_part():
    tensor, other, history = torch.empty(1024), torch.empty(1024), L2History()
    assert history.add([(tensor, 32)], []) == ()
    assert history.add([(tensor, 4096)], []) == ((32, 0),)
    history.add([(other, 4096)], [])
    history.add([(tensor, 32)], [])
    assert history.add([(tensor, 4096)], []) == ((32, 0), (4064, 4096 + 32))
    assert history.add([], [(tensor, 4096)]) == ()
    assert history.add([(tensor, 100)], []) == ((100, 0),)


def test_other_parts_of_a_tensor_are_cold():
    """Launches are given a whole tensor, and a number that says which part is theirs."""
    tensor, history = torch.empty(1024), L2History()
    quarters = [range(start, start + 1024) for start in range(0, 4096, 1024)]
    assert [history.add([(tensor, 1024, part)], []) for part in quarters] == [()] * 4
    assert history.add([(tensor, 1024, quarters[1])], []) == ((1024, 2048),)
    assert history.add([(tensor, 1024, range(512, 1536))], []) == ((512, 0), (512, 4096))
    assert sum(size for size, _ in history.add([(tensor, 4096)], [])) == 4096


def test_what_a_launch_gathers_is_found_as_far_as_it_was_moved():
    tensor, history = torch.empty(1024), L2History()
    assert history.add([(tensor, 400, range(4096))], []) == ()
    assert history.add([(tensor, 4096)], []) == ((400, 0),)
    assert history.add([(tensor, 400, range(4096))], []) == ((400, 0),)
    assert history.add([(tensor, 4096, range(4096))], []) == ((400, 0), (3696, 400))


def test_a_loop_over_a_tensor_is_remembered_in_part():
    tensor, history = torch.empty(1 << 20), L2History()
    for start in range(0, 1 << 20, 256):
        history.add([(tensor, 256, range(start, start + 256))], [])
    found = sum(size for size, _ in history.add([(tensor, 1 << 20)], []))
    assert 0 < found <= 64 * 256


def test_tensors_without_strides_are_left_out():
    sparse = torch.eye(3).to_sparse()
    assert L2History().add([(sparse, 36)], [(sparse, 36)]) == ()


def test_tensors_of_one_event_move_one_after_the_other():
    """Together they are more than what each by itself is held against."""
    first, second, third, history = (*(torch.empty(1024) for _ in range(3)), L2History())
    history.add([(first, 4096), (second, 4096)], [(third, 4096)])
    assert history.add([(third, 4096), (second, 4096), (first, 4096)], []) == ((4096, 0), (4096, 4096), (4096, 8192))


def test_tensors_have_numbers_in_the_order_of_their_use():
    x = torch.ones(256)
    with torch.no_grad(), resolve_device("cpu").record() as events:
        torch.relu(torch.relu(x)).mul_(2.0)
    first, second, third = (event.touched for event in events)
    (_, read, none), (made, _, written) = first
    assert (read, none, written) == (1024, 0, 1024)
    assert second[0] == (made, 1024, 0)
    assert third == ((second[1][0], 1024, 1024),)
