"""Two corpora for redaction: synthetic secrets in published shapes, and harmless text that resembles them.

The shapes come from providers' documentation and from the public rule sets of gitleaks and detect-secrets. Every
value is generated here, from a fixed seed, and put together at run time, so that no scanner reports this file.
"""

from __future__ import annotations

import base64
import random
import string
import uuid
from typing import NamedTuple

__all__ = ["LOOK_ALIKES", "SECRETS", "Secret"]

_random = random.Random(20261116)
_LOWER = string.ascii_lowercase + string.digits
_MIXED = string.ascii_letters + string.digits


class Secret(NamedTuple):
    """A secret in its usual surroundings: nothing of *value* may be left of *text*."""

    name: str
    text: str
    value: str


def _some(count: int, alphabet: str = _MIXED) -> str:
    """Random characters with at least two digits among the first twelve, as almost every real token has."""
    while True:
        made = "".join(_random.choice(alphabet) for _ in range(count))
        if sum(char.isdigit() for char in made[:12]) >= min(2, count // 4):
            return made


def _hex(count: int) -> str:
    return _some(count, "0123456789abcdef")


def _b64(count: int) -> str:
    return base64.b64encode(_random.randbytes(count)).decode()


def _url64(count: int) -> str:
    return base64.urlsafe_b64encode(_random.randbytes(count)).decode().rstrip("=")


def _uuid() -> str:
    return str(uuid.UUID(int=_random.getrandbits(128), version=4))


def _pem(kind: str) -> str:
    body = "\n".join(_b64(48) for _ in range(6))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


def _jwt() -> str:
    return f"eyJ{_url64(27)}.eyJ{_url64(60)}.{_url64(32)}"


def _secret(name: str, around: str, value: str) -> Secret:
    return Secret(name, around.replace("{}", value), value)


_CLOUD = [
    _secret("aws access key id", "key id {} in use", "AKIA" + _some(16, string.ascii_uppercase + "234567")),
    _secret("aws temporary key id", "AWS_ACCESS_KEY_ID={}", "ASIA" + _some(16, string.ascii_uppercase + "234567")),
    _secret("aws secret in credentials file", "[default]\naws_secret_access_key = {}\n", _b64(30)),
    _secret("aws secret in a shell", 'export AWS_SECRET_ACCESS_KEY="{}"', _b64(30)),
    _secret("aws secret of sts", '{"SecretAccessKey": "{}", "Expiration": "x"}', _b64(30)),
    _secret("aws session token", "aws_session_token = {}\n", "IQoJb3JpZ2luX2VjE" + _b64(120)),
    _secret("azure storage", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};E=y", _b64(64)),
    _secret("azure sas", "https://x.blob.core.windows.net/c?sv=2022-11-02&sig={}&se=2026", _some(43) + "%3D"),
    _secret("azure ad client secret", "the secret is {} now", _some(3) + "8Q~" + _some(34)),
    _secret("azure devops pat", "AZURE_DEVOPS_EXT_PAT={}", _some(52, _LOWER)),
    _secret("google api key", "maps?key={}", "AIza" + _some(35)),
    _secret("google service account", '"private_key": "{}\\n"', _pem("PRIVATE KEY").replace("\n", "\\n")),
    _secret("google oauth client secret", "using {} here", "GOCSPX-" + _some(28)),
    _secret("google refresh token", "refresh with {} now", "1//0" + _some(60)),
    _secret("google access token", "bearer {} was sent", "ya29." + _some(120)),
    _secret("digitalocean", "doctl auth init -t {}", "dop_v1_" + _hex(64)),
    _secret("heroku", "HEROKU_API_KEY={}", _uuid()),
    _secret("cloudflare", "CLOUDFLARE_API_TOKEN={}", _some(40)),
    _secret("alibaba key id", "id {} of aliyun", "LTAI" + _some(20)),
    _secret("fly.io", "fly auth {} works", "FlyV1 fm2_" + _b64(90)),
    _secret("terraform cloud", "credentials: {} ok", _some(14) + ".atlasv1." + _some(64)),
    _secret("hashicorp vault", "VAULT={}", "hvs." + _some(95)),
    _secret("pulumi", "pulumi login {} done", "pul-" + _hex(40)),
    _secret("databricks", "host and {} set", "dapi" + _hex(32)),
    _secret("doppler", "doppler {} run", "dp.pt." + _some(43)),
    _secret("supabase", "supabase login {} now", "sbp_" + _hex(40)),
    _secret("planetscale", "pscale {} shown", "pscale_tkn_" + _some(43)),
    _secret("render", "RENDER_API_KEY: {}", "rnd_" + _some(32)),
]
_CODE = [
    _secret("github pat", "git push https://{}@github.com/o/r", "ghp_" + _some(36)),
    _secret("github oauth", "gh says {} ok", "gho_" + _some(36)),
    _secret("github app", "GITHUB_TOKEN={}", "ghs_" + _some(36)),
    _secret("github fine-grained", "use {} please", "github_pat_" + _some(22) + "_" + _some(59)),
    _secret("gitlab pat", "glab auth login -t {}", "glpat-" + _some(20)),
    _secret("gitlab trigger", "form token={} ref=main", "glptt-" + _hex(40)),
    _secret("gitlab runner", "register {} now", "glrt-" + _some(20)),
    _secret("gitlab deploy token", "login with {} now", "gldt-" + _some(20)),
    _secret("bitbucket app password", "clone with {} works", "ATBB" + _some(32)),
    _secret("atlassian", "jira says {} ok", "ATATT3" + _some(186)),
    _secret("npm", "publish with {} works", "npm_" + _some(36)),
    _secret("npmrc", "//registry.npmjs.org/:_authToken={}\n", _uuid()),
    _secret("pypi", "twine -u __token__ -p {}", "pypi-AgEIcHlwaS5vcmc" + _some(80)),
    _secret("rubygems", "gem push {} ok", "rubygems_" + _hex(48)),
    _secret("nuget", "dotnet push -k {} ok", "oy2" + _some(43, _LOWER)),
    _secret("docker hub", "docker login -p {} ok", "dckr_pat_" + _some(27)),
    _secret("docker config", '{"auths": {"x": {"auth": "{}"}}}', base64.b64encode(b"me:hunter2xyz").decode()),
    _secret("postman", "newman {} ok", "PMAK-" + _hex(24) + "-" + _hex(34)),
    _secret("sentry", "sentry-cli {} ok", "sntryu_" + _hex(64)),
    _secret("netrc", "machine api.example login me password {}\n", "hunter2xyz"),
    _secret("git credentials", "https://me:{}@git.example/x.git", "hunter2xyz"),
    _secret("kubeconfig client key", "client-key-data: {}\n", _b64(300)),
    _secret("kubeconfig token", "users:\n- user:\n    token: {}\n", _some(40)),
]
_CHAT = [
    _secret("slack bot", "with {} in hand", "xoxb-" + _some(12, string.digits) + "-" + _some(24)),
    _secret("slack user", "with {} in hand", "xoxp-" + "1234567890-1234567890-" + _hex(32)),
    _secret("slack app", "with {} in hand", "xapp-1-" + _some(9, "ABCDEFGH0123") + "-1-" + _hex(64)),
    _secret("slack webhook", "curl https://hooks.slack.com/services/{}", f"T{_some(9)}/B{_some(9)}/{_some(24)}"),
    _secret("discord webhook", "https://discord.com/api/webhooks/123456789012345678/{}", _some(68)),
    _secret("discord bot", "client.login({});", "MTk4" + _some(20) + "." + _some(6) + "." + _some(27)),
    _secret("telegram bot", "https://api.telegram.org/bot{}/getMe", _some(9, "123456789") + ":AA" + _some(33)),
    _secret("teams webhook", "https://x.webhook.office.com/webhookb2/{}", f"{_uuid()}@{_uuid()}/IncomingWebhook/x"),
]
_MODELS = [
    _secret("anthropic", "key {} used", "sk-ant-api03-" + _some(93) + "AA"),
    _secret("openai project", "key {} used", "sk-proj-" + _some(80)),
    _secret("openai legacy", "key {} used", "sk-" + _some(20) + "T3BlbkFJ" + _some(20)),
    _secret("hugging face", "login {} ok", "hf_" + _some(34)),
    _secret("replicate", "login {} ok", "r8_" + _some(37)),
    _secret("groq", "login {} ok", "gsk_" + _some(52)),
    _secret("perplexity", "login {} ok", "pplx-" + _some(48)),
    _secret("openrouter", "login {} ok", "sk-or-v1-" + _hex(64)),
    _secret("xai", "login {} ok", "xai-" + _some(80)),
    _secret("nvidia", "login {} ok", "nvapi-" + _some(64)),
    _secret("langsmith", "login {} ok", "lsv2_pt_" + _hex(32) + "_" + _hex(10)),
    _secret("cohere", "CO_API_KEY={}", _some(40)),
    _secret("mistral", 'MISTRAL_API_KEY="{}"', _some(32)),
    _secret("wandb", "wandb login {}", _hex(40)),
]
_SERVICES = [
    _secret("stripe live", "charge with {} ok", "sk_live_" + _some(24)),
    _secret("stripe test", "charge with {} ok", "sk_test_" + _some(24)),
    _secret("stripe webhook", "verify {} ok", "whsec_" + _some(32)),
    _secret("square", "pay with {} ok", "sq0atp-" + _some(22)),
    _secret("shopify", "shop {} ok", "shpat_" + _hex(32)),
    _secret("sendgrid", "mail {} ok", "SG." + _some(22) + "." + _some(43)),
    _secret("mailgun", "curl -s --user 'api:{}' https://api.mailgun.net", "key-" + _hex(32)),
    _secret("mailchimp", "mail {} ok", _hex(32) + "-us12"),
    _secret("twilio api key", "call {} ok", "SK" + _hex(32)),
    _secret("twilio auth token", "TWILIO_AUTH_TOKEN={}", _hex(32)),
    _secret("new relic", "agent {} ok", "NRAK-" + _some(27, string.ascii_uppercase + string.digits)),
    _secret("datadog", "DD_API_KEY={}", _hex(32)),
    _secret("grafana", "board {} ok", "glsa_" + _some(32) + "_" + _hex(8)),
    _secret("linear", "issue {} ok", "lin_api_" + _some(40)),
    _secret("notion", "page {} ok", "ntn_" + _some(46)),
    _secret("figma", "file {} ok", "figd_" + _some(40)),
    _secret("airtable", "base {} ok", "pat" + _some(14) + "." + _hex(64)),
    _secret("age", "sops {} ok", "AGE-SECRET-KEY-1" + _some(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")),
    _secret("our own key", "ASNAP says {} ok", "asnap-key-" + _url64(32)),
]
_PLAIN = [
    _secret("x-api-key header", "curl -H 'x-api-key: {}' https://x.example", _some(32)),
    _secret("api_key in a url", "https://x.example/v1?api_key={}&q=1", _hex(32)),
    _secret("token in a url", "wss://x.example/socket?token={}", _some(24)),
    _secret("apiKey in javascript", "const c = { apiKey: '{}' };", _some(28)),
    _secret("password in yaml", "db:\n  password: {}\n  user: x\n", "tr0ub4dor-3"),
    _secret("password in properties", "spring.datasource.password={}\n", "hunter2xyz"),
    _secret("password in json", '{"passwd": "{}"}', "swordfish"),
    _secret("postgres url", "postgresql://app:{}@db.example/x", "s3cr3t-Pa55"),
    _secret("redis url", "redis://:{}@cache.example:6379/0", "f00barbaz9"),
    _secret("jdbc", "jdbc:mysql://h/db?user=x&password={}", "hunter2xyz"),
    _secret("odbc", "Server=h;Uid=sa;Pwd={};Encrypt=no", "Hunter2xyz!"),
    _secret("bearer header", "Authorization: Bearer {}", _some(40)),
    _secret("basic header", "Authorization: Basic {}", base64.b64encode(b"me:hunter2xyz").decode()),
    _secret("token header", "Authorization: token {}", _hex(40)),
    _secret("jwt", "id {} ok", _jwt()),
    _secret("rsa key", "{}\n", _pem("RSA PRIVATE KEY")),
    _secret("openssh key", "{}\n", _pem("OPENSSH PRIVATE KEY")),
    _secret("django", "SECRET_KEY = 'django-insecure-{}'", "k3&x0q!v9z_m2$a7+t5w"),
    _secret("curl user", "curl -u admin:{} https://x.example", "hunter2xyz"),
    _secret("session cookie", "Cookie: sessionid={}; theme=dark", _some(32, _LOWER)),
    _secret("pgpass", "db.example:5432:app:me:{}\n", "hunter2xyz"),
    _secret("mysql flag", "mysql -u root -p{} app", "hunter2xyz"),
    _secret("random words in prose", "the login is admin and the code {} opens it", _some(12)),
    _secret("sshpass", "sshpass -p '{}' ssh me@host", "hunter2xyz"),
]
SECRETS = [*_CLOUD, *_CODE, *_CHAT, *_MODELS, *_SERVICES, *_PLAIN]

_REPEATED = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
LOOK_ALIKES = [
    # Identifiers, digests and versions.
    _uuid(),
    _hex(40),
    "sha256:" + _hex(64),
    "sha512-" + _b64(64),
    '"integrity": "sha512-' + _b64(64) + '"',
    "commit " + _hex(40) + "\nAuthor: A <a@example.org>",
    "index 3f78685..de23001 100644",
    "01k9zq3v5n8x7w6y5t4r3e2w1q",
    'etag: W/"' + _hex(32) + '"',
    "docker.io/library/alpine@sha256:" + _hex(64),
    "data:image/png;base64," + _b64(300),
    "arn:aws:iam::123456789012:role/deploy",
    "0x" + _hex(40),
    "trace_id=" + _hex(32) + " span_id=" + _hex(16),
    "session_id=01k9zq3v5n8x7w6y5t4r3e2w1q",
    '"checksum": "' + _hex(64) + '"',
    "go.sum h1:" + _b64(32),
    # Tokens that are counted, not kept.
    "max_tokens=128000",
    '"total_tokens": 1234567890123, "prompt_tokens": 98765432109',
    "token_count=123456789012",
    "tokens: 12k in, 3k out",
    "tokenizer=cl100k_base",
    'tokenizer = "gpt2-bpe-50257-v1a2"',
    'next_page_token: "CiAKGjBpNDd2Nmp2Zml2cXRwYjBpOXA"',
    "nextToken=eyJ2IjoxLCJjIjoiYWJjMTIzIn0x",
    "continuation_token=" + _some(32),
    "cancellation_token=ct_8f7a6b5c4d3e2f1a",
    "Unexpected token '}' at position 1234567890",
    "token: SyntaxKind.CloseBraceToken2",
    "token = tokens[position1].value2",
    "token=parser.next_token1()",
    # Names without a value, and references to values.
    "api_key=YOUR_API_KEY_1234567890",
    "api_key=os.environ['API_KEY_V2_2026']",
    "apiKey: process.env.MY_API_KEY_2026,",
    "api_key = settings.providers.openai_api_key_v2",
    "x-api-key: <your-api-key-1234567890>",
    "x-api-key: ${API_KEY_2026_PROD_1a2b3c}",
    "x-api-key: {{ secrets.API_KEY_1a2b3c4d }}",
    "api_key: Optional[SecretStr1] = Field(default=None)",
    'api_key="' + _REPEATED + '"',
    "token: string;",
    "token: str | None = None",
    "token=$GITHUB_TOKEN",
    'token="${{ secrets.GITHUB_TOKEN }}"',
    'token: "%s"',
    "--token-file=/run/secrets/token1a2b3c4d5e6f",
    "token=/var/run/secrets/kubernetes.io/serviceaccount/token",
    "password: str",
    "password: required",
    "password: Optional[str] = None",
    "password: must have 8 characters",
    "password: ${DB_PASSWORD}",
    "password: !vault |",
    "password: {{ db_password_2026 }}",
    "Password: ",
    "Enter your password: yes, that one",
    "password=os.getenv('PG_PASSWORD1')",
    "PWD=/home/me/src2",
    "OLDPWD=/srv/app1",
    "def set_password(self, password: bytes) -> None:",
    "secret: false",
    "secretName: my-app-tls-2026a1",
    "secretKeyRef:\n  name: db1\n  key: password2",
    "client_secret=<client_secret>",
    # Words, paths and examples near the shapes.
    "pip install sk-learn scikit-learn",
    "sk-proj-notes-about-the-project-structure-2026",
    "hf_hub_download(repo_id='org/name2', filename='a1.bin')",
    "SG.NO.1 of 3",
    "https://hooks.slack.com/services/T00000000/B00000000/" + "X" * 24,
    "npm_config_registry=https://registry.npmjs.org",
    "ghp_short glpat-short AKIA1234 AIzaShort",
    "rubygems_version_2026_and_more_words",
    "machine learning login page password reset",
    "Authorization: Bearer <token>",
    "Authorization: token authentication is used",
    "postgresql://user:password@localhost/db",
    "docker run -u 1000:1000 image2",
]
