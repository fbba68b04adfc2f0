#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 between close and upload, with nobody to start another one: what was closed or
# synced is delivered by the next mount, or by recover.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data

kill_it() {
	local pid
	pid=$(json .pid)
	kill -9 "$pid"
	eventually 30 dead "$pid"
}

head -c 700000 /dev/urandom >"$T/one"
head -c 20000000 /dev/urandom >"$T/two"

mount_sluice oss://data "$T/mnt" output --restart off
store_away
cp "$T/one" "$T/mnt/one"
mkdir "$T/mnt/dir"
cp "$T/two" "$T/mnt/dir/two"
[ "$(json .output.files_pending)" -gt 0 ] || fail "nothing is pending, so this tests nothing"
expect_rc 75 timeout 30 "$bin/sluice" flush "$T/mnt" --deadline 300ms
grep -q 'not in the store' "$T/err" || fail "$(cat "$T/err")"
kill_it
[ "$("$bin/sluice" status "$T/mnt" --json | jq -r .state)" = dead ] || fail "not seen as dead"
expect_rc 75 timeout 30 "$bin/sluice" umount "$T/mnt"
grep -q recover "$T/err" || fail "umount of a dead mount says nothing of its uploads"
store_back
[ ! -e "$S/one" ] || fail "uploaded already, so this tests nothing"

mount_sluice oss://data "$T/mnt" output --restart off
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
cmp "$T/one" "$S/one" && cmp "$T/two" "$S/dir/two"

# The same without another mount.
mount_sluice oss://data "$T/mnt" output --restart off
store_away
cp "$T/two" "$T/mnt/three"
dd if="$T/one" of="$T/mnt/one" bs=100000 conv=notrunc,fsync status=none
kill_it
umount -l "$T/mnt"
store_back
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/state" --json
jq -e '.pending | length == 0' "$T/out" >/dev/null || fail "receipt: $(cat "$T/out")"
cmp "$T/two" "$S/three" && cmp "$T/one" "$S/one"

# Nothing is pending: nothing is done, and that is success.
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/state"

# A journal that is damaged in the middle: what is whole is stored, and it is no success.
mount_sluice oss://data "$T/mnt" output --restart off
store_away
for i in 1 2 3 4; do
	echo "file $i" >"$T/mnt/damaged$i"
	sync "$T/mnt/damaged$i"
done
kill_it
umount -l "$T/mnt"
store_back
wal=$(find "$T/state/journal" -name '*.wal')
printf 'XXXX' | dd of="$wal" bs=1 seek=1124 conv=notrunc status=none
expect_rc 70 timeout 60 "$bin/sluice" recover --state-dir "$T/state" --json
jq -e '.damaged > 0' "$T/out" >/dev/null || fail "receipt: $(cat "$T/out")"
grep -q quarantine "$T/err" || fail "$(cat "$T/err")"
[ "$(cat "$S/damaged4")" = "file 4" ] || fail "what is whole is not stored"
