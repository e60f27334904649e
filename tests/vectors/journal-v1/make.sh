#!/bin/sh
# Make journal.tar.gz with a binary of commit 149dc19: make.sh ONCE. Works in the current directory.
set -eu
once=$1
store='journal:./journal?segment=64KiB'
api=http://127.0.0.1:7499/v1

run() { # KEY COMMAND…: the exit code is the command's, or once's own
    key=$1
    shift
    "$once" run --store "$store" --idempotency-key "$key" --ttl 3650d --ignore-cwd -- "$@" || true
}
post() { # PATH BODY
    curl -sS -X POST "$api/$1" -H 'Content-Type: application/json' -d "$2"
}
begin() { # MEMBERS: prints the operation's id and its fence
    post fences "{\"scope\":\"pay\",\"ttl\":\"3650d\",$1}" |
        sed 's/.*"operation_id":"\([^"]*\)","fence":\([0-9]*\).*/\1 \2/'
}

run greet sh -c 'echo hello; echo aside >&2'
run greet sh -c 'echo hello; echo aside >&2' # replayed
run greet echo other                         # a conflict
run killed sh -c 'kill -9 $$'                # unknown
run fails sh -c 'exit 3'

cat > once.yaml <<YAML
listen: 127.0.0.1:7499
store: $store
evidence: {checkpoint_every: 1s}
YAML
"$once" serve -c once.yaml > serve.log 2>&1 &
server=$!
sleep 2
first='"key":"order-1","payload":{"amount":100},"source":{"type":"shop","id":"o-1","version":"7"}'
set -- $(begin "$first")
post "fences/$1/renew" "{\"fence\":$2,\"lease\":\"60s\"}"
post "fences/$1/seal" "{\"fence\":$2,\"status\":\"executed\",\"effect_id\":\"ch_1\",\"outcome\":{\"charge\":\"ch_1\"}}"
begin "$first"                                # replayed
begin '"key":"order-1","payload":{"amount":999}' # a conflict
begin '"key":"order-1-old","payload":1,"source":{"type":"shop","id":"o-1","version":"6"}' # stale
set -- $(begin '"key":"order-2","payload":[2]')
stale=$2
post "fences/$1/release" "{\"fence\":$2,\"reason\":\"not connected\"}"
set -- $(begin '"key":"order-2","payload":[2]') # attempt 2
post "fences/$1/seal" "{\"fence\":$stale,\"status\":\"executed\"}" # refused
post "fences/$1/unknown" "{\"fence\":$2,\"reason\":\"no answer\"}"
begin '"key":"order-2","payload":[2]'         # held unknown
begin '"key":"order-3","payload":[3],"lease":"1s"' # unknown when its lease is over
set -- $(begin '"key":"order-4","payload":[4]')
post "fences/$1/unknown" "{\"fence\":$2}"
post "operations/$1/resolve" '{"status":"failed","reason":"looked it up"}'
begin '"key":"order-5","payload":[5],"lease":"168h"' # stays in progress
post fences/op_00000000-0000-7000-8000-000000000000/seal '{"fence":9,"status":"executed"}'
curl -sS "$api/evidence?limit=2" > /dev/null  # access.read
sleep 4
kill "$server"
wait "$server"
rm -f journal/spare journal/lock
tar --sort=name --owner=0 --group=0 -czf journal.tar.gz journal
