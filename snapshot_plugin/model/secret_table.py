"""The table of secrets: names, tokens and forms that make a value secret. Data only; `secret_shapes` applies it.

Each row has two examples and two counter-examples in ``tests/model/secret_examples.py``. A pattern must take linear
time: it may not start again inside text that it can consume. Its repetitions are bounded, or possessive (``++``).
"""

# One row, one line, as far as it can be.
# ruff: noqa: E501
# fmt: off

from __future__ import annotations

import base64
from collections import defaultdict
from typing import Final, NamedTuple

from snapshot_plugin.model.secret_values import (
    Check,
    is_basic,
    is_bearer,
    is_key,
    is_literal,
    is_no_path,
    is_password,
    is_strong,
    is_varied,
    stand_in,
)

__all__ = ["ENCODED", "FORMS", "KEY_BLOCKS", "NAMES", "TOKENS", "Form", "SecretName", "Token"]


# Names whose value is a secret ------------------------------------------------------------------------------------


class SecretName(NamedTuple):
    """A name whose value is a secret: ``password=…``, ``x-api-key: …``, the field ``dbPassword``."""

    start: str
    """What the pattern begins with, which is fast to find."""
    pattern: str
    kind: str
    check: Check = is_key
    sign: str = ""
    """The pattern without lookaround, if it has any."""
    setting: bool = True
    """Whether a setting of this name is withheld whatever its value; else only if the value passes *check*."""


_KEYS: Final = ["access", "account", "api", "auth", "encryption", "private", "secret", "signing"]
_MORE_KEYS: Final = [
    "admin",
    "aes",
    "app",
    "application",
    "consumer",
    "deploy",
    "functions",
    "hmac",
    "jwt",
    "license",
    "master",
    "service",
    "shared",
    "storage",
    "subscription",
    "webhook",
]


def _after(words: list[str]) -> str:
    """A lookbehind for ``key`` after one of *words*; words of one length share one."""
    lengths = defaultdict(list)
    for word in words:
        lengths[len(word)].append(word)
    return "|".join(f"(?<=(?:{'|'.join(same)}){sep}key)" for same in lengths.values() for sep in ("[_-]", ""))


_CURSORS: Final = ["page", "next", "continuation", "cancel", "cancellation", "sync", "cursor"]
_NO_CURSOR: Final = "".join(f"(?<!{word}token)(?<!{word}[_-]token)" for word in _CURSORS)

NAMES: Final = (
    SecretName("passw", "passw(?:or)?[dt]", "password", is_literal),
    SecretName("passphrase", "passphrase", "password", is_literal),
    SecretName("pwd", "pwd", "password", is_no_path, setting=False),
    SecretName("_pass", "_pass", "password", is_strong, setting=False),
    SecretName("_pw", "_pw", "password", is_strong, setting=False),
    SecretName("psk", "psk", "password", is_strong, setting=False),
    SecretName("secret", "secret(?:(?<=client[_-]secret)|(?<=clientsecret))", "secret", is_literal, "client[_-]?secret"),
    SecretName("secret", "secret[_-]?access[_-]?key", "secret", is_literal),
    SecretName("secret", "secret[_-]?key(?:[_-]?base)?", "secret", is_strong),
    SecretName("secret", "secret", "secret"),
    SecretName("token", f"token{_NO_CURSOR}", "token", sign="token"),
    SecretName("_pat", "_pat", "token", setting=False),
    SecretName("_auth", "_auth", "token", setting=False),
    SecretName("credential", "credentials?", "secret"),
    SecretName("authorization", "authorization", "authorization"),
    SecretName("cookie", "cookie", "cookie"),
    SecretName("key", f"key(?:{_after(_KEYS)})", "api-key", sign=f"(?:{'|'.join(_KEYS)})[_-]?key"),
    SecretName("key", f"key(?:{_after(_MORE_KEYS)})", "api-key", sign=f"(?:{'|'.join(_MORE_KEYS)})[_-]?key", setting=False ),
)


# Tokens with a published prefix or form ---------------------------------------------------------------------------


class Token(NamedTuple):
    """A token: *prefix* (of fixed width) at the beginning of a word, then *rest*."""

    kind: str
    prefix: str
    rest: str
    word: str = "A-Za-z0-9_-"
    """The characters that may not stand before it."""
    starts: str = ""
    """The prefixes in lower case, if *prefix* is a pattern."""
    check: Check | None = None


_ALNUM: Final = "A-Za-z0-9_"  # for tokens that may follow a hyphen
_URL64: Final = "[A-Za-z0-9_-]"
_END: Final = r"(?![A-Za-z0-9_-])"
_STOP: Final = r"(?![A-Za-z0-9])"
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DIGIT: Final = r"(?=[A-Za-z_-]*+[0-9])"
_RANDOM: Final = rf"{_DIGIT}(?=[a-z0-9_-]*+[A-Z])"
_NUMBER: Final = r"(?=[A-Za-z]*+[0-9])"  # as _DIGIT, for tokens without hyphens
_MIXED: Final = r"(?=[a-z0-9]*+[A-Z])(?=[A-Z0-9]*+[a-z])"

TOKENS: Final = (
    # Cloud providers.
    Token("aws-access-key-id", "A[KS]IA", rf"[A-Z0-9]{{16}}{_STOP}", _ALNUM, "akia asia"),
    Token("aws-access-key-id", "ABSK", r"[A-Za-z0-9+/]{100,}+={0,2}", _ALNUM),
    Token("google-key", "AIza", rf"{_URL64}{{35}}{_END}"),
    Token("google-secret", "GOCSPX-", rf"{_URL64}{{20,}}+"),
    Token("google-token", r"ya29\.", rf"{_URL64}{{40,}}+"),
    Token("google-token", "1//0", rf"{_DIGIT}{_URL64}{{30,}}+"),
    Token("digitalocean-token", "do[opr]_v1_", "[0-9a-f]{64}", _ALNUM, "dop_v1_ doo_v1_ dor_v1_"),
    Token("alibaba-key-id", "LTAI", rf"[A-Za-z0-9]{{20}}{_STOP}", _ALNUM),
    Token("fly-token", "fm[12]", "[ar]?_[A-Za-z0-9+/_-]{60,}+={0,3}", _ALNUM, "fm1 fm2"),
    Token("heroku-key", "HRKU-", rf"(?:AA{_URL64}{{50,}}+|{_UUID})"),
    Token("vault-token", r"hv[sbr]\.", rf"{_URL64}{{24,}}+", starts="hvs. hvb. hvr."),
    Token("pulumi-token", "pul-", "[0-9a-f]{40}"),
    Token("databricks-token", "dapi", rf"[0-9a-f]{{32}}(?:-\d)?{_STOP}"),
    Token("doppler-token", r"dp\.", r"(?:ct|pt|sa|said|st|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}+"),
    Token("supabase-token", "sbp_", rf"[0-9a-f]{{40}}{_STOP}", _ALNUM),
    Token("supabase-token", "sb_secret_", rf"{_URL64}{{22,}}+", _ALNUM),
    Token("planetscale-token", "pscale_", rf"(?:tkn|pw|oauth)_{_URL64}{{32,}}+"),
    Token("render-key", "rnd_", rf"{_NUMBER}{_MIXED}[A-Za-z0-9]{{28,}}+", _ALNUM),
    Token("netlify-token", "nfp_", rf"{_MIXED}[A-Za-z0-9]{{36,}}+", _ALNUM),
    Token("neon-key", "napi_", "[a-z0-9]{48,}+", _ALNUM),
    Token("tailscale-key", "tskey-", rf"[a-z]{{2,12}}-[A-Za-z0-9]{{8,20}}(?:-[A-Za-z0-9]{{16,}}+)?{_END}"),
    Token("openshift-token", "sha256~", rf"{_URL64}{{43}}{_END}"),
    Token("yandex-key", "AQVN", rf"{_URL64}{{35,}}+", _ALNUM),
    # Code hosts and package registries.
    Token("github-token", "gh[pousr]_", "[A-Za-z0-9]{36,}+", _ALNUM, "ghp_ gho_ ghu_ ghs_ ghr_"),
    Token("github-token", "github_pat_", "[A-Za-z0-9]{22}_[A-Za-z0-9]{59,}+", _ALNUM),
    Token("gitlab-token", "glpat-", rf"{_URL64}{{20,}}+(?:\.[0-9a-z]{{2}}\.?[0-9a-z]{{7,9}}{_END})?"),
    Token("gitlab-token", "gl[rd]t-", rf"{_DIGIT}{_URL64}{{20,}}+", starts="glrt- gldt-"),
    Token("gitlab-token", "gl", rf"(?:ptt-[0-9a-f]{{40}}|(?:soat|cbt|imt|ffct|agent|oas)-{_DIGIT}{_URL64}{{20,}}+)" ),
    Token("bitbucket-token", "ATBB", rf"[A-Za-z0-9]{{32}}{_STOP}", _ALNUM),
    Token("atlassian-token", "AT[AC]TT3", r"[A-Za-z0-9_=-]{60,}+", _ALNUM, "atatt3 atctt3"),
    Token("npm-token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9_])", _ALNUM),
    Token("pypi-token", "pypi-AgE", rf"{_URL64}{{50,}}+"),
    Token("rubygems-token", "rubygems_", "[0-9a-f]{48}", _ALNUM),
    Token("clojars-token", "CLOJARS_", "[0-9a-f]{60}", _ALNUM),
    Token("cargo-token", "cio", rf"{_MIXED}[A-Za-z0-9]{{32}}{_STOP}", _ALNUM),
    Token("nuget-key", "oy2", rf"[a-z0-9]{{43}}{_STOP}", _ALNUM),
    Token("docker-token", "dckr_[op]at_", rf"{_URL64}{{27,}}+", starts="dckr_"),
    Token("artifactory-token", "AKCp", rf"{_NUMBER}[A-Za-z0-9]{{69,}}+", _ALNUM),
    Token("postman-key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    Token("sentry-token", "sntry[us]_", "[A-Za-z0-9+/=_-]{60,}+", _ALNUM, "sntryu_ sntrys_"),
    Token("sourcegraph-token", "sgp_", rf"(?:[0-9a-f]{{16}}_|local_)?[0-9a-f]{{40}}{_STOP}", _ALNUM),
    Token("sonar-token", "sq[uap]_", rf"[0-9a-f]{{40}}{_STOP}", _ALNUM, "squ_ sqa_ sqp_"),
    Token("buildkite-token", "bkua_", "[0-9a-f]{40}", _ALNUM),
    Token("circleci-token", "CCIPAT_", r"[A-Za-z0-9]{16,}+_[0-9a-f]{40}", _ALNUM),
    Token("harness-token", r"pat\.", rf"{_URL64}{{22}}\.[0-9a-f]{{24}}\.[A-Za-z0-9]{{20}}{_STOP}"),
    Token("infracost-key", "ico-", rf"{_RANDOM}[A-Za-z0-9]{{32}}{_STOP}"),
    Token("prefect-key", "pn[ub]_", rf"{_NUMBER}[A-Za-z0-9]{{36}}{_STOP}", _ALNUM, "pnu_ pnb_"),
    Token("dynatrace-token", r"dt0[a-z]01\.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}", starts="dt0"),
    Token("onepassword-token", "ops_eyJ", rf"{_URL64}{{100,}}+={{0,2}}", _ALNUM),
    Token("cloudflare-key", r"v1\.0-", rf"[0-9a-f]{{24}}-[0-9a-f]{{146}}{_STOP}"),
    Token("launchdarkly-key", "(?:api|sdk)-", rf"{_UUID}{_END}", starts="api- sdk-"),
    # Messengers.
    Token("slack-token", "xox[abceoprs]-", r"[0-9]{1,20}-[A-Za-z0-9-]{10,}+", starts="xox"),
    Token("slack-token", "xoxe", r"(?:\.xox[bp])?-[0-9]-[A-Za-z0-9]{100,}+"),
    Token("slack-token", "xapp-", "[0-9]-[A-Z0-9]{6,16}-[0-9]{1,16}-[0-9a-f]{32,}+"),
    Token("facebook-token", "EAA[A-Z]", rf"{_NUMBER}{_MIXED}[A-Za-z0-9]{{80,}}+", _ALNUM, "eaa"),
    Token("twitter-token", "A", r"A{19}[A-Za-z0-9%]{60,}+", _ALNUM, "aaaaaaaaaaaaaaaaaaaa", is_varied),
    # Model providers.
    Token("anthropic-key", "sk-ant-", rf"{_RANDOM}{_URL64}{{20,}}+"),
    Token("openrouter-key", "sk-or-", rf"{_DIGIT}{_URL64}{{32,}}+"),
    Token("langfuse-key", "sk-lf-", _UUID),
    Token("openai-key", "sk-", rf"(?:proj|svcacct|admin|None)-{_RANDOM}{_URL64}{{20,}}+"),
    Token("openai-key", "sk-", rf"{_DIGIT}[A-Za-z0-9]{{32,}}+(?![_-])"),
    Token("huggingface-token", "hf_", rf"{_MIXED}[A-Za-z0-9]{{34}}(?![A-Za-z0-9_])", _ALNUM),
    Token("huggingface-token", "hf_", rf"{_NUMBER}{_MIXED}[A-Za-z0-9]{{30,}}+(?!_)", _ALNUM),
    Token("huggingface-token", "api_org_", rf"{_MIXED}[A-Za-z0-9]{{34}}(?![A-Za-z0-9_])", _ALNUM),
    Token("replicate-token", "r8_", rf"{_MIXED}[A-Za-z0-9]{{37,}}+", _ALNUM),
    Token("groq-key", "gsk_", rf"{_MIXED}[A-Za-z0-9]{{48,}}+", _ALNUM),
    Token("perplexity-key", "pplx-", rf"{_MIXED}[A-Za-z0-9]{{40,}}+"),
    Token("xai-key", "xai-", rf"{_MIXED}[A-Za-z0-9]{{70,}}+"),
    Token("nvidia-key", "nvapi-", rf"{_RANDOM}{_URL64}{{60,}}+"),
    Token("langsmith-key", "lsv2_[ps][tk]_", "[0-9a-f]{32}_[0-9a-f]{10}", _ALNUM, "lsv2_"),
    Token("cerebras-key", "csk-", rf"{_DIGIT}[a-z0-9]{{40,}}+"),
    Token("fireworks-key", "fw_", rf"{_MIXED}[A-Za-z0-9]{{24}}(?![A-Za-z0-9_])", _ALNUM),
    Token("together-key", "tgp_v1_", rf"{_URL64}{{40,}}+", _ALNUM),
    Token("tavily-key", "tvly-", rf"(?:dev-|prod-)?{_DIGIT}[A-Za-z0-9]{{20,}}+"),
    Token("firecrawl-key", "fc-", rf"[0-9a-f]{{32}}{_END}"),
    Token("e2b-key", "e2b_", rf"[0-9a-f]{{40}}{_STOP}", _ALNUM),
    Token("pinecone-key", "pcsk_", rf"{_NUMBER}[A-Za-z0-9_]{{60,}}+", _ALNUM),
    Token("jina-key", "jina_", rf"[0-9a-f]{{32}}{_URL64}{{20,}}+", _ALNUM),
    Token("elevenlabs-key", "sk_", rf"[0-9a-f]{{48}}{_STOP}", _ALNUM),
    # Payment, mail, operations.
    Token("stripe-key", "[sr]k_live_", "[A-Za-z0-9]{16,}+", _ALNUM, "sk_live_ rk_live_"),
    Token("stripe-key", "[sr]k_test_", rf"{_NUMBER}[A-Za-z0-9]{{16,}}+", _ALNUM, "sk_test_ rk_test_"),
    Token("stripe-key", "whsec_", "[A-Za-z0-9+/]{24,}+={0,2}", _ALNUM),
    Token("square-token", "sq0[a-z]{3}-", rf"{_URL64}{{22,}}+", starts="sq0"),
    Token("square-token", "EAAA", rf"{_RANDOM}{_URL64}{{60}}{_END}"),
    Token("shopify-token", "shp[acpst]{2}_", "[0-9a-f]{32}", _ALNUM, "shpat_ shpca_ shppa_ shpss_"),
    Token("plaid-token", "access-", rf"(?:sandbox|development|production)-{_UUID}"),
    Token("easypost-key", "EZ[AT]K", rf"{_NUMBER}[A-Za-z0-9]{{54}}{_STOP}", _ALNUM, "ezak eztk"),
    Token("shippo-token", "shippo_", rf"(?:live|test)_[0-9a-f]{{40}}{_STOP}", _ALNUM),
    Token("flutterwave-key", "FLWSECK", rf"(?:_TEST)?-[0-9a-hA-Z]{{12,32}}(?:-X)?{_END}", _ALNUM),
    Token("duffel-token", "duffel_", rf"(?:live|test)_{_URL64}{{43}}", _ALNUM),
    Token("sendgrid-key", r"SG\.", rf"{_URL64}{{20,24}}\.{_URL64}{{39,50}}{_END}"),
    Token("brevo-key", "xkeysib-", rf"[0-9a-f]{{64}}-[A-Za-z0-9]{{16}}{_STOP}"),
    Token("mailersend-key", r"mlsn\.", rf"[0-9a-f]{{64}}{_STOP}"),
    Token("resend-key", "re_", rf"{_MIXED}[A-Za-z0-9]{{8}}_[A-Za-z0-9]{{24}}{_END}", _ALNUM),
    Token("mailgun-key", "key-", rf"[0-9a-f]{{32}}{_STOP}"),
    Token("twilio-key", "SK", rf"[0-9a-f]{{32}}{_STOP}"),
    Token("newrelic-key", "NR(?:AK|II|AL|JS)-", rf"{_DIGIT}[A-Za-z0-9_-]{{19,}}+", starts="nrak- nrii- nral- nrjs-" ),
    Token("grafana-token", "glsa_", "[A-Za-z0-9]{32}_[0-9a-f]{8}", _ALNUM),
    Token("grafana-token", "glc_", rf"{_NUMBER}[A-Za-z0-9+/]{{40,}}+={{0,3}}", _ALNUM),
    Token("hubspot-token", "pat-", rf"(?:na|eu)[0-9]-{_UUID}"),
    Token("posthog-key", "phx_", rf"{_MIXED}[A-Za-z0-9]{{40,}}+", _ALNUM),
    Token("linear-key", "lin_api_", "[A-Za-z0-9]{40}", _ALNUM),
    Token("notion-token", "ntn_", r"[A-Za-z0-9]{40,}+(?!_)", _ALNUM),
    Token("notion-token", "secret_", rf"{_NUMBER}{_MIXED}[A-Za-z0-9]{{43}}(?![A-Za-z0-9_])", _ALNUM),
    Token("figma-token", "figd_", rf"{_URL64}{{38,}}+"),
    Token("contentful-token", "CFPAT-", rf"{_URL64}{{43}}{_END}"),
    Token("typeform-token", "tfp_", rf"{_DIGIT}[A-Za-z0-9_-]{{40,}}+"),
    Token("readme-token", "rdme_", "[a-z0-9]{70}", _ALNUM),
    Token("mapbox-token", r"sk\.eyJ", rf"{_URL64}{{30,}}+\.{_URL64}{{20,}}+"),
    Token("dropbox-token", r"sl\.", rf"(?:u\.)?{_DIGIT}{_URL64}{{100,}}+"),
    Token("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Token("apify-token", "apify_api_", r"[A-Za-z0-9]{30,}+", _ALNUM),
    Token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    Token("asnap-key", "asnap-key-", rf"{_URL64}{{43}}"),
    # Forms of no particular provider.
    Token("jwt", "eyJ", rf"{_URL64}{{8,}}+\.eyJ{_URL64}{{8,}}+\.{_URL64}{{16,}}+"),
)

_ENCODED: Final = 'ghp_ gho_ ghs_ github_pat_ glpat- sk-ant- sk-proj- xoxb- AKIA AIza npm_ sk_live_ hf_ -----BEGIN {"auths"'
ENCODED: Final = tuple(base64.b64encode(start.encode()).decode()[: len(start) * 4 // 3] for start in _ENCODED.split())
"""How base64 of a secret begins: a run that begins so is decoded, and searched."""


# Other forms ------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """A pattern whose group ``value`` is the secret. Its groups ``before`` and ``other`` hold all else it matches.

    A group ``quote`` is a part of ``before`` that decides whether a value follows.
    """

    kind: str
    starts: str
    pattern: str
    check: Check | None
    sign: str
    """A pattern without lookaround that matches in every text in which *pattern* does."""


def _value(excluded: str, counts: str, end: str = "") -> str:
    """A value of *counts* characters before *end*, none of them *excluded*, that is no stand-in."""
    char = f"[^{excluded}]"
    return rf"(?!{stand_in(char, end or f'(?!{char})')})(?P<value>{char}{{{counts}}}+){end}"


def _command(commands: str, flag: str, value: str = r"(?!-)[^\s\"'`|;&<>]{4,}+", ends: str = r"\n;|&") -> str:
    """A value after *flag* in the line of one of *commands*, which is read up to the flag, once."""
    flag = rf"(?<=[\s\"']-){flag}"
    return (
        rf"(?P<before>{commands}\b(?:[^{ends}-]++|-(?!{flag}))*+(?P<quote>-{flag}[\"']?)?+)"
        rf"(?(quote)(?:(?P<value>{value})|)|)"
    )


# A key as agents see it: with escaped newlines, line numbers, diff marks and quote marks between its lines.
_GAP: Final = r"(?:\s|\\+[nrt]|[>|+→:-]|\d{1,6}(?=[\s→:|]))*+"
_BLOCK: Final = rf"{_GAP}[A-Za-z0-9+/=]{{20,}}+(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)*+"
_PEM: Final = (
    r"(?P<value>-----BEGIN (?:[A-Z0-9]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}[A-Z][A-Za-z-]{{3,11}}: [^\n\\]{{1,99}}){{0,4}}+{_BLOCK}"
    r"(?:[\s\S]{0,48}?-----END (?:[A-Z0-9]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----)?)"
)
_AZURE: Final = "[A-Za-z0-9_~.-]"
_BASE64: Final = "[A-Za-z0-9+/]{12,}+={0,2}"
_QUOTE: Final = r"\\{0,4}[\"']?"
_WORD_END: Final = r"[^\s\"'`.,;:!?()<>\[\]{}]"
_SENTENCE_WORD: Final = rf"(?:{_WORD_END}++|[.,;:!?](?={_WORD_END}))++"
_PASSWORDS: Final = "[pP](?i:assw(?:or)?[dt]|assphrase|asscode|wd)"
_KEY_NAMES: Final = (
    f"[tT](?i:oken{_NO_CURSOR})|[sS](?i:ecret)|[kK](?i:ey)(?<=(?i:api|ess|ret|ate|uth)(?i:[ _-]key))"
)
_KEY_SIGN: Final = "(?i:token|secret|(?:api|ess|ret|ate|uth)[ _-]key)"
_NETRC_SIGN: Final = r"(?i:login)\s{1,8}\S+\s{1,8}(?i:password)\s"
_PW_SIGN: Final = "(?i:passw(?:or)?[dt]|passphrase|passcode|pwd)"
_PAIR_SIGN: Final = r"[\"']?,?\s+[\"']?value[\"']?\s*[:=]"
_WHOSE: Final = r"(?: (?:for|of|to|on) [\w.@-]{1,40}(?: [\w.@-]{1,40})?)?"
_IS_SIGN: Final = "(?: (?:for|of|to|on) [^\n]* ?(?::|is|was|ist|lautet|be|=) |(?::\\*{0,2}| \\|| is| was| ist| lautet| will be| =)(?: now| set to)?:? {1,2}[\"'`]?[^ \"'`]{4})"
_IS: Final = r"(?::\*{0,2}| \|| is| was| ist| lautet| will be| =)(?: now| set to)?:? {1,2}[\"'`]?"
_SID: Final = r"(?i:[\w.-]{0,30}?(?:sess(?:ion)?|sid|auth|token|jwt)\w{0,8})="
_LOGINS: Final = "login|twine|mongo[a-z]{0,7}"

KEY_BLOCKS: Final = (
    Form("private-key", "-----begin", _PEM, None, "-----BEGIN "),
    Form("private-key", "private-lines", rf"(?P<before>Private-Lines: \d{{1,3}})(?P<value>{_BLOCK})", None, "Private-Lines: "),
)
"""Come before all others: what is in a block is one secret."""

FORMS: Final = (
    Form("aws-secret-key", "secret_access secretaccess",
         r"(?P<before>[sS](?i:ecret_?access_?key)[^\w/+]{1,12})(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])", None,
         "(?i:secret_?access_?key)"),
    Form("azure-secret", "q~", rf"(?P<before>Q~(?<={_AZURE}{{4}}Q~))(?P<value>{_AZURE}{{31,34}}+)(?!{_AZURE})", None,
         rf"Q~{_AZURE}{{31}}"),
    Form("azure-key", "accountkey", r"(?P<before>(?i:AccountKey)=)(?P<value>[A-Za-z0-9+/]{40,}+={0,2})", None,
         "(?i:AccountKey)="),
    Form("azure-key", "sig=", r"(?P<before>sig=(?<=[?&;]sig=))(?P<value>[A-Za-z0-9%+/]{30,}+={0,2})", None, "[?&;]sig="),
    Form("aws-signature", "x-amz-", r"(?P<before>X-Amz-(?:Signature|Security-Token)=)(?P<value>[A-Za-z0-9%+/=]{40,}+)", None,
         "X-Amz-S"),
    Form("terraform-token", ".atlasv1.", rf"(?P<before>\.atlasv1\.)(?P<value>{_URL64}{{60,}}+)", None, r"\.atlasv1\."),
    Form("mailchimp-key", "-us", r"(?P<value>\b[0-9a-f]{32})(?P<other>-us[0-9]{1,2})\b", None, "-us[0-9]"),
    Form("kubernetes-key", "key-data", rf"(?P<before>key-data[\"']?:[ \t]{{0,4}}[\"']?)(?P<value>{_BASE64})", None,
         r"key-data[\"']?:"),
    Form("slack-webhook", "hooks.slack.com",
         r"(?P<before>hooks\.slack\.com/[a-z]{1,12}/)(?P<value>[A-Za-z0-9+/_-]{24,}+)", is_varied, r"hooks\.slack\.com/"),
    Form("discord-token", ".",
         rf"(?P<value>[MNO](?:(?<![A-Za-z0-9_-][MNO])|(?<=\\[nrt][MNO])){_URL64}{{23,27}}\.{_URL64}{{6}}\.{_URL64}{{27,40}}+){_END}",
         lambda value: is_key(value.rpartition(".")[2]) or is_key(value.partition(".")[0]), rf"\.{_URL64}{{6}}\.{_URL64}{{27}}"),
    Form("discord-webhook", "/api/webhooks/", rf"(?P<before>/api/webhooks/[0-9]{{1,22}}/)(?P<value>{_URL64}{{50,}}+)", None,
         "/api/webhooks/[0-9]"),
    Form("teams-webhook", "webhookb2/",
         r"(?P<before>webhookb2/)(?P<value>[0-9a-f-]{36}@[0-9a-f-]{36}/[A-Za-z0-9/-]{1,200}+)", None, "webhookb2/"),
    Form("telegram-token", ":aa", rf"(?P<before>:AA(?<=[0-9]{{8}}:AA))(?P<value>{_URL64}{{32,34}}+){_END}", None,
         "[0-9]{8}:AA"),
    # Headers and URLs.
    Form("authorization", "authorization",
         rf"(?P<before>[aA](?i:uthorization){_QUOTE}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_QUOTE}(?i:bearer|token|apikey|key|bot)[ \t]{{1,4}})"
         r"(?P<value>[A-Za-z0-9._~+/=-]{6,}+)", is_bearer, r"(?i:authorization)\\{0,4}[\"']?[ \t]{0,4}[:=]"),
    Form("authorization", "basic", r"(?P<before>[bB](?i:asic)(?<=\b.{5})[ \t]{1,4})(?P<value>[A-Za-z0-9+/]{8,}+={0,2})", is_basic,
         "(?i:basic)[ \t]{1,4}[A-Za-z0-9+/]{8}"),
    Form("authorization", "bearer", r"(?P<before>[bB](?i:earer)(?<=\b.{6})[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{16,}+)", is_key,
         "(?i:bearer)[ \t]{1,4}[A-Za-z0-9._~+/=-]{16}"),
    Form("url-password", "://",
         r"(?P<before>://[^\s/:@\"'\\<>\[]{0,128}:)" + _value(r"\s/:@\"'\\<>", "1,", "(?=@)") + "(?!@sha[0-9])", is_literal,
         r"://[^\s/@]*:[^\s/@]+@"),
    Form("url-password", "://", r"(?P<before>://)(?P<value>[A-Za-z0-9_.~-]{20,}+)(?=(?::[^\s/@\"']{0,128})?@)", is_key,
         "://[A-Za-z0-9_.~-]{20}[^/]*@"),
    Form("url-password", "@tcp( @unix(", r"(?P<before>:)(?P<value>[^\s:@/\"'`\[\]]{3,64}+)(?=@(?:tcp|unix)\()", is_literal,
         r"@(?:tcp|unix)\("),
    Form("url-password", "jdbc:oracle:", r"(?P<before>jdbc:oracle:[a-z0-9]{2,8}:[\w$#]{1,64}/)(?P<value>[^\s@\"']{3,64}+)(?=@)",
         is_literal, "jdbc:oracle:"),
    Form("cookie", "cookie",
         rf"(?P<before>[cC](?i:ookie)[\"']?[ \t]{{0,2}}[:=][ \t\"']{{0,4}}(?:(?!{_SID})[^;\n]++;?[ \t]{{0,4}})*+(?P<quote>{_SID})?+)"
         r"(?(quote)(?:(?P<value>[A-Za-z0-9%._~+/=:-]{16,}+)|)|)", is_key, r"(?i:cookie)[\"']?[ \t]{0,2}[:=]"),
    Form("cookie", "true false", r"(?P<before>\t(?:TRUE|FALSE)\t\d{1,12}\t[^\t\n]{1,64}\t)(?P<value>[^\s]{16,}+)", is_key,
         r"\t(?:TRUE|FALSE)\t\d"),
    # Files.
    Form("docker-auth", "auth", rf"(?P<before>[aA](?i:uth){_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE})(?P<value>[A-Za-z0-9+/]{{8,}}+={{0,2}})",
         is_basic, r"(?i:auth)\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}\\{0,4}[\"']?[A-Za-z0-9+/]{8}"),
    Form("password", "machine",
         r"(?P<before>[mM](?i:achine)\s{1,8}(?=[^\s.]{0,64}[.\d]|localhost)\S{1,128}\s{1,8}(?i:login)\s{1,8}\S{1,128}\s{1,8}"
         r"(?i:password)\s{1,8})(?P<value>\S{4,}+)", is_literal, _NETRC_SIGN),
    Form("password", "login", r"(?P<before>[lL](?i:ogin)[ \t\n]{1,8}[^\s]{1,128}[ \t\n]{1,8}(?i:password)[ \t\n]{1,8})(?P<value>[^\s]{4,}+)",
         is_strong, _NETRC_SIGN),
    Form("password", ":5432: :*:", r"(?P<before>:(?:5432|\*):[^\s:/\[]{1,64}:[^\s:/\[]{1,64}:)(?P<value>[^\s:\"'`]{4,}+)(?=\s|\Z)",
         is_literal, r":(?:5432|\*):"),
    Form("password", "pass pwd", rf"(?P<before>{_PASSWORDS}>)(?P<value>[^\s<>]{{3,}}+)(?=</)", is_literal, f"{_PW_SIGN}>"),
    Form("secret", "token> secret> key>", rf"(?P<before>(?:{_KEY_NAMES})>)(?P<value>[^\s<>]{{12,}}+)(?=</)", is_key,
         rf"{_KEY_SIGN}>[^\s<>]{{12}}"),
    Form("password", "value",
         rf"(?P<before>{_PASSWORDS}[\"']?,?\s{{1,24}}[\"']?value[\"']?\s{{0,3}}[:=]\s{{0,3}}{_QUOTE})"
         + _value(r"\s\"'\\<>&,;", "4,"), is_literal, _PW_SIGN + _PAIR_SIGN),
    Form("secret", "value",
         rf"(?P<before>(?:{_KEY_NAMES})[\"']?,?\s{{1,24}}[\"']?value[\"']?\s{{0,3}}[:=]\s{{0,3}}{_QUOTE})"
         + _value(r"\s\"'\\<>&,;", "12,"), is_key, _KEY_SIGN + _PAIR_SIGN),
    # Commands.
    Form("password", "curl", _command(r"curl(?<=\bcurl)", r"(?:u|-user|U|-proxy-user)[ =][\"']?[^\s:\"'/]{1,64}:",
                                      r"[^\s\"']{4,}+", r"\n"), lambda value: is_literal(value) and not value.startswith("$"), r"curl[^\n]* -(?:u|-user|U|-proxy-user)[ =]"),
    Form("password", "http xh", _command(r"\b(?:https?|xh)", r"a[ =][\"']?[^\s:\"'/]{1,64}:", r"[^\s\"']{4,}+"), is_strong, "(?:http|xh)s? [^\n]*-a[ =]"),
    Form("password", "sshpass", r"(?P<before>[sS](?i:shpass -p) ?[\"']?)" + _value(r"\s\"'", "4,"), is_literal, "(?i:sshpass -p)"),
    Form("password", "login twine mongo",
         _command(rf"\b(?:{_LOGINS})", "p[ =]"), is_strong, rf"(?:{_LOGINS})[^\n]* -p[ =]"),
    Form("password", "mysql mariadb 7z", _command(r"\b(?:mysql[a-z]{0,6}|mariadb|7za?)", "p"), is_strong, r"(?:mysql|mariadb|7z)[^\n]* -p"),
    Form("password", "redis-cli", _command("redis-cli", "a[ =]"), is_literal, r"redis-cli[^\n]* -a[ =]"),
    Form("password", "smbclient", _command("smbclient", r"U[ =][\"']?[^\s%]{1,64}%"), is_strong, r"smbclient[^\n]* -U[ =]"),
    Form("password", "htpasswd", r"(?P<before>htpasswd[ \t]{1,4}-[a-zA-Z]{0,5}b[a-zA-Z]{0,5}[ \t]{1,4}\S{1,128}[ \t]{1,4}\S{1,64}[ \t]{1,4}[\"']?)"
         r"(?P<value>[^\s\"']{4,}+)", is_literal, "htpasswd[ \t]{1,4}-"),
    Form("token", "login", r"(?P<before>login[ \t]{1,2})(?P<value>[A-Za-z0-9._-]{20,}+)", is_key, "login[ \t]{1,2}[A-Za-z0-9._-]{20}"),
    Form("secret", "::add-mask::", r"(?P<before>::add-mask::)(?P<value>[^\s\"'$<{]{4,}+)", None, "::add-mask::"),
    Form("password", "ldap plink pscp zip sqlcmd",
         _command(r"\b(?:ldap[a-z]{3,8}|plink|pscp|sqlcmd|(?:un)?zip)", "(?:w|pw|P)[ =]"), is_strong, "(?:ldap|plink|pscp|zip|sqlcmd)[^\n]* -(?:w|pw|P)[ =]"),
    Form("password", "pass:", r"(?P<before>-pass(?:in|out)?[ =][\"']?pass:)(?P<value>[^\s\"']{4,}+)", is_literal, "-pass(?:in|out)?[ =]"),
    Form("password", "echo", r"(?P<before>echo[ \t]{1,2}(?:-n[ \t])?[\"']?)(?P<value>[^\s\"'|]{4,128}+)(?=[\"']?[ \t]{0,2}\|[ \t]{0,2}"
         r"(?:sudo -S|(?:sudo )?chpasswd|(?:docker|podman|helm|gh|oc)[ \t][^\n|]{0,60}(?:login|auth)))", is_strong, r"echo[^\n|]*\|"),
    Form("password", "passw passphrase -pass",
         r"(?P<before>-(?<![\w-]-)-?(?:[A-Za-z]{1,20}-){0,3}(?i:passw(?:or)?d|passphrase|pass|pw)[ \t]{1,4}[\"']?)"
         + _value(r"\s\"'`\\<>|;,()\[\]{}", "4,"), is_strong, r"-(?i:[a-z-]*(?:passw(?:or)?d|passphrase|pass|pw))[ \t]"),
    Form("token", "token secret key",
         r"(?P<before>-(?<![\w-]-)-?(?:[A-Za-z]{1,20}-){0,3}(?i:token|secret|(?:api|access|auth|secret|account)-?key)[ \t]{1,4}[\"']?)"
         + _value(r"\s\"'`\\<>|;,()\[\]{}", "12,"), is_key, r"-(?i:[a-z-]*(?:token|secret|key))[ \t]"),
    # Programs.
    Form("password", "identified", r"(?P<before>IDENTIFIED BY {1,4}\\?[\"'])" + _value(r"\s\"'\\", "1,"), is_literal,
         "IDENTIFIED BY "),
    Form("password", "passw passphrase pwd",
         rf"(?P<before>{_PASSWORDS}(?:{_QUOTE}[ \t]{{0,4}}[,(][ \t]{{0,4}}|[ \t]{{1,4}}){_QUOTE}(?<=[\"']))"
         r"(?P<value>[^\s\"'`\\<>{}]{4,}+)(?=\\?[\"'](?![ \t]{0,2},))", is_strong,
         _PW_SIGN + r"\\{0,4}[\"']?[ \t]{0,4}[,(]?[ \t]{0,4}\\{0,4}[\"'][^\s\"']{4}"),
    Form("password", "auth credential",
         r"(?P<before>(?:[aA](?i:uth)|[cC](?i:redentials?))=?[(\[][\"'][^\s\"']{1,64}[\"'],[ \t]{0,4}[\"'])" + _value(r"\s\"'\\", "4,"), is_literal,
         r"(?i:auth|credentials?)=?[(\[][\"']"),
    Form("password", "env", r"(?P<before>ENV[ \t]{1,4}[A-Z0-9_]{0,40}?(?:PASSWORD|PASS|PASSWD|SECRET|TOKEN|KEY)[ \t]{1,4}[\"']?)"
         + _value(r"\s\"'", "4,"), is_strong, "ENV[ \t]"),
    Form("secret", "token secret key",
         rf"(?P<before>(?:{_KEY_NAMES}){_QUOTE}[ \t]{{0,4}},[ \t]{{0,4}}{_QUOTE}(?<=[\"']))(?P<value>[^\s\"'`\\<>{{}}]{{12,}}+)(?=\\?[\"'])", is_key,
         _KEY_SIGN + r"\\{0,4}[\"']?[ \t]{0,4},[ \t]{0,4}\\{0,4}[\"'][^\s\"']{12}"),
    Form("api-key", "_key=", r"(?P<before>_KEY=(?<!CACHE_KEY=)(?<!PUBLIC_KEY=)(?<!PRIMARY_KEY=)[\"']?(?:base64:)?)(?P<value>[^\s\"'`&;,:]{16,}+)", is_key,
         "_KEY=[\"']?(?:base64:)?[^\\s\"'`&;,:]{16}"),
    Form("secret", "set config",
         r"(?P<before>(?:set|config)[ \t]{1,2}\S{0,60}?(?i:token|secret|password|key)[ \t]{1,2}[\"']?)(?P<value>[^\s\"'`<>]{12,}+)", is_key,
         "(?:set|config)[ \t]{1,2}[^ \t\n]*(?i:token|secret|password|key)[ \t]"),
    Form("password", "--user", r"(?P<before>--user[ =][\"']?[^\s:\"'/]{1,64}:)(?P<value>[^\s\"'`]{4,}+)", is_strong, "--user[ =]"),
    # Sentences.
    Form("password", "pass pw", rf"(?P<before>(?:pass|[pP]w)(?<![\w-]pass)(?<![\w-][pP]w)(?::|=| is)[ \t]?[\"'`]?)(?P<value>{_SENTENCE_WORD})(?![(\[{{])",
         lambda value: is_password(value) and not {*"_/:"}.intersection(value), "(?:pass|[pP]w)(?::|=| is)[ \t]?[\"'`]?[^ ]{4}"),
    Form("password", "passw passphrase passcode pwd",
         rf"(?P<before>{_PASSWORDS}{_WHOSE}{_IS})(?P<value>{_SENTENCE_WORD})(?![(\[{{])", is_password,
         _PW_SIGN + _IS_SIGN),
    Form("token", "token secret key",
         rf"(?P<before>(?:{_KEY_NAMES}){_WHOSE}{_IS})(?P<value>{_SENTENCE_WORD})", is_key,
         _KEY_SIGN + _IS_SIGN),
    Form("seed-phrase", "mnemonic phrase",
         r"(?P<before>(?:[mM](?i:nemonic)|[pP](?i:hrase)(?<=[a-z] [pP]hrase))[\"']?(?: is|[ \t]{0,2}[:=])[ \t\"'`]{1,4})"
         r"(?P<value>(?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b", None, "(?i:mnemonic|phrase)[\"']?(?: is|[ \t]{0,2}[:=])[ \t\"'`]{1,4}[a-z]{3,8} [a-z]{3,8} "),
)
