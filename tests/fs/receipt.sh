#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What flush says is true: what is pending, what the store has and as what. And a close makes
# one version of the object, however often the file is flushed.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
M=$T/mnt
puts() { oss_stat '.requests.PutObject // 0'; }
flush() { expect_rc "$1" timeout 60 "$bin/sluice" flush "$M" --json "${@:2}"; }
# made N WHAT: so many objects have been stored since the last look.
made() {
	flush 0
	[ $(($(puts) - before)) -eq "$1" ] || fail "$2 made $(($(puts) - before)) objects, not $1"
	before=$(puts)
}

mkdir "$T/tree"
for i in $(seq 50); do head -c $((i * 400)) /dev/urandom >"$T/tree/$i"; done
head -c 300000 /dev/urandom >"$T/tree/large"
for how in on off; do
	mount_sluice oss://data "$M" output --passthrough $how --publish-interval 0
	before=$(puts)
	cp -r "$T/tree" "$M/$how"
	made 52 "a directory of 51 files" # it has an object too
	: 3<>"$M/$how/1"
	made 0 "a close of an unchanged file"
	python3 - "$M/$how/1" <<-'END'
		import os, sys
		for _ in range(2):
		    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
		    if _ == 0:
		        os.write(fd, b"more")
		        os.close(os.dup(fd))
		        os.fsync(fd)
		    os.close(fd)
	END
	made 1 "a file that was flushed, synced and closed twice"
	receipt_is_true "$T/out"
	[ "$(jq '.files | length' "$T/out")" -ge 51 ] || fail "files: $(cat "$T/out")"

	store_away
	cp "$T/tree/large" "$M/$how/pending"
	cp "$T/tree/1" "$M/$how/2"
	flush 75 --deadline 1s
	jq -e --arg d "$how" '.status == "pending" and .files_pending == 2 and
		([.pending[].path] | sort) == [$d + "/2", $d + "/pending"]' "$T/out" >/dev/null ||
		fail "receipt: $(cat "$T/out")"
	store_back
	flush 0
	jq -e '.status == "stored" and .pending == []' "$T/out" >/dev/null ||
		fail "receipt: $(cat "$T/out")"
	receipt_is_true "$T/out"
	# A link in the place of a file, in the bucket too: the file is not there any more.
	ln -sf pending "$M/$how/2"
	flush 0
	receipt_is_true "$T/out"
	jq -e --arg k "$how/2" '[.files[] | select(.key == $k)] == []' "$T/out" >/dev/null ||
		fail "receipt: $(cat "$T/out")"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
	cmp "$T/tree/large" "$T/oss/data/$how/pending"
done
