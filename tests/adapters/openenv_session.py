# SPDX-License-Identifier: Apache-2.0
"""Plays an episode by OpenEnv's own client: `python -m tests.adapters.openenv_session ADDRESS`."""

import json
import sys

from openenv.core import GenericEnvClient

from tests.adapters.packages import FUSED, WRONG

with GenericEnvClient(base_url=sys.argv[1]).sync() as environment:
    found = [environment.reset(), *(environment.step({"answer": answer}) for answer in (WRONG, FUSED, FUSED))]
print(json.dumps([{"reward": each.reward, "done": each.done, **each.observation} for each in found]))
