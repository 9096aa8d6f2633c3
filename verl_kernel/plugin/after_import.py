# SPDX-License-Identifier: Apache-2.0
"""Runs an action as soon as a module has been imported, without importing it.

verl loads plugins in every process of a run, and most processes need none of the modules with its registries: importing
them there would cost each process about five seconds.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call `action` right after the import of a module; immediately if it is already imported.

    Args:
        name: the module's dotted name.
        action: function to call; the import raises its exceptions.
    """
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watcher(name, action))


class _Watcher:
    """Finder that finds one module like the other finders, and extends its loading."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module that is waited for; leave all others to the other finders."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            self._action()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
