#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The ways a mount ends: in use, umount(8), SIGTERM, two of them, a process that hangs. In
# none of them is a process left waiting or an acknowledged byte lost.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/mnt"
start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
start() {
	mount_sluice oss://data "$T/mnt" output "$@"
	pid=$(json .pid)
}
echo data >"$T/data"

# In use: refused, told by whom, and it goes on.
start
sleep 60 >"$T/mnt/busy" &
holder=$!
eventually 30 test -e "$T/mnt/busy"
expect_rc 75 timeout 30 "$bin/sluice" umount "$T/mnt"
grep -q "in use by.*$holder " "$T/err" || fail "$(cat "$T/err")"
kill "$holder"
wait "$holder" 2>/dev/null || true
cp "$T/data" "$T/mnt/after-busy"
expect_rc 0 timeout 30 "$bin/sluice" umount "$T/mnt"
eventually 10 gone "$pid"

# umount(8): the drain comes after.
start
cp "$T/data" "$T/mnt/umount8"
umount "$T/mnt"
eventually 30 gone "$pid"
cmp "$T/data" "$S/umount8"

# Another mount name space has a copy: what was written is stored, it says who has it, and
# serves on there until that is gone.
copy() {
	"$top/tests/apart.sh" "$T" sleep 60 &
	holder=$!
	eventually 30 has_copy
}
has_copy() { [ "$(cat "/proc/$holder/comm")" = sleep ]; }
start
copy
cp "$T/data" "$T/mnt/copied"
expect_rc 0 timeout 20 "$bin/sluice" umount "$T/mnt" --json
grep -q "elsewhere.*$holder sleep.*$pid" "$T/err" || fail "$(cat "$T/err")"
jq -e '.status == "stored"' "$T/out" >/dev/null || fail "$(cat "$T/out")"
mountpoint -q "$T/mnt" && fail "still mounted here"
cmp "$T/data" "$S/copied"
nsenter --mount --target "$holder" cp "$T/data" "$T/mnt/from-there"
expect_rc 0 timeout 20 "$bin/sluice" umount "$T/mnt"
cmp "$T/data" "$S/from-there"
nsenter --mount --target "$holder" cp "$T/data" "$T/mnt/last"
kill "$holder"
eventually 30 gone "$pid"
cmp "$T/data" "$S/last"

# So it is with another mount point, also where the daemon has been replaced.
start
kill_daemon
pid=$(json .pid)
mkdir "$T/bind"
mount --bind "$T/mnt" "$T/bind"
expect_rc 0 timeout 20 "$bin/sluice" umount "$T/mnt"
grep -q "elsewhere.*$T/bind.*$pid" "$T/err" || fail "$(cat "$T/err")"
[ -e "$T/bind/last" ] || fail "not served any more"
umount "$T/bind"
eventually 30 gone "$pid"

# SIGTERM ends it there, too.
for restart in auto off; do
	start --restart $restart
	copy
	cp "$T/data" "$T/mnt/copy-$restart"
	kill -TERM "$pid"
	eventually 30 gone "$pid"
	kill "$holder"
	cmp "$T/data" "$S/copy-$restart"
done

# SIGTERM drains and ends, also when a file is open, and after any other signal.
start
kill -USR1 "$pid"
kill -USR1 "$(json .restart.holder)"
sleep 60 >"$T/mnt/open" &
holder=$!
eventually 30 test -e "$T/mnt/open"
cp "$T/data" "$T/mnt/sigterm"
kill -TERM "$pid"
eventually 30 gone "$pid"
kill "$holder"
cmp "$T/data" "$S/sigterm"

# The store is away: the first SIGTERM waits, status says so, the second ends at once.
start
store_away
cp "$T/data" "$T/mnt/later"
kill -TERM "$pid"
draining() { [ "$(json .state)" = draining ]; }
eventually 30 draining
dead "$pid" && fail "it did not wait"
kill -TERM "$pid"
eventually 30 gone "$pid"
store_back
expect_rc 0 timeout 30 "$bin/sluice" recover --state-dir "$T/state"
cmp "$T/data" "$S/later"

# A deadline: 75, the mount is gone, the data is not.
start
store_away
cp "$T/data" "$T/mnt/pending"
expect_rc 75 timeout 30 "$bin/sluice" umount "$T/mnt" --deadline 300ms
eventually 10 gone "$pid"
store_back
expect_rc 0 timeout 30 "$bin/sluice" recover --state-dir "$T/state"
cmp "$T/data" "$S/pending"

# In the foreground the status tells whether all is stored.
in_front() {
	defer unmount_hard "$T/mnt"
	"$bin/sluice" mount oss://data "$T/mnt" --role output --foreground --restart "$1" \
		--cache-dir "$T/cache" --state-dir "$T/state" --drain-deadline 2s 2>"$T/front.err" &
	front=$!
	eventually 30 json .pid
}
# ended CODE: by SIGTERM, with this status.
ended() {
	local rc=0
	kill -TERM "$front"
	eventually 30 dead "$front"
	wait "$front" || rc=$?
	[ "$rc" -eq "$1" ] || fail "it ended with $rc, not $1: $(tail -n 3 "$T/front.err")"
	mountpoint -q "$T/mnt" && fail "still mounted"
	return 0
}
for restart in auto off on; do
	in_front $restart
	cp "$T/data" "$T/mnt/front-$restart"
	ended 0
	cmp "$T/data" "$S/front-$restart"
	in_front $restart
	store_away
	cp "$T/data" "$T/mnt/behind-$restart"
	ended 75
	[ ! -e "$S/behind-$restart" ] || fail "it was stored, so this tests nothing"
	store_back
	expect_rc 0 timeout 30 "$bin/sluice" recover --state-dir "$T/state"
	cmp "$T/data" "$S/behind-$restart"
done

# A process that hangs: its readers wait; --force frees them.
start --passthrough off
cp "$T/data" "$T/mnt/hung"
hang "$pid"
cat "$T/mnt/old/nothing" >/dev/null 2>&1 &
reader=$!
sleep 0.2
[ "$("$bin/sluice" status "$T/mnt" --json | jq -r .state)" = hung ] || fail "not seen as hung"
[ -e "/proc/$reader" ] || fail "the reader did not wait, so this tests nothing"
expect_rc 75 timeout 30 "$bin/sluice" umount --force "$T/mnt"
wait "$reader" && fail "the reader got an answer"
eventually 30 dead "$pid"
mountpoint -q "$T/mnt" && fail "still mounted"
expect_rc 0 timeout 30 "$bin/sluice" recover --state-dir "$T/state"
cmp "$T/data" "$S/hung"
