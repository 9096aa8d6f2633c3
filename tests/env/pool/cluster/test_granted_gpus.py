# SPDX-License-Identifier: Apache-2.0
"""A judge sees the GPU that Ray granted it, and no other."""

import os

import pytest

from tests.env.pool.cluster.nodes import ray_cluster
from verl_kernel.env import GymOptions


@pytest.mark.exhaustive
@pytest.mark.ray
def test_judges_see_what_ray_granted_whatever_it_sets(monkeypatch):
    import ray

    from verl_kernel.env.pool.cluster.judge import JudgeActor

    class Visible(JudgeActor):
        def gpus(self):
            return os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    given, actor = (GymOptions(device="cpu", gpus_per_judge=1.0), None), ray.remote(Visible)
    with ray_cluster({"num_cpus": 2, "num_gpus": 2}):
        judges = [actor.options(num_cpus=0, num_gpus=1).remote(*given) for _ in range(2)]
        assert sorted(ray.get([judge.gpus.remote() for judge in judges])) == ["0", "1"]
        with pytest.raises(ray.exceptions.RayTaskError, match="Ray has granted this judge no GPU"):
            ray.get(actor.options(num_cpus=0).remote(*given).start.remote())
