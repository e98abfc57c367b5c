"""Secrets are found by form, name and value; what only looks like one is left alone."""

from collections.abc import Iterator

import pytest

from seqto import secrets
from seqto.errors import TrackingError
from seqto.secrets import (
    mask_error,
    masked,
    masked_values,
    masked_word,
    remember_secrets,
    without_user,
)

PW = "Tr0ub4dor&3"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(secrets, "_known", set())
    yield


@pytest.mark.parametrize(
    "text",
    [
        f"http://ann:{PW}@host:5000/#/experiments",
        f"https://{PW}@host/x",
        f"API request to http://ann:{PW}@host:5000/api failed with 500",
        f"http://ann:{PW}@@host and 'http://bob:{PW}@other'",
        f"postgresql+psycopg2://ann:{PW}/x@host/db",
        f"mysql://{PW}@host/db",
        f"https://host/file?token={PW}&x=1",
        f"https://store/file?x=1&X-Amz-Signature={PW}",
        f"https://blob/file?sig={PW}",
        f'{{"password": "{PW}"}}',
        f"{{aws_access_key_id: '{PW}'}}",
        f"dataset.token={PW} has to be short",
        f"AWS_SECRET_ACCESS_KEY={PW}",
        f"apiKey = '{PW}'",
        "Authorization: Bearer Tr0ub4dor.3",
    ],
)
def test_text_is_masked(text: str) -> None:
    assert "Tr0ub" not in masked(text)
    assert "***" in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:5000/#/models/seqto-digits@balanced",
        "models:/seqto-digits-cpu-static@champion",
        "s3://bucket/folder/file@2",
        "dataset.tokenizer=tokenizer.json",
        "token_type_ids: int64, eos_token='</s>', max_tokens=5",
        "device.key=board seqto.key=0123456789abcdef",
        "/attention/key/MatMul: float16",
        "KeyError: 'x'",
        "sqlite:////folder/mlflow.db",
    ],
)
def test_text_without_secrets_is_left_alone(text: str) -> None:
    assert masked(text) == text


def test_words_keep_their_keys() -> None:
    assert masked_word(f"+dataset.token='a b,{PW}'") == "+dataset.token=***"
    assert masked_word(f"tracking.uri=http://ann:{PW}@host") == "tracking.uri=http://***@host"
    assert masked_word("dataset.tokenizer=t.json") == "dataset.tokenizer=t.json"


def test_values_are_masked_by_name_and_place() -> None:
    given = {
        "tracking": {"uri": f"http://a:{PW}@h", "experiment": None},
        "storage_options": {"key": PW, "anon": False},
        "device": {"key": "board", "password": 1234},
        "words": [f"x.secret={PW}"],
        "constants": {"token_type_ids": 3, "token": 5},
    }
    assert masked_values(given) == {
        "tracking": {"uri": "http://***@h", "experiment": None},
        "storage_options": {"key": "***", "anon": False},
        "device": {"key": "board", "password": "***"},
        "words": ["x.secret=***"],
        "constants": {"token_type_ids": 3, "token": 5},
    }


def test_remembered_values_are_masked_wherever_they_are() -> None:
    assert masked("refused: hf_abcdef") == "refused: hf_abcdef"
    remember_secrets({"dataset": {"token": "hf_abcdef"}, "uri": "http://u:p%40ssword@h"})
    assert masked("refused: hf_abcdef for p@ssword") == "refused: *** for ***"
    remember_secrets({"password": "abc"})
    assert masked("abc is too short to be replaced in every word") != "***"


def test_errors_are_masked_with_their_causes() -> None:
    cause = ValueError(f"http://a:{PW}@h refused")
    error = RuntimeError(f"no http://a:{PW}@h", 3)
    error.__cause__ = cause
    mask_error(error)
    assert error.args == ("no http://***@h", 3) and str(cause) == "http://***@h refused"
    assert str(TrackingError(f"MLflow at http://a:{PW}@h")) == "MLflow at http://***@h"


def test_address_for_a_browser_has_no_user() -> None:
    assert without_user(f"http://ann:{PW}@host:5000/x") == "http://host:5000/x"
