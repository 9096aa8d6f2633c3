# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.service.serving import KEYS, some_keys
from verl_kernel.errors import ConfigError
from verl_kernel.service.keys import Keys, read_keys
from verl_kernel.service.options import ServiceOptions


def test_a_key_has_its_namespace(tmp_path):
    keys = some_keys(tmp_path)
    assert {name: keys.namespace(f"Bearer {key}") for name, key in KEYS.items()} == {name: name for name in KEYS}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic key-of-the-namespace-one", "\udc80"])
def test_another_key_has_none(tmp_path, header):
    assert some_keys(tmp_path).namespace(header) is None


def test_without_a_file_no_key_is_asked_for():
    assert read_keys(None).namespace(None) == ""


def test_only_the_operator_controls_a_service_with_keys(tmp_path):
    keys = some_keys(tmp_path)
    assert [name for name in KEYS if keys.is_operator(name)] == ["operator"]
    assert Keys({}).is_operator("")


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "holds no key"),
    ("# nothing\n", "holds no key"),
    ("one short\n", "line 1 of .* is no key"),
    ("One key-of-the-namespace-one\n", "line 1 of .* is no key"),
    ("one key-of-the-namespace-one more\n", "line 1 of .* is no key"),
    ("one key-of-the-namespace-one\none key-of-the-namespace-two\n", "line 2 of .* an earlier line has"),
    ("one key-of-the-namespace-one\ntwo key-of-the-namespace-one\n", "line 2 of .* an earlier line has"),
])  # fmt: skip
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=sentence):
        read_keys(str(path))


def test_a_file_that_others_can_read_is_refused(tmp_path):
    some_keys(tmp_path)
    (tmp_path / "keys").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(str(tmp_path / "keys"))


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match="serve.keys is /nowhere/keys, which cannot be read"):
        read_keys("/nowhere/keys")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "judges"])
def test_without_keys_it_listens_on_this_machine_only(host, tmp_path):
    with pytest.raises(ConfigError, match="name a file of keys with serve.keys"):
        ServiceOptions(host=host)
    assert ServiceOptions(host=host, keys=str(tmp_path / "keys")).host == host
