#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Both roles over a bucket: what the store holds is read byte for byte, from the cache the
# second time, and what is written arrives byte for byte.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data
store=(--endpoint "$OSS_ENDPOINT" --region cn-hangzhou)
ctl() { timeout 60 "$bin/ossctl" "$@" "${store[@]}"; }

mkdir -p "$T/src/deep/er"
head -c 9000001 /dev/urandom >"$T/src/large"
head -c 70000 /dev/urandom >"$T/src/deep/small"
printf 'grüße' >"$T/src/deep/er/ein name+mit %41.txt"
: >"$T/src/empty"
while read -r name; do
	ctl put "$T/src/$name" "oss://data/set/$name"
done < <(cd "$T/src" && find . -type f -printf '%P\n')

mount_sluice oss://data/set "$T/in" input
diff -r "$T/src" "$T/in"
[ "$(stat -c %s "$T/in/large")" -eq 9000001 ] || fail 'size of the large object'
touch "$T/in/new" 2>/dev/null && fail '/input took a new file'

# From another process the cache answers: no object is asked for again.
timeout 30 "$bin/sluice" umount "$T/in"
before=$(oss_stat '.requests.GetObject // 0')
mount_sluice oss://data/set "$T/in" input
diff -r "$T/src" "$T/in"
[ "$(oss_stat '.requests.GetObject // 0')" -eq "$before" ] ||
	fail 'objects were fetched again although the cache holds them'
timeout 30 "$bin/sluice" umount "$T/in"

# A replaced object is a new file for those who open it later.
head -c 9000001 /dev/urandom >"$T/src/large"
ctl put "$T/src/large" oss://data/set/large
mount_sluice oss://data/set "$T/in" input
cmp "$T/src/large" "$T/in/large"

# Answers cut short, reset or refused are repaired before a reader sees them.
rm -rf "$T/cache2"
faults '[{"op":"GetObject","fault":"truncate","after":300000,"count":3},
	 {"op":"GetObject","fault":"reset","after":100000,"count":2},
	 {"op":"GetObject","fault":"status","status":503,"code":"ServiceUnavailable","count":2}]'
mount_sluice oss://data/set "$T/in2" input --cache-dir "$T/cache2"
diff -r "$T/src" "$T/in2"
faults '[]'

mount_sluice oss://data/results "$T/results" output
cp -r "$T/src/." "$T/results/"
mkdir "$T/results/dir"
mv "$T/results/deep/small" "$T/results/dir/moved"
echo one >"$T/results/log"
echo two >>"$T/results/log"
rm "$T/results/empty"
timeout 60 "$bin/sluice" flush "$T/results" --json >"$T/receipt"
jq -e '.pending | length == 0' "$T/receipt" >/dev/null || fail "receipt: $(cat "$T/receipt")"
for pair in large:large deep/small:dir/moved; do
	ctl get "oss://data/results/${pair#*:}" "$T/got"
	cmp "$T/src/${pair%:*}" "$T/got"
done
ctl get oss://data/results/log "$T/got"
[ "$(cat "$T/got")" = $'one\ntwo' ] || fail "the log in the store: $(cat "$T/got")"
expect_rc 78 ctl get oss://data/results/empty "$T/got"
timeout 60 "$bin/sluice" umount "$T/results"

# The folder of the server holds the very files.
cmp "$T/src/large" "$T/oss/data/results/large"
