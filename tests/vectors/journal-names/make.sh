#!/bin/sh
# Make journal.tar.gz with a binary of commit e5109c7: make.sh ONCE. Works in the current directory.
set -eu
once=$1
store='journal:./journal?segment=64KiB'
api=http://127.0.0.1:7498/v1

post() { # PATH BODY
    curl -sS -X POST "$api/$1" -H 'Content-Type: application/json' -d "$2"
}
begin() { # MEMBERS: prints the operation's id and its fence
    post fences "{\"scope\":\"w\\u0000x\",\"ttl\":\"3650d\",\"lease\":\"168h\",$1}" |
        sed 's/.*"operation_id":"\([^"]*\)","fence":\([0-9]*\).*/\1 \2/'
}

"$once" serve --listen 127.0.0.1:7498 --store "$store" > serve.log 2>&1 &
server=$!
sleep 2
sealed='"key":"a\u0000b","payload":1,"principal":"p\u009f","source":{"type":"t\n","id":"i\u007f","version":"\u0001"}'
set -- $(begin "$sealed")
post "fences/$1/seal" "{\"fence\":$2,\"status\":\"executed\",\"effect_id\":\"e\\u0002\",\"outcome\":1}"
set -- $(begin '"key":"unknown\r","payload":2')
post "fences/$1/unknown" "{\"fence\":$2}"
begin '"key":"in progress\u001b[31m","payload":3'
begin '"key":"a","payload":4'
kill "$server"
wait "$server"
rm -f journal/spare journal/lock
tar --sort=name --owner=0 --group=0 -czf journal.tar.gz journal
