#!/bin/sh
# Make journal.tar.gz with a binary of commit 63c68b03: make.sh ONCE. Works in the current directory.
set -eu
once=$1
api=http://127.0.0.1:7497

cat > provider.py <<'PYTHON'
import http.server, json
class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version, busy = "HTTP/1.1", set()
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if "lost" in self.path:
            self.close_connection = True
            return  # it may have happened
        is_busy = "busy" in self.path and self.path not in Provider.busy
        Provider.busy.add(self.path)
        status = 503 if is_busy else 422 if "refused" in self.path else 200
        text = json.dumps({"id": "ref-1", "summary": "done"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 7496), Provider).serve_forever()
PYTHON
cat > once.yaml <<'YAML'
listen: 127.0.0.1:7497
store: "journal:./journal?segment=64KiB"
evidence: {checkpoint_every: 1s}
commands:
  order.cancel: {handler: "http://127.0.0.1:7496/cancel", ttl: 3650d}
  order.busy: {handler: "http://127.0.0.1:7496/busy-command", ttl: 3650d}
  order.lost: {handler: "http://127.0.0.1:7496/lost-command", ttl: 3650d}
  order.refund: {handler: "http://127.0.0.1:7496/refund", ttl: 3650d, confirm: confirm, prompt: "Sure?"}
connectors:
  pay: {url: "http://127.0.0.1:7496", idempotency: {header: Idempotency-Key, keeps: 24h}}
effects:
  payment.capture: {connector: pay, request: {path: "/charges/{target.id}"}, provider_ref: /id, window: 3650d}
inbox:
  sources:
    shop: {preset: none, handler: "http://127.0.0.1:7496/hook", window: 3650d}
    refused: {preset: none, handler: "http://127.0.0.1:7496/refused-hook", window: 3650d}
YAML

post() { # PATH BODY
    curl -sS -X POST "$api/$1" -H 'Content-Type: application/json' -d "$2"
    echo
}
begin() { # MEMBERS: prints the operation's id and its fence
    post v1/fences "{\"scope\":\"pay\",\"ttl\":\"3650d\",$1}" |
        sed 's/.*"operation_id":"\([^"]*\)","fence":\([0-9]*\).*/\1 \2/'
}
intent() { # ACTION ORDER
    echo "{\"actor_id\":\"ana\",\"intent\":{\"entity\":\"order\",\"action\":\"$1\",\"target\":{\"id\":\"$2\"}}}"
}
effect() { # TARGET PAYLOAD NAME
    echo "{\"effect_type\":\"payment.capture\",\"command_id\":\"order-$1\",$3\"target\":{\"id\":\"$1\"},\"payload\":$2}"
}

python3 provider.py & provider=$!
"$once" serve --config once.yaml > serve.log 2>&1 & server=$!
sleep 2
first='"key":"order-1","payload":{"amount":100},"source":{"type":"shop","id":"o-1","version":"7"}'
set -- $(begin "$first")
post "v1/fences/$1/renew" "{\"fence\":$2,\"lease\":\"60s\"}"
post "v1/fences/$1/seal" "{\"fence\":$2,\"status\":\"executed\",\"effect_id\":\"ch_1\",\"outcome\":{\"charge\":\"ch_1\"}}"
begin "$first"                                   # replayed
begin '"key":"order-1","payload":{"amount":999}' # a conflict
set -- $(begin '"key":"order-2","payload":[2]')
post "v1/fences/$1/unknown" "{\"fence\":$2,\"reason\":\"no answer\"}"
begin '"key":"order-2","payload":[2]'            # held unknown
begin '"key":"order-3","payload":[3],"lease":"168h"' # stays in progress
post v1/commands "$(intent cancel 1)"
post v1/commands "$(intent cancel 1)"            # replayed
post v1/commands "$(intent lost 2)"              # blocked
post v1/commands "$(intent busy 3)"              # retried
asked=$(post v1/commands "$(intent refund 4)")   # waits for a confirmation
command=$(echo "$asked" | sed 's/.*"operation_id":"\(cmd_[^"]*\)".*/\1/')
token=$(echo "$asked" | sed 's/.*"token":"\([^"]*\)".*/\1/')
post "v1/commands/$command/confirm" "{\"confirmation\":\"$token\"}"
post v1/effects "$(effect 1 '{"amount":1}' '"effect_id":"first",')"
post v1/effects "$(effect refused 2 '')"
post v1/effects "$(effect busy 3 '')"
sleep 1
post v1/effects "$(effect 1 '{"amount":1}' '"effect_id":"first",')" # replayed
post v1/effects "$(effect 1 '{"amount":2}' '')"  # a conflict
post in/shop '{"event":1}'
post in/shop '{"event":1}'                       # a duplicate
post in/refused '{"event":2}'
curl -sS "$api/v1/evidence?limit=2" > /dev/null  # access.read
sleep 6
kill "$server" "$provider"
wait "$server"
"$once" verify --redecide --store journal
rm -f journal/spare journal/lock journal/index-*
tar --sort=name --owner=0 --group=0 -czf journal.tar.gz journal
