"""Errors of huggingface_hub → one line each. The hub tells more in its X-Error-Code header than in
the status: a model that isn't there, a private one and a gated one may all come as 401."""

import errno
import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.model.fetcherror import Code, FetchError

HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Wanted:
    """What to fetch. `endpoint`: another hub's URL, or None."""

    model: str
    revision: str | None
    token: str | None
    endpoint: str | None
    cache: Path


@contextmanager
def translated(wanted: Wanted) -> Iterator[None]:
    """Turns the errors of huggingface_hub into ours."""
    on_the_way: tuple[type[Exception], ...] = (*_transport_errors(), OSError, RuntimeError)
    refused: type[Exception] = importlib.import_module("huggingface_hub.errors").HfHubHTTPError
    try:
        yield
    except refused as error:
        raise of_answer(wanted, error) from error
    except on_the_way as error:
        raise of_failure(wanted, error) from error
    except ValueError as error:  # HFValidationError: a name no hub can have
        raise FetchError(
            Code.NO_SUCH_MODEL,
            f"MODEL: found {wanted.model}; wanted a hub's id"
            f" ({' '.join(str(error).split())[:200]}); fix: write it as its page shows it",
        ) from error


def _transport_errors() -> tuple[type[Exception], ...]:
    """Base classes of the HTTP client's errors, whichever one huggingface_hub uses."""
    found: list[type[Exception]] = []
    for module, name in (
        ("httpx2", "HTTPError"),
        ("httpx", "HTTPError"),
        ("requests", "RequestException"),
    ):
        if importlib.util.find_spec(module):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)


def of_answer(wanted: Wanted, error: Any) -> FetchError:  # noqa: ANN401 - an HfHubHTTPError
    """Our error for a refusal by the hub."""
    response = error.response
    status = response.status_code if response is not None else 0
    code = response.headers.get("X-Error-Code", "") if response is not None else ""
    page = f"{(wanted.endpoint or HUB).rstrip('/')}/{wanted.model}"
    if code == "GatedRepo":
        with_token = (
            "with the token's account" if wanted.token else "and put a token into secrets/hf_token"
        )
        return FetchError(
            Code.GATED,
            f"MODEL: found {wanted.model}, whose licence is not accepted yet; wanted access;"
            f" fix: accept it on {page} {with_token}",
        )
    if code == "RevisionNotFound":
        return FetchError(
            Code.NO_SUCH_MODEL,
            f"MODEL_REVISION: found {wanted.revision}; wanted a branch, tag or commit of"
            f" {wanted.model}; fix: choose one from {page}/tree/main",
        )
    if code == "RepoNotFound" or status == 404:
        return _no_such_model(wanted, page)
    if status in (401, 403):
        return _token_refused(wanted, page)
    if status == 429:
        return FetchError(
            Code.RATE_LIMIT,
            "hub: found HTTP 429, too many requests; wanted an answer; fix: wait some minutes (a"
            " token in secrets/hf_token raises the limit)",
        )
    return FetchError(
        Code.NETWORK,
        f"hub: found HTTP {status} from {wanted.endpoint or HUB}; wanted the model's files;"
        " fix: try again later",
    )


def _no_such_model(wanted: Wanted, page: str) -> FetchError:
    hidden = "" if wanted.token else " (a private one looks the same without a token)"
    return FetchError(
        Code.NO_SUCH_MODEL,
        f"MODEL: found no {wanted.model} on the hub{hidden}; wanted one that exists;"
        f" fix: compare its name with {page}",
    )


def _token_refused(wanted: Wanted, page: str) -> FetchError:
    found = "one the hub refuses" if wanted.token else "none"
    return FetchError(
        Code.TOKEN,
        f"HF token: found {found}; wanted one that may read {wanted.model};"
        f" fix: put a valid token of an account with access ({page}) into secrets/hf_token",
    )


def of_failure(wanted: Wanted, error: Exception) -> FetchError:
    """Our error for what went wrong on the way or on the disk."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return _disk_full(wanted)
        if isinstance(cause, PermissionError) and cause.filename:
            return FetchError(
                Code.DISK,
                f"disk: found {cause.filename} not writable for user {os.geteuid()}; wanted a cache"
                " folder; fix: give it to that user (in Compose: remove the old volume)",
            )
    if "no space left" in str(error).lower():
        return _disk_full(wanted)
    words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return FetchError(
        Code.NETWORK,
        f"hub: found no way to {wanted.endpoint or HUB} ({words}); wanted the model's files;"
        " fix: check network, DNS and proxy; what was downloaded is kept",
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _disk_full(wanted: Wanted) -> FetchError:
    return FetchError(
        Code.DISK,
        f"disk: found {wanted.cache} full; wanted room for {wanted.model};"
        " fix: free some disk space and start again, what was downloaded is kept",
    )
