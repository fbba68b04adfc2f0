#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every fault the server can be told to have, seen from outside.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
mkdir "$T/oss"
"$bin/ossd" --root "$T/oss" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --no-auth --bucket data \
	>"$T/ossd.out" 2>"$T/ossd.err" &
defer stop_pid $!
eventually 30 grep -q ^admin "$T/ossd.out"
OSS_ENDPOINT=$(sed -n 's/^ready //p' "$T/ossd.out")
OSS_ADMIN=$(sed -n 's/^admin //p' "$T/ossd.out")
url=$OSS_ENDPOINT/data

head -c 300000 /dev/urandom >"$T/body"
curl -sf -T "$T/body" "$url/obj"
status() { curl -s -m 20 -o "$T/got" -D "$T/headers" -w '%{http_code}' "$@" || true; }
# rc CODE ARGUMENT…: curl must end with this code.
rc() {
	local want=$1 rc=0
	shift
	curl -s -m 20 -o "$T/got" -D "$T/headers" "$@" || rc=$?
	[ "$rc" -eq "$want" ] || fail "curl ended with $rc, expected $want: $*"
}
header() { tr -d '\r' <"$T/headers" | awk -v n="$1:" 'tolower($1) == n {print $2}'; }
expect() { [ "$1" = "$2" ] || fail "got \"$1\", expected \"$2\""; }
millis() { date +%s%3N; }

# status, with skip, count, a code, Retry-After and a body of its own
faults '[{"op":"GetObject","skip":1,"count":2,"fault":"status","status":429,"code":"Slow","retry_after":3}]'
expect "$(status "$url/obj")" 200
expect "$(status "$url/obj")" 429
grep -q '<Code>Slow</Code>' "$T/got"
expect "$(header retry-after)" 3
expect "$(status "$url/obj")" 429
expect "$(status "$url/obj")" 200
expect "$(curl -sf "$OSS_ADMIN/faults" | jq '.[0].hits')" 2
faults '[{"key":"ob*","fault":"status","status":502,"body":"<html>bad gateway</html>"}]'
expect "$(status "$url/obj")" 502
expect "$(cat "$T/got")" '<html>bad gateway</html>'
expect "$(status "$url/another")" 404

# commit-then-500: it happened, and nobody was told
faults '[{"op":"PutObject","count":1,"fault":"commit-then-500"}]'
expect "$(status -T "$T/body" "$url/committed")" 500
cmp "$T/body" "$T/oss/data/committed"

# drop and reset: no answer; reset behind some bytes; reset while uploading
faults '[{"fault":"drop"}]'
rc 52 "$url/obj"
faults '[{"op":"DeleteObject","fault":"reset"}]'
rc 56 -X DELETE "$url/committed"
[ ! -e "$T/oss/data/committed" ] || fail "reset came before the operation"
faults '[{"op":"GetObject","fault":"reset","after":100000}]'
rc 56 "$url/obj"
expect "$(stat -c %s "$T/got")" 100000
faults '[{"op":"PutObject","fault":"reset-upload","after":65536}]'
rc=0
curl -s -m 20 -H Expect: -T "$T/body" "$url/cut" || rc=$?
[ "$rc" -eq 55 ] || [ "$rc" -eq 56 ] || fail "reset-upload: curl ended with $rc"
faults '[]'
expect "$(status "$url/cut")" 404

# truncate, extra, flip
faults '[{"op":"GetObject","fault":"truncate","after":1234}]'
rc 18 "$url/obj"
expect "$(stat -c %s "$T/got")" 1234
expect "$(header content-length)" 300000
faults '[{"op":"GetObject","fault":"extra","bytes":5}]'
expect "$(status "$url/obj")" 200
expect "$(stat -c %s "$T/got")" 300005
faults '[{"op":"GetObject","fault":"flip","after":777}]'
expect "$(status "$url/obj")" 200
expect "$(cmp -l "$T/body" "$T/got" | awk '{print $1}')" 778

# crc, no-crc, header
crc=$(curl -sfI "$url/obj" | tr -d '\r' | awk 'tolower($1) == "x-oss-hash-crc64ecma:" {print $2}')
faults '[{"fault":"crc"}]'
expect "$(status "$url/obj")" 200
[ "$(header x-oss-hash-crc64ecma)" != "$crc" ] || fail "crc: the right one"
faults '[{"fault":"no-crc"},{"fault":"header","name":"x-oss-qos-delay-time","value":"80"}]'
expect "$(status "$url/obj")" 200
expect "$(header x-oss-hash-crc64ecma)" ""
expect "$(header x-oss-qos-delay-time)" 80

# latency and bandwidth together, in both directions; slow; stall
faults '[{"fault":"latency","ms":200},{"fault":"bandwidth","rate":1000000}]'
start=$(millis)
expect "$(status "$url/obj")" 200
took=$(($(millis) - start))
[ "$took" -ge 450 ] && [ "$took" -lt 3000 ] || fail "latency and bandwidth: $took ms"
cmp "$T/body" "$T/got"
start=$(millis)
expect "$(status -T "$T/body" "$url/slow")" 200
[ $(($(millis) - start)) -ge 450 ] || fail "bandwidth of an upload: $(($(millis) - start)) ms"
faults '[{"op":"GetObject","fault":"slow","rate":500000}]'
start=$(millis)
expect "$(status "$url/obj")" 200
[ $(($(millis) - start)) -ge 500 ] || fail "slow"
faults '[{"op":"GetObject","fault":"stall","after":1000}]'
rc 28 -m 1 "$url/obj"
expect "$(stat -c %s "$T/got")" 1000
idle() { [ "$(oss_stat .in_flight)" = 0 ]; }
eventually 30 idle

# expired-token, ignore-range, short-delete
faults '[{"fault":"expired-token","count":1}]'
expect "$(status "$url/obj")" 403
grep -q '<Code>SecurityTokenExpired</Code>' "$T/got"
faults '[{"fault":"ignore-range"}]'
expect "$(status -r 0-9 "$url/obj")" 200
expect "$(stat -c %s "$T/got")" 300000
faults '[{"fault":"short-delete","keep":1}]'
curl -sf -T "$T/body" "$url/d1"
curl -sf -T "$T/body" "$url/d2"
xml='<Delete><Object><Key>d1</Key></Object><Object><Key>d2</Key></Object></Delete>'
expect "$(status -X POST --data-binary "$xml" \
	-H "Content-MD5: $(printf %s "$xml" | openssl md5 -binary | base64)" "$url/?delete")" 200
expect "$(grep -o '<Deleted>' "$T/got" | wc -l)" 1
[ ! -e "$T/oss/data/d1" ] && [ -e "$T/oss/data/d2" ] || fail "short-delete"

# listings that lie
keys() { curl -s -m 20 "$url/?list-type=2&max-keys=2&${1-}" | tee "$T/got" | grep -o '<Key>[^<]*' | cut -d'>' -f2 | tr '\n' ' '; }
faults '[]'
expect "$(keys)" "d2 obj "
faults '[{"fault":"list-duplicate"}]'
expect "$(keys)" "d2 d2 obj obj "
faults '[{"fault":"list-unsorted"}]'
expect "$(keys)" "obj d2 "
faults '[{"fault":"list-empty"}]'
expect "$(keys)" ""
grep -q '<IsTruncated>true</IsTruncated>' "$T/got"
faults '[{"fault":"list-loop"}]'
keys >/dev/null
token=$(grep -o '<NextContinuationToken>[^<]*' "$T/got" | cut -d'>' -f2)
keys "continuation-token=$token" >/dev/null
expect "$(grep -o '<NextContinuationToken>[^<]*' "$T/got" | cut -d'>' -f2)" "$token"

# the clock of the server; probability; bad programs; statistics
faults '[{"fault":"skew","ms":3600000}]'
expect "$(status "$url/obj")" 200
ahead=$(($(date -d "$(tr -d '\r' <"$T/headers" | sed -n 's/^Date: //p')" +%s) - $(date +%s)))
[ "$ahead" -ge 3590 ] && [ "$ahead" -le 3600 ] || fail "skew: $ahead s"
expect "$(curl -s -o "$T/got" -w '%{http_code}' -X PUT --data '[{"fault":"statsu"}]' "$OSS_ADMIN/faults")" 400
grep -q 'did you mean' "$T/got"
expect "$(curl -sf "$OSS_ADMIN/faults" | jq -r '.[0].fault')" skew
curl -sf -X DELETE "$OSS_ADMIN/faults" >/dev/null
curl -sf -X DELETE "$OSS_ADMIN/stats"
expect "$(oss_stat .total)" 0
status -r 0-99 "$url/obj" >/dev/null
status "$url/none" >/dev/null
expect "$(oss_stat '[.requests.GetObject, .bytes_out >= 100, .errors.NoSuchKey, .statuses["206"]] | tostring')" '[2,true,1,1]'
