# SPDX-License-Identifier: Apache-2.0
import os
import select
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.ipc.channel import MAX_FRAME, Channel, ChannelClosed, ProtocolError

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=5)


@pytest.fixture
def ends():
    one, other = channels.pair()
    yield Channel(one), Channel(other)
    one.close()
    other.close()


@given(st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=4), max_size=4))
def test_messages_arrive_whole_and_in_order(messages):
    one, other = channels.pair()
    with one, other:
        for message in messages:
            Channel(one).send(message)
        reader = Channel(other)
        assert [reader.recv(1) for _ in messages] == messages


def test_a_long_message_survives_small_socket_buffers(ends):
    message = {"text": "x" * (2 << 20)}
    sender = threading.Thread(target=ends[0].send, args=(message,))
    sender.start()
    assert ends[1].recv(10) == message
    sender.join()


def test_frames_cut_anywhere_are_put_together(ends):
    body = b'{"a": [1, 2]}'
    frame = struct.pack(">I", len(body)) + body
    for byte in frame:
        assert ends[1]._next() is None
        ends[0].sock.send(bytes([byte]))
        message = ends[1].feed()
    assert message == {"a": [1, 2]}


def test_a_message_leaves_the_next_one_to_select(ends):
    for number in range(2):
        ends[0].send({"number": number})
    assert ends[1].recv(1) == {"number": 0}
    assert select.select([ends[1]], [], [], 1)[0], "whoever waits for the socket would wait for ever"


def test_a_message_leaves_the_next_ones_descriptors(ends):
    ends[0].send({"number": 0})
    ends[0].send({"number": 1}, (ends[0].fileno(),))
    assert ends[1].recv_with_fds(1) == ({"number": 0}, [])
    message, fds = ends[1].recv_with_fds(1)
    for fd in fds:
        os.close(fd)
    assert message == {"number": 1}
    assert len(fds) == 1


def test_a_message_leaves_bare_bytes_that_follow(ends):
    ends[0].send({"code": 3})
    ends[0].send_bytes(b"abc")
    ends[0].send({"number": 1})
    assert ends[1].recv(1) == {"code": 3}
    assert ends[1].recv_bytes(3) == b"abc"
    assert ends[1].recv(1) == {"number": 1}


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">I", MAX_FRAME + 1),
        struct.pack(">I", 3) + b"abc",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"\xff\xfe",
        struct.pack(">I", 200_000) + b"[" * 200_000,
    ],
)
def test_what_is_no_frame_is_refused(ends, frame):
    sender = threading.Thread(target=ends[0].sock.sendall, args=(frame,))
    sender.start()
    with pytest.raises(ProtocolError):
        ends[1].recv(5)
    sender.join()


def test_too_long_a_message_is_not_sent(ends):
    with pytest.raises(ProtocolError, match="above the limit"):
        ends[0].send({"text": "x" * MAX_FRAME})


def test_a_closed_peer_is_noticed(ends):
    ends[0].close()
    with pytest.raises(ChannelClosed):
        ends[1].recv(1)
    with pytest.raises(ChannelClosed):
        ends[1].send({})


def test_a_silent_peer_is_not_waited_for_longer_than_asked(ends):
    with pytest.raises(TimeoutError):
        ends[1].recv(0.05)


def test_descriptors_travel_with_a_message(ends):
    read_end, write_end = os.pipe()
    ends[0].send({"fork": 1}, (write_end,))
    os.close(write_end)
    message, (received,) = ends[1].recv_with_fds(3)
    os.write(received, b"hello")
    assert message == {"fork": 1}
    assert os.read(read_end, 5) == b"hello"
    os.close(read_end)
    os.close(received)


def test_the_pair_is_not_inherited():
    one, other = channels.pair()
    with one, other:
        assert not one.get_inheritable()
        assert not other.get_inheritable()
        assert one.type == socket.SOCK_STREAM
