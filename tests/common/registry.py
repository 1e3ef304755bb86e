"""A real image registry on loopback: Debian's docker-registry.

with Registry.start(folder) as registry:
    registry.push("nginx:1.30.4", "nginx:1.30.4")
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from common.docker_project import wait_until
from common.net import free_port

PROGRAM = "docker-registry"
INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Registry:
    """`host` is 127.0.0.1:PORT, which Docker takes without TLS."""

    host: str

    @classmethod
    @contextmanager
    def start(cls, folder: Path) -> Iterator[Registry]:
        """Raises FileNotFoundError without the program."""
        program = shutil.which(PROGRAM)
        if program is None:
            raise FileNotFoundError(PROGRAM)
        host = f"127.0.0.1:{free_port()}"
        settings = folder / "registry.yml"
        storage = {"filesystem": {"rootdirectory": str(folder / "data")}}
        # JSON is YAML.
        settings.write_text(
            json.dumps({"version": "0.1", "storage": storage, "http": {"addr": host}})
        )
        with (folder / "registry.log").open("wb") as log:
            child = subprocess.Popen([program, "serve", settings], stdout=log, stderr=log)
        try:
            wait_until(lambda: _answers(host), 20, "the registry answers")
            yield cls(host)
        finally:
            child.terminate()
            child.wait(20)
            _forget(host)

    def push(self, local: str, name: str) -> str:
        """Push an image of the engine under `name`; returns the digest that the engine tells."""
        reference = f"{self.host}/{name}"
        _docker("tag", local, reference)
        _docker("push", reference)
        told = json.loads(
            _docker("image", "inspect", "--format", "{{json .RepoDigests}}", reference)
        )
        return next(str(one).partition("@")[2] for one in told if str(one).startswith(self.host))

    def put_index(self, name: str, tag: str, digest: str) -> str:
        """Put a list for two platforms over a pushed image, as multi-platform images have it;
        returns the list's digest."""
        manifest = self.manifest(name, digest)
        entry = {"mediaType": MANIFEST, "size": len(manifest), "digest": digest}
        platforms = [{"architecture": arch, "os": "linux"} for arch in ("amd64", "arm64")]
        rows = [{**entry, "platform": platform} for platform in platforms]
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": rows})
        url = f"http://{self.host}/v2/{name}/manifests/{tag}"
        answer = httpx.put(url, content=body, headers={"Content-Type": INDEX})
        answer.raise_for_status()
        return str(answer.headers["Docker-Content-Digest"])

    def manifest(self, name: str, digest: str) -> bytes:
        url = f"http://{self.host}/v2/{name}/manifests/{digest}"
        return httpx.get(url, headers={"Accept": MANIFEST}).raise_for_status().content


def _answers(host: str) -> bool:
    try:
        return httpx.get(f"http://{host}/v2/").status_code == 200
    except httpx.TransportError:
        return False


def _forget(host: str) -> None:
    """Drop the engine's names of what was pushed there; the images under other names stay."""
    for kind in ("{{.Repository}}:{{.Tag}}", "{{.Repository}}@{{.Digest}}"):
        listed = _docker("image", "ls", "--digests", "--format", kind).split()
        ours = {name for name in listed if name.startswith(f"{host}/") and "<none>" not in name}
        if ours:
            _docker("image", "rm", *sorted(ours))


def _docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout
