"""Which model a form names: what an engine could read as one counts, what is unclear is refused."""

from __future__ import annotations

import pytest

from gateway.errors import InvalidRequest, ModelNotAllowed
from gateway.keys import Key
from gateway.routes.formdata import form_model, form_models

PLAIN = [(b"content-type", b"multipart/form-data; boundary=b")]


def key(*models: str) -> Key:
    return Key("k", b"", models=frozenset(models))


def form(*parts: bytes) -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"


def field(disposition: bytes, value: bytes) -> bytes:
    return b"Content-Disposition: form-data; " + disposition + b"\r\n\r\n" + value


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ([field(b'name="model"', b"m")], ["m"]),
        ([field(b"name=model", b"m")], ["m"]),
        ([field(b'NAME = "model" ; x=1', b"m")], ["m"]),
        ([field(b'name="mod\\el"', b"m")], ["m"]),
        ([field(b'filename="x"; name="model"', b"m")], ["m"]),
        ([field(b'name="x"; name="model"', b"m")], ["m"]),
        ([field(b'name="model"', b"m"), field(b'name="model"', b"n")], ["m", "n"]),
        ([b"content-type: text/plain\r\n" + field(b'name="model"', b"m")], ["m"]),
        ([field(b'name="model"', b"caf\xe9")], ["caf\ufffd"]),
        ([field(b'name="model"', b"")], [""]),
        ([field(b'name="file"; filename="model"', b"m")], []),
        ([field(b'name="models"', b"m")], []),
        ([field(b'name="prompt"', b'name="model"\r\n\r\nm')], []),
        ([], []),
    ],
)
def test_which_models_a_form_names(parts: list[bytes], named: list[str]) -> None:
    assert form_models(PLAIN, form(*parts)) == named


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        b"application/json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b"multipart/form-data; boundary=a; boundary=b",
        b"multipart/form-data; boundary=a;boundary=b",
        b'multipart/form-data; boundary="a\\"b"',
        b"multipart/form-data; boundary*=utf-8''b",
        b"multipart/mixed; boundary=b",
    ],
)
def test_an_unclear_form_is_refused(content_type: bytes | None) -> None:
    headers = [] if content_type is None else [(b"content-type", content_type)]
    with pytest.raises(InvalidRequest):
        form_model(key("m"), headers, form(field(b'name="model"', b"m")))


def test_an_encoded_name_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        form_models(PLAIN, form(field(b"name*=utf-8''model", b"m")))


@pytest.mark.parametrize("models", [["other"], ["m", "other"], ["other", "m"], [""]])
def test_every_named_model_has_to_be_allowed(models: list[str]) -> None:
    body = form(*(field(b'name="model"', name.encode()) for name in models))
    with pytest.raises(ModelNotAllowed):
        form_model(key("m"), PLAIN, body)


@pytest.mark.parametrize(
    ("models", "read"), [([], None), ([""], None), (["a"], "a"), (["a", "b"], "b")]
)
def test_the_model_that_the_engine_reads(models: list[str], read: str | None) -> None:
    body = form(*(field(b'name="model"', name.encode()) for name in models))
    assert form_model(Key("k", b""), PLAIN, body) == read


def test_a_key_for_all_models_is_not_held_up() -> None:
    assert form_model(Key("k", b""), [], b"no form") is None


def test_no_model_is_judged_when_the_default_is_known() -> None:
    assert form_model(key("m"), PLAIN, form(field(b'name="a"', b"x"))) is None
