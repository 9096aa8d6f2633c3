# SPDX-License-Identifier: Apache-2.0
"""Tells a model's malformed answers from those of a wrong endpoint.

A malformed answer among others is data: the model had its turn. If a session has brought malformed answers only, the
endpoint does not speak the chat protocol (a wrong path, a login page), and a run full of failures would hide that.
"""

from __future__ import annotations

from verl_kernel.bench.models.answers import Answer
from verl_kernel.bench.models.replies import no_endpoint
from verl_kernel.bench.records import BenchTurn
from verl_kernel.bench.store import Store, as_written

_LEAST = 3
"""Number of questions after which an endpoint is given up; each of them is asked three times."""


class FirstAnswers:
    """Stores turns; malformed ones only after the endpoint has given a well-formed answer.

    Args:
        store: the run's folder.
        requests: requests in flight at a time; the endpoint gets at least as many questions before it is given up.
    """

    def __init__(self, store: Store, requests: int) -> None:
        self._store, self._enough = store, max(_LEAST, requests)
        self._held: list[BenchTurn] = []
        self._malformed: list[Answer] = []
        self._is_proven = False

    def heard(self, answer: Answer) -> None:
        """Note the answer to a question.

        Raises:
            EndpointError: enough answers arrived, and all of them are malformed.
        """
        if answer.failure != "malformed":
            self._prove()
        elif not self._is_proven:
            self._malformed.append(answer)
            if len(self._malformed) >= self._enough:
                raise no_endpoint(answer, len(self._malformed))

    def append(self, turn: BenchTurn) -> BenchTurn:
        """Store a turn, or hold it back; return it as a reader of the file will see it.

        Raises:
            StorageError: the disk is full.
        """
        if turn.failure == "malformed" and not self._is_proven:
            self._held.append(turn)
            return as_written(turn)
        return self._store.append(turn)

    def settle(self) -> None:
        """End the session: if it brought malformed answers only, an earlier session decides whether they are data.

        Raises:
            EndpointError: no session has brought a well-formed answer.
        """
        if self._malformed and not self._is_proven and not self._store.has_answers:
            raise no_endpoint(self._malformed[-1], len(self._malformed))
        self._prove()

    def _prove(self) -> None:
        self._is_proven = True
        while self._held:
            self._store.append(self._held.pop(0))
