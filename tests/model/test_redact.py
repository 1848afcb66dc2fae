"""Secrets are taken out; everything that only looks like one stays.

The secrets here are put together at run time, so that no scanner finds one in this file.
"""

from __future__ import annotations

import base64
import json
import time
import timeit
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapshot_plugin import InvalidSnapshot, Message, SessionSnapshot
from snapshot_plugin.model import (
    ImageBlock,
    McpServer,
    Parent,
    SessionConfig,
    TextBlock,
    ToolCallBlock,
    parse_block,
)
from snapshot_plugin.model.frozen import FrozenDict, freeze
from snapshot_plugin.model.redact import Redaction, RedactionReport, redact
from snapshot_plugin.model.secret_shapes import RULES, Rule
from tests.model.secret_corpus import LOOK_ALIKES, Secret
from tests.model.secret_corpus import SECRETS as CORPUS
from tests.model.secret_corpus_in_use import HARMLESS as HARMLESS_IN_USE
from tests.model.secret_corpus_in_use import IN_USE
from tests.tries import some_of, tries
from tests.unknown_fields import with_unknown

ALNUM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9jK2mN5pQ8sT1vW4yZ7"
BASE64_LINES = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDabcdefgh+/AB"] * 3 + ["Zw=="])


def pem(kind: str, body: str = BASE64_LINES) -> str:
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


TOKENS = {
    "aws-access-key-id": "AKIA" + "IOSFODNN7EXAMPL2",
    "github-token": "ghp_" + ALNUM[:36],
    "gitlab-token": "glpat-" + ALNUM[:20],
    "slack-token": "xoxb-" + "123456789012-123456789012-" + ALNUM[:24],
    "anthropic-key": "sk-ant-" + "api03-" + ALNUM[:80] + "_AA",
    "openai-key": "sk-proj-" + ALNUM[:60] + "_x-" + ALNUM[:20],
    "google-key": "AIza" + ALNUM[:35],
    "stripe-key": "sk_live_" + ALNUM[:24],
    "npm-token": "npm_" + ALNUM[:36],
    "pypi-token": "pypi-AgEIcHlwaS5vcmc" + ALNUM[:60],
    "jwt": ".".join(["eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0In0", ALNUM[:43]]),
}
MORE_TOKENS = [
    ("aws-access-key-id", "ASIA" + "Y34FZKBOKMUTVV7A"),
    ("github-token", "gho_" + ALNUM[:36]),
    ("github-token", "github_pat_" + ALNUM[:22] + "_" + ALNUM[:59]),
    ("gitlab-token", "glpat-" + ALNUM[:27] + ".01.0a1b2c3d4"),
    ("slack-token", "xoxp-" + "1-2-3-" + ALNUM[:30]),
    ("anthropic-key", "sk-ant-" + "oat01-" + ALNUM[:60]),
    ("openai-key", "sk-" + ALNUM[:48]),
    ("openai-key", "sk-svcacct-" + ALNUM[:60]),
    ("private-key", pem("PRIVATE KEY")),
    ("private-key", pem("RSA PRIVATE KEY")),
    ("private-key", pem("OPENSSH PRIVATE KEY")),
    ("private-key", pem("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2\n\n" + BASE64_LINES + "\n=aBcD")),
    (
        "private-key",
        pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\n" + BASE64_LINES),
    ),
    ("private-key", pem("EC PRIVATE KEY").replace("\n", "\\n")),
    (
        "private-key",
        "\n".join(f"{n:6}→{line}" for n, line in enumerate(pem("PRIVATE KEY").split("\n"))).lstrip(" 0→"),
    ),
    ("private-key", "\n+".join(pem("PRIVATE KEY").split("\n"))),
]
ASSIGNMENTS = [
    ("password", "password={}", "hunter2"),
    ("password", "PGPASSWORD={} psql", "letmein"),
    ("password", "mysql --password={} -u root", "p4ss/w0rd+"),
    ("password", "https://x.example/login?user=me&password={}&x=1", "hunter2"),
    ("password", "host=db;Password={};ssl=true", "a-b-c-d"),
    ("password", "connect(password={}, x)", "tr0ub4dor&3".replace("&", "-")),
    ("password", '"password": "{}"', "hunter2"),
    ("password", "'db_passwd' : '{}'", "swordfish"),
    ("password", '{{\\"password\\": \\"{}\\"}}', "hunter2"),
    ("password", 'passphrase = "{}"', "correct-horse"),
    ("password", ":password => '{}'", "it.is(this)"),
    ("secret", '"client_secret": "{}"', "GOCSPX-abc"),
    ("secret", "clientSecret='{}'", "abc123"),
    ("aws-secret-key", "aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE" + "KEY"),
    ("aws-secret-key", '"SecretAccessKey": "{}"', "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE" + "KEY"),
    ("url-password", "postgresql://me:{}@db.example:5432/x", "hunter2"),
    ("url-password", "https://:{}@example.org", "p%40ss$1"),
    ("authorization", "Authorization: Bearer {}", ALNUM[:20]),
    ("authorization", "curl -H 'authorization: bearer {}'", "ab.cd-ef~12/34+56=="),
    ("authorization", '\\"Authorization\\": \\"Basic {}\\"', base64.b64encode(b"user:pass").decode()),
]
HARMLESS = [
    "550e8400-e29b-41d4-a716-446655440000",
    "3f786850e387550fdab836ed7e6dc881de23001b",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "01k9zq3v5n8x7w6y5t4r3e2w1q",
    "pip install sk-learn scikit-learn",
    "task-runner-0123456789abcdef0123456789abcdef",
    "disk-proj-" + ALNUM[:40],
    "sk-admin-panel-component-with-a-long-name",
    "sk-proj-notes-about-the-project-structure",
    "xoxo-love-and-kisses-to-everyone",
    "npm_config_registry=https://registry.npmjs.org",
    "npm_lifecycle_event_with_a_very_long_name_here",
    "pypi-attestations and pypi-publish-action-for-releases-in-the-cloud-and-elsewhere",
    "ghp_short glpat-short AKIA1234 AIzaShort",
    "SLAKIA" + "IOSFODNN7EXAMPL2",
    "eyJhbGciOiJIUzI1NiJ9",
    "eyJhbGciOiJIUzI1NiJ9.payload.signature",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 4).decode(),
    '"-----BEGIN PRIVATE KEY-----" and later "-----END PRIVATE KEY-----"',
    "-----BEGIN CERTIFICATE-----\n" + BASE64_LINES + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + BASE64_LINES + "\n-----END PUBLIC KEY-----",
    "connect(user=user, password=password)",
    "connect(\n    password=pw1,\n)",
    "connect(password=secret1, host=host)\nconnect(host, password=secret2)",
    "password=self.password\npassword=settings.db.password\npassword=get_password",
    'password=os.environ["PASSWORD"]',
    "password=getpass.getpass()",
    "def login(user: str, password: str) -> None:",
    "password: z.string().min(8)",
    'if password == "":',
    'password=""',
    '"password": ""',
    '"password": "${DB_PASSWORD}"',
    '"password": "{{ vault.password }}"',
    '"password": "<your password>"',
    '"password": "<password>"',
    "password=$PASSWORD",
    "password=%s",
    "password=********",
    '"password": "********"',
    '"password": "Password"',
    '"password": "Passwort"',
    '"forgotPassword": "Vergessen?"',
    '"password": "must have at least 8 characters"',
    '"password": "string"',
    '<input type="password" name="password" id="password">',
    "password_hash='abc123' PWD=/home/me password_field='x1'",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "Authorization: Bearer authentication",
    "Authorization: Basic authentication is used",
    "Authorization: Basic training",
    'headers={"Authorization": f"Bearer {token}"}',
    "http://localhost:3000/@scope/package",
    "git@github.com:org/repo.git ssh://git@github.com:22/x",
    "https://user@example.org/a:b@c",
    "postgresql://user:password@localhost/db",
    "postgresql://user:${PASSWORD}@localhost/db",
    "docker://alpine:3.18@sha256:abc",
]


def redacted(value: Any) -> Any:
    return redact(value)[0]


@pytest.mark.requirement("STORE-VALUE-REDACT")
@pytest.mark.parametrize(
    "around", ["{}", "before {} after", "TOKEN={}", '"{}"', "({})", "line\\n{}\\nline", "x%3D{}"]
)
def test_token_is_redacted_anywhere_in_text(around: str) -> None:
    for kind, token in [*TOKENS.items(), *MORE_TOKENS]:
        assert redact(around.replace("{}", token)) == (
            around.replace("{}", f"[redacted:{kind}]"),
            RedactionReport(redactions=(Redaction(kind=kind, path="$"),)),
        )


@pytest.mark.parametrize(("kind", "around", "secret"), ASSIGNMENTS)
def test_value_assigned_to_a_secret_name_is_redacted_and_the_name_kept(kind: str, around: str, secret: str) -> None:
    assert redacted(around.format(secret)) == around.format(f"[redacted:{kind}]")


def test_lookalikes_are_kept() -> None:
    for text in HARMLESS:
        result, report = redact(text)

        assert result is text
        assert report.is_empty


def test_letters_that_grow_in_lower_case_do_not_shift_matches() -> None:
    assert redacted("İİİ PASSWORD=hunter2") == "İİİ PASSWORD=[redacted:password]"


def test_truncated_private_key_is_redacted_to_its_end() -> None:
    cut = pem("PRIVATE KEY")[:150]

    assert redacted(f"{cut}\n[output truncated]") == "[redacted:private-key]\n[output truncated]"


def test_adjacent_secrets_are_counted_separately() -> None:
    text = " ".join([TOKENS["github-token"], TOKENS["npm-token"], TOKENS["github-token"]])

    assert redact(text)[1].counts == {"github-token": 2, "npm-token": 1}


def test_a_token_inside_a_url_or_header_keeps_its_own_kind() -> None:
    token = TOKENS["github-token"]

    assert (
        redacted(f"https://x-access-token:{token}@github.com")
        == "https://x-access-token:[redacted:github-token]@github.com"
    )
    assert redacted(f"Authorization: Bearer {token}") == "Authorization: Bearer [redacted:github-token]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"password": "hunter2"}, {"password": "[redacted:password]"}),
        ({"dbPassword": "hunter 2"}, {"dbPassword": "hunter 2"}),
        ({"PGPASSWORD": "x1"}, {"PGPASSWORD": "[redacted:password]"}),
        ({"client-secret": "abc"}, {"client-secret": "[redacted:secret]"}),
        (
            {"password": {"type": "string"}, "required": ["password"]},
            {"password": {"type": "string"}, "required": ["password"]},
        ),
        ({"password": "x1" * 200}, {"password": "[redacted:password]"}),
        ({"password": None, "passwords": "a1", "n": 1}, {"password": None, "passwords": "a1", "n": 1}),
        ({"Authorization": "Bearer abc12345"}, {"Authorization": "Bearer [redacted:authorization]"}),
        ({"authorization": "none needed"}, {"authorization": "none needed"}),
        ([["password=hunter2"]], [["password=[redacted:password]"]]),
        ({"name": "DB_PASSWORD", "value": "x1"}, {"name": "DB_PASSWORD", "value": "[redacted:password]"}),
        ({"name": "LANG", "value": "x1"}, {"name": "LANG", "value": "x1"}),
        ({"PWD": "/home/me"}, {"PWD": "/home/me"}),
    ],
)
def test_json_is_searched_by_key_and_by_content(value: Any, expected: Any) -> None:
    assert redacted(value) == expected
    assert redacted(freeze(value)) == expected


def test_keys_that_are_secrets_are_redacted_and_stay_distinct() -> None:
    one, other = "ghp_" + "a1" * 18, "ghp_" + "b2" * 18
    result, report = redact({one: {"password": "x1"}, other: 2, "plain": 3})

    assert result == {
        "[redacted:github-token]": {"password": "[redacted:password]"},
        "[redacted:github-token] 2": 2,
        "plain": 3,
    }
    assert one not in json.dumps(report.raw())


@pytest.mark.requirement("STORE-VALUE-REDACT")
def test_the_report_gives_kinds_and_paths_and_never_a_value() -> None:
    secrets = list(TOKENS.values())
    value = {"a b": [{"deep": secret} for secret in secrets], "password": "hunter2"}

    report = redact(value)[1]

    assert [(found.kind, found.path) for found in report.redactions] == [
        *((kind, f'$["a b"][{n}].deep') for n, kind in enumerate(TOKENS)),
        ("password", "$.password"),
    ]
    assert not any(secret in json.dumps(report.raw()) for secret in [*secrets, "hunter2"])
    assert RedactionReport.model_validate(json.loads(json.dumps(report.raw()))) == report


def snapshot(*messages: Message, **fields: Any) -> SessionSnapshot:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    return SessionSnapshot(
        **{"session_id": "s", "created_at": now, "updated_at": now, "messages": messages, **fields}
    )


def test_whole_snapshot_is_searched_and_clean_parts_are_the_same_objects() -> None:
    token = TOKENS["gitlab-token"]
    clean = Message(role="user", content="hello", metadata={"a": [1]})
    dirty = Message(
        role="assistant",
        content=(
            TextBlock(text=f"use {token}"),
            ToolCallBlock(tool_call_id="1", raw_input={"cmd": [f"x={token}"]}, content=[{"path": token}]),
            parse_block({"type": "future", "words": token}),
        ),
    )
    made = snapshot(
        clean,
        dirty,
        config=SessionConfig(mcp_servers=(McpServer(name="x", url=token),)),
        memory={"n": token},
    )
    value = with_unknown(made, mine=[token])

    result, report = redact(value)

    assert token not in json.dumps(result.raw())
    assert result.messages[0] is clean
    assert {found.path for found in report.redactions} == {
        "$.config.mcp_servers[0].url",
        "$.messages[1].content[0].text",
        "$.messages[1].content[1].content[0].path",
        "$.messages[1].content[1].rawInput.cmd[0]",
        "$.messages[1].content[2].words",
        "$.memory.n",
        "$.mine[0]",
    }
    assert type(result.memory) is FrozenDict
    assert redact(result) == (result, RedactionReport())


def test_clean_value_is_returned_unchanged() -> None:
    value = snapshot(Message(role="user", content="hi"), memory={"Authorization": "none"}, tags=("a",))

    assert redact(value)[0] is value


def test_given_value_is_never_mutated() -> None:
    value = {"password": "hunter2", "list": [TOKENS["jwt"]]}
    before = json.dumps(value)
    redact(value)

    assert json.dumps(value) == before


def test_images_audio_blobs_and_signatures_are_not_redacted() -> None:
    token = TOKENS["aws-access-key-id"]
    value = snapshot(
        Message(
            role="assistant",
            content=(
                ImageBlock(data=token, mime_type="image/png"),
                parse_block({"type": "audio", "data": token, "mimeType": "audio/wav"}),
                parse_block({"type": "image", "data": token}),
                parse_block({"type": "resource", "resource": {"uri": "x", "blob": token}}),
                parse_block({"type": "thought", "text": "", "signature": TOKENS["jwt"]}),
                ToolCallBlock(
                    tool_call_id="1", content=[{"type": "content", "content": {"type": "image", "data": token}}]
                ),
            ),
        )
    )

    assert redact(value)[0] is value
    assert redacted({"type": ["odd"], "data": token}) == {"type": ["odd"], "data": "[redacted:aws-access-key-id]"}


def test_session_and_tool_call_ids_are_kept() -> None:
    name = TOKENS["npm-token"]
    value = snapshot(
        Message(role="assistant", content=(ToolCallBlock(tool_call_id=name),)),
        session_id=name,
        agent_session_id=name,
        parent=Parent(session_id=name, seq=1, message_index=0),
    )

    assert redact(value)[0] is value


def test_a_value_nested_too_deeply_is_refused() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]

    with pytest.raises(InvalidSnapshot):
        redact(deep)


SECRETS = [*TOKENS.values(), *(token for _, token in MORE_TOKENS), *(text.format(s) for _, text, s in ASSIGNMENTS)]
GLUE = ["password", "=", '"', "'", ":", "\\", "://", "@", "Authorization: Bearer ", "-----", "\n", " ", "eyJ", "."]
PIECES = st.sampled_from([*SECRETS, *HARMLESS, *GLUE])


@tries(400)
@given(st.lists(PIECES, max_size=6).map("".join))
@example('"password": "password": "' + "x1" + '"')
@example("ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9sha256:" + "9f86d081884c7d65" * 4)  # a mark is no name of a value
def test_redaction_is_idempotent(text: str) -> None:
    once = redacted(text)

    assert redact(once) == (once, RedactionReport())


NAMES = [
    "PassWord",
    "apiKey",
    "secret_access_key",
    "client-secret",
    "\u212aey",
    "_PAT",
    "login ",
    "sshpass -p",
    "cookie",
]
ODD = [
    "\x1c",
    "\u2003",
    "\u0130",
    "\u00b2",
    "\ud800",
    "=>",
    "\t",
    "machine ",
    "curl -u me:",
    "JSESSIONID=",
    "password ",
]


@tries(400)
@given(st.lists(st.one_of(PIECES, st.sampled_from([*NAMES, *ODD, ALNUM[:12]])), max_size=8).map("".join))
@example("".join(f"{secret.text}\n" for secret in CORPUS))
def test_the_first_look_at_a_text_hides_no_secret(text: str) -> None:
    assert redact(text) == redact(text, rules=list(RULES))  # which are all tried, as any other rules


def test_the_first_look_at_a_text_hides_no_published_shape() -> None:
    for secret in [*CORPUS, *IN_USE]:
        assert redact(secret.text) == redact(secret.text, rules=list(RULES)), secret.name


@tries(100)
@given(st.text(max_size=60))
def test_any_text_at_all_can_be_searched(text: str) -> None:
    once = redacted({text: [text]})

    assert redacted(once) == once


HOSTILE = [
    "sk-proj-",
    "sk-",
    "sk-ant-a",
    "glpat-",
    "ghp_",
    "eyJ",
    "eyJé",
    "eyJaaaaaaaa.",
    "xoxb-1-",
    "AIza",
    "pypi-AgE",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n",
    "Aaaa: -----BEGIN PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----" + "A" * 24 + "\n",
    "password=",
    'password="',
    "password=\\\\\\\\",
    "password",
    "password='a",
    "authorization:bearer a",
    "authorization: basic aaaaaaaa",
    "://",
    "://a:",
    "://a:b",
    "secret_access_key=",
    "token=",
    "token=a1",
    "api_key: a1 ",
    "api_key=",
    "key",
    "_a",
    "-a",
    ".a",
    "_aaaaaaaaaaaaaaa ",
    "hooks.slack.com/services/",
    "AccountKey=",
    "sig=",
    "1//0",
    "login a ",
    "curl -u a:",
    "pwd=abcd ",
    "://a:b@ ",
    "://:a@",
    "pwd:'q'",
    'pwd:"\'"',
    "pwd:'{",
    'pwd:\\"$',
    "curl -u a:bcde1 ",
    "a=",
    "\"'\\",
    "a",
    "-",
    " ",
    "\\n",
    "%3D",
]


@pytest.mark.parametrize(
    "prefix", ["", "-----BEGIN PRIVATE KEY----- password=' authorization: bearer a://sk-proj-eyJ"]
)
def test_hostile_text_is_searched_in_linear_time(prefix: str) -> None:
    for unit in some_of(HOSTILE):
        texts = [prefix + unit * (size // len(unit)) for size in (25_000, 200_000)]
        times = (tuple(map(seconds, texts)) for _ in range(3))

        # Eight times the text; quadratic time would be 64 times as long.
        assert any(long < 20 * short + 0.05 for short, long in times), unit


def seconds(text: str) -> float:
    return timeit.timeit(lambda: redact(text), number=1, timer=time.process_time)


@pytest.mark.parametrize("text", ["://:a@", "pwd:'q'", "machine a login b password c1d2", "sshpass -p c1d2 a"])
def test_secrets_in_the_shortest_texts_are_found(text: str) -> None:
    assert "[redacted:" in redacted(text)


@pytest.mark.requirement("STORE-VALUE-REDACT")
@pytest.mark.parametrize(("secrets", "count", "limit"), [(CORPUS, 116, 8), (IN_USE, 163, 12)])
def test_few_of_the_known_secrets_are_missed(secrets: list[Secret], count: int, limit: int) -> None:
    missed = [secret.name for secret in secrets if secret.value in redacted(secret.text)]

    assert len(secrets) == count
    assert len(missed) <= limit, missed


@pytest.mark.parametrize(("texts", "count", "limit"), [(LOOK_ALIKES, 77, 1), (HARMLESS_IN_USE, 118, 2)])
def test_hardly_any_harmless_text_is_redacted(texts: list[str], count: int, limit: int) -> None:
    taken = [text for text in texts if redacted(text) != text]

    assert len(texts) == count
    assert len(taken) <= limit, taken


@pytest.mark.parametrize(
    "name",
    [
        "x-api-key header",
        "api_key in a url",
        "token in a url",
        "password in yaml",
        "azure storage",
        "stripe test",
        "slack webhook",
        "hugging face",
        "sendgrid",
        "kubeconfig client key",
        "kubeconfig token",
        "netrc",
        "our own key",
    ],
)
def test_shapes_reported_by_users_are_redacted(name: str) -> None:
    (secret,) = (secret for secret in CORPUS if secret.name == name)

    assert secret.value not in redacted(secret.text)
    assert "[redacted:" in redacted(secret.text)


def test_redacting_published_shapes_is_idempotent() -> None:
    for secret in [*CORPUS, *IN_USE]:
        once = redacted(secret.text)

        assert redacted(once) == once, secret.name


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("x-api-key", ALNUM[:32], "api-key"),
        ("OPENAI_API_KEY", ALNUM[:32], "api-key"),
        ("authToken", ALNUM[:32], "token"),
        ("next_page_token", ALNUM[:32], None),
        ("max_tokens", "128000", None),
        ("token", "string", None),
    ],
)
def test_secretly_named_fields_are_redacted_if_the_value_looks_random(
    name: str, value: str, kind: str | None
) -> None:
    assert redacted({name: value}) == {name: f"[redacted:{kind}]" if kind else value}


def test_callers_rule_is_applied_with_ours() -> None:
    badge = Rule(("badge-",), lambda text, _folded: [(text.index("badge-"), len(text), "badge")])

    assert redact({"a": "my badge-17", "b": "password=hunter2"}, rules=(*RULES, badge)) == (
        {"a": "my [redacted:badge]", "b": "password=[redacted:password]"},
        RedactionReport(redactions=(Redaction(kind="badge", path="$.a"), Redaction(kind="password", path="$.b"))),
    )
    assert redact({"a": "my badge-17"})[1].is_empty
