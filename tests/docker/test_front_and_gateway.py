"""nginx and the gateway as containers: boot order, new addresses, drain, keys, logs, hardening."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from common.docker_project import Project, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CHAT = {"model": "slow", "messages": [{"role": "user", "content": "PROMPTMARK"}]}
HEALTHY_S = 60
RESOLVE_S = 10  # nginx asks Docker's DNS again after two seconds


def headers(project: Project) -> dict[str, str]:
    key = project.stack("key", "show", "default").stdout.strip()
    return {"Authorization": f"Bearer {key}"}


def chat(project: Project, auth: dict[str, str], tokens: int = 1) -> httpx.Response:
    body = CHAT | {"max_tokens": tokens}
    return httpx.post(f"{project.url}/v1/chat/completions", json=body, headers=auth, timeout=30)


def stream(project: Project, auth: dict[str, str], tokens: int) -> str:
    """The whole body of a streamed answer, as far as it came."""
    body = CHAT | {"max_tokens": tokens, "stream": True}
    received: list[str] = []
    url = f"{project.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=auth, timeout=60) as response:
        assert response.status_code == 200, response.read()
        received.extend(response.iter_text())
    return "".join(received)


def answers(project: Project, path: str, status: int) -> bool:
    try:
        return httpx.get(project.url + path, timeout=5).status_code == status
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def running(slow: Project) -> Project:
    """The whole slow stack, after nginx has shown that it starts alone."""
    slow.compose("up", "-d", "nginx")
    wait_until(lambda: slow.health("nginx") == "healthy", HEALTHY_S, "nginx healthy alone")
    alone = httpx.post(f"{slow.url}/v1/chat/completions", json=CHAT, timeout=30)
    assert alone.status_code in {502, 503, 504}
    assert alone.headers["content-type"].startswith("application/json")
    assert alone.json()["error"]["message"]

    slow.compose("up", "-d", "--wait", "nginx", "gateway", "vllm", timeout=HEALTHY_S)
    wait_until(lambda: answers(slow, "/readyz", 200), HEALTHY_S, "ready through nginx")
    return slow


@pytest.fixture(scope="module")
def auth(running: Project) -> dict[str, str]:
    return headers(running)


def test_chat_through_nginx_that_was_there_first(running: Project, auth: dict[str, str]) -> None:
    """B21: nginx started with no gateway at all, and was never touched since."""
    assert chat(running, auth).status_code == 200
    assert "[DONE]" in stream(running, auth, 2)


@pytest.mark.parametrize("service", ["nginx", "gateway"])
def test_containers_are_locked_down(running: Project, service: str) -> None:
    host = running.inspect(service)["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "5"}
    status = running.exec(service, "cat", "/proc/1/status").stdout
    found = dict(line.split(":", 1) for line in status.splitlines())
    assert int(found["Uid"].split()[0]) != 0
    assert int(found["CapEff"], 16) == 0
    assert found["NoNewPrivs"].strip() == "1"
    written = running.exec(service, "sh", "-c", "echo x > /etc/written", check=False)
    assert written.returncode != 0


def test_pid_1_is_the_program_itself(running: Project) -> None:
    """B23: a shell as PID 1 would swallow the signal."""
    command = running.exec("gateway", "cat", "/proc/1/cmdline").stdout.replace("\0", " ")
    assert "python" in command.split()[0]
    assert "gateway" in command


def test_only_nginx_has_a_port_on_the_host(running: Project) -> None:
    published = {
        service: [
            port for port in running.inspect(service)["NetworkSettings"]["Ports"].values() if port
        ]
        for service in ("nginx", "gateway", "vllm")
    }
    assert published == {
        "nginx": [[{"HostIp": "127.0.0.1", "HostPort": str(running.port)}]],
        "gateway": [],
        "vllm": [],
    }


@pytest.mark.parametrize("service", ["nginx", "gateway"])
def test_restart_leaves_no_error_behind(
    running: Project, auth: dict[str, str], service: str
) -> None:
    running.compose("restart", service, timeout=90)
    wait_until(lambda: running.health(service) == "healthy", HEALTHY_S, f"{service} healthy")
    wait_until(lambda: answers(running, "/readyz", 200), RESOLVE_S, "ready again")
    assert [chat(running, auth).status_code for _ in range(10)] == [200] * 10


def test_gateway_with_a_new_address_is_found(running: Project, auth: dict[str, str]) -> None:
    """B21: another container takes the old address while the gateway is made anew."""
    nginx = running.container("nginx")
    before = running.address("gateway", "app")
    running.compose("rm", "--stop", "--force", "gateway", timeout=60)
    squatter = running.run(
        *("docker", "run", "--detach", "--rm", "--network", f"{running.name}_app"),
        *("--label", f"com.docker.compose.project={running.name}", "--entrypoint", "sleep"),
        *(running.inspect("nginx")["Config"]["Image"], "300"),
    ).stdout.strip()
    try:
        running.compose("up", "-d", "gateway", timeout=90)
        assert running.address("gateway", "app") != before
        wait_until(lambda: answers(running, "/readyz", 200), HEALTHY_S, "the new address")
        assert [chat(running, auth).status_code for _ in range(5)] == [200] * 5
        assert running.container("nginx") == nginx
    finally:
        running.run("docker", "rm", "--force", squatter)


def test_engine_with_a_new_address_is_found(running: Project, auth: dict[str, str]) -> None:
    """B21, one step further in: the gateway and a recreated vllm."""
    gateway = running.container("gateway")
    running.compose("up", "-d", "--force-recreate", "--no-deps", "vllm", timeout=90)
    wait_until(lambda: answers(running, "/readyz", 200), HEALTHY_S, "ready again")
    assert chat(running, auth).status_code == 200
    assert running.container("gateway") == gateway


def test_engine_gone_and_back(running: Project, auth: dict[str, str]) -> None:
    """B25: alive and ready are two things; requests are held, then told why."""
    running.compose("stop", "vllm", timeout=60)
    wait_until(lambda: answers(running, "/readyz", 503), 6, "not ready soon")
    assert answers(running, "/livez", 200)
    assert answers(running, "/health", 200)
    held = chat(running, auth)
    assert held.status_code == 503
    assert "retry-after" in held.headers
    assert held.json()["error"]["message"]
    assert running.health("gateway") == "healthy"
    running.compose("start", "vllm", timeout=60)
    wait_until(lambda: answers(running, "/readyz", 200), HEALTHY_S, "ready again")
    assert chat(running, auth).status_code == 200


def test_keys_come_and_go_within_two_seconds(running: Project) -> None:
    restarts = running.container("gateway")
    added = running.stack("key", "add", "guest")
    key = running.stack("key", "show", "guest").stdout.strip()
    assert key, added.stdout
    guest = {"Authorization": f"Bearer {key}"}
    wait_until(lambda: chat(running, guest).status_code == 200, 2, "the new key works")
    running.stack("key", "revoke", "guest")
    wait_until(lambda: chat(running, guest).status_code == 401, 2, "the revoked key is refused")
    assert running.container("gateway") == restarts


def test_secrets_and_prompts_stay_where_they_are(running: Project, auth: dict[str, str]) -> None:
    """B47: neither keys, right or wrong, nor prompts in logs, environment, inspect or ps."""
    key = auth["Authorization"].removeprefix("Bearer ")
    url = f"{running.url}/v1/chat/completions"
    assert chat(running, auth).status_code == 200
    wrong = {"Authorization": "Bearer sk-LEAKMARK-999"}
    assert httpx.post(url, json=CHAT, headers=wrong).status_code == 401
    for query in (f"api_key={key}", "api_key=sk-LEAKMARK-123"):
        assert httpx.post(f"{url}?{query}", json=CHAT).status_code == 401
    broken = httpx.post(url, content=b'{"messages": PROMPTMARK', headers=auth)
    assert broken.status_code == 400

    places = {"logs": running.logs()}
    for service in ("nginx", "gateway"):
        places[f"inspect {service}"] = json.dumps(running.inspect(service))
        top = running.run("docker", "top", running.container(service), "-eo", "pid,args")
        places[f"ps {service}"] = top.stdout
    for place, text in places.items():
        assert key not in text, place
        assert "LEAKMARK-1" not in text, place
        assert "LEAKMARK-999" not in text, place
        assert "PROMPTMARK" not in text, place


def test_sigterm_drains(running: Project, auth: dict[str, str]) -> None:
    """B23: what ends within the drain ends well, the rest gets an error event, exit code 0."""
    with ThreadPoolExecutor(4) as pool:
        short: list[Future[str]] = [pool.submit(stream, running, auth, 30) for _ in range(3)]
        endless = pool.submit(stream, running, auth, 10_000)
        time.sleep(1.5)
        stopping = time.monotonic()
        running.compose("stop", "gateway", timeout=90)
        took = time.monotonic() - stopping
        assert all("[DONE]" in one.result(30) for one in short)
        cut = endless.result(30)
    assert "[DONE]" not in cut
    last = [line for line in cut.splitlines() if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["message"]
    state = running.inspect("gateway")["State"]
    assert state["ExitCode"] == 0
    assert 5 < took < 20
    running.compose("start", "gateway", timeout=60)
    wait_until(lambda: answers(running, "/readyz", 200), HEALTHY_S, "ready again")


def test_down_leaves_nothing(running: Project) -> None:
    running.compose("down", "--volumes", timeout=120)
    assert running.leftovers() == []
    with pytest.raises(httpx.TransportError):
        httpx.get(running.url, timeout=2)
