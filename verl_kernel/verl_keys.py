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


def _under(node: str, *rows: tuple[Any, str]) -> dict[str, Any]:
    return {f"{node}.{key}": hint for hint, keys in rows for key in keys.split()}


_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"
_SAMPLER = "trainer.v1.sampler"

_OBJECTS = ("data.custom_cls", "reward.custom_reward_function", f"{_SAMPLER}.custom_sampler")

KEYS: dict[str, Any] = {
    **{f"{node}.{key}": str | None for node in _OBJECTS for key in ("path", "name")},
    **_under(
        "data",
        (_Words | None, "train_files val_files"),
        (_Count, "train_batch_size max_prompt_length max_response_length"),
        (_Count | None, "gen_batch_size filter_overlong_prompts_workers"),
        (bool, "shuffle filter_overlong_prompts"),
        (Literal["error", "left", "right", "middle"], "truncation"),
        (int | None, "seed"),
        (_Whole, "dataloader_num_workers"),
        (int, "val_max_samples"),
        (_Mapping | None, "apply_chat_template_kwargs"),
    ),
    **_under(
        "actor_rollout_ref.model",
        (str, "path"),
        (str | None, "tokenizer_path custom_chat_template external_lib"),
        (bool, "trust_remote_code use_remove_padding use_fused_kernels enable_gradient_checkpointing"),
    ),
    **_under("data.apply_chat_template_kwargs", (bool | None, "enable_thinking")),
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": _Count | None,
    **_under("actor_rollout_ref.model.override_config", (str | None, "attn_implementation")),
    "actor_rollout_ref.hybrid_engine": bool,
    **_under(
        _ACTOR,
        (str, "strategy"),
        (_Count, "ppo_mini_batch_size ppo_max_token_len_per_gpu ppo_epochs ulysses_sequence_parallel_size"),
        (_Count | None, "ppo_micro_batch_size_per_gpu"),
        (bool, "use_dynamic_bsz use_kl_loss use_torch_compile"),
        (_NotNegative, "clip_ratio"),
        (_NotNegative | None, "clip_ratio_low clip_ratio_high"),
        (Annotated[float, Interval(gt=1)], "clip_ratio_c"),
        (_Aggregation, "loss_agg_mode"),
        (_Positive | None, "loss_scale_factor"),
        (float, "entropy_coeff kl_loss_coef"),
        (_Positive, "grad_clip"),
        (_Divergence, "kl_loss_type"),
    ),
    **_under(
        f"{_ACTOR}.optim",
        (_NotNegative, "lr weight_decay"),
        (Literal["constant", "cosine"], "lr_scheduler_type"),
        (str, "optimizer optimizer_impl"),
    ),
    **_under(
        f"{_ACTOR}.fsdp_config",
        (_Precision, "model_dtype"),
        (bool, "optimizer_offload param_offload use_torch_compile"),
    ),
    **{f"{_ACTOR}.fsdp_config.mixed_precision.{kind}_dtype": _Precision for kind in ("param", "reduce", "buffer")},
    **_under(f"{_ACTOR}.policy_loss", (str, "_target_ loss_mode")),
    **_under(
        _ROLLOUT,
        (str, "name logprobs_mode load_format"),
        (Literal["async"], "mode"),
        (
            _Count,
            "n n_gpus_per_node tensor_model_parallel_size max_num_seqs "
            "max_num_batched_tokens log_prob_max_token_len_per_gpu",
        ),
        (_Whole, "nnodes"),
        (_NotNegative, "temperature"),
        (_Share, "top_p gpu_memory_utilization"),
        (Annotated[int, Interval(ge=-1)], "top_k"),
        (Literal["auto", "half", "float16", "bfloat16", "float", "float32"], "dtype"),
        (bool, "calculate_log_probs enforce_eager enable_sleep_mode free_cache_engine"),
        (_Count | None, "max_model_len log_prob_micro_batch_size_per_gpu"),
    ),
    **_under(
        f"{_ROLLOUT}.agent",
        (_Count, "num_workers"),
        (str, "default_agent_loop"),
        (str | None, "agent_loop_config_path agent_loop_manager_class"),
    ),
    **_under(
        f"{_ROLLOUT}.multi_turn",
        (str, "format"),
        (str | None, "tool_config_path"),
        (_Count | None, "max_assistant_turns"),
        (_Count, "max_tool_response_length"),
    ),
    **_under(
        f"{_ROLLOUT}.checkpoint_engine",
        (str, "backend"),
        (str | None, "custom_backend_module"),
        (_Count, "update_weights_bucket_megabytes"),
    ),
    **_under(
        f"{_ROLLOUT}.val_kwargs", (_Count, "n"), (bool, "do_sample"), (_NotNegative, "temperature"), (_Share, "top_p")
    ),
    **_under(f"{_ROLLOUT}.engine_kwargs.vllm", (str | None, "distributed_executor_backend worker_extension_cls")),
    **_under(
        "algorithm",
        (str | None, "_target_"),
        (str, "adv_estimator"),
        (Annotated[float, Interval(ge=0, le=1)], "gamma"),
        (bool, "use_kl_in_reward"),
        (_Divergence, "kl_penalty"),
    ),
    **_under("algorithm.kl_ctrl", (Literal["fixed", "adaptive"], "type")),
    **_under("algorithm.filter_groups", (bool, "enable")),
    **_under(
        "algorithm.rollout_correction",
        (bool | None, "bypass_mode rollout_is_batch_normalize"),
        (Literal["token", "sequence"] | None, "rollout_is"),
        (_Threshold | None, "rollout_is_threshold rollout_rs_threshold"),
        (str | None, "rollout_rs"),
    ),
    "reward.num_workers": _Count,
    **_under("reward.reward_manager", (str, "name"), (Literal["register", "importlib"], "source")),
    "reward.reward_manager.module.path": str | None,
    **_under("reward.reward_model", (bool, "enable enable_resource_pool")),
    **_under(
        "trainer",
        (str, "device project_name experiment_name default_local_dir"),
        (bool, "use_v1 val_before_train val_only"),
        (_Count, "nnodes n_gpus_per_node total_epochs"),
        (_Count | None, "total_training_steps max_actor_ckpt_to_keep"),
        (int, "save_freq test_freq"),
        (_Words, "logger"),
        (str | None, "rollout_data_dir resume_from_path"),
        (Literal["auto", "disable", "resume_path"], "resume_mode"),
    ),
    "trainer.v1.trainer_mode": str,
    "trainer.v1.colocate_async.num_warmup_batches": _NotNegative,
    **_under("trainer.v1.separate_async", (_NotNegative, "num_warmup_batches"), (_Count, "parameter_sync_step")),
    **_under(
        _SAMPLER,
        (_Whole | None, "max_off_policy_threshold"),
        (Literal["drop", "wait"], "max_off_policy_strategy"),
        (bool | None, "sync_refill_failed_groups"),
    ),
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": _Count,
    **_under(
        "ray_kwargs.ray_init",
        (str | None, "address"),
        (_NotNegative | None, "num_gpus num_cpus"),
        (bool | None, "include_dashboard"),
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
