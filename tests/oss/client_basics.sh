#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ossctl against the local server: every command, both signatures, odd names, exit codes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
start_ossd
ctl() { "$bin/ossctl" "$@" --retry-for 2s; }

head -c 300000 /dev/urandom >"$T/small"
head -c 41000000 /dev/urandom >"$T/large"
: >"$T/empty"
for signature in v4 v1; do
	bucket=oss://box-$signature
	ctl mb "$bucket" --signature $signature
	ctl mb "$bucket" --signature $signature
	for name in small large empty; do
		ctl put "$T/$name" "$bucket/dir/" --signature $signature
		ctl get "$bucket/dir/$name" "$T/back" --signature $signature
		cmp "$T/$name" "$T/back"
	done
	key=$'odd/a b+c%25&=?#\xe4\xb8\xad*!\'()~.txt'
	echo text | ctl put - "$bucket/$key" --signature $signature
	[ "$(ctl get "$bucket/$key" - --signature $signature)" = text ]
	ctl cp "$bucket/$key" "$bucket/copied" --signature $signature
	[ "$(ctl get "$bucket/copied" -)" = text ]
	[ "$(ctl ls "$bucket/odd/" --json | jq -r '.[].key')" = "$key" ]
	[ "$(ctl ls "$bucket" --dirs --json | jq -r '.[].key' | tr '\n' ' ')" = \
		'copied dir/ odd/ ' ]
	[ "$(ctl stat "$bucket/dir/small" --json | jq .size)" = 300000 ]
	ctl rm "$bucket/copied" --signature $signature
	ctl rm "$bucket/copied" --signature $signature
	expect_rc 78 ctl stat "$bucket/copied"
	ctl rm -r "$bucket/" --signature $signature
	[ "$(ctl ls "$bucket" --json)" = '[]' ]
done

# The bucket in the host's name, and --no-auth's opposite: nothing at all to sign with.
port=${OSS_ENDPOINT##*:}
echo text | ctl put - oss://box-v4/virtual --endpoint "http://localhost:$port" \
	--addressing virtual
[ "$(ctl get oss://box-v4/virtual - --addressing path)" = text ]
expect_rc 77 ctl get oss://box-v4/virtual - --credentials anonymous
ctl rm oss://box-v4/virtual

# Across stores.
mkdir "$T/tree"
ctl cp "file://$T/small" "file://$T/tree/"
cmp "$T/small" "$T/tree/small"
ctl cp "file://$T/small" oss://box-v4/from-file
ctl cp oss://box-v4/from-file "file://$T/tree/again"
cmp "$T/small" "$T/tree/again"

# What cannot work says so, in one line.
expect_rc 64 ctl stat nonsense
expect_rc 78 ctl ls oss://no-such-bucket
grep -q NoSuchBucket "$T/err"
grep -q 'request [0-9A-F]\{24\}' "$T/err"
OSS_ACCESS_KEY_SECRET=wrong expect_rc 77 ctl ls oss://box-v4
! grep -q wrong "$T/err" || fail 'the secret is in the error text'
[ "$(wc -l <"$T/err")" -eq 1 ]
expect_rc 69 ctl ls oss://box-v4 --endpoint http://127.0.0.1:1
unset OSS_ACCESS_KEY_ID
expect_rc 78 ctl ls oss://box-v4
