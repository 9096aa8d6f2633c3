# SPDX-License-Identifier: Apache-2.0
"""Whether malformed answers are a model's failures or the endpoint's.

A malformed answer among others is data: the model had its turn. Where a session has brought no other answer, the
endpoint is none that speaks our language (a wrong path, a login page), and a run of failures would hide it.
"""

from __future__ import annotations

from verl_kernel.bench.models.answers import Answer
from verl_kernel.bench.models.replies import no_endpoint
from verl_kernel.bench.records import BenchTurn
from verl_kernel.bench.store import Store, as_written

_LEAST = 3
"""Questions that are asked before an endpoint is given up, each of them three times."""


class FirstAnswers:
    """Writes turns down, malformed ones only once the endpoint has shown that it can answer.

    Args:
        store: the run's folder.
        requests: that are in flight at a time; so many questions may be malformed before the endpoint is given up.
    """

    def __init__(self, store: Store, requests: int) -> None:
        self._store, self._enough = store, max(_LEAST, requests)
        self._held: list[BenchTurn] = []
        self._malformed: list[Answer] = []
        self._is_proven = False

    def heard(self, answer: Answer) -> None:
        """Take note of what came for a question.

        Raises:
            EndpointError: enough answers came, and all of them are malformed.
        """
        if answer.failure != "malformed":
            self._prove()
        elif not self._is_proven:
            self._malformed.append(answer)
            if len(self._malformed) >= self._enough:
                raise no_endpoint(answer, len(self._malformed))

    def append(self, turn: BenchTurn) -> BenchTurn:
        """Write a turn down, or hold it back; returns it as whoever reads the file will see it.

        Raises:
            StorageError: there is no room for it.
        """
        if turn.failure == "malformed" and not self._is_proven:
            self._held.append(turn)
            return as_written(turn)
        return self._store.append(turn)

    def settle(self) -> None:
        """End the session: where it brought malformed answers only, earlier sessions say whether they are data.

        Raises:
            EndpointError: no session has brought another answer.
        """
        if self._malformed and not self._is_proven and not self._store.has_answers:
            raise no_endpoint(self._malformed[-1], len(self._malformed))
        self._prove()

    def _prove(self) -> None:
        self._is_proven = True
        while self._held:
            self._store.append(self._held.pop(0))
