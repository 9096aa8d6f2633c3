# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this package.

Each class can be pickled, since Ray sends exceptions between processes. Its message is one sentence that names the
faulty key or file and the remedy. A candidate's failure is never an exception: it is an `EvalResult` with a status.
"""


class VerlKernelError(Exception):
    """Base of every error raised by verl_kernel."""


class ConfigError(VerlKernelError, ValueError):
    """A configuration key holds a value that cannot work."""


class DataError(VerlKernelError, ValueError):
    """A dataset row lacks something an evaluation or a rollout needs."""


class TaskError(VerlKernelError, ValueError):
    """A reference program cannot serve as a task."""


class RegistrationError(VerlKernelError, RuntimeError):
    """A name could not be registered with verl."""


class TrainingError(VerlKernelError, RuntimeError):
    """A trainer that this package started has failed; the message ends with its last lines."""


class EnvironmentNotReady(VerlKernelError, RuntimeError):
    """Something the machine must provide (a package, a compiler, shared memory) is missing."""


class InfraError(VerlKernelError, RuntimeError):
    """The evaluator itself failed; the candidate is not to blame."""


class EndpointError(VerlKernelError, RuntimeError):
    """A model endpoint is unreachable or has stopped answering."""


class StorageError(VerlKernelError, RuntimeError):
    """A result could not be written; results written before are kept."""


_TRAINING = (
    "verl",
    "hydra",
    "omegaconf",
    "transformers",
    "tokenizers",
    "ray",
    "pandas",
    "transfer_queue",
    "tensordict",
)
"""What the extra `verl` brings."""
INSTALL_TRAINING = "pip install 'verl-kernel[verl]'"


def cannot_load(exc: ImportError) -> str:
    """Return the sentence for a package that is missing or whose files are damaged."""
    if isinstance(exc, ModuleNotFoundError) and (exc.name or "").partition(".")[0] in _TRAINING:
        return f"this needs what trains, and {exc.name} is not installed: {INSTALL_TRAINING}"
    return (
        f"a package cannot be loaded ({exc}): `make env` mends the environment of a checkout, elsewhere install that "
        "package anew"
    )
