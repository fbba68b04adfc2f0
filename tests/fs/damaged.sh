#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Staged files are gone, cut short, while no daemon runs: who starts next, a recovery or a mount,
# says so, nothing wrong is uploaded, all other files arrive.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
M=$T/mnt
# Too large to travel in the journal, and told apart in the stage by their sizes.
declare -A size=([gone]=1000001 [cut]=1000002 [replaced]=1000003 [whole]=1000004)
for f in "${!size[@]}"; do head -c "${size[$f]}" /dev/urandom >"$T/$f"; done
# staged NAME: the file that holds its bytes.
staged() { find "$T/state/stage" -type f -size "${size[$1]}c"; }
# leave_damage WHERE: a daemon dies with all of them pending, and the disk loses two and the end of a third.
leave_damage() {
	local pid f
	S=$T/oss/data/$1
	rm -rf "$T/state"
	mkdir -p "$S"
	echo old >"$S/replaced"
	mount_sluice "oss://data/$1" "$M" output --restart off
	store_away
	for f in "${!size[@]}"; do cp "$T/$f" "$M/$f"; done
	echo small >"$M/small"
	pid=$(json .pid)
	kill -9 "$pid"
	eventually 30 dead "$pid"
	umount -l "$M"
	for f in "${!size[@]}"; do
		[ "$(staged "$f" | wc -l)" -eq 1 ] || fail "$f is not staged"
	done
	rm "$(staged gone)" "$(staged replaced)"
	truncate -s 500000 "$(staged cut)"
	store_back
}
# told LOG: the receipt counts them, the log names them; the store has what is whole.
told() {
	local f
	jq -e '.status == "pending" and .damaged == 3' "$T/out" >"$T/jq" || fail "receipt: $(cat "$T/out")"
	for f in gone cut replaced; do
		grep -q "acknowledged content is damaged name=$f " "$1" || fail "$f: $(cat "$1")"
	done
	cmp "$T/whole" "$S/whole"
	[ "$(cat "$S/small")" = small ] || fail "a whole small file did not arrive"
	[ "$(cat "$S/replaced")" = old ] || fail "the former version was replaced"
	for f in gone cut; do [ ! -e "$S/$f" ] || fail "$f: something was uploaded"; done
}

leave_damage recovery
# As often as anyone asks; what is left of them is moved aside.
for _ in 1 2; do
	expect_rc 75 timeout 60 "$bin/sluice" recover --state-dir "$T/state" --json
	told "$T/err"
	[ "$(jq -r '.pending[].path' "$T/out" | sort | xargs)" = "cut gone replaced" ] ||
		fail "pending: $(cat "$T/out")"
	grep -q '3 files are not in the store yet' "$T/err" || fail "$(cat "$T/err")"
done
[ "$(find "$T/state/quarantine" -type f -size 500000c | wc -l)" -eq 1 ] || fail "what was left is not in the quarantine"

leave_damage mount
mount_sluice oss://data/mount "$M" output 2>"$T/mount.err"
json '.output.detail | .health == "degraded" and .recovered.lost_contents == 3' >"$T/jq" ||
	fail "status: $(json .output.detail)"
eventually 30 cmp "$T/whole" "$S/whole"
eventually 30 test -s "$S/small"
expect_rc 75 timeout 60 "$bin/sluice" flush "$M" --deadline 1s --json
told "$T/mount.err"
# Written again they are files as any other, and removed no more missed.
for f in cut replaced; do cp "$T/$f" "$M/$f"; done
rm "$M/gone"
again() { cmp "$T/cut" "$S/cut" && cmp "$T/replaced" "$S/replaced"; }

eventually 30 again

expect_rc 0 timeout 60 "$bin/sluice" flush "$M" --json
jq -e '.status == "stored" and .damaged == 0' "$T/out" >"$T/jq" || fail "receipt: $(cat "$T/out")"
json '.output.detail.health == "good"' >"$T/jq" || fail "status: $(json .output.detail)"
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
