"""A second pair of corpora: secrets as agents meet them (commands, files, code, sentences), and harmless text beside.

Every value is generated here, from a fixed seed, and put together at run time, so that no scanner reports this file.
"""

# ruff: noqa: E501

from __future__ import annotations

import base64
import json
import random
import string
import uuid

from tests.model.secret_corpus import Secret

__all__ = ["HARMLESS", "IN_USE"]

_rng = random.Random(20261118)
_ALNUM = string.ascii_letters + string.digits
_LOWER = string.ascii_lowercase + string.digits
_UPPER = string.ascii_uppercase + string.digits


def _some(count: int, alphabet: str = _ALNUM) -> str:
    return "".join(_rng.choices(alphabet, k=count))


def _hex(count: int) -> str:
    return _some(count, "0123456789abcdef")


def _b64(count: int) -> str:
    return base64.b64encode(_rng.randbytes(count)).decode()


def _url64(count: int) -> str:
    return base64.urlsafe_b64encode(_rng.randbytes(count)).decode().rstrip("=")


def _uuid() -> str:
    return str(uuid.UUID(int=_rng.getrandbits(128), version=4))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _password() -> str:
    return (
        _rng.choice(["Winter", "dragon", "Sommer", "kiwi", "orbit"]) + _some(3, string.digits) + _some(1, "!-_#+")
    )


def _each(*rows: tuple[str, str, str]) -> list[Secret]:
    return [Secret(name, around.replace("{}", value), value) for name, around, value in rows]


_FLAGS = _each(
    ("flag token", "gh auth login --token {}", "ghx" + _some(37)),
    ("flag api key", "llm --api-key {} -m large", _some(40)),
    ("flag password", "createuser --password {} bob", _password()),
    ("flag password quoted", "ansible-vault --vault-password '{}' edit x", _password()),
    ("flag client secret", "az login --client-secret {} --tenant x", _some(34)),
    ("flag access token", "vercel --access-token {} deploy", _some(24)),
    ("flag secret key", "mc alias set m https://m --secret-key {}", _some(40)),
    ("flag with equals", "snyk auth --token={}", _uuid()),
    ("flag passphrase", "gpg --batch --passphrase {} -d x.gpg", _password()),
    ("flag powershell", "Connect-App -Password {} -User x", _password()),
    ("flag http password", "wget --user me --http-password={} https://x", _password()),
    ("docker login", "docker login -u me -p {} registry.example", _password()),
    ("podman login", "podman login registry.example -u me -p '{}'", _password()),
    ("twine", "twine upload -u me -p {} dist/*", _password()),
    ("mysql attached", "mysql -h db -u root -p{} shop", _password()),
    ("mysqldump attached", "mysqldump --single-transaction -p{} shop > x.sql", _password()),
    ("mongo", "mongosh --host h -u root -p {} admin", _password()),
    ("redis", "redis-cli -h cache -a {} ping", _password()),
    ("sshpass", "sshpass -p{} ssh me@host", _password()),
    ("curl user", "curl -sS --user admin:{} https://x.example/api", _password()),
    ("curl user after a url", "curl 'https://x.example/?a=1&b=2' -u admin:{}", _password()),
    ("httpie", "http -a admin:{} GET https://x.example", _password()),
    ("ldapsearch", "ldapsearch -x -D cn=admin -w {} -b dc=x", _password()),
    ("zip", "zip -r -P {} out.zip dir", _password()),
    ("openssl", "openssl rsa -in k.pem -passin pass:{} -out x", _password()),
    ("plink", "plink -ssh me@host -pw {} ls", _password()),
    ("smbclient", "smbclient //host/share -U me%{}", _password()),
    ("echo to sudo", "echo '{}' | sudo -S apt update", _password()),
    ("echo to docker", "echo {} | docker login -u me --password-stdin", _password()),
    ("htpasswd", "htpasswd -bc .htpasswd admin {}", _password()),
    ("vault login", "vault login {}", "s." + _some(24)),
    ("wandb login", "wandb login {}", _hex(40)),
)
_BASE64 = _each(
    ("basic header", "curl -H 'Authorization: Basic {}' https://x", _encoded(f"me:{_password()}")),
    ("basic without a name", "header = 'Basic {}'", _encoded(f"svc-user:{_password()}")),
    ("proxy header", "Proxy-Authorization: Basic {}", _encoded(f"me:{_password()}")),
    ("kubernetes password", "kind: Secret\ndata:\n  password: {}\n", _encoded(_password())),
    ("kubernetes token", "kind: Secret\ndata:\n  api-token: {}\n", _encoded(_some(32))),
    ("kubernetes tls key", "data:\n  tls.key: {}\n", _encoded("-----BEGIN RSA PRIVATE KEY-----\n" + _b64(200))),
    ("docker config", '{"auths": {"r.example": {"auth": "{}"}}}', _encoded(f"me:{_password()}")),
    (
        "docker config json",
        ".dockerconfigjson: {}",
        _encoded('{"auths":{"r":{"auth":"' + _encoded("me:x1y2z3") + '"}}}'),
    ),
    ("npmrc auth", "//npm.example/:_auth={}", _encoded(f"me:{_password()}")),
    ("token in base64", "echo {} | base64 -d", _encoded("ghp_" + _some(36))),
    ("anthropic in base64", "value: {}", _encoded("sk-ant-api03-" + _some(80))),
    ("aws in base64", "AWS_KEY_B64={}", _encoded("AKIA" + _some(16, _UPPER))),
    ("kubeconfig client key", "    client-key-data: {}\n", _b64(300)),
    ("kubeconfig token", "  user:\n    token: {}\n", _some(60)),
    ("kubeconfig password", "  user:\n    username: admin\n    password: {}\n", _password()),
)
_PROSE = _each(
    ("the password is", "The password is {} and it works.", _password()),
    ("password for", "The password for the admin is {}.", _password()),
    ("password was", "My password was {} before.", _password()),
    ("password colon", "User: bob, password: {}, role: admin", _password()),
    ("password in backticks", "Log in; the password is `{}`.", _password()),
    ("password in quotes", 'the root password "{}" still works', _password()),
    ("passphrase is", "The passphrase is {}", _password()),
    ("german", "Das Passwort lautet {}.", _password()),
    ("the token is", "The token is {}, keep it safe.", _some(32)),
    ("api key is", "our api key is {} for now", _some(36)),
    ("api key colon", "API key: {} (production)", _hex(32)),
    ("secret for", "The secret for staging is {}.", _some(40)),
    ("bearer in prose", "It sent bearer {} to the server", _some(40)),
    ("seed phrase", "seed phrase: {}", "apple river stone cloud tiger lemon piano chair horse bread olive queen"),
    ("credentials pair", "Use the credentials admin/{} to log in", _password()),
    ("pin", "The door code is {}", _some(6, string.digits)),
)
_STRINGS = _each(
    ("postgres", "postgresql://app:{}@db.example:5432/x", _password().replace("#", "-")),
    ("postgres with plus", "DATABASE_URL=postgresql+psycopg://app:{}@db/x", _password().replace("#", "-")),
    ("mongodb srv", "mongodb+srv://app:{}@c.mongodb.net/x", _password().replace("#", "-")),
    ("redis", "redis://default:{}@r:6379", _some(32)),
    ("amqp", "amqp://guest:{}@mq:5672//", _some(12)),
    ("smtp", "smtps://me%40x:{}@smtp.example:465", _password().replace("#", "-")),
    ("go mysql dsn", "root:{}@tcp(127.0.0.1:3306)/shop", _password()),
    ("oracle", "jdbc:oracle:thin:scott/{}@//db:1521/x", _password()),
    ("jdbc", "jdbc:postgresql://h/db?user=me&password={}", _password().replace("#", "-")),
    ("sql server", "Server=tcp:h,1433;User ID=sa;Password={};Encrypt=True", _password()),
    ("odbc", "DRIVER={SQL};UID=sa;PWD={};DATABASE=x", _password()),
    ("libpq", "host=db user=me password={} dbname=x", _password()),
    ("service bus", "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey={}", _b64(32)),
    ("cosmos", "AccountEndpoint=https://x/;AccountKey={};", _b64(64)),
    ("url user token", "git clone https://{}@git.example/x.git", _some(40)),
    ("url oauth2", "https://oauth2:{}@gitlab.example/x.git", _some(20)),
    ("url key", "https://x.example/v1?apikey={}", _hex(32)),
    ("url access token", "https://x.example/me?access_token={}", _some(60)),
    ("presigned", "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature={}", _hex(64)),
)
_FILES = _each(
    ("netrc one line", "machine api.example.org login me password {}\n", "swordfish"),
    ("netrc lines", "machine git.example.org\n  login me\n  password {}\n", _password()),
    ("pgpass", "db.example:5432:shop:me:{}\n", _password()),
    ("pypirc", "[pypi]\nusername = me\npassword = {}\n", _password()),
    ("my.cnf", "[client]\nuser=root\npassword={}\n", _password()),
    ("s3cfg", "[default]\naccess_key = x\nsecret_key = {}\n", _b64(30)),
    ("env file", "STRIPE=1\nAPP_SECRET={}\n", _hex(32)),
    ("env pass", "DB_PASS={}\n", _password()),
    ("rails master key", "RAILS_MASTER_KEY={}\n", _hex(32)),
    ("wordpress", "define( 'DB_PASSWORD', '{}' );", _password()),
    ("xml", "<server><password>{}</password></server>", _password()),
    ("maven", "<id>x</id><username>me</username><password>{}</password>", "swordfish"),
    ("app settings", '<add key="ApiToken" value="{}" />', _some(32)),
    ("html form", '<input name="password" value="{}">', _password()),
    ("kubernetes env", "- name: DB_PASSWORD\n  value: {}\n", _password()),
    ("ecs env", '{"name": "API_TOKEN", "value": "{}"}', _some(40)),
    ("dockerfile", "ENV ADMIN_PASSWORD {}\n", _password()),
    ("compose", "environment:\n  - POSTGRES_PASSWORD={}\n", _password()),
    ("terraform vars", 'db_password = "{}"', _password()),
    ("ansible", "ansible_become_pass: {}\n", _password()),
    ("wireguard", "[Interface]\nPrivateKey = {}\n", _b64(32)),
    ("wifi", "psk={}\n", _password()),
    ("gradle", "signing.password={}\n", _password()),
    ("toml", '[auth]\ntoken = "{}"\n', _some(40)),
    ("json", json.dumps({"db": {"password": "{}"}}), _password()),
    ("json in json", json.dumps(json.dumps({"apiKey": "{}"})), _some(32)),
    ("ppk", "Private-Lines: 2\n{}\n", _b64(48)),
    ("pem", "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----", _b64(48)),
    ("htpasswd file", "admin:{}", "$apr1$" + _some(8) + "$" + _some(22)),
    ("cookie", "Cookie: theme=dark; sessionid={}; lang=en", _some(32, _LOWER)),
    ("set-cookie", "Set-Cookie: laravel_session={}; path=/; httponly", _some(40)),
    ("cookie jar", "x.example\tFALSE\t/\tTRUE\t0\tsid\t{}", _some(32)),
)
_CODE = _each(
    ("python call", 'client.login("me", password="{}")', _password()),
    ("python auth pair", "requests.get(u, auth=('me', '{}'))", _password()),
    ("python basic auth", 'HTTPBasicAuth("me", "{}")', _password()),
    ("python environ", 'os.environ["API_TOKEN"] = "{}"', _some(32)),
    ("java setter", 'ds.setPassword("{}");', _password()),
    ("sql create user", "CREATE USER me IDENTIFIED BY '{}';", _password()),
    ("sql alter role", "ALTER ROLE me WITH PASSWORD '{}';", _password()),
    ("ruby", "config.api_token => '{}'", _some(32)),
    ("javascript", "axios.defaults.headers['x-api-key'] = '{}'", _some(32)),
    ("go struct", 'Config{Token: "{}"}', _some(32)),
    ("php array", "'password' => '{}',", _password()),
    ("shell export", "export GRAFANA_API_KEY='{}'", _some(40)),
    ("powershell", '$env:API_TOKEN = "{}"', _some(32)),
    ("jwt", "const t = '{}'", f"eyJ{_url64(24)}.eyJ{_url64(60)}.{_url64(32)}"),
    ("github actions mask", "echo ::add-mask::{}", _some(24)),
)
_VENDORS = [
    Secret(value.split("{")[0] or value, f"it printed {made} here", made)
    for value, made in (
        ("hf_", "hf_" + _some(34, string.ascii_letters)),
        ("discord", _encoded("123456789012345678").rstrip("=") + "." + "G" + _some(5) + "." + "a" + _some(37)),
        ("doppler", "dp.st.prd." + _some(43)),
        ("ghu_", "ghu_" + _some(36)),
        ("glptt", "glptt-" + _hex(40)),
        ("glagent", "glagent-" + _some(50)),
        ("HRKU", "HRKU-AA" + _some(58)),
        ("nfp", "nfp_" + _some(36)),
        ("napi", "napi_" + _some(64, _LOWER)),
        ("tskey", "tskey-auth-" + _some(17) + "-" + _some(32)),
        ("openshift", "sha256~" + _url64(32)),
        ("sgp", "sgp_" + _hex(40)),
        ("squ", "squ_" + _hex(40)),
        ("bkua", "bkua_" + _hex(40)),
        ("dynatrace", "dt0c01." + _some(24, _UPPER) + "." + _some(64, _UPPER)),
        ("plaid", "access-sandbox-" + _uuid()),
        ("brevo", "xkeysib-" + _hex(64) + "-" + _some(16)),
        ("resend", "re_" + _some(8) + "_" + _some(24)),
        ("hubspot", "pat-na1-" + _uuid()),
        ("supabase", "sb_secret_" + _some(31)),
        ("tavily", "tvly-dev-" + _some(32)),
        ("pinecone", "pcsk_" + _some(70)),
        ("langfuse", "sk-lf-" + _uuid()),
        ("fireworks", "fw_" + _some(24)),
        ("cerebras", "csk-" + _some(48, _LOWER)),
        ("elevenlabs", "sk_" + _hex(48)),
        ("mailchimp", _hex(32) + "-us14"),
        ("facebook", "EAAB" + _some(150)),
        ("contentful", "CFPAT-" + _url64(32)),
        ("clojars", "CLOJARS_" + _hex(60)),
        ("launchdarkly", "sdk-" + _uuid()),
        ("shippo", "shippo_live_" + _hex(40)),
        ("dropbox", "sl." + _some(136)),
        ("sendgrid", "SG." + _some(22) + "." + _some(43)),
    )
]  # fmt: skip
IN_USE = [*_FLAGS, *_BASE64, *_PROSE, *_STRINGS, *_FILES, *_CODE, *_VENDORS]

HARMLESS = [
    # Digests, ids, encoded bytes.
    _hex(40), _hex(64), _uuid(), f"sha1:{_hex(40)}", f"md5 = {_hex(32)}", f"sha512-{_b64(64)}",
    f"data:image/png;base64,{_b64(600)}", f'"data": "{_b64(300)}"', f"Etag: {_hex(32)}", f"sha256sum {_hex(64)}  x.tar",
    f"commit {_hex(40)} (HEAD -> main)", f"request_id={_uuid()}", f"trace: {_hex(32)}-{_hex(16)}-01",
    f"-----BEGIN CERTIFICATE-----\n{_b64(96)}\n-----END CERTIFICATE-----", f"ssh-ed25519 AAAAC3Nza{_b64(48)} me@host",
    f"client-certificate-data: {_b64(96)}", f"certificate-authority-data: {_b64(96)}", f"cache-key-{_hex(24)}",
    f"npm ERR! integrity sha512-{_b64(64)}", f"https://x.example/{_uuid()}/download", f'etag=W/"{_hex(16)}"',
    f"docker pull x.example/app@sha256:{_hex(64)}", f"container {_hex(12)} started", f"blob:{_uuid()}",
    f"arn:aws:s3:::bucket-{_hex(8)}/key", f"i-0{_hex(16)}", f"node_modules/.cache/{_hex(20)}.js", f"0x{_hex(40)}",
    # Counting and parsing tokens.
    "max_tokens=8192, temperature=0.2", "tokens used: 12345678901234", "token count is 4096", "Unexpected token < in JSON",
    "the next token is predicted", "token_type: bearer", "tokenizer: gpt-4o-2024-08-06", "nextPageToken: null",
    'pad_token="<|endoftext|>"', "eos_token: </s>", "CSRF token is missing or incorrect", "token for the request is invalid",
    # Code.
    "password = get_password()", "password = getpass.getpass('Password: ')", "password=os.environ['DB_PASSWORD_2024']",
    "api_key = os.getenv('OPENAI_API_KEY')", "const apiKey = process.env.API_KEY_V2;", "token = self._read_token(path1)",
    "if password != confirm_password2:", "def check_password(self, password: str, salt2: bytes) -> bool:",
    "password = serializers.CharField(min_length=8)", "validates :password, length: { minimum: 8 }", "secret = Secret.load(v1)",
    "user.set_password(form.cleaned_data['password1'])", "password: hashlib.sha256(pw.encode()).hexdigest()",
    "const {password, token} = req.body", "SELECT password FROM users WHERE id = 42", "passwordInput.value = ''",
    'getattr(settings, "SECRET_KEY")', "key = sorted(items, key=lambda item: item.k1)", "api_key: str = Field(...)",
    "token: Annotated[str, Depends(oauth2_scheme)]", "auth=('user', 'pass')", "secrets.token_urlsafe(32)",
    'password: "Please enter your password"', "password_reset_token_generator2.make_token(user)", "Keyboard shortcuts: k1",
    'auth("required")', 'aria-label="password-field-1"', "headers['Authorization'] = `Bearer ${token}`",
    # Placeholders.
    "API_KEY=YOUR_API_KEY", "api_key=<your-key-here>", "token: xxxxxxxxxxxxxxxxxxxx", "password: changeme",
    "PASSWORD=${PASSWORD:?missing}", "token=$(cat /run/secrets/t1)", "sk-...", "ghp_xxxx", "sk-ant-api03-...",
    "postgres://USER:PASSWORD@HOST/DB", "https://user:pass@example.com", "export TOKEN=your_token_123456",
    "Authorization: Bearer YOUR_TOKEN_HERE_1", "password: '{{ lookup(\"env\", \"PW1\") }}'", "-u username:password",
    "curl -u $USER:$PASS https://x", '--password "$PGPASSWORD"', "--token ${TOKEN}", "mysql -u root -p",
    # Commands and paths.
    "mkdir -p build/x86_64/v2", "docker run -p 8080:80 nginx", "docker run -u 1000:1000 -p 127.0.0.1:5432:5432 x",
    "docker login registry.example && mkdir -p build/x1", "ssh -p 2222 me@host1", "cp -pr a1 b2", "kubectl -n kube-system1",
    "PWD=/srv/app1", "/home/me/.ssh/id_rsa_2024", "C:\\Users\\me1\\secrets\\token2.txt", "path/to/passwords1.txt:12:34: note",
    "sort -u file1:x", "zip -r out1.zip dir2", "find . -path ./node_modules -prune", "src/auth/token1.py:10:5:error:x1",
    # Sentences.
    "The password is required.", "The password is case-sensitive and at least 12 characters long.", "password is sha256-hashed",
    "Your password was changed on 2026-11-18.", "The key is to begin early.", "The secret is that there is none.",
    "machine learning login page password reset", "password for the wifi is on the wall", "Passphrase: see the vault entry 12",
    "The API key is stored in 1Password.", "Bearer authentication is used", "Basic knowledge of networking is needed",
    "The token is refreshed every 15 minutes", "password: 8+ characters", "It costs 5432: that is all", "Lorem ipsum dolor sit amet",
]  # fmt: skip
