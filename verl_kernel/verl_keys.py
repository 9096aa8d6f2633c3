# SPDX-License-Identifier: Apache-2.0
"""The types of verl's keys that recipes set or checks read, and the function that reads a key.

verl reads most of them late, after it has started Ray and vLLM and sampled a batch. Names that verl looks up in a
registry are plain text here; `preflight.names` compares them with the registries.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Interval
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import checked, in_words

_Count = Annotated[int, Interval(ge=1)]
_Whole = Annotated[int, Interval(ge=0)]
_NotNegative = Annotated[float, Interval(ge=0)]
_Positive = Annotated[float, Interval(gt=0)]
_Share = Annotated[float, Interval(gt=0, le=1)]
_Mapping = Annotated[dict[str, Any], "keys with values"]
_Words = Annotated[str | tuple[str, ...], "text, or a list of texts"]
_Aggregation = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
_Divergence = Literal[
    "kl", "kl+", "k1", "k1+", "abs", "abs+", "mse", "mse+", "k2", "k2+", "low_var_kl", "low_var_kl+", "k3", "k3+"
]
_Precision = Literal["fp32", "float32", "32", "bf16", "bfloat16", "fp16", "float16", "16"]
_Threshold = Annotated[str | float, "a number, or text such as 0.5_2.0"]


def _under(node: str, **hints: Any) -> dict[str, Any]:
    return {f"{node}.{key}": hint for key, hint in hints.items()}


_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"
_SAMPLER = "trainer.v1.sampler"

_OBJECTS = ("data.custom_cls", "reward.custom_reward_function", f"{_SAMPLER}.custom_sampler")

KEYS: dict[str, Any] = {
    **{f"{node}.{key}": str | None for node in _OBJECTS for key in ("path", "name")},
    **_under(
        "data",
        train_files=_Words | None,
        val_files=_Words | None,
        train_batch_size=_Count,
        gen_batch_size=_Count | None,
        max_prompt_length=_Count,
        max_response_length=_Count,
        shuffle=bool,
        truncation=Literal["error", "left", "right", "middle"],
        seed=int | None,
        dataloader_num_workers=_Whole,
        filter_overlong_prompts=bool,
        val_max_samples=int,
        apply_chat_template_kwargs=_Mapping | None,
        filter_overlong_prompts_workers=_Count | None,
    ),
    **_under(
        "actor_rollout_ref.model",
        path=str,
        tokenizer_path=str | None,
        custom_chat_template=str | None,
        external_lib=str | None,
        trust_remote_code=bool,
        use_remove_padding=bool,
        use_fused_kernels=bool,
        enable_gradient_checkpointing=bool,
    ),
    **_under("data.apply_chat_template_kwargs", enable_thinking=bool | None),
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": _Count | None,
    **_under("actor_rollout_ref.model.override_config", attn_implementation=str | None),
    "actor_rollout_ref.hybrid_engine": bool,
    **_under(
        _ACTOR,
        strategy=str,
        ppo_mini_batch_size=_Count,
        ppo_micro_batch_size_per_gpu=_Count | None,
        ppo_max_token_len_per_gpu=_Count,
        ppo_epochs=_Count,
        use_dynamic_bsz=bool,
        clip_ratio=_NotNegative,
        clip_ratio_low=_NotNegative | None,
        clip_ratio_high=_NotNegative | None,
        clip_ratio_c=Annotated[float, Interval(gt=1)],
        loss_agg_mode=_Aggregation,
        loss_scale_factor=_Positive | None,
        entropy_coeff=float,
        grad_clip=_Positive,
        use_kl_loss=bool,
        kl_loss_coef=float,
        kl_loss_type=_Divergence,
        use_torch_compile=bool,
        ulysses_sequence_parallel_size=_Count,
    ),
    **_under(
        f"{_ACTOR}.optim",
        lr=_NotNegative,
        lr_scheduler_type=Literal["constant", "cosine"],
        optimizer=str,
        optimizer_impl=str,
        weight_decay=_NotNegative,
    ),
    **_under(
        f"{_ACTOR}.fsdp_config",
        model_dtype=_Precision,
        optimizer_offload=bool,
        param_offload=bool,
        use_torch_compile=bool,
    ),
    **{f"{_ACTOR}.fsdp_config.mixed_precision.{kind}_dtype": _Precision for kind in ("param", "reduce", "buffer")},
    **_under(f"{_ACTOR}.policy_loss", _target_=str, loss_mode=str),
    **_under(
        _ROLLOUT,
        name=str,
        mode=Literal["async"],
        n=_Count,
        nnodes=_Whole,
        n_gpus_per_node=_Count,
        temperature=_NotNegative,
        top_p=_Share,
        top_k=Annotated[int, Interval(ge=-1)],
        dtype=Literal["auto", "half", "float16", "bfloat16", "float", "float32"],
        calculate_log_probs=bool,
        logprobs_mode=str,
        enforce_eager=bool,
        enable_sleep_mode=bool,
        free_cache_engine=bool,
        gpu_memory_utilization=_Share,
        tensor_model_parallel_size=_Count,
        max_model_len=_Count | None,
        max_num_seqs=_Count,
        max_num_batched_tokens=_Count,
        log_prob_micro_batch_size_per_gpu=_Count | None,
        log_prob_max_token_len_per_gpu=_Count,
        load_format=str,
    ),
    **_under(
        f"{_ROLLOUT}.agent",
        num_workers=_Count,
        default_agent_loop=str,
        agent_loop_config_path=str | None,
        agent_loop_manager_class=str | None,
    ),
    **_under(
        f"{_ROLLOUT}.multi_turn",
        format=str,
        tool_config_path=str | None,
        max_assistant_turns=_Count | None,
        max_tool_response_length=_Count,
    ),
    **_under(
        f"{_ROLLOUT}.checkpoint_engine",
        backend=str,
        custom_backend_module=str | None,
        update_weights_bucket_megabytes=_Count,
    ),
    **_under(f"{_ROLLOUT}.val_kwargs", n=_Count, do_sample=bool, temperature=_NotNegative, top_p=_Share),
    **_under(
        f"{_ROLLOUT}.engine_kwargs.vllm",
        distributed_executor_backend=str | None,
        worker_extension_cls=str | None,
    ),
    **_under(
        "algorithm",
        _target_=str | None,
        adv_estimator=str,
        gamma=Annotated[float, Interval(ge=0, le=1)],
        use_kl_in_reward=bool,
        kl_penalty=_Divergence,
    ),
    **_under("algorithm.kl_ctrl", type=Literal["fixed", "adaptive"]),
    **_under("algorithm.filter_groups", enable=bool),
    **_under(
        "algorithm.rollout_correction",
        bypass_mode=bool | None,
        rollout_is=Literal["token", "sequence"] | None,
        rollout_is_threshold=_Threshold | None,
        rollout_is_batch_normalize=bool | None,
        rollout_rs=str | None,
        rollout_rs_threshold=_Threshold | None,
    ),
    "reward.num_workers": _Count,
    **_under("reward.reward_manager", name=str, source=Literal["register", "importlib"]),
    "reward.reward_manager.module.path": str | None,
    **_under("reward.reward_model", enable=bool, enable_resource_pool=bool),
    **_under(
        "trainer",
        device=str,
        use_v1=bool,
        nnodes=_Count,
        n_gpus_per_node=_Count,
        total_epochs=_Count,
        total_training_steps=_Count | None,
        save_freq=int,
        test_freq=int,
        val_before_train=bool,
        val_only=bool,
        max_actor_ckpt_to_keep=_Count | None,
        logger=_Words,
        project_name=str,
        experiment_name=str,
        default_local_dir=str,
        rollout_data_dir=str | None,
        resume_mode=Literal["auto", "disable", "resume_path"],
        resume_from_path=str | None,
    ),
    "trainer.v1.trainer_mode": str,
    "trainer.v1.colocate_async.num_warmup_batches": _NotNegative,
    **_under("trainer.v1.separate_async", num_warmup_batches=_NotNegative, parameter_sync_step=_Count),
    **_under(
        _SAMPLER,
        max_off_policy_threshold=_Whole | None,
        max_off_policy_strategy=Literal["drop", "wait"],
        sync_refill_failed_groups=bool | None,
    ),
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": _Count,
    **_under(
        "ray_kwargs.ray_init",
        address=str | None,
        num_gpus=_NotNegative | None,
        num_cpus=_NotNegative | None,
        include_dashboard=bool | None,
    ),
}
"""Types of the values by key, as in `OptionGroup`; a key that a configuration omits has verl's default."""

_EMPTY_IF_NULL = (
    "kernelgym",
    "algorithm.rollout_correction",
    "data.apply_chat_template_kwargs",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.rollout.engine_kwargs.vllm",
    "trainer.v1.sampler.custom_sampler",
)
_LEFT_OUT = object()


def check_keys(config: DictConfig) -> None:
    """Check that the given values of `KEYS` have their types, and that all references resolve.

    Raises:
        ConfigError: a value has another type, or a reference does not resolve.
    """
    for key in KEYS:
        if (value := _descend(config, key)) is not _LEFT_OUT:
            checked(key, _plain(value, key), KEYS[key])
    for name in config:
        if name != "hydra":
            find(config, str(name))


def read(config: DictConfig, key: str) -> Any:
    """Return the value of a key in `KEYS`.

    Raises:
        ConfigError: the value has another type, or a node above it is not a mapping; the message names the key.
    """
    return checked(key, find(config, key), KEYS[key])


def find(config: DictConfig, key: str) -> Any:
    """Return the value or node of any key, plain and with its references resolved; None if it is left out.

    Raises:
        ConfigError: a node above it is not a mapping, or a value is missing (`???`) or refers to nothing.
    """
    value = _descend(config, key)
    return None if value is _LEFT_OUT else _plain(value, key)


def _descend(config: DictConfig, key: str) -> Any:
    node: Any = config
    above = ""
    for name in key.split("."):
        if above and not isinstance(node, DictConfig):
            if node is None and above in _EMPTY_IF_NULL:
                return _LEFT_OUT
            raise ConfigError(f"{above} is {in_words(node)}; it must hold keys, such as {above}.{name}")
        if name not in tuple(node):  # `in node` is false for a missing value (`???`)
            return _LEFT_OUT
        above = f"{above}.{name}" if above else name
        node = _value(node, name, above)
    return node


def _value(node: DictConfig, name: str, key: str) -> Any:
    try:
        return node[name]
    except MissingMandatoryValue:
        raise ConfigError(f"{key} is left open (???): give it a value") from None
    except OmegaConfBaseException as exc:
        raise ConfigError(f"{key} cannot be resolved ({_reason(exc)}): correct the key that it refers to") from None


def _plain(node: Any, key: str) -> Any:
    if not OmegaConf.is_config(node):
        return node
    try:
        return OmegaConf.to_container(node, resolve=True)
    except OmegaConfBaseException as exc:
        key = getattr(exc, "full_key", None) or key
        raise ConfigError(f"{key} cannot be resolved ({_reason(exc)}): correct the key that it refers to") from None


def _reason(exc: Exception) -> str:
    return str(exc).splitlines()[0].rstrip(".")
