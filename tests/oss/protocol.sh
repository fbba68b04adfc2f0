#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What no SDK shows: refusals on the wire, sub-resources, anonymous requests, the region, the
# clock, raw targets, virtual hosts, and the command line's own errors.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
start_ossd --bucket data --region cn-hangzhou --suffix oss.test
url=$OSS_ENDPOINT/data

# signed METHOD TARGET [CURL ARGUMENT…]: V4 with openssl, for targets without a query but
# sub-resources ("/data/key?acl"); HEADERS are further x-oss- lines, sorted behind x-oss-date.
signed() {
	local method=$1 target=$2 date region=${REGION:-cn-hangzhou} scope canonical key query=
	shift 2
	date=$(date -u -d "${WHEN:-now}" +%Y%m%dT%H%M%SZ)
	scope=${date:0:8}/$region/oss/aliyun_v4_request
	[[ $target != *\?* ]] || query=${target#*\?}
	canonical=$(printf '%s\n%s\n%s\nx-oss-content-sha256:UNSIGNED-PAYLOAD\nx-oss-date:%s\n\n\nUNSIGNED-PAYLOAD' \
		"$method" "${target%%\?*}" "$query" "$date")
	hmac() { openssl dgst -sha256 -mac HMAC -macopt "$1" -binary | od -An -v -tx1 | tr -d ' \n'; }
	key=$(printf '%s' "${date:0:8}" | hmac "key:aliyun_v4$OSS_ACCESS_KEY_SECRET")
	for part in "$region" oss aliyun_v4_request; do
		key=$(printf '%s' "$part" | hmac "hexkey:$key")
	done
	key=$(printf 'OSS4-HMAC-SHA256\n%s\n%s\n%s' "$date" "$scope" \
		"$(printf '%s' "$canonical" | sha256sum | cut -d' ' -f1)" | hmac "hexkey:$key")
	curl -s -m 20 -o "$T/got" -D "$T/headers" -w '%{http_code}' --path-as-is -X "$method" \
		-H "x-oss-date: $date" -H 'x-oss-content-sha256: UNSIGNED-PAYLOAD' -H 'Content-Type:' \
		-H "Authorization: OSS4-HMAC-SHA256 Credential=$OSS_ACCESS_KEY_ID/$scope, Signature=$key" \
		"$@" "$OSS_ENDPOINT$target" || true
}
plain() { rm -f "$T/got"; curl -s -m 20 -o "$T/got" -D "$T/headers" -w '%{http_code}' --path-as-is "$@" || true; }
header() { tr -d '\r' <"$T/headers" | awk -v n="$1:" 'tolower($1) == n {sub(/^[^:]*: */, ""); print}'; }
expect() { [ "$1" = "$2" ] || fail "got \"$1\", expected \"$2\" ($(head -c 600 "$T/got"))"; }
code() { grep -q "<Code>$1</Code>" "$T/got" || fail "expected $1: $(head -c 600 "$T/got")"; }

# ---- signatures ----
printf hello >"$T/hello"
expect "$(signed PUT /data/a%20b/../c%2Bd --data-binary "@$T/hello")" 200
expect "$(header etag)" '"5D41402ABC4B2A76B9719D911017C592"'
[[ $(header x-oss-request-id) =~ ^[0-9A-F]{24}$ ]] || fail "request id"
expect "$(header server)" AliyunOSS
expect "$(signed GET /data/a%20b/../c%2Bd)" 200
expect "$(cat "$T/got")" hello
expect "$(OSS_ACCESS_KEY_SECRET=wrong signed GET /data/a)" 403
code SignatureDoesNotMatch
grep -q '<CanonicalRequest>GET' "$T/got" || fail "no canonical request"
! grep -q "$OSS_ACCESS_KEY_SECRET" "$T/got" || fail "the secret leaks"
expect "$(WHEN='16 minutes ago' signed GET /data/a)" 403
code RequestTimeTooSkewed
grep -q '<MaxAllowedSkewMilliseconds>900000<' "$T/got" || fail "no skew"
expect "$(REGION=cn-beijing signed GET /data/a)" 403
code AccessDenied
grep -q '<Endpoint>oss-cn-hangzhou.aliyuncs.com</Endpoint>' "$T/got" || fail "no endpoint"
expect "$(plain "$url/a")" 403
code AccessDenied
expect "$(plain -H 'Authorization: OSS nobody:c2ln' -H "Date: $(date -u '+%a, %d %b %Y %T GMT')" "$url/a")" 403
code InvalidAccessKeyId
expect "$(plain -H 'Authorization: Basic x' "$url/a")" 400

# A refused upload is not sent at all when the client asks first; else it is swallowed whole.
head -c 3000000 /dev/zero >"$T/big"
expect "$(plain -T "$T/big" "$url/big" --expect100-timeout 5)" 403
curl -s -m 20 -o /dev/null -w '%{size_upload}' --expect100-timeout 5 -T "$T/big" "$url/big" >"$T/sent"
expect "$(cat "$T/sent")" 0
expect "$(plain -T "$T/big" -H Expect: "$url/big")" 403

# ---- an open bucket, a second server ----
mkdir "$T/open"
"$bin/ossd" --root "$T/open" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --no-auth --bucket data \
	--suffix oss.test >"$T/open.out" 2>"$T/open.err" &
open_pid=$!
defer stop_pid "$open_pid"
eventually 30 grep -q ^admin "$T/open.out"
OSS_ENDPOINT=$(sed -n 's/^ready //p' "$T/open.out")
url=$OSS_ENDPOINT/data

expect "$(plain -T "$T/big" -H 'Transfer-Encoding: chunked' "$url/chunked")" 200
cmp "$T/big" "$T/open/data/chunked"
expect "$(plain -X PUT -H 'Content-Length:' -H 'Transfer-Encoding:' "$url/nolength")" 411
code MissingContentLength
expect "$(plain -T "$T/hello" -H 'Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==' "$url/k")" 400
code InvalidDigest
expect "$(plain -T "$T/hello" -H 'x-oss-hash-crc64ecma: 1' "$url/k")" 400
code InvalidCRC64
expect "$(plain -T "$T/hello" -H 'If-None-Match: *' "$url/k")" 400
expect "$(plain -T "$T/hello" -H 'Expect:' -H 'Content-Length: 6000000000' "$url/k")" 400
code EntityTooLarge
expect "$(plain -T "$T/hello" "$url/k" -H "x-oss-meta-$(printf 'k%.0s' $(seq 200)): $(printf 'v%.0s' $(seq 8000))")" 400
[ ! -e "$T/open/data/k" ] || fail "a refused PUT left an object"

expect "$(plain -I "$url/none")" 404
expect "$(header x-oss-err | base64 -d | grep -o '<Code>[^<]*')" '<Code>NoSuchKey'
expect "$(plain "$url?lifecycle")" 404
expect "$(plain -X PUT -d '<x/>' "$url?lifecycle")" 400
code NotImplemented
expect "$(plain "$url/chunked?x-oss-process=image/info")" 400
expect "$(plain -X POST "$url/chunked?location")" 405
expect "$(plain -X DELETE "$url?stat")" 405
expect "$(plain -X POST "$url/chunked?restore")" 400
code OperationNotSupported
expect "$(plain -X POST --data '<Delete>' -H "Content-MD5: $(printf '<Delete>' | openssl md5 -binary | base64)" "$url?delete")" 400
code MalformedXML
expect "$(plain "$url?max-keys=1001")" 400
expect "$(plain "$url?list-type=2&continuation-token=%21")" 400
expect "$(plain "$OSS_ENDPOINT/UPPER/k")" 400
code InvalidBucketName
expect "$(plain "$OSS_ENDPOINT/data//k")" 400
code InvalidObjectName
expect "$(plain "$OSS_ENDPOINT/no-such-bucket/k")" 404
code NoSuchBucket

# A key is what stands on the wire, decoded once.
for key in 'a/../b' 'a//b' './x' '..' 'dir/' '%25' 'q%3Fm' '%E4%B8%AD' 'tab%09'; do
	printf '%s' "$key" >"$T/body"
	expect "$(plain -X PUT --data-binary "@$T/body" "$url/raw/$key")" 200
	expect "$(plain "$url/raw/$key")" 200
	cmp "$T/body" "$T/got"
done
expect "$(plain "$url?encoding-type=url&prefix=raw/")" 200
expect "$(grep -o '<Key>' "$T/got" | wc -l)" 9

# The bucket in the host.
expect "$(plain -H 'Host: data.oss.test:80' "$OSS_ENDPOINT/hosted" -T "$T/hello")" 200
expect "$(plain -H 'Host: data.localhost' "$OSS_ENDPOINT/hosted")" 200
cmp "$T/hello" "$T/open/data/hosted"

# Responses replaced by parameters; conditional and partial answers keep their headers.
expect "$(plain "$url/hosted?response-content-type=a%2Fb&response-cache-control=no-store")" 200
expect "$(header content-type) $(header cache-control)" 'a/b no-store'
expect "$(plain -r 1-2 "$url/hosted")" 206
expect "$(cat "$T/got") $(header content-range)" 'el bytes 1-2/5'
expect "$(plain -H 'If-None-Match: "5D41402ABC4B2A76B9719D911017C592"' "$url/hosted")" 304
expect "$(stat -c %s "$T/got" 2>/dev/null || echo 0)" 0

# A limit that the client asks for: 100 KB/s.
started=$(date +%s%3N)
expect "$(plain -H 'x-oss-traffic-limit: 819200' -r 0-51199 "$url/chunked")" 206
[ $(($(date +%s%3N) - started)) -ge 400 ] || fail "not limited"
expect "$(plain -H 'x-oss-traffic-limit: 1' "$url/hosted")" 400

# An archived object is read when it has been restored.
OSS_ADMIN=$(sed -n 's/^admin //p' "$T/open.out")
expect "$(plain -T "$T/hello" -H 'x-oss-storage-class: Archive' "$url/cold")" 200
expect "$(plain "$url/cold")" 403
code InvalidObjectState
expect "$(plain -X POST "$url/cold?restore")" 202
expect "$(plain -X POST "$url/cold?restore")" 409
expect "$(plain -I "$url/cold") $(header x-oss-restore)" '200 ongoing-request="true"'
faults '[{"fault":"skew","ms":2000}]'
expect "$(plain "$url/cold")" 200
[[ $(header x-oss-restore) == 'ongoing-request="false", expiry-date='* ]] || fail "$(header x-oss-restore)"
expect "$(plain -X POST "$url/cold?restore")" 200
faults '[]'

# Appends: of the attributes only the ACL counts later on.
expect "$(plain -d one -H 'x-oss-meta-a: 1' "$url/log?append&position=0")" 200
expect "$(plain -d two -H 'x-oss-meta-a: 2' -H 'x-oss-object-acl: public-read' "$url/log?append&position=3")" 200
expect "$(plain "$url/log") $(cat "$T/got") $(header x-oss-meta-a)" '200 onetwo 1'
expect "$(plain "$url/log?acl") $(grep -o '<Grant>[^<]*' "$T/got")" '200 <Grant>public-read'

# Many requests on one connection.
curl -s -m 20 -w '\n%{num_connects}\n' "$url/hosted" "$url/none" "$url/hosted" "$url?acl" >"$T/many"
expect "$(grep -cx 0 "$T/many") $(grep -cx 1 "$T/many")" '3 1'

# ---- the command line ----
expect_rc 64 "$bin/ossd" --listen 127.0.0.1:0 --no-auth
expect_rc 64 "$bin/ossd" --root "$T/open" --listen 127.0.0.1:0
expect_rc 64 "$bin/ossd" --root "$T/x" --listen 127.0.0.1:0 --no-auth --bucket Bad_Name
expect_rc 64 "$bin/ossd" --rot "$T/open"
grep -q 'did you mean --root' "$T/err"
mkdir "$T/other"
expect_rc 64 "$bin/ossd" --root "$T/other" --listen nonsense --no-auth
expect_rc 69 "$bin/ossd" --root "$T/other" --listen "${OSS_ENDPOINT#http://}" --no-auth
expect "$(wc -l <"$T/err")" 1
grep -q 'Address already in use' "$T/err"
expect_rc 78 "$bin/ossd" --root "$T/none" --listen 127.0.0.1:0 --no-auth
expect_rc 78 "$bin/ossd" --root "$T/open" --listen 127.0.0.1:0 --no-auth
grep -q 'another ossd serves it' "$T/err"
chmod 644 "$T/keys"
expect_rc 78 "$bin/ossd" --root "$T/other" --listen 127.0.0.1:0 --key-file "$T/keys"
grep -q 'chmod 600' "$T/err"
! grep -q "$OSS_ACCESS_KEY_SECRET" "$T/err"
echo 'no colon' >"$T/bad" && chmod 600 "$T/bad"
expect_rc 78 "$bin/ossd" --root "$T/other" --listen 127.0.0.1:0 --key-file "$T/bad"

# SIGTERM ends it cleanly, also while a reply is held up.
faults '[{"fault":"latency","ms":600000}]'
curl -s -m 30 -o /dev/null "$url/hosted" &
defer stop_pid $!
held() { [ "$(oss_stat .in_flight)" = 1 ]; }
eventually 30 held
started=$SECONDS
kill "$open_pid"
rc=0
wait "$open_pid" || rc=$?
expect "$rc" 0
[ $((SECONDS - started)) -lt 10 ] || fail "the stop took $((SECONDS - started)) s"
