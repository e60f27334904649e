#!/bin/sh
# Sends twenty orders to an API that fails one time in three: directly, through the gateway, and
# through the gateway again. Needs `once` and `python3` in PATH. ONCE_EXAMPLE_SEED changes the
# failures.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $api_pid $gateway_pid 2>/dev/null || true; wait; rm -rf "$work"' EXIT
api_pid= gateway_pid=
orders=20

python3 "$here/api.py" "${ONCE_EXAMPLE_SEED:-7}" > "$work/api" &
api_pid=$!
until test -s "$work/api"; do sleep 0.05; done
api=$(cat "$work/api")

once gateway --listen 127.0.0.1:0 --upstream "$api" --config "$here/once.yaml" \
    --store "journal:$work/data" > "$work/gateway" 2> "$work/log" &
gateway_pid=$!
until grep -q '^gateway on' "$work/gateway"; do sleep 0.05; done
gateway=$(sed -n 's/^gateway on \(http[^ ]*\).*/\1/p' "$work/gateway")

# send PREFIX URL: send every order, with retries, as a program that needs it to get through would.
send() {
    for number in $(seq $orders); do
        once send POST "$2/charges" --idempotency-key "$1-$number" --retries 20 \
            --data "{\"cents\":$((number * 100))}" > /dev/null
    done
}

count() {
    echo "$2 $orders orders, $(once send GET "$api/count/$1") charges"
}

send straight "$api"
count straight "straight to the API:"
send guarded "$gateway"
count guarded "through the gateway:"
send guarded "$gateway"
count guarded "and all of it again:"
once verify --store "journal:$work/data" > /dev/null && echo "the evidence is whole"
