# SPDX-License-Identifier: Apache-2.0
"""Pins what we lean on in sources: of verl where only a running trainer or cluster calls, and below the fork server."""

import ast
import inspect
import multiprocessing.popen_spawn_posix
import multiprocessing.spawn
import os
from pathlib import Path

import pytest
import ray
from ray._private import ray_constants

from tests.compat.pins import source_of, text_of
from verl_kernel.bench.models.vllm_server import serve_arguments

WORKERS = "workers/engine_workers.py"
ENGINES = "checkpoint_engine/base.py"
BUCKETS = "workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
EXTENSION = "workers/rollout/vllm_rollout/utils.py"
RAY = Path(ray.__file__).parent

SAYS = r"""
# The plugin, and the platform for machines without a GPU.
verl loads entry points of the group that we declare (__init__.py):
    group='verl.plugins'
    VERL_USE_EXTERNAL_PLUGINS
the platform is chosen by the environment (plugin/platform/platform_manager.py):
    VERL_PLATFORM
process groups start where the platform patches (workers/engine_workers.py):
    initialize_global_process_group_ray
the SFT trainer starts groups and samples as we expect (trainer/sft_trainer.py):
    from verl.utils.distributed import initialize_global_process_group
    initialize_global_process_group()
    DistributedSampler(self.train_dataset, shuffle=True, num_replicas=dp_size
    train_sampler.set_epoch(epoch=epoch)
log-probs have a fallback that we swap (utils/torch_functional.py:logprobs_from_logits):
    logprobs_from_logits_v2(
vLLM's version is asked of importlib.metadata (third_party/vllm/__init__.py):
    from importlib.metadata import
    version(pkg)
the worker extension is selected by engine arguments (workers/rollout/vllm_rollout/vllm_async_server.py):
    'worker_extension_cls': self._get_worker_extension_cls()
weights of vLLM have an address (workers/rollout/vllm_rollout/utils.py:vLLMColocateWorkerExtension):
    def _get_zmq_handle(

# Transfer of weights between trainer and rollout.
the trainer's first worker is the master of an engine (workers/engine_workers.py):
    is_master=torch.distributed.get_rank() == 0, bucket_size=bucket_size, **engine_kwargs
the manager imports the named module (checkpoint_engine/base.py:CheckpointEngineManager.__init__):
    import_external_libs(
the manager numbers both ends (checkpoint_engine/base.py:CheckpointEngineManager.build_process_group):
    actor_wg.world_size, rollout.world_size, metadata
all of a trainer's workers get the weights to send (workers/engine_workers.py):
    await self.checkpoint_engine.send_weights(per_tensor_param, global_steps=global_steps)
a rollout's worker receives them (checkpoint_engine/base.py:CheckpointEngineWorker.update_weights):
    self.checkpoint_engine.receive_weights(
a prompt's age counts its own step, so at a threshold of 1 training waits for all (trainer/ppo/v1/replay_buffer.py):
    global_steps - prompt_global_steps.get(uid, global_steps) + 1 > self.max_off_policy_threshold
    if global_steps - prompt_global_steps + 1 >= self.max_off_policy_threshold:
    self.max_off_policy_strategy == 'wait'
staleness is counted in transfers of weights (trainer/ppo/v1/trainer_base.py):
    trajectory_staleness = global_steps - 1 - max_global_steps
    trajectory_staleness_worst = global_steps - 1 - min_global_steps
    self.trainer_mode, {}).get('parameter_sync_step', 1)

# Agent loops, and the worker that Reinforce-Ada extends.
a rollout ends in verl's postprocessing (experimental/agent_loop/agent_loop.py:AgentLoopWorker._run_agent_loop):
    self._agent_loop_postprocess(output, trajectory['validate'], **kwargs)
a reward that is there is not computed again (experimental/agent_loop/agent_loop.py:_compute_score):
    final_output.reward_score is None and enable_async_reward
reward managers see rows and reach the sampler (experimental/agent_loop/agent_loop.py:_compute_score):
    k: np.array([v] * n) for
    'response_len': np.array([len(o.response_ids) for o in outputs])
    final_output.extra_fields['reward_extra_info'] = result['reward_extra_info']
the worker takes the number of rollouts from a column (trainer/ppo/v1/agent_loop_tq.py:_run_prompt):
    prompt.pop('__rollout_n__',
    'running'
    'finished'
    'failure'
a failed rollout fails its prompt alone (trainer/ppo/v1/agent_loop_tq.py:_run_prompt):
    _settle_session_tasks(tasks)
    status = 'failure'
keys, tags and loss masks of rows (trainer/ppo/v1/agent_loop_tq.py:_agent_loop_postprocess):
    f'{uid}_{session_id}_{i}'
    'global_steps': kwargs['global_steps']
    uid, session_id = (kwargs['uid'], kwargs['session_id'])
    field['loss_mask'] = field['response_mask']
the manager names the class of its workers (trainer/ppo/v1/agent_loop_tq.py:AgentLoopManagerTQ.__init__):
    self.agent_loop_workers_class = AgentLoopWorkerTQ
workers of that class are started (experimental/agent_loop/agent_loop.py:AgentLoopManager._init_agent_loop_workers):
    self.agent_loop_workers_class.options(
manager and trainer share a process (trainer/main_ppo.py):
    self.trainer = trainer_cls(config=config)
    self.agent_loop_manager = agent_loop_manager_cls.create(
sampler and estimator share it too (trainer/ppo/v1/trainer_base.py):
    self.replay_buffer = self._build_replay_buffer()
    data = compute_advantage_for_multi_trajectories(
    self.agent_loop_manager.generate_sequences(batch)
agent loop managers are chosen by name (trainer/main_ppo.py:TaskRunnerV1.init_agent_loop_manager):
    load_class_from_fqn(manager_class_fqn
a validation says so (trainer/ppo/v1/trainer_base.py:PPOTrainer._validate):
    assign_non_tensor_data(batch, 'validate', True)
agent loops know the options of a template (experimental/agent_loop/agent_loop.py:AgentLoopBase.__init__):
    self.apply_chat_template_kwargs = self.data_config.get('apply_chat_template_kwargs', {})
agent loops name stop tokens (experimental/agent_loop/tool_agent_loop.py:ToolAgentLoop):
    'stop_token_ids': stop_token_ids
sampling parameters reach vLLM (workers/rollout/vllm_rollout/vllm_async_server.py:vLLMHttpServer.generate):
    SamplingParams(max_tokens=max_tokens, **sampling_params)
a model's configuration holds its chat template (workers/config/model.py:HFModelConfig):
    self.tokenizer.chat_template = self.custom_chat_template
a row gives a tool its task (utils/dataset/rl_dataset.py:RLHFDataset):
    row_dict.get('extra_info', {}).get('tools_kwargs', {})
the loop hands the task and the conversation to a tool (experimental/agent_loop/tool_agent_loop.py:ToolAgentLoop):
    tool.create(create_kwargs=kwargs.get('create_kwargs', {}))
    tool.execute(instance_id, tool_args, agent_data=agent_data)

# Sampler, estimators and losses.
prompt tags are cleared where the batch is made (trainer/ppo/v1/replay_buffer.py:ReplayBuffer._materialize_batch):
    tq.kv_clear(partition_id=partition_id, keys=selected_prompt_uids)
what the sampler takes out of this very set is not cleared (trainer/ppo/v1/replay_buffer.py:ReplayBuffer.sample):
    surplus_uids = sampleable_keys - set(selected_prompt_uids)
    self._materialize_batch(partition_id, selected_prompt_uids,
the asynchronous sampler makes its batch there too (trainer/ppo/v1/replay_buffer.py:ReplayBufferAsync.sample):
    self._materialize_batch(partition_id, selected_prompt_uids,
the sampler's records are kept by partition (trainer/ppo/v1/replay_buffer.py):
    self._dapo_classification_cache[partition_id]
    self.finished_keys[partition_id]
    self.partitions[partition_id]
    self.prompt_global_steps[partition_id]
metrics of the sampler reach the step's log (trainer/ppo/v1/trainer_base.py:PPOTrainer._step_once):
    batch, off_policy_metrics = self.replay_buffer.sample(
    metrics.update(off_policy_metrics)
the trainer counts tokens of the loss in loss_mask (workers/engine/fsdp/transformer_impl.py):
    batch_num_tokens = data['loss_mask'].sum()
advantages come from the queue, bypass is uncorrected (trainer/ppo/v1/trainer_base.py:PPOTrainer._compute_advantage):
    'uid'
    'response_mask'
    'rm_scores'
    'rollout_log_probs'
    'old_log_probs'
    and (not bypass_recomputing_logprobs)
bypass mode hands over the rollout's log-probs (trainer/ppo/v1/trainer_base.py:PPOTrainer._compute_old_log_prob):
    data['old_log_probs'] = data.pop('rollout_log_probs')
padding rows have a uid of their own (trainer/ppo/padding_utils.py:upsample_batch_to_divisible_size):
    uuid
losses are looked up by name and get the rollout's weights (workers/utils/losses.py:ppo_loss):
    get_policy_loss_fn(loss_mode)
    rollout_is_weights=rollout_is_weights
the actor's nodes become the classes that they name (workers/engine_workers.py:ActorRolloutRefWorker):
    omega_conf_to_dataclass(self.config.actor)
# What the best of n costs, and the share of tokens that `rsft` accepts.
a step logs tokens and advantages (trainer/ppo/metric_utils.py):
    'perf/total_num_tokens': total_num_tokens
    'critic/advantages/mean': adv_mean
a validation is logged (trainer/ppo/v1/trainer_base.py):
    self.logger.log(data=val_metrics, step=self.global_steps)

# The start of a trainer.
main_ppo starts from ppo_trainer with the V1 trainer (trainer/main_ppo.py):
    @hydra.main(config_path='config', config_name='ppo_trainer'
    class TaskRunnerV1
verl has one place for the variables of its workers (trainer/main_ppo.py):
    get_ppo_ray_runtime_env(config)
prompts are filtered in this process by default (utils/dataset/rl_dataset.py):
    config.get('filter_overlong_prompts_workers'
    if self.num_workers is not None else None
    num_proc=self.num_workers

# ReMix and its adapters.
the SFT dataset takes what we give it (utils/dataset/multiturn_sft_dataset.py:MultiTurnSFTDataset):
    NO_PADDING
    self.dataframe = 
    config.get('pad_mode'
    config.get('truncation'
    config.get('max_length'
an adapter is loaded where its rank is positive (workers/engine/fsdp/transformer_impl.py:FSDPEngine):
    self._is_lora = self.model_config.lora_rank > 0
    PeftModel.from_pretrained(module, local_adapter_path, is_trainable=True)
merged weights of an adapter are sent (workers/engine/fsdp/transformer_impl.py:FSDPEngine.get_per_tensor_param):
    self.model_config.lora.get('merge', False)
    return (self._merged_lora_per_tensor_param(), None)
"""
"""What holds of verl, the file or definition that says so, and below it the code that it says it with."""


def pins() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in SAYS.splitlines():
        if line.endswith("):"):
            pin, _, place = line.removesuffix("):").rpartition(" (")
            found[pin] = [place]
        elif line.startswith(" "):
            next(reversed(found.values())).append(line.strip())
    return found


PINS = pins()


@pytest.mark.parametrize("pin", PINS)
def test_verls_source_says(pin):
    place, *parts = PINS[pin]
    assert [part for part in parts if part not in text_of(place)] == []


@pytest.mark.parametrize("place", [WORKERS, f"{ENGINES}:CheckpointEngineWorker.__init__"])
def test_both_ends_import_the_named_module_first(place):
    source = text_of(place)
    imported = source.index("import_external_libs(")
    assert "custom_backend_module" in source[imported : imported + 120]
    assert imported < source.index("CheckpointEngineRegistry.new(")


def test_the_manager_prepares_joins_and_finalizes_in_turn():
    source = text_of(f"{ENGINES}:CheckpointEngineManager.build_process_group")
    calls = ["['prepare'] * actor_wg.world_size", "self.backend_cls.build_topology(", "['init_process_group']"]
    assert [source.index(call) for call in calls] == sorted(source.index(call) for call in calls)
    update = text_of(f"{ENGINES}:CheckpointEngineManager.update_weights")
    assert 0 < update.index("build_process_group(rollout)") < update.index("'finalize'")


def test_bypass_mode_asks_for_no_loss():
    assert "loss_mode" not in text_of("trainer/ppo/v1/trainer_base.py")


@pytest.mark.parametrize(("path", "owner", "method", "names"), [
    (EXTENSION, "vLLMColocateWorkerExtension", "update_weights_from_ipc", "peft_config base_sync_done use_shm"),
    (BUCKETS, "BucketedWeightReceiver", "__init__", "zmq_handle device use_shm"),
    (BUCKETS, "BucketedWeightReceiver", "receive_weights", "on_bucket_received"),
])  # fmt: skip
def test_weights_reach_vllm_in_buckets(path, owner, method, names):
    definition = source_of(path, owner, method)
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    assert [argument.arg for argument in definition.args.args] == ["self", *names.split()]


def test_the_variables_of_verls_workers_are_texts():
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    variables = get_ppo_ray_runtime_env()["env_vars"]
    assert variables
    assert all(isinstance(value, str) for value in variables.values())


def test_ray_joins_the_setup_file_to_its_folder():
    assert ray_constants.SETUP_WORKER_FILENAME == "setup_worker.py"
    assert "setup_worker_path=os.path.join(" in (RAY / "_private" / "node.py").read_text()
    assert "ray_constants.SETUP_WORKER_FILENAME," in (RAY / "_private" / "node.py").read_text()
    # The interpreter, this script, flags, the worker's script and its options.
    command = "            sys.executable,\n            setup_worker_path,\n"
    assert command in (RAY / "_private" / "services.py").read_text()


def test_rays_script_takes_two_options_and_runs_the_rest():
    source = (RAY / "_private" / "workers" / "setup_worker.py").read_text()
    assert source.count("add_argument(") == 2
    assert '"--serialized-runtime-env-context"' in source
    assert '"--language"' in source
    assert (RAY / "_private" / "workers" / "default_worker.py").exists()


def test_multiprocessing_reads_its_command_line_to_spawn():
    assert "spawn.get_command_line(" in inspect.getsource(multiprocessing.popen_spawn_posix)
    command = multiprocessing.spawn.get_command_line(tracker_fd=1, pipe_handle=2)
    assert os.fsencode(command[0]) == os.fsencode(multiprocessing.spawn.get_executable())
    assert "-c" in command


def test_vllm_serve_knows_our_options(monkeypatch):
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    if not current_platform.device_type:  # a build for GPUs on a machine without one, whose parser would ask for it
        monkeypatch.setattr(current_platform, "device_type", "cpu")
    chosen = make_arg_parser(FlexibleArgumentParser()).parse_args(["folder", *serve_arguments(model="toy", port=8000)])
    assert (chosen.model_tag, chosen.served_model_name, chosen.port) == ("folder", ["toy"], 8000)


def test_vllm_spawns_its_engine_inside_a_ray_actor():
    from vllm.utils import system_utils

    assert '"spawn"' in inspect.getsource(system_utils._maybe_force_spawn)
