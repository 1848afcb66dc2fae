"""Two examples and two counter-examples for each row of `secret_table`, in its order.

``{w36}`` is made of 36 random characters: w letters and digits, a letters, U also ``_`` and ``-``, u upper case and
digits, l lower case and digits, s lower case, h hexadecimal, d digits. Nothing here is a token, so that no scanner
reports this file.
"""

# ruff: noqa: E501

from __future__ import annotations

import base64
import random
import re
import string
import uuid

__all__ = ["ENCODED", "FORMS", "KEY_BLOCKS", "NAMES", "TOKENS", "filled"]

_ALPHABETS = {
    "w": string.ascii_letters + string.digits,
    "a": string.ascii_letters,
    "U": string.ascii_letters + string.digits + "_-",
    "u": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "s": string.ascii_lowercase,
    "h": "0123456789abcdef",
    "d": string.digits,
}


def filled(example: str) -> str:
    """*example* with random characters in the places of ``{…}``; always the same for the same example."""
    rng = random.Random(example)

    def some(match: re.Match[str]) -> str:
        if match[0] == "{uuid}":
            return str(uuid.UUID(int=rng.getrandbits(128), version=4))
        made = rng.choices(_ALPHABETS[match[1]], k=int(match[2]))
        if match[1] in "wUlh" and len(made) > 6:  # as almost every real token has
            made[4] = rng.choice(string.digits)
        return "".join(made)

    return re.sub(r"\{(?:uuid|([waUulshd])(\d+))\}", some, example)


def _encoded(text: str) -> str:
    return base64.b64encode(filled(text).encode()).decode()


TOKENS = [
    ("aws-access-key-id", "AKIA{u16}", "KEY: AKIA{u16}.", "AKIA{u5}"),
    ("aws-access-key-id", "ABSK{w100}", "ABSK{w105}", "ABSK{w33}"),
    ("google-key", "AIza{U35}", "KEY: AIza{U35}.", "AIza{U11}"),
    ("google-secret", "GOCSPX-{U20}", "GOCSPX-{U25}", "GOCSPX-{U6}"),
    ("google-token", "ya29.{U40}", "ya29.{U45}", "ya29.{U13}"),
    ("google-token", "1//0{U30}", "1//0{U35}", "1//0{U10}"),
    ("digitalocean-token", "dop_v1_{h64}", "KEY: dop_v1_{h64}.", "dop_v1_{h21}"),
    ("alibaba-key-id", "LTAI{w20}", "KEY: LTAI{w20}.", "LTAI{w6}"),
    ("fly-token", "fm1_{U60}", "fm1_{U65}", "fm1_{U20}"),
    ("heroku-key", "HRKU-AA{U50}", "HRKU-AA{U55}", "HRKU-AA{U16}"),
    ("vault-token", "hvs.{U24}", "hvs.{U29}", "hvs.{U8}"),
    ("pulumi-token", "pul-{h40}", "KEY: pul-{h40}.", "pul-{h13}"),
    ("databricks-token", "dapi{h32}", "KEY: dapi{h32}.", "dapi{h10}"),
    ("doppler-token", "dp.ct.{w40}", "dp.ct.{w45}", "dp.ct.{w13}"),
    ("supabase-token", "sbp_{h40}", "KEY: sbp_{h40}.", "sbp_{h13}"),
    ("supabase-token", "sb_secret_{U22}", "sb_secret_{U27}", "sb_secret_{U7}"),
    ("planetscale-token", "pscale_tkn_{U32}", "pscale_tkn_{U37}", "pscale_tkn_{U10}"),
    ("render-key", "rnd_{w28}", "rnd_{w33}", "rnd_{w9}"),
    ("netlify-token", "nfp_{w36}", "nfp_{w41}", "nfp_{w12}"),
    ("neon-key", "napi_{l48}", "napi_{l53}", "napi_{l16}"),
    ("tailscale-key", "tskey-{s2}-{w8}", "tskey-{s7}-{w13}", "tskey-{s1}-{w2}"),
    ("openshift-token", "sha256~{U43}", "KEY: sha256~{U43}.", "sha256~{U14}"),
    ("yandex-key", "AQVN{U35}", "AQVN{U40}", "AQVN{U11}"),
    ("github-token", "ghp_{w36}", "ghp_{w41}", "ghp_{w12}"),
    ("github-token", "github_pat_{w22}_{w59}", "github_pat_{w22}_{w64}", "github_pat_{w7}_{w19}"),
    ("gitlab-token", "glpat-{U20}", "glpat-{U25}", "glpat-{U6}"),
    ("gitlab-token", "glrt-{U20}", "glrt-{U25}", "glrt-{U6}"),
    ("gitlab-token", "glptt-{h40}", "glsoat-{U20}", "glptt-{h13}"),
    ("bitbucket-token", "ATBB{w32}", "KEY: ATBB{w32}.", "ATBB{w10}"),
    ("atlassian-token", "ATATT3{U60}", "ATATT3{U65}", "ATATT3{U20}"),
    ("npm-token", "npm_{w36}", "KEY: npm_{w36}.", "npm_{w12}"),
    ("pypi-token", "pypi-AgE{U50}", "pypi-AgE{U55}", "pypi-AgE{U16}"),
    ("rubygems-token", "rubygems_{h48}", "KEY: rubygems_{h48}.", "rubygems_{h16}"),
    ("clojars-token", "CLOJARS_{h60}", "KEY: CLOJARS_{h60}.", "CLOJARS_{h20}"),
    ("cargo-token", "cio{w32}", "KEY: cio{w32}.", "cio{w10}"),
    ("nuget-key", "oy2{l43}", "KEY: oy2{l43}.", "oy2{l14}"),
    ("docker-token", "dckr_pat_{U27}", "dckr_pat_{U32}", "dckr_pat_{U9}"),
    ("artifactory-token", "AKCp{w69}", "AKCp{w74}", "AKCp{w23}"),
    ("postman-key", "PMAK-{h24}-{h34}", "KEY: PMAK-{h24}-{h34}.", "PMAK-{h8}-{h11}"),
    ("sentry-token", "sntryu_{U60}", "sntryu_{U65}", "sntryu_{U20}"),
    ("sourcegraph-token", "sgp_{h40}", "KEY: sgp_{h40}.", "sgp_{h13}"),
    ("sonar-token", "squ_{h40}", "KEY: squ_{h40}.", "squ_{h13}"),
    ("buildkite-token", "bkua_{h40}", "KEY: bkua_{h40}.", "bkua_{h13}"),
    ("circleci-token", "CCIPAT_{w16}_{h40}", "CCIPAT_{w21}_{h40}", "CCIPAT_{w5}_{h13}"),
    ("harness-token", "pat.{U22}.{h24}.{w20}", "KEY: pat.{U22}.{h24}.{w20}.", "pat.{U7}.{h8}.{w6}"),
    ("infracost-key", "ico-{w32}", "KEY: ico-{w32}.", "ico-{w10}"),
    ("prefect-key", "pnu_{w36}", "KEY: pnu_{w36}.", "pnu_{w12}"),
    ("dynatrace-token", "dt0{s1}01.{u24}.{u64}", "KEY: dt0{s1}01.{u24}.{u64}.", "dt0{s1}01.{u8}.{u21}"),
    ("onepassword-token", "ops_eyJ{U100}", "ops_eyJ{U105}", "ops_eyJ{U33}"),
    ("cloudflare-key", "v1.0-{h24}-{h146}", "KEY: v1.0-{h24}-{h146}.", "v1.0-{h8}-{h48}"),
    ("launchdarkly-key", "api-{uuid}", "KEY: api-{uuid}.", "api-{h8}-{h4}"),
    ("slack-token", "xoxb-{d1}-{w10}", "xoxb-{d6}-{w15}", "xoxb-{d1}-{w3}"),
    ("slack-token", "xoxe-{d1}-{w100}", "xoxe-{d1}-{w105}", "xoxe-{w9}"),
    ("slack-token", "xapp-{d1}-{u6}-{d1}-{h32}", "xapp-{d1}-{u11}-{d6}-{h37}", "xapp-{d1}-{u2}-{d1}-{h10}"),
    ("facebook-token", "EAAC{w80}", "EAAC{w85}", "EAAC{w26}"),
    ("twitter-token", "AAAAAAAAAAAAAAAAAAAA{w60}", "AAAAAAAAAAAAAAAAAAAA{w65}", "AAAAAAAAAAAAAAAAAAAA{w20}"),
    ("anthropic-key", "sk-ant-{U20}", "sk-ant-{U25}", "sk-ant-{U6}"),
    ("openrouter-key", "sk-or-{U32}", "sk-or-{U37}", "sk-or-{U10}"),
    ("langfuse-key", "sk-lf-{uuid}", "KEY: sk-lf-{uuid}.", "sk-lf-{h8}-{h4}"),
    ("openai-key", "sk-proj-{U20}", "sk-proj-{U25}", "sk-proj-{U6}"),
    ("openai-key", "sk-{w32}", "sk-{w37}", "sk-{w10}"),
    ("huggingface-token", "hf_{w34}", "KEY: hf_{w34}.", "hf_{w11}"),
    ("huggingface-token", "hf_{w30}", "hf_{w35}", "hf_{w10}"),
    ("huggingface-token", "api_org_{w34}", "KEY: api_org_{w34}.", "api_org_{w11}"),
    ("replicate-token", "r8_{w37}", "r8_{w42}", "r8_{w12}"),
    ("groq-key", "gsk_{w48}", "gsk_{w53}", "gsk_{w16}"),
    ("perplexity-key", "pplx-{w40}", "pplx-{w45}", "pplx-{w13}"),
    ("xai-key", "xai-{w70}", "xai-{w75}", "xai-{w23}"),
    ("nvidia-key", "nvapi-{U60}", "nvapi-{U65}", "nvapi-{U20}"),
    ("langsmith-key", "lsv2_pt_{h32}_{h10}", "KEY: lsv2_pt_{h32}_{h10}.", "lsv2_pt_{h10}_{h3}"),
    ("cerebras-key", "csk-{l40}", "csk-{l45}", "csk-{l13}"),
    ("fireworks-key", "fw_{w24}", "KEY: fw_{w24}.", "fw_{w8}"),
    ("together-key", "tgp_v1_{U40}", "tgp_v1_{U45}", "tgp_v1_{U13}"),
    ("tavily-key", "tvly-{w20}", "tvly-{w25}", "tvly-{w6}"),
    ("firecrawl-key", "fc-{h32}", "KEY: fc-{h32}.", "fc-{h10}"),
    ("e2b-key", "e2b_{h40}", "KEY: e2b_{h40}.", "e2b_{h13}"),
    ("pinecone-key", "pcsk_{w60}", "pcsk_{w65}", "pcsk_{w20}"),
    ("jina-key", "jina_{h32}{U20}", "jina_{h32}{U25}", "jina_{h10}{U6}"),
    ("elevenlabs-key", "sk_{h48}", "KEY: sk_{h48}.", "sk_{h16}"),
    ("stripe-key", "sk_live_{w16}", "sk_live_{w21}", "sk_live_{w5}"),
    ("stripe-key", "sk_test_{w16}", "sk_test_{w21}", "sk_test_{w5}"),
    ("stripe-key", "whsec_{w24}", "whsec_{w29}", "whsec_{w8}"),
    ("square-token", "sq0{s3}-{U22}", "sq0{s3}-{U27}", "sq0{s1}-{U7}"),
    ("square-token", "EAAA{U60}", "KEY: EAAA{U60}.", "EAAA{U20}"),
    ("shopify-token", "shpat_{h32}", "KEY: shpat_{h32}.", "shpat_{h10}"),
    ("plaid-token", "access-sandbox-{uuid}", "KEY: access-sandbox-{uuid}.", "access-sandbox-{h8}-{h4}"),
    ("easypost-key", "EZAK{w54}", "KEY: EZAK{w54}.", "EZAK{w18}"),
    ("shippo-token", "shippo_live_{h40}", "KEY: shippo_live_{h40}.", "shippo_live_{h13}"),
    ("flutterwave-key", "FLWSECK-{u12}", "FLWSECK-{u17}", "FLWSECK-{u4}"),
    ("duffel-token", "duffel_live_{U43}", "KEY: duffel_live_{U43}.", "duffel_live_{U14}"),
    ("sendgrid-key", "SG.{U20}.{U39}", "SG.{U24}.{U44}", "SG.{U6}.{U13}"),
    ("brevo-key", "xkeysib-{h64}-{w16}", "KEY: xkeysib-{h64}-{w16}.", "xkeysib-{h21}-{w5}"),
    ("mailersend-key", "mlsn.{h64}", "KEY: mlsn.{h64}.", "mlsn.{h21}"),
    ("resend-key", "re_{w8}_{w24}", "KEY: re_{w8}_{w24}.", "re_{w2}_{w8}"),
    ("mailgun-key", "key-{h32}", "KEY: key-{h32}.", "key-{h10}"),
    ("twilio-key", "SK{h32}", "KEY: SK{h32}.", "SK{h10}"),
    ("newrelic-key", "NRAK-{U19}", "NRAK-{U24}", "NRAK-{U6}"),
    ("grafana-token", "glsa_{w32}_{h8}", "KEY: glsa_{w32}_{h8}.", "glsa_{w10}_{h2}"),
    ("grafana-token", "glc_{w40}", "glc_{w45}", "glc_{w13}"),
    ("hubspot-token", "pat-na{d1}-{uuid}", "KEY: pat-na{d1}-{uuid}.", "pat-na{d1}-{h8}-{h4}"),
    ("posthog-key", "phx_{w40}", "phx_{w45}", "phx_{w13}"),
    ("linear-key", "lin_api_{w40}", "KEY: lin_api_{w40}.", "lin_api_{w13}"),
    ("notion-token", "ntn_{w40}", "ntn_{w45}", "ntn_{w13}"),
    ("notion-token", "secret_{w43}", "KEY: secret_{w43}.", "secret_{w14}"),
    ("figma-token", "figd_{U38}", "figd_{U43}", "figd_{U12}"),
    ("contentful-token", "CFPAT-{U43}", "KEY: CFPAT-{U43}.", "CFPAT-{U14}"),
    ("typeform-token", "tfp_{U40}", "tfp_{U45}", "tfp_{U13}"),
    ("readme-token", "rdme_{l70}", "KEY: rdme_{l70}.", "rdme_{l23}"),
    ("mapbox-token", "sk.eyJ{U30}.{U20}", "sk.eyJ{U35}.{U25}", "sk.eyJ{U10}.{U6}"),
    ("dropbox-token", "sl.{U100}", "sl.{U105}", "sl.{U33}"),
    ("airtable-token", "pat{w14}.{h64}", "KEY: pat{w14}.{h64}.", "pat{w4}.{h21}"),
    ("apify-token", "apify_api_{w30}", "apify_api_{w35}", "apify_api_{w10}"),
    ("age-key", "AGE-SECRET-KEY-1{u58}", "KEY: AGE-SECRET-KEY-1{u58}.", "AGE-SECRET-KEY-1{u19}"),
    ("asnap-key", "asnap-key-{U43}", "KEY: asnap-key-{U43}.", "asnap-key-{U14}"),
    ("jwt", "eyJ{U8}.eyJ{U8}.{U16}", "eyJ{U13}.eyJ{U13}.{U21}", "eyJ{U2}.eyJ{U2}.{U5}"),
]
"""Kind, two examples, one that is too short. The other counter-example is the first example inside of a word."""

KEY_BLOCKS = [
    ("private-key", "-----BEGIN RSA PRIVATE KEY-----\n{w64}\n{w30}", "-----BEGIN PRIVATE KEY-----\\n{w64}\\n",
     "-----BEGIN PUBLIC KEY-----\n{w64}", "-----BEGIN PRIVATE KEY-----"),
    ("private-key", "Private-Lines: 2\n{w64}\n{w40}", "Private-Lines: 14\n{w64}", "Public-Lines: 2\n{w64}", "Private-Lines: 2"),
]  # fmt: skip

ENCODED = [
    ("base64", _encoded("ghp_{w36}"), f"token.b64 {_encoded('sk-ant-api03-{w60}')}",
     _encoded("ghp_not_a_token_at_all"), f"x{_encoded('ghp_{w36}')}"),
]  # fmt: skip

FORMS = [
    ("aws-secret-key", "aws_secret_access_key = {w40}", '"SecretAccessKey": "{w40}"', "secret_access_key = None", "SecretAccessKey: {w12}"[:17]),
    ("azure-secret", "it is {w3}8Q~{w34} now", "{w3}7Q~{w31}", "Q~{w34}", "{w3}8Q~{w12}"),
    ("azure-key", "AccountKey={w86}==;x", "accountkey={w44}", "AccountKey=;x", "AccountName={w30}"),
    ("azure-key", "https://x/c?sv=1&sig={w43}%3D", "?sig={w40}&se=1", "design=big&sig=short", "config={w12}"),
    ("aws-signature", "&X-Amz-Signature={h64}", "&X-Amz-Security-Token={w90}", "X-Amz-Signature=", "X-Amz-Date=20261118T000000Z"),
    ("terraform-token", "{w14}.atlasv1.{w64}", "x {w14}.atlasv1.{U67}", "a.atlasv1.b", "atlasv1 of {w20}"),
    ("mailchimp-key", "mail {h32}-us12 ok", "{h32}-us6", "{h32}-usable", "{h12}-us12"),
    ("kubernetes-key", "client-key-data: {w60}==", '"client-key-data": "{w60}"', "client-key-data: short", "certificate-authority-data: {w60}"),
    ("slack-webhook", "https://hooks.slack.com/services/T{u9}/B{u9}/{w24}", "hooks.slack.com/workflows/{w30}", "hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", "hooks.slack.com/docs"),
    ("discord-token", "M{U23}.{U6}.{U27}", "client.login('M{U25}.{U6}.{U38}')", "M{U7}.{U2}.{U9}", "xM{U23}.{U6}.{U27}"),
    ("discord-webhook", "https://discord.com/api/webhooks/{d18}/{U68}", "/api/webhooks/{d19}/{w60}", "/api/webhooks/{d18}", "/api/webhooks/list/all"),
    ("teams-webhook", "https://x.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/x", "webhookb2/{uuid}@{uuid}/y", "webhookb2/{uuid}", "webhookb2/docs"),
    ("telegram-token", "bot{d9}:AA{w33}", "{d10}:AA{U32}", "12:AA{w33}", "{d9}:AA{w5}"),
    ("authorization", "Authorization: Bearer {w20}", "'authorization': 'token {h40}'", "Authorization: Bearer <token>", "Authorization: token authentication is used"),
    ("authorization", f"Basic {_encoded('me:secret{d3}')}", f"'Basic {_encoded('user:{w12}')}'", "Basic training", "Basic knowledge12 is needed"),
    ("authorization", "it sent bearer {w30}", "Bearer {w14}.{w20}", "bearer authentication2", "Bearer of bad news"),
    ("url-password", "postgresql://me:{w9}@db/x", "redis://:{w12}@cache", "http://localhost:3000/@scope", "postgresql://user:password@localhost/db"),
    ("url-password", "https://{w40}@git.example/x", "https://{h40}:x-oauth-basic@github.com", "https://some-user-name-in-words@git.example", "ssh://git@github.com"),
    ("url-password", "root:{w9}@tcp(127.0.0.1:3306)/x", "me:{w12}@unix(/tmp/s)/x", "root:@tcp(127.0.0.1:3306)/x", "see x@tcp(y)"),
    ("url-password", "jdbc:oracle:thin:scott/{w9}@//db:1521/x", "jdbc:oracle:oci:me/{w12}@db", "jdbc:oracle:thin:@db:1521:x", "jdbc:oracle:thin:scott"),
    ("cookie", "Cookie: theme=dark; sessionid={w32}", "Set-Cookie: laravel_session={w40}; path=/", "Cookie: theme=dark; lang=en", "session_id={w26}"),
    ("cookie", "x.example\tFALSE\t/\tTRUE\t0\tsid\t{w32}", ".x\tTRUE\t/\tFALSE\t1793000000\tauth\t{w24}", "a\tTRUE\t0\tb\tshort", "TRUE FALSE"),
    ("docker-auth", f'"auth": "{_encoded("me:secret{d3}")}"', f"_auth={_encoded('user:{w12}')}", '"auth": "required"', "auth: enabled1234"),
    ("password", "machine api.example login me password swordfish", "machine x.org\n login me\n password {w9}", "machine learning login page password reset", "machine x.org login me"),
    ("password", "login me password hunter{d2}", "login bob\n  password {w9}", "login page password reset", "login and password"),
    ("password", "db.example:5432:shop:me:{w9}\n", "*:*:*:me:{w9}\n", "127.0.0.1:5432:5432", "db.example:5432: ready"),
    ("password", "<password>swordfish</password>", "<db:passwd>{w9}</db:passwd>", "<password></password>", "<password>a b</password>"),
    ("secret", "<api-key>{w24}</api-key>", "<token>{w32}</token>", "<token>identifier</token>", "<key>CFBundleVersion12</key>"),
    ("password", "- name: DB_PASSWORD\n  value: {w9}", '{"name": "password", "value": "swordfish"}', '{"name": "password", "value": ""}', "password value: {{ x }}"),
    ("secret", '<add key="ApiToken" value="{w32}" />', "- name: API_TOKEN\n  value: {w24}", '{"name": "API_TOKEN", "value": "from-the-vault-2"}', "token value: x"),
    ("password", "curl -sS -u me:{w9} https://x", "curl 'https://x/?a=1&b=2' --user me:swordfish", "curl -u $USER:$PASS https://x", "sort -u a:bcde1"),
    ("password", "http -a me:{w9} GET x", "xh -a me:hunter{d2} x", "http -a bearer GET x", "http status 404 -a"),
    ("password", "sshpass -p {w9} ssh x", "sshpass -p'swordfish' ssh x", "sshpass -p $PASS ssh x", "sshpass -f file2"),
    ("password", "docker login -u me -p hunter{d2} r", "twine upload -p '{w4}9x' d", "docker run -p 8080:80 x1", "docker login && mkdir -p a/b1"),
    ("password", "mysql -u root -phunter{d2} x", "mysqldump -p{w4}7x shop", "mysql -u root -p shop1", "mysql --port 3306 -P 3306"),
    ("password", "redis-cli -a {w9} ping", "redis-cli -h x -a 'swordfish'", "redis-cli --scan", "redis-cli -n 2"),
    ("password", "smbclient //h/s -U me%hunter{d2}", "smbclient -U 'me%{w4}5x' //h", "smbclient -U me //h/s1", "smbclient -L h1"),
    ("password", "htpasswd -bc .htpasswd me {w9}", "htpasswd -nb me2 me swordfish", "htpasswd -c .htpasswd me", "htpasswd file1 me2"),
    ("token", "wandb login {h40}", "vault login s.{w24}", "login required-for-this-page-2", "login page"),
    ("secret", "echo ::add-mask::{w12}", "::add-mask::swordfish", "::add-mask::$TOKEN", "add-mask"),
    ("password", "ldapsearch -D x -w hunter{d2} -b y", "plink me@h -pw {w4}5x", "zip -r a1.zip b2", "unzip -P $PASS a.zip"),
    ("password", "openssl rsa -passin pass:{w9}", "openssl x -pass pass:swordfish", "openssl x -passin env:PASS1", "openssl x -pass stdin"),
    ("password", "echo 'hunter{d2}' | sudo -S ls", "echo {w4}5x | docker login --password-stdin", "echo hello2 | grep x", "echo $PASS | sudo -S ls"),
    ("password", "createuser --password hunter{d2} bob", "gpg --passphrase '{w4}5x' -d x", "use the --password flag to set one", '--password "$PGPASSWORD"'),
    ("token", "llm --api-key {w32} -m x", "x --access-token {w24}", "--token ${TOKEN}", "--token-file tokens-of-2026"),
    ("password", "IDENTIFIED BY 'swordfish'", 'IDENTIFIED BY "{w9}"', "IDENTIFIED BY ''", "identified by 'name1'"),
    ("password", "define('DB_PASSWORD', 'hunter{d2}')", "WITH PASSWORD '{w4}5x'", "t('password', 'Password')", "form['password', 'required']"),
    ("password", "get(u, auth=('me', 'swordfish'))", 'HTTPBasicAuth("me", "{w9}")', "auth=('user', 'pass')", "auth('required')"),
    ("password", "ENV ADMIN_PASSWORD hunter{d2}", "ENV API_TOKEN '{w20}'", "ENV PASSWORD $PASS", "ENV PYTHON_VERSION 3.14"),
    ("secret", "define('AUTH_KEY', '{w40}')", 'setdefault("API_TOKEN", "{w32}")', "t('token', 'identifier-words')", "get('api_key', None)"),
    ("api-key", "MAILGUN_KEY={h32}", "APP_KEY=base64:{w43}=", "CACHE_KEY={h32}", "SORT_KEY=created_at_desc_2"),
    ("secret", "aws configure set aws_session_token {w60}", "npm config set //r/:_authToken {w32}", "set the token first", "config set token words-of-some-kind"),
    ("password", "etcdctl --user root:hunter{d2} get x", "x --user=me:{w4}5x", "docker run --user 1000:1000 x1", "--user me"),
    ("password", "user: me pass: hunter{d2}", "pw={w4}5x", "PASS: test_login_1", "pass: tests/login1"),
    ("password", "The password is hunter{d2}.", "password for bob: {w4}5x, ok", "The password is required.", "password is sha256-hashed"),
    ("token", "the token is {w32}, keep it", "our api key is {h32} now", "The token is refreshed every15minutes", "The key is {w32}"[:11]),
    ("seed-phrase", "seed phrase: " + "apple river stone " * 3 + "cloud tiger lemon", "mnemonic = 'abandon ability able about above absent absorb abstract absurd abuse access accident'",
     "seed phrase: apple river stone", "the phrase is used by many people"),
]  # fmt: skip

NAMES = [
    ("password", "password=hunter{d1}", '"dbPassword": "swordfish"', "password=self.password", "password: must have 8 characters"),
    ("password", "passphrase = 'swordfish'", "PASSPHRASE: {w9}", "passphrase: ${PASS}", "passphrase is needed"),
    ("password", "Pwd={w9};x", "pwd: 'swordfish'", "PWD=/home/me", "pwd; ls"),
    ("password", "DB_PASS={w4}5x", "become_pass: hunter{d2}", "first_pass=true", "bypass=hunter2"),
    ("password", "DB_PW={w4}5x", "root_pw: hunter{d2}", "old_pw=new_pw", "pw=page.width2"),
    ("password", "psk={w4}5x", 'psk="hunter{d2}"', "psk=none", "psk is x1"),
    ("secret", "client_secret=abc{d3}", '"clientSecret": "swordfish"', "client_secret=<client_secret>", "client_secret: ${X}"),
    ("secret", "secret_access_key = {w20}", "secretAccessKey: {w12}", "secret_access_key = None", "secret_access_key:"),
    ("secret", "SECRET_KEY = 'k3&x0q!{w8}'", "secret-key: {w20}", "SECRET_KEY = get_key()", "secretKeyRef: name2"),
    ("secret", "APP_SECRET={h32}", "webhookSecret: '{w24}'", "secret: false", "secretName: my-app-tls-2026a1"),
    ("token", "token={w24}", '"authToken": "{w32}"', "next_page_token={w24}", "max_tokens=128000"),
    ("token", "GITHUB_PAT={w40}", "azure_pat: {l52}", "file_pat=some-glob-pattern1", "pattern=x1"),
    ("token", "npm_auth={w32}", "registry_auth: {w24}", "needs_auth=true", "needs_auth: anonymous-2"),
    ("secret", "credentials={w32}", '"credential": "{w24}"', "credentials=settings.credentials1", "credentials: include"),
    ("authorization", "authorization: {w32}", '"Authorization": "{w24}"', "authorization: required", "authorization=settings.auth1"),
    ("cookie", "cookie={w32}", '"cookie": "{w24}"', "cookie: accepted", "cookie=response.cookies1"),
    ("api-key", "api_key = b'{w32}'", "x-api-key: {h32}", "api_key=YOUR_API_KEY_1234567890", "monkey={w32}"),
    ("api-key", "RAILS_MASTER_KEY={h32}", "subscription-key: {h32}", "primary_key={w32}", "app_key=app.name1"),
]  # fmt: skip
"""Kind, two examples, two counter-examples."""
