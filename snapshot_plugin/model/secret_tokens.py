"""Tokens and keys with a published prefix or form.

Each pattern begins with the literal prefix, and the check of the character before it follows as a lookbehind. The
regex engine then searches for the prefix alone, which is fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from snapshot_plugin.model.secret_rule import Rule, SecretSpan

__all__ = ["TOKEN_RULES"]

_Check = Callable[[str], bool]


def _always(_value: str) -> bool:
    return True


def _varied(value: str) -> bool:
    """Whether *value* is not a placeholder such as ``T00000000/B00000000/XXXXXXXX``."""
    return len(set(value)) > 8  # noqa: PLR2004 — a random value of 20 characters has more


def _rule(kind: str, starts: str, pattern: str, check: _Check = _always, *, sign: str = "") -> Rule:
    """A rule for a pattern. The secret is its group ``secret`` or, without that group, the whole match."""
    compiled = re.compile(pattern)
    group: int | str = "secret" if "secret" in compiled.groupindex else 0

    def find(text: str, _folded: str) -> Iterator[SecretSpan]:
        return (
            (match.start(group), match.end(group), kind) for match in compiled.finditer(text) if check(match[group])
        )

    return Rule(tuple(starts.split()), find, sign or _without_conditions(pattern))


def _token(kind: str, prefix: str, rest: str, *, word: str = "A-Za-z0-9_-", starts: str = "") -> Rule:
    r"""A rule for a token: *prefix* (of fixed width) at the beginning of a word, then *rest*.

    An escape before it, such as ``\n`` or ``%3D``, does not count as part of the word.
    """
    escaped = rf"(?<=[nrtA-Fa-f0-9]{prefix})(?:(?<=\\[nrt]{prefix})|(?<=%[0-9A-Fa-f]{{2}}{prefix}))"
    guard = rf"(?:(?<![{word}]{prefix})|{escaped})"
    start = starts or prefix.replace("\\", "").lower()
    return _rule(kind, start, f"{prefix}{guard}{rest}", sign=_without_conditions(prefix + rest))


def _without_conditions(pattern: str) -> str:
    """A looser *pattern*, without lookaround and possessive repetition. It matches wherever *pattern* does."""
    no_lookaround = re.sub(r"\(\?<?[=!][^()]*\)", "", pattern.replace("?P<secret>", "?:"))
    return re.sub(r"([+*}])\+", r"\1", no_lookaround)


_DIGIT: Final = r"(?=[A-Za-z_-]*+[0-9])"
_RANDOM: Final = rf"{_DIGIT}(?=[a-z0-9_-]*+[A-Z])"
_ALNUM: Final = "A-Za-z0-9_"  # the check for tokens that may follow a hyphen
_URL64: Final = "[A-Za-z0-9_-]"
_END: Final = r"(?![A-Za-z0-9_-])"
_RANDOM_WORD: Final = r"(?=[A-Za-z]*+[0-9])(?=[a-z0-9]*+[A-Z])"
_BASE64: Final = "[A-Za-z0-9+/]{12,}+={0,2}"
_AZURE: Final = "[A-Za-z0-9_~.-]"

# A key as agents see it: with escaped newlines, line numbers, diff marks and quote marks between its lines.
_GAP: Final = r"(?:\s|\\+[nrt]|[>|+→:-]|\d{1,6}(?=[\s→:|]))*+"
_PEM: Final = (
    r"-----BEGIN (?:[A-Z0-9]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}[A-Z][A-Za-z-]{{3,11}}: [^\n\\]{{1,99}}){{0,4}}+"
    rf"{_GAP}[A-Za-z0-9+/=]{{20,}}+(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)*+"
    r"(?:[\s\S]{0,48}?-----END (?:[A-Z0-9]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----)?"
)

TOKEN_RULES: Final = (
    _rule("private-key", "-----begin", _PEM, sign="-----BEGIN "),
    # Cloud providers.
    _token("aws-access-key-id", "A[KS]IA", r"[A-Z0-9]{16}(?![A-Za-z0-9])", word=_ALNUM, starts="akia asia"),
    _rule(
        "aws-secret-key",
        "secret_access secretaccess",
        r"(?i:secret_?access_?key)[^\w/+]{1,12}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        sign="(?i:secret_?access_?key)",
    ),
    _token("google-key", "AIza", rf"{_URL64}{{35}}{_END}"),
    _token("google-secret", "GOCSPX-", rf"{_URL64}{{20,}}+"),
    _token("google-token", r"ya29\.", rf"{_URL64}{{40,}}+"),
    _token("google-token", "1//0", rf"{_DIGIT}{_URL64}{{30,}}+"),
    _rule("azure-secret", "q~", rf"Q~(?<={_AZURE}{{4}}Q~)(?P<secret>{_AZURE}{{31,34}}+)(?!{_AZURE})"),
    _rule("azure-key", "accountkey", r"(?i:AccountKey)=(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})"),
    _rule("azure-key", "sig=", r"sig=(?<=[?&;]sig=)(?P<secret>[A-Za-z0-9%+/]{30,}+={0,2})"),
    _token("digitalocean-token", "do[opr]_v1_", "[0-9a-f]{64}", word=_ALNUM, starts="dop_v1_ doo_v1_ dor_v1_"),
    _token("alibaba-key-id", "LTAI", r"[A-Za-z0-9]{20}(?![A-Za-z0-9])", word=_ALNUM),
    _token("fly-token", "fm2_", "[A-Za-z0-9+/_-]{60,}+={0,2}", word=_ALNUM),
    _rule("terraform-token", ".atlasv1.", rf"\.atlasv1\.(?P<secret>{_URL64}{{60,}}+)"),
    _token("vault-token", r"hv[sb]\.", rf"{_URL64}{{24,}}+", starts="hvs. hvb."),
    _token("pulumi-token", "pul-", "[0-9a-f]{40}"),
    _token("databricks-token", "dapi", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("doppler-token", r"dp\.[psc]t\.", "[A-Za-z0-9]{40,}+", starts="dp.pt. dp.st. dp.ct."),
    _token("supabase-token", "sbp_", r"[0-9a-f]{40}(?![A-Za-z0-9])", word=_ALNUM),
    _token("planetscale-token", "pscale_tkn_", rf"{_URL64}{{32,}}+"),
    _token("render-key", "rnd_", rf"{_RANDOM}[A-Za-z0-9]{{28,}}+", word=_ALNUM),
    # Code hosts and package registries.
    _token("github-token", "gh[pousr]_", "[A-Za-z0-9]{36,}+", word=_ALNUM, starts="ghp_ gho_ ghu_ ghs_ ghr_"),
    _token("github-token", "github_pat_", "[A-Za-z0-9]{22}_[A-Za-z0-9]{59,}+", word=_ALNUM),
    _token("gitlab-token", "glpat-", rf"{_URL64}{{20,}}+(?:\.[0-9a-z]{{2}}\.?[0-9a-z]{{7,9}}{_END})?"),
    _token("gitlab-token", "gl[rd]t-", rf"{_DIGIT}{_URL64}{{20,}}+", starts="glrt- gldt-"),
    _token("gitlab-token", "glptt-", "[0-9a-f]{40}"),
    _token("bitbucket-token", "ATBB", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])", word=_ALNUM),
    _token("atlassian-token", "ATATT3", r"[A-Za-z0-9_=-]{60,}+", word=_ALNUM),
    _token("npm-token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9_])", word=_ALNUM),
    _token("pypi-token", "pypi-AgE", rf"{_URL64}{{50,}}+"),
    _token("rubygems-token", "rubygems_", "[0-9a-f]{48}", word=_ALNUM),
    _token("nuget-key", "oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])", word=_ALNUM),
    _token("docker-token", "dckr_pat_", rf"{_URL64}{{27,}}+"),
    _token("postman-key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    _token("sentry-token", "sntry[us]_", "[A-Za-z0-9+/=_-]{60,}+", word=_ALNUM, starts="sntryu_ sntrys_"),
    _rule("kubernetes-key", "key-data", rf"key-data[\"']?:[ \t]{{0,4}}[\"']?(?P<secret>{_BASE64})"),
    # Messengers.
    _token("slack-token", "xox[abceprs]-", "[0-9]{1,20}-[A-Za-z0-9-]{10,}+", starts="xox"),
    _token("slack-token", "xapp-", "[0-9]-[A-Z0-9]{6,16}-[0-9]{1,16}-[0-9a-f]{32,}+"),
    _rule(
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/[a-z]{1,12}/(?P<secret>[A-Za-z0-9+/_-]{24,}+)",
        _varied,
    ),
    _rule("discord-webhook", "/api/webhooks/", rf"/api/webhooks/[0-9]{{1,22}}/(?P<secret>{_URL64}{{50,}}+)"),
    _rule(
        "teams-webhook", "webhookb2/", r"webhookb2/(?P<secret>[0-9a-f-]{36}@[0-9a-f-]{36}/[A-Za-z0-9/-]{1,200}+)"
    ),
    _rule("telegram-token", ":aa", rf":AA(?<=[0-9]{{8}}:AA)(?P<secret>{_URL64}{{32,34}}+){_END}"),
    # Model providers.
    _token("anthropic-key", "sk-ant-", rf"{_RANDOM}{_URL64}{{20,}}+"),
    _token("openrouter-key", "sk-or-", rf"{_DIGIT}{_URL64}{{32,}}+"),
    _token("openai-key", "sk-", rf"(?:proj|svcacct|admin)-{_RANDOM}{_URL64}{{20,}}+"),
    _token("openai-key", "sk-", rf"{_DIGIT}[A-Za-z0-9]{{32,}}+(?![_-])"),
    _token("huggingface-token", "hf_", rf"{_RANDOM_WORD}[A-Za-z0-9]{{30,}}+(?!_)", word=_ALNUM),
    _token("replicate-token", "r8_", rf"{_RANDOM_WORD}[A-Za-z0-9]{{37,}}+", word=_ALNUM),
    _token("groq-key", "gsk_", rf"{_RANDOM_WORD}[A-Za-z0-9]{{48,}}+", word=_ALNUM),
    _token("perplexity-key", "pplx-", rf"{_RANDOM_WORD}[A-Za-z0-9]{{40,}}+"),
    _token("xai-key", "xai-", rf"{_RANDOM_WORD}[A-Za-z0-9]{{70,}}+"),
    _token("nvidia-key", "nvapi-", rf"{_RANDOM}{_URL64}{{60,}}+"),
    _token("langsmith-key", "lsv2_[ps][tk]_", "[0-9a-f]{32}_[0-9a-f]{10}", word=_ALNUM, starts="lsv2_"),
    # Payment, mail, operations.
    _token("stripe-key", "[sr]k_live_", "[A-Za-z0-9]{16,}+", word=_ALNUM, starts="sk_live_ rk_live_"),
    _token("stripe-key", "[sr]k_test_", rf"{_DIGIT}[A-Za-z0-9]{{16,}}+", word=_ALNUM, starts="sk_test_ rk_test_"),
    _token("stripe-key", "whsec_", "[A-Za-z0-9+/]{24,}+={0,2}", word=_ALNUM),
    _token("square-token", "sq0[a-z]{3}-", rf"{_URL64}{{22,}}+", starts="sq0"),
    _token("shopify-token", "shp[acpst]{2}_", "[0-9a-f]{32}", word=_ALNUM, starts="shpat_ shpca_ shppa_"),
    _token("sendgrid-key", r"SG\.", rf"{_URL64}{{20,24}}\.{_URL64}{{39,50}}{_END}"),
    _token("mailgun-key", "key-", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("twilio-key", "SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("newrelic-key", "NRAK-", "[A-Z0-9]{27}"),
    _token("grafana-token", "glsa_", "[A-Za-z0-9]{32}_[0-9a-f]{8}", word=_ALNUM),
    _token("linear-key", "lin_api_", "[A-Za-z0-9]{40}", word=_ALNUM),
    _token("notion-token", "ntn_", r"[A-Za-z0-9]{40,}+(?!_)", word=_ALNUM),
    _token("figma-token", "figd_", rf"{_URL64}{{38,}}+"),
    _token("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    _token("asnap-key", "asnap-key-", rf"{_URL64}{{43}}"),
    # Forms of no particular provider.
    _token("jwt", "eyJ", rf"{_URL64}{{8,}}+\.eyJ{_URL64}{{8,}}+\.{_URL64}{{16,}}+"),
)
