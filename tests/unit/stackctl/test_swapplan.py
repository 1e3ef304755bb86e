"""What a swap changes in .env: by model, by preset, by single settings; and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from stackctl import envfile, rollback, swapplan
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.swapplan import Wanted

ENV = """\
# settings
MODEL=auto  # the model
  export MAX_MODEL_LEN=8192
#TOOL_CALL_PARSER=
NGINX_PORT=8080
VLLM_EXTRA_ARGS='--max-loras 4'
"""


def parsed(text: str) -> dict[str, str]:
    return envfile.parse(text, lambda _: None)


def test_a_model_changes_itself_and_its_revision_alone() -> None:
    new = swapplan.changes(Wanted("acme/m", None), {})
    assert new == {"MODEL": "acme/m", "MODEL_REVISION": ""}
    assert swapplan.edited(ENV, new) == ENV.replace("MODEL=auto  # the model", "MODEL=acme/m")
    assert swapplan.kept(parsed(ENV), new) == [
        "MAX_MODEL_LEN=8192", "VLLM_EXTRA_ARGS=--max-loras 4",
    ]  # fmt: skip


def test_a_preset_leaves_nothing_of_the_model_before() -> None:
    new = swapplan.changes(Wanted(None, "p"), {"MODEL": "acme/p", "MAX_MODEL_LEN": "32K"})
    after = parsed(swapplan.edited(ENV, new))
    assert after["MODEL"] == "acme/p"
    assert after["MAX_MODEL_LEN"] == "32K"
    assert after["VLLM_EXTRA_ARGS"] == ""
    assert after["NGINX_PORT"] == "8080"
    assert "REASONING_PARSER" not in after  # was not set, and no line says so
    assert swapplan.kept(parsed(ENV), new) == []


def test_single_settings_win_over_a_preset() -> None:
    words = ["MAX_MODEL_LEN=4k", "VLLM_EXTRA_ARGS=--chat-template 'it''s $HOME'", "QUANTIZATION="]
    new = swapplan.changes(Wanted(None, "p", words), {"MODEL": "m", "MAX_MODEL_LEN": "32K"})
    after = parsed(swapplan.edited(ENV, new))
    assert after["MAX_MODEL_LEN"] == "4k"
    assert after["VLLM_EXTRA_ARGS"] == "--chat-template 'it''s $HOME'"


@pytest.mark.parametrize(
    "value", ["", "plain", "a b", "it's", '{"a": "$b"}', "#no", "back\\slash", "a\\'b", "ü"]
)
def test_every_value_comes_back_as_it_was(value: str) -> None:
    text = swapplan.edited(ENV, {"COMPILATION_CONFIG": value, "MODEL": value or "m"})
    assert parsed(text).get("COMPILATION_CONFIG", "") == value


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Wanted(None, None), "found both or neither of MODEL and --preset"),
        (Wanted("m", "p"), "found both or neither of MODEL and --preset"),
        (Wanted("m", None, ["MAX_MODEL_LEN"]), "found 'MAX_MODEL_LEN'; wanted NAME=VALUE"),
        (Wanted("m", None, ["MAX_MODL_LEN=1"]), "fix: MAX_MODEL_LEN=VALUE"),
        (Wanted("m", None, ["NGINX_PORT=1"]), "an engine setting of .env.example"),
    ],
)
def test_what_is_no_plan(wanted: Wanted, words: str) -> None:
    with pytest.raises(StackError, match=words) as refused:
        swapplan.changes(wanted, {})
    assert refused.value.code == 2


def test_a_file_that_cannot_be_edited_safely_is_left_alone() -> None:
    spanning = 'VLLM_EXTRA_ARGS="--a\n--b"\nMODEL=auto\n'
    with pytest.raises(
        StackError, match=r"VLLM_EXTRA_ARGS in an \.env that cannot be edited safely"
    ):
        swapplan.edited(spanning, {"VLLM_EXTRA_ARGS": "--c"})
    with pytest.raises(StackError, match="wanted a value on one line"):
        swapplan.edited(ENV, {"MODEL": "a\nNGINX_PORT=1"})


def test_line_ends_and_marks_of_editors_stay() -> None:
    text = "\ufeffMODEL=auto\r\nNGINX_PORT=1\r\n"
    assert swapplan.edited(text, {"MODEL": "m"}) == "\ufeffMODEL=m\r\nNGINX_PORT=1\r\n"


def test_the_shipped_presets_can_all_be_read() -> None:
    layout = Layout(Path(__file__).resolve().parents[3])
    assert "smollm2-135m" in swapplan.presets(layout)
    for name in swapplan.presets(layout):
        found = swapplan.preset(layout, name)
        new = swapplan.changes(Wanted(None, name), found)
        after = parsed(swapplan.edited(ENV, new))
        assert {key: after.get(key, "") for key in new} == new


def test_a_preset_may_name_engine_settings_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.presets.mkdir(parents=True)
    (layout.presets / "bad.env").write_text("MODEL=m\nNGINX_PORT=1\n")
    (layout.presets / "worse.env").write_text("MODEL m\n")
    with pytest.raises(StackError, match=r"found NGINX_PORT in bad\.env"):
        swapplan.preset(layout, "bad")
    with pytest.raises(StackError, match=r"worse\.env: found line 1"):
        swapplan.preset(layout, "worse")
    with pytest.raises(StackError, match="wanted one of bad, worse"):
        swapplan.preset(layout, "none")


def test_what_served_comes_back_byte_for_byte(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.run.mkdir()
    served = "\ufeffMODEL=one\r\n# a comment\r\n"
    layout.env_file.write_bytes(served.encode())
    layout.env_file.chmod(0o640)
    assert not rollback.is_served(layout)
    assert rollback.previous(layout) is None
    rollback.remember(layout)
    assert rollback.is_served(layout)
    layout.env_file.write_text("MODEL=two\n")
    assert rollback.previous(layout) == served
    rollback.restore(layout, served, keep_failed=True)
    assert layout.env_file.read_bytes() == served.encode()
    assert layout.env_file.stat().st_mode & 0o777 == 0o640
    assert layout.failed_env.read_text() == "MODEL=two\n"
    rollback.remember(layout)
    assert not layout.failed_env.exists()
    assert layout.served_env.stat().st_mode & 0o777 == 0o600
