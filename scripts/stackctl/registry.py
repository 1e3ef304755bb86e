"""The digest behind an image's tag, asked of its registry (OCI distribution API v2), logged in
nowhere: what needs a login is named by its digest by hand.

Docker Hub itself could not be reached where this was written. Tested are a real registry on
loopback (Debian's docker-registry) and, against a scripted server, the exchange for a token as the
specification has it: https://distribution.github.io/distribution/spec/auth/token/.
"""

import hashlib
import http.client
import ipaddress
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urlencode, urlsplit

from stackctl.errors import USAGE, StackError, problem

HUB = "registry-1.docker.io"
HUB_NAMES = frozenset({"docker.io", "index.docker.io", HUB})
TIMEOUT_S = 10.0
LARGEST = 4 << 20  # bytes; what registries take as a manifest
# Indexes first: their digest stands for the image on every platform.
ACCEPT = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE = re.compile(
    r"(?P<name>(?:(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(?::\d+)?/)?"
    r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Image:
    """`name` as it was written; `host` and `path` are where its registry has it."""

    name: str
    tag: str
    host: str
    path: str

    @property
    def text(self) -> str:
        return f"{self.name}:{self.tag}"

    @property
    def base(self) -> str:
        """The registry's address. Plain HTTP is for this very host alone, as Docker has it."""
        return f"{'http' if is_loopback(self.host) else 'https'}://{self.host}"


@dataclass(frozen=True)
class Reply:
    """One answer. Names of headers in any case."""

    status: int
    headers: Message
    body: bytes


def parse(text: str) -> Image:
    """`nginx:1.30.4`, `ghcr.io/o/i:t`, `localhost:5000/x`. Raises StackError."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise problem(f"image {text[:120]!r}", "NAME:TAG", "correct VLLM_IMAGE in .env", USAGE)
    name = found["name"]
    first, slash, rest = name.partition("/")
    host, path = (first, rest) if slash and _is_host(first) else (HUB, name)
    if host in HUB_NAMES:
        host, path = HUB, path if "/" in path else f"library/{path}"
    return Image(name, found["tag"] or "latest", host, path)


def _is_host(word: str) -> bool:
    return "." in word or ":" in word or word == "localhost"


def is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def digest(image: Image, settings: Mapping[str, str]) -> str:
    """`sha256:…` of the tag: of its index where the image has several platforms. `settings` may
    name proxies. Raises StackError with one line."""
    url = f"{image.base}/v2/{image.path}/manifests/{image.tag}"
    headers = {"Accept": ", ".join(ACCEPT)}
    reply = _call("HEAD", url, headers, image, settings)
    if reply.status == 401 and "bearer" in reply.headers.get("WWW-Authenticate", "").lower():
        headers["Authorization"] = f"Bearer {_token(reply, image, settings)}"
        reply = _call("HEAD", url, headers, image, settings)
    if reply.status == 200 and not reply.headers.get("Docker-Content-Digest"):
        reply = _call("GET", url, headers, image, settings)  # the header is optional
    return _judged(reply, image)


def _judged(reply: Reply, image: Image) -> str:
    """Its digest. Raises StackError for any answer but 200."""
    if reply.status == 200:
        told = reply.headers.get("Docker-Content-Digest")
        found = told or f"sha256:{hashlib.sha256(reply.body).hexdigest()}"
        if DIGEST.fullmatch(found):
            return found
        raise problem(f"digest {found[:80]!r} from {image.host}", "a sha256", "try again")
    raise _refusal(reply, image)


def _refusal(reply: Reply, image: Image) -> StackError:
    if reply.status == 404:
        return problem(f"no {image.text} at {image.host}", "an image that is there",
                       "correct its tag (VLLM_IMAGE in .env)")  # fmt: skip
    if reply.status in {401, 403}:
        found = f"{image.host} refusing {image.name} without a login ({reply.status})"
        return problem(found, "a public image that exists",
                       f"correct the name, or write {image.text}@sha256:… yourself")  # fmt: skip
    if reply.status == 429:
        wait = reply.headers.get("Retry-After")
        after = f"in {wait} s" if wait and wait.isdigit() else "in some hours"
        return problem(f"a rate limit of {image.host}", "an answer", f"try again {after}")
    return problem(f"{image.host} answering {reply.status} for {image.text}", "its digest",
                   "try again")  # fmt: skip


def _token(reply: Reply, image: Image, settings: Mapping[str, str]) -> str:
    """What the registry's challenge says where to get. Raises StackError."""
    told = dict(_PARAMETER.findall(reply.headers["WWW-Authenticate"]))
    realm = urlsplit(told.get("realm", ""))
    if realm.scheme != "https" and not (realm.scheme == "http" and is_loopback(realm.netloc)):
        raise problem(f"{image.host} asking for a login at {realm.geturl()[:120]!r}", "https",
                      f"write {image.text}@sha256:… yourself")  # fmt: skip
    scope = {"scope": told.get("scope") or f"repository:{image.path}:pull"}
    query = urlencode({"service": told["service"], **scope} if "service" in told else scope)
    separator = "&" if realm.query else "?"
    answer = _call("GET", f"{realm.geturl()}{separator}{query}", {}, image, settings)
    if answer.status != 200:
        raise _refusal(answer, image)
    try:
        body = json.loads(answer.body)
        return str(body.get("token") or body["access_token"])
    except (ValueError, KeyError, AttributeError) as error:
        raise problem(f"no token from {realm.netloc}", "one", "try again") from error


def _call(
    method: str, url: str, headers: Mapping[str, str], image: Image, settings: Mapping[str, str]
) -> Reply:
    """One request, redirects followed. Raises StackError when nothing answers."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 (https, or loopback)
    for name, value in headers.items():
        # Not sent on to where a redirect leads: another host has no use for the token.
        put = request.add_unredirected_header if name == "Authorization" else request.add_header
        put(name, value)
    proxies = urllib.request.ProxyHandler(proxy(urlsplit(url).netloc, settings))
    try:
        with urllib.request.build_opener(proxies).open(request, timeout=TIMEOUT_S) as answer:
            return Reply(answer.status, answer.headers, answer.read(LARGEST))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.headers, error.read(LARGEST))
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        why = getattr(error, "reason", None) or error
        found = f"no answer from {urlsplit(url).netloc} ({why})"
        fix = "run it where there is a network, or set HTTPS_PROXY"
        raise problem(found, f"the registry of {image.text}", fix) from error


def proxy(host: str, settings: Mapping[str, str]) -> dict[str, str]:
    """For urllib: the proxy that HTTPS_PROXY names, unless NO_PROXY or loopback says none."""
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    chosen = next((settings[name] for name in names if name in settings), "")
    exempt = settings.get("NO_PROXY") or settings.get("no_proxy") or ""
    none = is_loopback(host) or any(_covers(rule.strip(), host) for rule in exempt.split(","))
    return {} if not chosen or none else {"https": chosen}


def _covers(rule: str, host: str) -> bool:
    """`example.com` and `.example.com` cover the host and what lies below; `*` covers all."""
    suffix = rule.removeprefix("*").lstrip(".")
    return rule == "*" or (bool(suffix) and f".{host.partition(':')[0]}".endswith(f".{suffix}"))
