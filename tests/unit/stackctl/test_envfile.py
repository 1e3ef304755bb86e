"""Our reading of .env is Compose's: each case is also asked of `docker compose config`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from stackctl import envfile

CASES = {
    "plain": b"A=one\nB = two \n",
    "comments": b"# A=no\nA=one # two\nB=one#two\nC=#x\nD= # y\n",
    "single quotes": b"A='a$b ${X}'\nB='its'\nC='q\\'q'\n",
    "double quotes": b'A="a b"\nB="x\\ty\\$z"\nC="two\nlines"\nD="q\\"q"\nE="\\101 \\0101 \\q"\n',
    "after a quote": b"A=\"one\" # two\nB='one'\n",
    "dollar": b"X=in\nA=$X\nB=${X}y\nC=$$X\nD=a$b\nE=$NOPE.\n",
    "defaults": b"X=\nY=1\nA=${X:-d}\nB=${X-d}\nC=${N-e${Y}f}\nD=${Y:+set}\n",
    "two in one": b"X=\nY=1\nA=${X+set}|${Y}-${N:-z}\n",
    "the shell wins inside": b"SHELL_NAME=file\nA=$SHELL_NAME\n",
    "json": b'A={"mode":3}\nB=\'{"mode": 3, "x": ["a b"]}\'\n',
    "bom": b"\xef\xbb\xbfA=one\nB=two\n",
    "crlf": b"A=one\r\nB=\"two\"\r\nC='three'\r\n\r\n# x\r\nD=four\r\n",
    "export and colon": b"export A=one\nexport\tB=two\nC: three\nexportD=x\n",
    "bare name": b"SHELL_NAME\nNOT_SET\nA=1\n",
    "last one wins": b"A=1\nA=2\nB=${A}\n",
    "empty": b"A=\nB=\"\"\nC=' '\nD=\n",
    "no final newline": b"A=one\nB=two",
    "unicode": 'A=größe\nB="日本"\n'.encode(),
}
BROKEN = {
    "bad name": (b"A B=1\n", "contains a space"),
    "bad character": (b"A=1\nB!=2\n", "line 2: unexpected character '!'"),
    "open quote": (b"A='x\nB=1\n", 'line 1: the quote of "\'x" is not closed'),
    "bcrypt": (b"A=1\nB=$2b$12$xyz ${\n", "line 2: invalid interpolation"),
    "rest behind a quote": (b"A='it''s'\n", "unexpected character"),
    "utf-16": ("A=1\n".encode("utf-16"), "not UTF-8"),
    "no sign": (b"A=1\nWORD", "'WORD' has no '='"),
}
SHELL = {"SHELL_NAME": "from the shell"}


def parse(data: bytes) -> dict[str, str]:
    return dict(envfile.parse_bytes(data, SHELL.get).values)


def compose_values(data: bytes, folder: Path, names: list[str]) -> dict[str, str]:
    """What Compose makes of `data`: each name in an environment block, rendered as JSON."""
    (folder / ".env").write_bytes(data)
    (folder / "docker-compose.yml").write_text(
        "services:\n  s:\n    image: x\n    environment:\n"
        + "".join(f"      {name}: ${{{name}}}\n" for name in names)
    )
    docker = shutil.which("docker") or ""
    done = subprocess.run(
        [docker, "compose", "config", "--format", "json"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **SHELL},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    rendered = json.loads(done.stdout)["services"]["s"]["environment"]
    # `config` writes a literal dollar as two, so that its output can be read again.
    return {name: (rendered[name] or "").replace("$$", "$") for name in names}


def has_compose() -> bool:
    docker = shutil.which("docker")
    return (
        bool(docker)
        and not subprocess.run(
            [docker, "compose", "version"], capture_output=True, check=False
        ).returncode
    )


@pytest.fixture(scope="session")
def compose() -> None:
    if not has_compose():
        pytest.skip("docker compose is not installed, so there is nothing to compare with")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("compose")
def test_same_values_as_compose(case: str, tmp_path: Path) -> None:
    ours = parse(CASES[case])
    theirs = compose_values(CASES[case], tmp_path, [n for n in ours if n not in SHELL])
    assert {name: ours[name] for name in theirs} == theirs


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_name_the_line(case: str) -> None:
    data, expected = BROKEN[case]
    with pytest.raises(envfile.EnvFileError, match=r".") as caught:
        parse(data)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_without_compose() -> None:
    assert parse(CASES["single quotes"]) == {"A": "a$b ${X}", "B": "its", "C": "q'q"}
    assert parse(CASES["dollar"])["E"] == "."
    assert parse(CASES["the shell wins inside"])["A"] == "from the shell"


def test_leftovers_of_editors_are_reported() -> None:
    assert envfile.parse_bytes(CASES["bom"], SHELL.get).has_bom
    assert envfile.parse_bytes(CASES["crlf"], SHELL.get).has_cr
    assert not envfile.parse_bytes(CASES["plain"], SHELL.get).has_bom


def test_a_managed_line_is_replaced_where_it_stands() -> None:
    before = "A=1\n# COMPOSE_FILE=x\nCOMPOSE_FILE=old\nB=2\n"
    after = envfile.with_value(before, "COMPOSE_FILE", "new")
    assert after == "A=1\n# COMPOSE_FILE=x\nCOMPOSE_FILE=new\nB=2\n"
    assert envfile.with_value("A=1", "B", "2") == "A=1\nB=2\n"
