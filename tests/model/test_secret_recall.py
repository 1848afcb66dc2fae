"""Generated tokens of forms that were once missed: 200 of each, from a fixed seed, and all of them are redacted."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

import pytest

from snapshot_plugin.model.redact import redact

LETTERS = string.ascii_letters
ALNUM = LETTERS + string.digits
URL64 = ALNUM + "_-"
MANY = 200

Make = Callable[[random.Random], str]


def some(rng: random.Random, count: int, alphabet: str = ALNUM) -> str:
    return "".join(rng.choices(alphabet, k=count))


def hugging_face(rng: random.Random) -> str:
    return "hf_" + some(rng, 34, LETTERS)


def aws_session(rng: random.Random) -> str:
    return "IQoJb3JpZ2luX2Vj" + base64.b64encode(rng.randbytes(rng.randrange(250, 1200))).decode()


def discord(rng: random.Random) -> str:
    user = base64.b64encode(str(rng.randrange(10**17, 10**19)).encode()).decode().rstrip("=")
    return f"{user}.{some(rng, 1, LETTERS)}{some(rng, 5, URL64)}.{some(rng, 1, LETTERS)}{some(rng, 37, URL64)}"


def doppler(rng: random.Random) -> str:
    kind = rng.choice(["pt", "ct", "sa", "st.dev", "st.prd_eu", "scim", "audit"])
    return f"dp.{kind}.{some(rng, 1, LETTERS)}{some(rng, 42)}"


def dotted(rng: random.Random) -> str:
    return ".".join(some(rng, 1, LETTERS) + some(rng, rng.randrange(18, 40)) for _ in range(3))


FORMS: list[tuple[Make, str]] = [
    (hugging_face, "the model needs {}"),
    (hugging_face, "HF_TOKEN={}"),
    (aws_session, "aws_session_token = {}\n"),
    (aws_session, 'export AWS_SESSION_TOKEN="{}"'),
    (aws_session, '{"SessionToken": "{}"}'),
    (discord, "DISCORD_TOKEN={}"),
    (discord, "client.login('{}')"),
    (doppler, "DOPPLER_TOKEN={}"),
    (doppler, "doppler run --token {}"),
    (dotted, "SERVICE_TOKEN={}"),
    (dotted, "api_key: {}\n"),
]
IDS = [f"{make.__name__}-{index}" for index, (make, _) in enumerate(FORMS)]


@pytest.mark.requirement("STORE-VALUE-REDACT")
@pytest.mark.parametrize(("make", "around"), FORMS, ids=IDS)
def test_generated_tokens_are_redacted(make: Make, around: str) -> None:
    rng = random.Random(f"{make.__name__} {around}")
    tokens = [make(rng) for _ in range(MANY)]

    missed = [token for token in tokens if token[-12:] in redact(around.replace("{}", token))[0]]

    assert len(missed) == 0, missed[:3]


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "discordToken", "api_key"])
def test_generated_tokens_are_redacted_in_fields(name: str) -> None:
    rng = random.Random(name)
    tokens = [make(rng) for make in (aws_session, discord, doppler, dotted, hugging_face) for _ in range(MANY)]

    assert [redact({name: token})[1].is_empty for token in tokens].count(True) == 0
