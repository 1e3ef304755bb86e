"""A real PostgreSQL server for tests: an ordinary process on a free loopback port.

    with PostgreSQL() as server:
        url = server.database("usage1")

`initdb` refuses root, so as root it runs as the user that Debian's package made, or as nobody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psycopg
from psycopg import sql

from common.net import free_port

USER = "gateway"
PASSWORD = "pw-LEAKMARK/1"
ENCODED = "pw-LEAKMARK%2F1"


def binaries() -> Path | None:
    """The folder of the newest installed server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    return found[-1].parent if found else None


def _version(path: Path) -> int:
    name = path.parent.parent.name
    return int(name) if name.isdigit() else 0


def _account() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


class PostgreSQL:
    """One cluster. Use as a context manager; stop and start as often as a test likes."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None, "no server binaries"
        self._bin = found
        self._account = _account()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgreSQL:
        # Not pytest's folder: that is closed to the other user.
        self._folder = Path(tempfile.mkdtemp(prefix="ledger-pg-"))
        os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        (self._folder / "pw").write_text(PASSWORD)
        words = ("-D", "data", "-U", USER, "-A", "scram-sha-256", "--pwfile=pw", "-E", "UTF8")
        done = self._run("initdb", *words, "--no-sync")
        assert done.wait(60) == 0, (self._folder / "log").read_text()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    @property
    def runs(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        words = (f"-p{self.port}", "-clisten_addresses=127.0.0.1", f"-k{self._folder}", "-F")
        self._process = self._run("postgres", "-D", "data", *words)
        end = time.monotonic() + 30
        while True:
            try:
                self.connect("postgres").close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self._folder / "log").read_text()
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT cuts everything at once, SIGINT lets nobody finish but ends in order."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def database(self, name: str) -> str:
        """Make an empty database; its URL with the password."""
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name, self.port)

    @staticmethod
    def url(name: str, port: int) -> str:
        return f"postgresql://{USER}:{ENCODED}@127.0.0.1:{port}/{name}"

    def connect(self, name: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url(name, self.port), autocommit=True)

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        other = os.geteuid() == 0
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._bin / program, *words],
                cwd=self._folder,
                user=self._account.pw_uid if other else None,
                group=self._account.pw_gid if other else None,
                extra_groups=[] if other else None,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
