# SPDX-License-Identifier: Apache-2.0
"""Published data sets become rows and conversations, and what cannot be used is listed."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data import published_files as files
from tests.preflight.folder import REFERENCE
from tests.sentences import refused
from verl_kernel.data import conversations, rows
from verl_kernel.data.rows import check_rows, read_rows, read_tasks, task_from_row
from verl_kernel.data.sources import SOURCES, convert_source, names
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.generated_tasks.conversations import task_messages


def made(tmp_path, name, path=None, **options):
    out = tmp_path / "out" / "made.parquet"
    kind = SOURCES[name].kind
    written = convert_source(name, kind, path or files.write(tmp_path, name), out, **options)
    assert pq.read_schema(out).equals(rows.SCHEMA if kind == "rows" else conversations.SCHEMA)
    return written, pq.read_table(out).to_pylist(), out


@pytest.mark.parametrize("name", files.ONE_SIZE)
def test_rows_of_every_source_can_be_prompted_with_and_judged(tmp_path, name):
    written, found, out = made(tmp_path, name)
    assert (written.rows, written.refused) == (3, {})
    assert not list(out.parent.glob("*refused*"))
    check_rows(out)
    assert len({task.task_id for task in read_tasks(out)}) == 3
    texts = [task_from_row(row).reference for row in found]
    for program in files.programs():
        assert any(program.reference.partition("nn.Module):")[2] in text for text in texts)
    assert {(row["agent_name"], row["extra_info"]["split"]) for row in found} == {("kernel_agent", "train")}
    assert [row["extra_info"]["index"] for row in found] == [0, 1, 2]


@pytest.mark.parametrize("name", ["kernelbench", "kernelbook"])
def test_our_own_prompt_can_name_targets(tmp_path, name):
    plain = made(tmp_path, name)[1]
    for row, named in zip(plain, made(tmp_path, name, targets=("sm_90", "gfx942"))[1], strict=True):
        text = row["prompt"][0]["content"]
        assert "gfx942" not in text
        assert named["prompt"][0]["content"] == text.replace(
            "at the edges.\n",
            "at the edges.\n- Every kernel must compile for sm_90 (NVIDIA H100), where a warp has 32 threads and "
            "a block at most 32 warps and 227 kB of shared memory; and for gfx942 (AMD Instinct MI300X), where a warp "
            "has 64 threads and a block at most 16 warps and 64 kB of shared memory.\n",
        )


def test_a_published_prompt_names_no_targets(tmp_path):
    with pytest.raises(ConfigError, match=r"^drkernel-rl has prompts of its own: leave out --targets, which kernelb"):
        made(tmp_path, "drkernel-rl", targets=("gfx942",))


def test_a_missing_level_is_null_and_a_known_one_is_kept(tmp_path):
    levels = {name: [row["extra_info"]["level"] for row in made(tmp_path, name)[1]] for name in files.ONE_SIZE}
    assert levels.pop("kernelbench") == [1, 1, 2]
    assert levels.pop("drkernel-validation") == [2, 2, 2]
    assert set(levels) == {"drkernel-rl", "kernelbook", "kernelsmith-rl"}
    assert all(found == [None] * 3 for found in levels.values())


@pytest.mark.parametrize(("level", "known"), [(3, 3), ("2", 2), (None, None), ("", None), ("hard", None), (1e40, None)])
def test_a_level_is_a_number_or_null(tmp_path, level, known):
    row = files.row_of("drkernel-rl", 0, files.programs()[0])
    path = verl_rows(tmp_path, extra_info={**row["extra_info"], "level": level})
    assert made(tmp_path, "drkernel-rl", path)[1][0]["extra_info"]["level"] == known


def test_prompts_and_further_columns_are_kept(tmp_path):
    _, found, _ = made(tmp_path, "drkernel-rl")
    row, program = found[1], files.programs()[1]
    assert (row["prompt"], row["data_source"]) == (task_messages(program), "cuda_llm")
    info = json.loads(row["extra_info"]["source"])["extra_info"]
    assert (info["uuid"], info["ops"], info["repo_name"]) == ("u1", '["relu"]', "own/tasks")
    assert row["extra_info"]["task_id"] == "drkernel-rl-u1"
    _, found, _ = made(tmp_path, "kernelsmith-rl")
    kept = json.loads(found[0]["extra_info"]["source"])
    assert kept["extra_info"] == {"parent_code": "import triton"}
    assert kept["ground_truth"] == {"test": "none"}


def test_another_class_gets_the_name_that_the_prompt_asks_for(tmp_path):
    _, found, _ = made(tmp_path, "kernelsmith-rl")
    assert found[0]["extra_info"]["entry_point"] == "Model"
    assert found[0]["reward_model"]["ground_truth"].endswith("class Model(Block):\n    pass\n")
    _, found, _ = made(tmp_path, "kernelbook")
    assert found[0]["extra_info"]["entry_point"] == "Block"
    assert "class `BlockNew`" in found[0]["prompt"][0]["content"]
    assert found[0]["prompt"][0]["role"] == "user"


def verl_rows(tmp_path, **changes):
    path = tmp_path / "changed.jsonl"
    row = files.row_of("drkernel-rl", 0, files.programs()[0])
    path.write_text("".join(json.dumps({**row, **each}) + "\n" for each in (changes, {})))
    return path


@pytest.mark.parametrize(("changes", "reason"), [
    ({"prompt": None}, "there is no prompt"),
    ({"prompt": [{"role": "user", "content": None}]}, "the prompt holds a message without text"),
    ({"prompt": [{"role": "assistant", "content": "ModelNew"}]}, "there is no prompt"),
    ({"reward_model": None}, "there is no reference"),
    ({"reward_model": {"ground_truth": "", "style": "rule"}}, "there is no reference"),
    ({"reward_model": {"ground_truth": "class Model("}}, "the reference is not valid Python"),
    ({"reward_model": {"ground_truth": "x = 1"}}, "the reference defines no `class Model`"),
    ({"reward_model": {"ground_truth": "import nowhere_to_be_found\n" + files.programs()[0].reference}},
     "the reference imports nowhere_to_be_found, which is not installed"),
    ({"extra_info": {"entry_point": "Block"}}, "the reference defines no `class Block`"),
    ({"extra_info": {"entry_point": "Block"}, "reward_model": {
        "ground_truth": files.programs()[0].reference + "class Block(Model): pass\n"}},
     "the prompt asks for ModelNew, but the class is Block and another one is called Model"),
])  # fmt: skip
def test_what_cannot_be_judged_is_counted_and_listed(tmp_path, changes, reason):
    written, found, _ = made(tmp_path, "drkernel-rl", verl_rows(tmp_path, **changes))
    assert (written.rows, sum(written.refused.values()), len(found)) == (1, 1, 1)
    (line,) = [json.loads(line) for line in written.listed.read_text().splitlines()]
    assert line["row"] == 0
    assert line["reason"].startswith(reason)
    assert line["sentence"].startswith(reason)
    assert written.refused == {line["reason"]: 1}
    assert found[0]["extra_info"]["index"] == 0


@pytest.mark.parametrize("key", ["prompt", "message", "messages"])
@pytest.mark.parametrize("as_text", [False, True])
def test_prompt_message_and_messages_mean_the_same(tmp_path, key, as_text):
    asked = task_messages(files.programs()[0])
    value = asked[0]["content"] if as_text else [*asked, {"role": "assistant", "content": "an answer"}]
    _, found, _ = made(tmp_path, "drkernel-rl", verl_rows(tmp_path, **{"prompt": None, key: value}))
    assert found[0]["prompt"] == asked


def test_a_reference_may_be_json_text_or_a_struct(tmp_path):
    reference = files.programs()[0].reference
    for truth in (reference, json.dumps({"reference_code": reference}), {"reference_code": reference}):
        _, found, _ = made(tmp_path, "drkernel-rl", verl_rows(tmp_path, reward_model={"ground_truth": truth}))
        assert found[0]["reward_model"] == {"style": "rule", "ground_truth": reference}


def test_equal_ids_are_told_apart(tmp_path):
    _, found, _ = made(tmp_path, "drkernel-rl", verl_rows(tmp_path, prompt="Write ModelNew. \ud800"))
    assert [row["extra_info"]["task_id"] for row in found] == ["drkernel-rl-u0", "drkernel-rl-u0-2"]
    assert found[0]["prompt"][0]["content"] == "Write ModelNew. ?"


@pytest.mark.parametrize("name", names("talks"))
def test_conversations_are_what_the_trainer_reads(tmp_path, name):
    written, found, _ = made(tmp_path, name)
    assert written.rows == 3
    for row in found:
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * (5 if name == "drkernel-coldstart" else 2)
    kept = json.loads(found[2]["source"])
    assert kept["row"] == 2
    assert (kept.get("best_round"), kept.get("_id")) in ((2, None), (None, "s2"))


@pytest.mark.parametrize(("roles", "reason"), [
    ("", "there is no conversation"), ("ua ", "a message is empty"), ("uu", "the roles do not alternate"),
    ("au", "the roles do not alternate"), ("uau", "the last message is not the assistant's"),
    ("s", "the last message is not the assistant's"),
])  # fmt: skip
def test_conversations_that_teach_nothing_are_listed(tmp_path, roles, reason):
    words = {"u": ("user", "do"), "a": ("assistant", "done"), "s": ("system", "be"), " ": ("user", " ")}
    bad = [dict(zip(("role", "content"), words[letter], strict=True)) for letter in roles]
    if roles.endswith(" "):
        bad.append({"role": "assistant", "content": "done"})
    good = [{"role": "system", "content": ""}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    path = tmp_path / "talks.parquet"
    pq.write_table(pa.Table.from_pylist([{"_id": "1", "messages": m} for m in (bad, good)]), path)
    written, found, _ = made(tmp_path, "kernelsmith-sft", path)
    assert written.refused == {reason: 1}
    assert found[0]["messages"] == good


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_missing_file_says_what_to_fetch_and_where_to_put_it(tmp_path, name):
    source = SOURCES[name]
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nothing", tmp_path / "empty"):
        with refused(path, source.repository, source.file, source.revision, "name the", by=DataError):
            convert_source(name, source.kind, path, tmp_path / "out.parquet")


def test_programs_of_ones_own_become_rows(tmp_path):
    own, out = tmp_path / "mine", tmp_path / "out.parquet"
    own.mkdir()
    for name in ("b", "a"):
        (own / f"{name}.py").write_text(f"# {name}\n{REFERENCE}")
    (own / "helper.py").write_text("x = 1\n")
    written = convert_source("folder", "rows", own, out, targets=("sm_90",))
    assert (written.rows, written.refused.total()) == (2, 1)
    check_rows(out)
    rows = read_rows(out)
    assert [(row["extra_info"]["task_id"], row["data_source"]) for row in rows] == [("a", "mine"), ("b", "mine")]
    assert rows[0]["reward_model"]["ground_truth"].startswith("# a\n")
    assert "sm_90" in rows[0]["prompt"][0]["content"]
    for place in (own / "a.py", tmp_path / "nothing"):
        with refused(place, "name a folder of reference programs", by=DataError):
            convert_source("folder", "rows", place, out)


def test_bad_files_and_words_are_one_sentence(tmp_path):
    junk, text, empty = tmp_path / "junk.parquet", tmp_path / "data.csv", tmp_path / "empty.jsonl"
    junk.write_bytes(b"PAR1"), text.write_text("x"), empty.write_text("{}\n")
    out = tmp_path / "out.parquet"
    for path, sentence in ((junk, "is damaged"), (text, "neither"), (empty, "no row is left")):
        with refused(sentence, by=DataError):
            convert_source("drkernel-rl", "rows", path, out)
    assert (tmp_path / "out.refused.jsonl").is_file()
    assert not out.exists()
    assert not list(tmp_path.glob("*.part"))
    for name, source, place, levels, sentence in (
        ("imagenet", junk, out, (), "choose kernelbench, drkernel-rl"),
        ("folders", junk, out, (), "did you mean folder? "),
        ("kernelsmith-sft", junk, out, (), "no source of rows"),
        ("kernelbook", junk, out, [1], "names no levels"),
        ("kernelbook", files.write(tmp_path, "kernelbook"), junk / "x", (), "junk.parquet is a file: name another fol"),
    ):
        with refused(sentence, by=ConfigError):
            convert_source(name, "rows", source, place, levels=levels)
