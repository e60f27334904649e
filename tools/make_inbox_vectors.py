#!/usr/bin/python3
"""make_inbox_vectors: signed webhook requests and refusals, as data that any language can run.

Written from the senders' documentation alone, with Python's hmac; no line of Once is used. Cases
whose origin is "published" have the value that the sender itself publishes, and this program stops
when its own differs. The Ed25519 signature is published and copied: Python has none in its library.

    tools/make_inbox_vectors.py > tests/vectors/inbox/webhooks.json
"""
import base64
import hashlib
import hmac
import json

NOW = 1700000000
CASES = []
EVENTS = []


def hexmac(key, text):
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def b64mac(key, text):
    return base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()


def case(name, preset, secrets, headers, body, verdict="ok", now=NOW, secret=0, origin="made",
         says=""):
    one = {"name": name, "preset": preset, "origin": origin, "secrets": secrets, "now": now,
           "headers": headers, "body": body, "verdict": verdict}
    if verdict == "ok":
        one["secret"] = secret
    if says:
        one["says"] = says
    CASES.append(one)


def published(made, value):
    assert made == value, (made, value)
    return value


# ---- body signatures: GitHub, Meta, Shopify, and any other with the same scheme ---------------

GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_BODY = "Hello, World!"
GITHUB = "sha256=" + published(hexmac(GITHUB_SECRET, GITHUB_BODY),
    "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
HUB = "X-Hub-Signature-256"
case("github", "github", [GITHUB_SECRET], [[HUB, GITHUB]], GITHUB_BODY, origin="published",
     says="docs.github.com, Validating webhook deliveries")
case("github: name in another case", "github", [GITHUB_SECRET], [[HUB.lower(), GITHUB]],
     GITHUB_BODY)
case("github: second secret", "github", ["new secret", GITHUB_SECRET], [[HUB, GITHUB]],
     GITHUB_BODY, secret=1, says="rotation: any of the secrets verifies")
for what, value in [("upper-case digits", GITHUB[:7] + GITHUB[7:].upper()),
                    ("without its prefix", GITHUB[7:]), ("cut", GITHUB[:-1]), ("long",
                    GITHUB + "0"),
                    ("of SHA-1", "sha1=" + GITHUB[7:]), ("empty", ""), ("only a prefix", "sha256="),
                    ("no digits", GITHUB[:-1] + "g")]:
    case(f"github: signature {what}", "github", [GITHUB_SECRET], [[HUB, value]], GITHUB_BODY,
         "malformed")
case("github: signature absent", "github", [GITHUB_SECRET], [], GITHUB_BODY, "missing")
case("github: only the weaker signature", "github", [GITHUB_SECRET],
     [["X-Hub-Signature", "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59"]], GITHUB_BODY, "missing")
case("github: signature twice", "github", [GITHUB_SECRET], [[HUB, GITHUB], [HUB, GITHUB]],
     GITHUB_BODY, "doubled")
case("github: two signatures in one", "github", [GITHUB_SECRET], [[HUB, GITHUB + ", " + GITHUB]],
     GITHUB_BODY, "malformed")
case("github: other body", "github", [GITHUB_SECRET], [[HUB, GITHUB]], GITHUB_BODY + " ",
    "mismatch")
case("github: other secret", "github", [GITHUB_SECRET + " "], [[HUB, GITHUB]], GITHUB_BODY,
     "mismatch")
case("github: empty body", "github", [GITHUB_SECRET], [[HUB, "sha256=" + hexmac(GITHUB_SECRET,
    "")]],
     "")

META_SECRET = "once_app_secret"
META_BODY = ('{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"'
             'messages",'
             '"value":{"messages":[{"id":"wamid.ONCE1","text":{"body":"caf\\u00e9 \\ud83d\\u'
             'de00"}}]}}]}]}')
META = "sha256=" + published(hexmac(META_SECRET, META_BODY),
    "59c288089383c74e5ac1f65564fa6080b09c500cceafa959e266c3d0a138dfbf")
case("meta", "meta", [META_SECRET], [[HUB, META]], META_BODY,
     says="the escapes are a part of the bytes that are signed")
case("meta: written again", "meta", [META_SECRET], [[HUB, META]],
     json.dumps(json.loads(META_BODY), ensure_ascii=False, separators=(",", ":")), "mismatch",
     says="the same value in other bytes is not what was signed")

SHOPIFY = published(b64mac(b"shop-secret", '{"id":1}'),
    "plW8VGqq0nDMIEhDqaNNW99asdUCy7EIqLZVcQwtAZ0=")
SHOP = "X-Shopify-Hmac-SHA256"
case("shopify", "shopify", ["shop-secret"], [[SHOP, SHOPIFY]], '{"id":1}')
case("shopify: new field", "shopify", ["shop-secret"], [["Shopify-Hmac-Sha256", SHOPIFY]],
    '{"id":1}')
for what, value in [("without padding", SHOPIFY[:-1]), ("with bits after the end",
    SHOPIFY[:-2] + "1="),
                    ("in the alphabet of URLs", "_" + SHOPIFY[1:]), ("in hex",
                    hexmac("shop-secret", '{"id":1}'))]:
    case(f"shopify: signature {what}", "shopify", ["shop-secret"], [[SHOP, value]], '{"id":1}',
         "malformed")
case("shopify: other body", "shopify", ["shop-secret"], [[SHOP, SHOPIFY]], '{"id":2}', "mismatch")

case("hmac", "hmac", ["k"], [["X-Signature", hexmac("k", "x")]], "x")
case("hmac: empty", "hmac", ["k"], [["X-Signature", ""]], "x", "malformed")

# ---- Stripe ------------------------------------------------------------------------------------

STRIPE_SECRET, ROTATED = "whsec_once_test_secret", "whsec_once_rotated"
STRIPE_BODY = '{"id":"evt_once_0001","object":"event","type":"payment_intent.succeeded"}'
V1 = published(hexmac(STRIPE_SECRET, f"{NOW}.{STRIPE_BODY}"),
    "317b86b3e2db3a52f5f61a1188c05403c77d0dabeb9302bca85b1ebe13e9caa4")
V1_ROTATED = published(hexmac(ROTATED, f"{NOW}.{STRIPE_BODY}"),
    "98dc540e81ce1aa63ebccc65f253efdc7a91c42645ae53dbc28a7dcb11092766")


def stripe(name, value, verdict="ok", now=NOW, secrets=(STRIPE_SECRET,), secret=0,
    body=STRIPE_BODY):
    case("stripe: " + name, "stripe", list(secrets), [["Stripe-Signature", value]], body, verdict,
         now, secret)


stripe("one signature", f"t={NOW},v1={V1}")
stripe("the secret's prefix is a part of the key", f"t={NOW},v1=" +
       hexmac("once_test_secret", f"{NOW}.{STRIPE_BODY}"), "mismatch")
stripe("blanks after commas", f"t={NOW}, v1={V1}")
stripe("signature before the time", f"v1={V1},t={NOW}")
stripe("two signatures, the second holds", f"t={NOW},v1={V1_ROTATED},v1={V1}")
stripe("two signatures, old secret", f"t={NOW},v1={V1},v1={V1_ROTATED}", secrets=[ROTATED])
stripe("rotated at the receiver", f"t={NOW},v1={V1}", secrets=[ROTATED, STRIPE_SECRET], secret=1)
stripe("other schemes are passed over", f"t={NOW},v0=abc,v2=def,v1={V1}")
stripe("only a weaker scheme", f"t={NOW},v0={V1}", "malformed")
stripe("no time", f"v1={V1}", "malformed")
stripe("two times", f"t={NOW},t={NOW},v1={V1}", "malformed")
stripe("a time that is none", f"t=now,v1={V1}", "malformed")
stripe("a negative time", f"t=-{NOW},v1={V1}", "malformed")
stripe("a time of another request", f"t={NOW + 1},v1={V1}", "mismatch")
stripe("cut signature", f"t={NOW},v1={V1[:-2]}", "malformed")
stripe("five minutes old", f"t={NOW},v1={V1}", now=NOW + 300)
stripe("older", f"t={NOW},v1={V1}", "too_old", now=NOW + 301)
stripe("five minutes ahead", f"t={NOW},v1={V1}", now=NOW - 300)
stripe("further ahead", f"t={NOW},v1={V1}", "too_new", now=NOW - 301)
stripe("seventeen signatures", f"t={NOW}" + f",v1={V1}" * 17, "malformed")
stripe("other body", f"t={NOW},v1={V1}", "mismatch", body=STRIPE_BODY + "\n")
case("stripe: absent", "stripe", [STRIPE_SECRET], [], STRIPE_BODY, "missing")
case("stripe: twice", "stripe", [STRIPE_SECRET],
     [["Stripe-Signature", f"t={NOW},v1={V1}"]] * 2, STRIPE_BODY, "doubled")

# ---- Slack -------------------------------------------------------------------------------------

SLACK_SECRET, SLACK_AT = "8f742231b10e8888abcd99yyyzzz85a5", 1531420618
SLACK_BODY = ("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id="
              "G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command="
              "%2Fwebhook-"
              "collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH"
              "3J%2F397700885"
              "554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887"
              "a14d10d2c447fc"
              "e8b6703c")
SLACK = "v0=" + published(hexmac(SLACK_SECRET, f"v0:{SLACK_AT}:{SLACK_BODY}"),
    "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503")
SLACK_TIME, SLACK_SIG = "X-Slack-Request-Timestamp", "X-Slack-Signature"


def slack(name, headers, verdict="ok", now=SLACK_AT, origin="made", says=""):
    case("slack" + name, "slack", [SLACK_SECRET], headers, SLACK_BODY, verdict, now, origin=origin,
         says=says)


slack("", [[SLACK_TIME, str(SLACK_AT)], [SLACK_SIG, SLACK]], origin="published",
      says="api.slack.com, Verifying requests from Slack")
slack(": too old", [[SLACK_TIME, str(SLACK_AT)], [SLACK_SIG, SLACK]], "too_old", SLACK_AT + 301)
slack(": too new", [[SLACK_TIME, str(SLACK_AT)], [SLACK_SIG, SLACK]], "too_new", SLACK_AT - 301)
slack(": other time", [[SLACK_TIME, str(SLACK_AT + 1)], [SLACK_SIG, SLACK]], "mismatch")
slack(": time absent", [[SLACK_SIG, SLACK]], "missing")
slack(": signature absent", [[SLACK_TIME, str(SLACK_AT)]], "missing")
slack(": time twice", [[SLACK_TIME, str(SLACK_AT)]] * 2 + [[SLACK_SIG, SLACK]], "doubled")
slack(": version 1", [[SLACK_TIME, str(SLACK_AT)], [SLACK_SIG, "v1=" + SLACK[3:]]], "malformed")

# ---- Standard Webhooks and Svix ----------------------------------------------------------------

KEY, ID, AT, BODY = ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                     '{"test": 2432232314}')
STANDARD = "v1," + published(b64mac(base64.b64decode(KEY), f"{ID}.{AT}.{BODY}"),
    "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
PRIVATE = ("whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9"
           "lMicMFs6Kvg==")
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
ED25519 = ("v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl"
           "8EM+m7TBAg==")


def standard(name, preset="standard_webhooks", family="webhook-", secrets=("whsec_" + KEY,), id_=ID,
             at=str(AT), sig=STANDARD, verdict="ok", now=AT, body=BODY, origin="made", says="",
             leave=""):
    headers = [[family + n, v] for n, v in (("id", id_), ("timestamp", at), ("signature", sig))
               if n != leave]
    case(preset + name, preset, list(secrets), headers, body, verdict, now, origin=origin,
        says=says)


for preset, family in (("standard_webhooks", "webhook-"), ("svix", "svix-")):
    standard("", preset, family, origin="published", says="the libraries of both projects")
    standard(": v1a", preset, family, [PUBLIC], sig=ED25519, origin="published",
             says="tests of the Svix server")
    standard(": v1a by the private half", preset, family, [PRIVATE], sig=ED25519)
    standard(": too old", preset, family, verdict="too_old", now=AT + 301)
    standard(": too new", preset, family, verdict="too_new", now=AT - 301)
    standard(": v1a too old", preset, family, [PUBLIC], sig=ED25519, verdict="too_old",
        now=AT + 301)
standard(": the other family", "svix")
standard(": the other family is not its own", "standard_webhooks", "svix-", verdict="missing")
standard(": secret without prefix", secrets=[KEY])
standard(": several signatures", sig="v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= " + STANDARD)
standard(": both kinds, one key", sig=ED25519 + " " + STANDARD)
standard(": both kinds, the other key", secrets=[PUBLIC], sig=STANDARD + " " + ED25519)
standard(": only v1, but the key is public", secrets=[PUBLIC], verdict="mismatch")
standard(": unknown version", sig="v2," + STANDARD[3:], verdict="malformed")
standard(": v1a cut", secrets=[PUBLIC], sig=ED25519[:-4], verdict="malformed")
standard(": v1 without padding", sig=STANDARD[:-1], verdict="malformed")
standard(": other id", id_=ID + "x", verdict="mismatch", says="the id is signed")
standard(": an id with a dot", id_=ID + ".1", verdict="malformed")
standard(": other time", at=str(AT + 1), verdict="mismatch")
standard(": other body", body=BODY + " ", verdict="mismatch")
standard(": v1a of another body", secrets=[PUBLIC], sig=ED25519, body=BODY + " ",
    verdict="mismatch")
for absent in ("id", "timestamp", "signature"):
    standard(f": {absent} absent", verdict="missing", leave=absent)

# ---- bearer tokens -----------------------------------------------------------------------------

for preset in ("cloudevents", "effect", "none"):
    case(preset + ": token", preset, ["t0ken"], [["Authorization", "Bearer t0ken"]], "x")
    case(preset + ": other token", preset, ["t0ken"], [["Authorization", "Bearer t0keN"]], "x",
        "mismatch")
    case(preset + ": longer token", preset, ["t0ken"], [["Authorization", "Bearer t0ken "]], "x",
         says="blanks at the end of a field are no part of it")
    case(preset + ": basic", preset, ["t0ken"], [["Authorization", "Basic t0ken"]], "x",
        "malformed")
    case(preset + ": no token", preset, ["t0ken"], [], "x", "missing")

# ---- events ------------------------------------------------------------------------------------


def sha(text):
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def ce_key(source, id_):
    return sha(json.dumps({"id": id_, "source": source}, separators=(",", ":"), ensure_ascii=False))


def events(name, preset, body, keys, headers=(), order=None, versions=None, same_as=None, key=None,
           content_type="application/json", refused=False, differs_from=None):
    one = {"name": name, "preset": preset, "body": body,
           "headers": [["Content-Type", content_type], *headers]}
    if refused:
        one["refused"] = True
    else:
        one["keys"] = keys
    for member, value in (("order", order), ("versions", versions), ("same_as", same_as),
                          ("differs_from", differs_from), ("key", key)):
        if value is not None:
            one[member] = value
    EVENTS.append(one)


ORDER = {"source_id": "/data/object/id", "version": "/created"}
EVT = '{"id":"evt_1","created":%s,"data":{"object":{"id":"pi_1"}},"pending_webhooks":%d}'
events("stripe", "stripe", EVT % ("1700000000", 1), ["evt_1"], order=ORDER,
       versions=[["pi_1", "1700000000"]])
events("stripe: sent again", "stripe", EVT % ("1700000000", 0), ["evt_1"], same_as="stripe")
events("stripe: other payload", "stripe", EVT % ("1700000001", 1), ["evt_1"], differs_from="stripe")
events("stripe: a fraction", "stripe", EVT % ("12.5", 1), ["evt_1"], order=ORDER,
       versions=[["pi_1", "12.500000000"]])
events("stripe: no fraction", "stripe", EVT % ("12.0", 1), ["evt_1"], order=ORDER,
       versions=[["pi_1", "12"]])
for text, made in (("2026-11-16T21:00:00+02:00", "2026-11-16T19:00:00.000000000Z"),
                   ("2026-11-16T21:00:00.5Z", "2026-11-16T21:00:00.500000000Z"),
                   ("2026-11-16T23:30:00-01:30", "2026-11-17T01:00:00.000000000Z"),
                   ("v1.2.10", "v1.2.10"), ("2026-02-30T00:00:00Z", "2026-02-30T00:00:00Z")):
    events(f"version {text}", "stripe", EVT % (f'"{text}"', 1), ["evt_1"], order=ORDER,
           versions=[["pi_1", made]])
for text in ("1e3", "-1", "null", "true", '"\\u0000"'):
    events(f"version {text} is none", "stripe", EVT % (text, 1), ["evt_1"], order=ORDER,
        versions=[None])
events("stripe: without id", "stripe", "{}", [sha("{}")])
GITHUB_EVENT = '{"action":"opened"}'
DIGEST = hashlib.sha256(GITHUB_EVENT.encode()).hexdigest()
events("github", "github", GITHUB_EVENT, ["72d3162e." + DIGEST], [["X-GitHub-Delivery",
    "72d3162e"]])
events("github: without id", "github", GITHUB_EVENT, [sha(GITHUB_EVENT)])
events("github: id twice", "github", GITHUB_EVENT, [sha(GITHUB_EVENT)],
       [["X-GitHub-Delivery", "1"], ["X-GitHub-Delivery", "2"]])
events("github: a long id", "github", GITHUB_EVENT, [sha("x" * 250 + "." + DIGEST)],
       [["X-GitHub-Delivery", "x" * 250]])
events("shopify", "shopify", "{}", ["w1." + hashlib.sha256(b"{}").hexdigest()],
       [["X-Shopify-Webhook-Id", "w1"], ["X-Shopify-Event-Id", "e1"]])
events("shopify: event id", "shopify", "{}", ["e1." + hashlib.sha256(b"{}").hexdigest()],
       [["X-Shopify-Event-Id", "e1"]])
events("slack", "slack", '{"event_id":"Ev1","type":"event_callback"}', ["Ev1"])
events("slack: a form", "slack", SLACK_BODY, [sha(SLACK_BODY)],
       content_type="application/x-www-form-urlencoded")
events("standard_webhooks", "standard_webhooks", "{}", ["msg_1"], [["webhook-id", "msg_1"]])
events("svix", "svix", "{}", ["msg_1"], [["svix-id", "msg_1"]])
events("hmac: key in a field", "hmac", "{}", ["7." + hashlib.sha256(b"{}").hexdigest()], [["X-Id",
    "7"]],
       key={"header": "X-Id"})
events("hmac: key in the body", "hmac", '{"n":7}', ["7"], key={"json": "/n"})
events("none: key in a field", "none", "{}", ["7"], [["X-Id", "7"]], key={"header": "X-Id"})
events("none", "none", "anything", [sha("anything")], content_type="text/plain")
MESSAGE = '{"id":"wamid.A","type":"text"}'
STATUS = '{"id":"wamid.B","status":"read","timestamp":"17"}'
META_TWO = ('{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"m'
            'essages","value":'
            '{"metadata":{"n":1},"messages":[%s],"statuses":[%s]}}]}]}')
events("meta: a message and a status", "meta", META_TWO % (MESSAGE, STATUS), ["wamid.A",
    "wamid.B/read/17"])
events("meta: a message alone", "meta",
       '{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"value":{"messa'
       'ges":[%s]},'
       '"field":"messages"}]}]}' % MESSAGE, ["wamid.A"], same_as="meta: a message and a status")
events("meta: a message of other words", "meta", META_TWO % (MESSAGE.replace("text", "image"),
    STATUS),
       ["wamid.A", "wamid.B/read/17"], differs_from="meta: a message and a status")
events("meta: messenger", "meta",
    '{"object":"page","entry":[{"id":"1","messaging":[{"message":{"mid":"m_1"}}]}]}',
       ["m_1"])
events("meta: no entries", "meta", '{"object":"page"}', [], refused=True)
events("meta: no JSON", "meta", "{", [], refused=True)
CE = ('{"specversion":"1.0","id":"7","source":"/s","type":"t","datacontenttype":"application/'
      'json","data":{"a":1}%s}')
events("cloudevents: structured", "cloudevents", CE % "", [ce_key("/s", "7")],
       content_type="application/cloudevents+json; charset=utf-8")
events("cloudevents: binary", "cloudevents", '{"a": 1}', [ce_key("/s", "7")],
       [["ce-specversion", "1.0"], ["Ce-Id", "7"], ["ce-source", "/s"], ["ce-type", "t"]],
       same_as="cloudevents: structured")
events("cloudevents: binary, other data", "cloudevents", '{"a": 2}', [ce_key("/s", "7")],
       [["ce-specversion", "1.0"], ["ce-id", "7"], ["ce-source", "/s"], ["ce-type", "t"]],
       differs_from="cloudevents: structured")
events("cloudevents: percent-encoded", "cloudevents", "", [ce_key("/s", "\u00e9")],
       [["ce-specversion", "1.0"], ["ce-id", "%C3%A9"], ["ce-source", "/s"], ["ce-type", "t"]])
events("cloudevents: traced", "cloudevents", CE % ',"traceparent":"00-1"', [ce_key("/s", "7")],
       content_type="application/cloudevents+json", same_as="cloudevents: structured")
events("cloudevents: by its key", "cloudevents", CE % ',"idempotencykey":"k1"', ["k1"],
       content_type="application/cloudevents+json")
events("cloudevents: batch", "cloudevents", "[%s,%s]" % (CE % "", CE.replace('"7"', '"8"') % ""),
       [ce_key("/s", "7"), ce_key("/s", "8")], content_type="application/cloudevents-batch+json",
       same_as="cloudevents: structured")
events("cloudevents: empty batch", "cloudevents", "[]", [],
       content_type="application/cloudevents-batch+json")
events("cloudevents: no id", "cloudevents", CE.replace('"id":"7",', "") % "", [],
       content_type="application/cloudevents+json", refused=True)
events("cloudevents: other version", "cloudevents", CE.replace("1.0", "0.3") % "", [],
       content_type="application/cloudevents+json", refused=True)
events("cloudevents: a field twice", "cloudevents", "", [],
       [["ce-specversion", "1.0"], ["ce-id", "7"], ["ce-id", "8"], ["ce-source", "/s"], ["ce-type",
       "t"]],
       refused=True)
ENVELOPE = ('{"idempotency_key":"k1","effect_type":"mail.send","target":{"to":"a"},"payload":'
            '{"n":1},"attempt":%d}')
events("effect", "effect", ENVELOPE % 1, ["k1"])
events("effect: second attempt", "effect", ENVELOPE % 2, ["k1"], same_as="effect")
events("effect: other payload", "effect", (ENVELOPE % 1).replace('"n":1', '"n":2'), ["k1"],
       differs_from="effect")
events("effect: no key", "effect", '{"effect_type":"mail.send"}', [], refused=True)



def lines(items):
    return ",\n".join("  " + json.dumps(item) for item in items)


if __name__ == "__main__":
    ABOUT = ("signed webhook requests, what verifying each of them comes to at a time, and t"
             "he keys "
             "of their events; made by tools/make_inbox_vectors.py")
    print(f'{{"about": {json.dumps(ABOUT)},\n "cases": [\n{lines(CASES)}\n ],\n "events": [\n'
          f'{lines(EVENTS)}\n ]}}')
