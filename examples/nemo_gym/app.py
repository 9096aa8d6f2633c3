# SPDX-License-Identifier: Apache-2.0
"""The entry point that NeMo Gym starts."""

from verl_kernel.adapters.nemo_gym import KernelServer

if __name__ == "__main__":
    KernelServer.run_webserver()
