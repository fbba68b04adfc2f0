#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The client against a store that misbehaves: what can be repaired is, within the budget and
# without a wrong byte; what cannot is said.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
start_ossd
ctl() { timeout 60 "$bin/ossctl" "$@" --retry-for "${budget:-20s}"; }
requests() { oss_stat ".requests.$1 // 0"; }

head -c 3000000 /dev/urandom >"$T/data"
head -c 41000000 /dev/urandom >"$T/large"
ctl mb oss://box
ctl put "$T/data" oss://box/data
ctl put "$T/large" oss://box/large

# got: the object comes back whole. sent FILE: it arrives whole.
got() {
	ctl get oss://box/data "$T/back"
	cmp "$T/data" "$T/back"
}
sent() {
	ctl put "$T/$1" oss://box/sent
	faults '[]'
	ctl get oss://box/sent "$T/back"
	cmp "$T/$1" "$T/back"
}

faults '[{"fault":"status","op":"GetObject","count":3}]'
got
faults '[{"fault":"reset","op":"GetObject","after":1000000,"count":2}]'
got
faults '[{"fault":"truncate","op":"GetObject","after":500000,"count":2}]'
got
faults '[{"fault":"ignore-range","op":"GetObject","count":2},
	{"fault":"truncate","op":"GetObject","after":500000,"count":1}]'
got
faults '[{"fault":"extra","op":"GetObject","bytes":10,"count":1}]'
got
faults '[{"fault":"drop","count":2}]'
got

faults '[{"fault":"status","status":503,"code":"QpsLimitExceeded","count":1}]'
sent data
faults '[{"fault":"crc","op":"PutObject","count":1}]'
sent data
faults '[{"fault":"no-crc","op":"PutObject","count":1}]'
sent data
faults '[{"fault":"reset-upload","op":"PutObject","after":1000000,"count":2}]'
sent data
faults '[{"fault":"commit-then-500","op":"PutObject","count":1}]'
sent data
faults '[{"fault":"crc","op":"UploadPart","count":2}]'
sent large
faults '[{"fault":"no-crc","op":"UploadPart"},
	{"fault":"no-crc","op":"CompleteMultipartUpload"}]'
sent large

# A completion that happened is not done twice, nor is the file sent again.
before=$(requests UploadPart)
faults '[{"fault":"commit-then-500","op":"CompleteMultipartUpload","count":1}]'
sent large
[ $(($(requests UploadPart) - before)) -eq 5 ] || fail 'parts were sent again'

# Half a batch deleted: the rest is sent again.
for i in 1 2 3 4 5; do ctl put "$T/keys" "oss://box/many/$i"; done
faults '[{"fault":"short-delete","keep":2,"count":2}]'
ctl rm -r oss://box/many/
[ "$(ctl ls oss://box/many/ --json)" = '[]' ] || fail 'keys were left'

# A listing that goes round in circles or lies about its order ends, and is complete.
for i in 1 2 3 4 5; do ctl put "$T/keys" "oss://box/list/$i"; done
for kind in list-duplicate list-unsorted list-empty; do
	faults "[{\"fault\":\"$kind\",\"count\":1}]"
	[ "$(ctl ls oss://box/list/ --json | jq -r '.[].key' | tr '\n' ' ')" = \
		'list/1 list/2 list/3 list/4 list/5 ' ] || fail "$kind"
done
faults '[{"fault":"list-loop"}]'
budget=1s expect_rc 69 ctl ls oss://box/list/ --json

# A byte that was flipped on the way never ends in a file.
faults '[{"fault":"flip","op":"GetObject"}]'
rm -f "$T/flipped"
budget=1s expect_rc 69 ctl get oss://box/data "$T/flipped"
[ ! -e "$T/flipped" ] || fail 'a damaged file got its name'
faults '[]'

# The store's clock: learned from its refusal, one request more.
faults '[{"fault":"skew","ms":1800000}]'
before=$(requests HeadObject)
[ "$(ctl stat oss://box/data --json | jq .size)" = 3000000 ]
[ $(($(requests HeadObject) - before)) -eq 2 ] || fail 'not one request more'
faults '[]'

# A storm that does not pass ends with the store's words.
faults '[{"fault":"status","op":"HeadObject"}]'
budget=1s expect_rc 69 ctl stat oss://box/data
grep -q ServiceUnavailable "$T/err"
