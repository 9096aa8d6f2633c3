# SPDX-License-Identifier: Apache-2.0
"""A judge sees the GPU that Ray granted it, and no other."""

import os

import pytest

from tests.env.pool.cluster.nodes import ray_cluster
from verl_kernel.env import GymOptions


@pytest.mark.ray
@pytest.mark.parametrize("noset", ["1", pytest.param(None, marks=pytest.mark.exhaustive)])
def test_judges_see_what_ray_granted(noset, monkeypatch):
    import ray

    from verl_kernel.env.pool.cluster.judge import JudgeActor

    class Visible(JudgeActor):
        def gpus(self) -> str | None:
            return os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if noset:
        monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", noset)
    options = GymOptions(device="cpu", gpus_per_judge=1.0)
    with ray_cluster({"num_cpus": 2, "num_gpus": 2}):
        judges = [ray.remote(Visible).options(num_cpus=0, num_gpus=1).remote(options, None) for _ in range(2)]
        assert sorted(ray.get([judge.gpus.remote() for judge in judges])) == ["0", "1"]
        with pytest.raises(ray.exceptions.RayTaskError, match="Ray has granted this judge no GPU"):
            ray.get(ray.remote(Visible).options(num_cpus=0).remote(options, None).start.remote())
