"""Webhooks as Git hosts send them, signed by the rules of each."""

import base64
import hashlib
import hmac
import time

KEY = "k3y-of-these-tests-is-long-enough"
SIGNING_TOKEN = "whsec_" + base64.b64encode(KEY.encode()).decode()
BODY = b'{"ref": "refs/heads/main"}'
SECOND = 1_767_225_600  # 2026-01-01, the start of FakeClock


def mac(body=BODY, key=KEY, algorithm="sha256"):
    return hmac.new(key.encode(), body, algorithm).hexdigest()


def github(body=BODY, key=KEY):
    return {"X-Hub-Signature-256": f"sha256={mac(body, key)}"}


def gitea(body=BODY, key=KEY):
    return {"X-Gitea-Signature": mac(body, key)}


def gitlab(body=BODY, key=KEY):
    del body  # it is not proven
    return {"X-Gitlab-Token": key}


def signature(message_id="id1", second=SECOND, body=BODY, key=KEY):
    signed = f"{message_id}.{second}.".encode() + body
    digest = hmac.new(key.encode(), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def generic(message_id="id1", second=SECOND, body=BODY, key=KEY):
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(second),
        "webhook-signature": signature(message_id, second, body, key),
    }


def signed_now(body):
    return generic(f"id-{mac(body)}", int(time.time()), body)
