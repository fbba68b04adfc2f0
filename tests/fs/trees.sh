#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trees of /output that nobody has listed: a rename shows at once and asks the store
# nothing, goes on after a restart, and the old name is free; removing one is few requests.
# SLUICE_TREE_COUNT=100000 makes the tree as large as those of real jobs.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

count=${SLUICE_TREE_COUNT:-2500}
patience=$((120 + count / 100)) # seconds for all of them to be moved or removed
mkdir -p "$T/oss/data/tree/deep" "$T/oss/data/other"
for ((i = 0; i < count; i++)); do echo "$i" >"$T/oss/data/tree/deep/$i"; done
last=$((count - 1))
echo other >"$T/oss/data/other/file"
start_ossd --bucket data --region cn-hangzhou
requests() { oss_stat "[.requests | to_entries[] | select(.key | test(\"$1\")) | .value] | add // 0"; }
mnt=$T/mnt
mount_sluice oss://data "$mnt" output

# The store lists and copies nothing, yet the tree is where it was moved to.
ls "$mnt" >/dev/null
faults '[{"op":"ListObjects","fault":"status","status":503},{"op":"ListObjectsV2","fault":"status","status":503},
	{"op":"CopyObject","fault":"status","status":503}]'
mv "$mnt/tree" "$mnt/moved"
[ ! -e "$mnt/tree" ] && [ -d "$mnt/moved" ] || fail "the rename is not visible"
mkdir "$mnt/tree"
echo new >"$mnt/tree/new"
expect_rc 75 timeout 60 "$bin/sluice" flush "$mnt" --deadline 1 --json
jq -e '.status == "pending" and .moving == 1' "$T/out" >/dev/null || fail "receipt: $(cat "$T/out")"
# What is not counted yet is not hidden: on a terminal, at the end, in the status.
more='below 1 renamed director.*not counted yet'
expect_rc 75 timeout 60 "$bin/sluice" flush "$mnt" --deadline 1
grep -q "$more" "$T/err" || fail "flush: $(cat "$T/err")"
expect_rc 0 "$bin/sluice" status "$mnt"
grep -q "$more" "$T/out" || fail "status: $(cat "$T/out")"
expect_rc 75 timeout 60 script -qec "stty cols 100; '$bin/sluice' flush '$mnt' --deadline 1" "$T/terminal"
grep -q 'files and more in 1 renamed directory' "$T/terminal" || fail "line: $(cat "$T/terminal")"
expect_rc 75 timeout 60 "$bin/sluice" umount "$mnt" --deadline 1
grep -q "$more" "$T/err" || fail "umount: $(cat "$T/err")"
[ "$(requests CopyObject)" -ge 0 ] && [ -e "$T/oss/data/tree/deep/7" ] || fail "something was moved"

# Another mount goes on. Some copies are made and not acknowledged, some deletes cut short.
faults '[{"op":"CopyObject","fault":"commit-then-500","probability":0.05},
	{"op":"DeleteMultipleObjects","fault":"short-delete","keep":100,"count":2}]'
mount_sluice oss://data "$mnt" output
[ "$(cat "$mnt/moved/deep/7")" = 7 ] || fail "what has not moved yet cannot be read"
mv "$mnt/moved/deep" "$mnt/deep"
[ "$(ls "$mnt/tree")" = new ] || fail "the new directory shows what is not its own"
expect_rc 0 timeout $patience "$bin/sluice" flush "$mnt" --json
jq -e ".moving == 0 and .files_moved >= $count" "$T/out" >/dev/null || fail "receipt: $(head -c 300 "$T/out")"
[ "$(find "$T/oss/data/deep" -type f | wc -l)" -eq "$count" ] || fail "objects are missing in the store"
[ "$(cat "$T/oss/data/deep/$last")" = "$last" ] || fail "wrong bytes"
[ "$(find "$T/oss/data/tree" -type f)" = "$T/oss/data/tree/new" ] || fail "objects are left behind"
[ "$(find "$mnt/deep" -type f | wc -l)" -eq "$count" ] || fail "files are missing"

# Removing it.
faults '[]'
before=$(requests '^Delete')
rm -r "$mnt/deep"
expect_rc 0 timeout $patience "$bin/sluice" flush "$mnt"
[ ! -e "$T/oss/data/deep" ] || [ -z "$(find "$T/oss/data/deep" -type f)" ] || fail "not removed"
cost=$(($(requests '^Delete') - before))
[ "$cost" -le $((20 + count / 500)) ] || fail "$cost requests to delete $count objects"
expect_rc 0 timeout 60 "$bin/sluice" umount "$mnt"
