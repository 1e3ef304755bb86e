"""Local mode's plain data: programs, supervisor's configuration, ports, environments."""

import configparser
import io
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from stackctl import config, ports, process, programs, supervisor, venv
from stackctl.console import Console
from stackctl.errors import StackError
from stackctl.layout import Layout

PORTS = ports.Ports(8080, 40001, 40002, 40003)


def settings(layout: Layout, **values: str) -> config.Config:
    layout.env_file.write_text("".join(f"{name}='{value}'\n" for name, value in values.items()))
    return config.read(layout, {"PATH": "/bin", "HOME": "/h", "SECRET_OF_SHELL": "x"})


def test_engine_sees_settings_and_no_token(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    chosen = settings(layout, COMPILATION_CONFIG='{"mode": 3}', MAX_MODEL_LEN="", MODEL="auto")
    env = programs.engine(layout, chosen, PORTS).env
    assert env["COMPILATION_CONFIG"] == '{"mode": 3}'
    assert (env["ENGINE_DEVICE"], env["ENGINE_PORT"]) == ("cpu", "40002")
    assert "MAX_MODEL_LEN" not in env
    assert not {name for name in env if "TOKEN" in name or name == "SECRET_OF_SHELL"}


def test_a_setting_changes_only_its_program(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    before, after = settings(layout), settings(layout, GATEWAY_HOLD_S="5")
    assert programs.engine(layout, before, PORTS) == programs.engine(layout, after, PORTS)
    assert programs.gateway(layout, before, PORTS) != programs.gateway(layout, after, PORTS)
    assert programs.front(layout, before) == programs.front(layout, after)


def test_debug_restarts_the_engine_alone_and_is_in_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    plain = settings(layout)
    debug = replace(plain, debug=True)
    assert programs.engine(layout, debug, PORTS).env["ENGINE_DEBUG"] == "1"
    assert "ENGINE_DEBUG" not in programs.engine(layout, plain, PORTS).env
    assert programs.gateway(layout, debug, PORTS) == programs.gateway(layout, plain, PORTS)
    monkeypatch.setenv("ENGINE_DEBUG", "1")  # left in a shell, it reaches no program
    assert "ENGINE_DEBUG" not in process.clean_env()
    shell = config.read(layout, {"ENGINE_DEBUG": "1"})
    assert "ENGINE_DEBUG" not in programs.engine(layout, shell, PORTS).env


def test_compose_path_of_a_model_is_the_same_folder_here(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    chosen = settings(layout, MODEL="/models/mine")
    assert programs.model(layout, chosen) == str(layout.models / "mine")
    assert programs.model(layout, settings(layout, MODEL="org/name")) == "org/name"


def test_nginx_variables(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    chosen = settings(layout, NGINX_BIND="::1", GATEWAY_MAX_BODY_BYTES="2048")
    values = programs.nginx_variables(layout, chosen, PORTS)
    assert values["STACK_LISTEN"] == "[::1]:8080"
    assert values["STACK_GATEWAY"] == "127.0.0.1:40001"
    assert values["STACK_MAX_BODY"] == "2048"


def test_supervisor_configuration_survives_odd_paths(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "with space 100%")
    text = supervisor.configuration(layout, programs.managed(settings(Layout(tmp_path))))
    parsed = configparser.ConfigParser(inline_comment_prefixes=(";",))
    parsed.read_string(text)
    assert parsed["supervisord"]["pidfile"] == str(layout.supervisor_pid)
    assert f"'{layout.root}/scripts/stackctl/spawn.py'" in parsed["program:vllm"]["command"]
    assert parsed["program:nginx"]["stopsignal"] == "QUIT"


def test_socket_path_fits_a_deep_checkout(tmp_path: Path) -> None:
    deep = Layout(tmp_path / ("d" * 120))
    assert len(str(deep.supervisor_socket)) <= 96
    assert deep.supervisor_socket != replace(deep, root=tmp_path / ("e" * 120)).supervisor_socket


def test_ports_stay_while_they_are_free(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.run.mkdir()
    first = ports.choose(layout, 8080, running=False)
    assert len(set(first.inner)) == 3
    ports.record(layout, first)
    assert ports.choose(layout, 8080, running=False) == first
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first.engine))
        taken.listen()
        assert ports.choose(layout, 8080, running=True) == first
        assert ports.choose(layout, 8080, running=False).engine != first.engine
    layout.ports.write_text("{broken")
    assert ports.read(layout) is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("WARNING: Retrying after connection broken by 'NewConnectionError('", "no network"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
         "no space left on the disk"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "hash"),
        ("line\nERROR: something else", "something else"),
    ],
)  # fmt: skip
def test_pip_in_one_line(tmp_path: Path, output: str, words: str) -> None:
    error = venv.explain(process.Result(1, output, ""), tmp_path / "log")
    assert words in str(error)
    assert "fix:" in str(error)
    assert "\n" not in str(error)


def test_an_environment_is_current_only_with_its_stamp(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("a==1 \\\n    --hash=sha256:0\n# c==3\nb==2\n")
    assert venv.count(lock) == 2
    stamp = venv.fingerprint(lock)
    assert stamp != venv.fingerprint(lock, "torch==1") != venv.fingerprint(lock, "torch==2")
    assert not venv.is_current(tmp_path, stamp)
    (tmp_path / venv.STAMP).write_text(stamp + "\n")
    assert venv.is_current(tmp_path, stamp)
    lock.write_text("a==2\n")
    assert not venv.is_current(tmp_path, venv.fingerprint(lock))


def test_a_linked_environment_is_not_deleted_through_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StackError, match="is a link"):
        venv.make(tmp_path / "link", "stamp", [], console=None, log=tmp_path)  # type: ignore[arg-type]


def test_output_without_line_ends_is_not_waited_for() -> None:
    seen: list[str] = []
    done = process.follow(["sh", "-c", "printf 'a\\rb\\nc'; exit 3"], seen.append)
    assert (done.rc, seen) == (3, ["a", "b", "c"])


def test_programs_that_are_not_there() -> None:
    assert process.run(["no-such-program-here"]).rc == process.NOT_FOUND
    assert process.run(["sleep", "5"], timeout=0.1).rc == process.TIMED_OUT


def test_a_failed_installation_leaves_the_old_environment(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "old").touch()
    steps = [venv.Step("tools", ("--no-index", "no-such-package"), 1)]
    with pytest.raises(StackError):
        venv.make(folder, "new", steps, Console(io.StringIO()), tmp_path / "log")
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert not (tmp_path / "env.before").exists()


@pytest.mark.parametrize(
    ("whole", "kept"), [(True, "env"), (False, "before")], ids=["after it", "within it"]
)
def test_an_installation_that_was_killed(tmp_path: Path, whole: bool, kept: str) -> None:
    """Nothing could be put back: the environment that is whole is the one that comes back."""
    for name in ("env", "env.before"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name.removeprefix("env.")).touch()
    if whole:
        (tmp_path / "env" / venv.STAMP).touch()
    steps = [venv.Step("tools", ("--no-index", "no-such-package"), 1)]
    with pytest.raises(StackError):
        venv.make(tmp_path / "env", "new", steps, Console(io.StringIO()), tmp_path / "log")
    assert (tmp_path / "env" / kept).exists()
    assert not (tmp_path / "env.before").exists()


def test_pips_lines_move_and_end_without_a_counter() -> None:
    out = io.StringIO()
    progress = venv.Progress(Console(out), venv.Step("engine", (), 3))
    shown = []
    for line in (
        "Collecting a==1",
        "Processing /wheels/b-2.whl",
        "Installing collected packages: a",
    ):
        progress.line(line)
        shown.append(progress.text)
    assert shown[0].startswith("1 of 3 packages, ")
    assert shown[1].endswith("processing b-2.whl")
    assert shown[1].startswith("2 of 3 packages, ")
    assert "packages" not in shown[2]
    progress.silence()
    assert "unpacking" in progress.text
