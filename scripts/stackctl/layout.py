"""Where things lie in a checkout. Imports nothing of the package."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

# sun_path holds 108 bytes with its final zero on Linux; supervisor appends ".PID" while it binds.
LONGEST_SOCKET_PATH = 96


@dataclass(frozen=True)
class Layout:
    """Paths of one checkout, all absolute."""

    root: Path

    @property
    def env_file(self) -> Path:
        return self.root / ".env"

    @property
    def env_example(self) -> Path:
        return self.root / ".env.example"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def hf_token(self) -> Path:
        return self.secrets / "hf_token"

    @property
    def api_keys(self) -> Path:
        return self.secrets / "gateway" / "api_keys.toml"

    @property
    def launcher_parent(self) -> Path:
        return self.root / "docker" / "engine"

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def venv_python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def tools_lock(self) -> Path:
        return self.root / "scripts" / "requirements.txt"

    @property
    def run(self) -> Path:
        return self.root / ".run"

    @property
    def engine(self) -> Path:
        return self.run / "engine"

    @property
    def engine_python(self) -> Path:
        return self.engine / "bin" / "python"

    @property
    def engine_lock(self) -> Path:
        return self.launcher_parent / "requirements-cpu.txt"

    @property
    def models(self) -> Path:
        return self.run / "models"

    @property
    def manifest(self) -> Path:
        return self.models / "manifest.json"

    @property
    def logs(self) -> Path:
        return self.run / "logs"

    @property
    def nginx_out(self) -> Path:
        return self.run / "nginx"

    @property
    def programs(self) -> Path:
        return self.run / "programs"

    @property
    def ports(self) -> Path:
        return self.run / "ports.json"

    @property
    def mode_file(self) -> Path:
        return self.run / "mode"

    @property
    def presets(self) -> Path:
        return self.root / "compose" / "models"

    @property
    def served_env(self) -> Path:
        """.env as it was when the stack last became ready."""
        return self.run / "served.env"

    @property
    def failed_env(self) -> Path:
        """An edited .env that did not come up; what served before is in .env again."""
        return self.root / ".env.failed"

    @property
    def fitted(self) -> Path:
        """The last question of `up` to `fit` that needs no second answer, as a digest."""
        return self.run / "fitted"

    @property
    def supervisor_conf(self) -> Path:
        return self.run / "supervisord.conf"

    @property
    def supervisor_pid(self) -> Path:
        return self.run / "supervisord.pid"

    @property
    def supervisor_socket(self) -> Path:
        """Inside .run, or in the temp folder when the checkout lies too deep for a Unix socket."""
        near = self.run / "supervisor.sock"
        if len(os.fsencode(near)) <= LONGEST_SOCKET_PATH:
            return near
        digest = hashlib.sha256(os.fsencode(self.run)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"vllm-compose-{os.getuid()}-{digest}.sock"


def of_this_checkout() -> Layout:
    return Layout(Path(__file__).resolve().parents[2])
