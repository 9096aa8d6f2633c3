# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from typer.testing import CliRunner

import verl_kernel
from verl_kernel.cli import COMMANDS, app


def test_help_lists_every_command_and_imports_none_of_them():
    probe = (
        "import sys; from verl_kernel.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m in ('torch', 'verl', 'ray') or m.startswith('verl_kernel.commands')))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert all(name in done.stdout for name in COMMANDS)


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"verl-kernel {verl_kernel.__version__}"


def test_every_command_answers_help_with_its_own_name():
    for name in COMMANDS:
        result = CliRunner().invoke(app, [name, "--help"])
        assert result.exit_code == 0 and f"verl-kernel {name}" in result.output, (name, result.output)


def test_a_usage_error_of_a_command_exits_with_2():
    result = CliRunner().invoke(app, ["doctor", "--no-such-option"])
    assert result.exit_code == 2
