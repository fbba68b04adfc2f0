#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The commands beside a mount: who leaves one makes room for the next, no name of a mount or a
# process is more than a name, what cannot be printed is no success.
# shellcheck source=tests/lib.sh

# Apart from other tests' mounts: "all mounts" are this one's.
if [ -z "${SLUICE_TEST_APART:-}" ]; then
	[ "$(id -u)" -eq 0 ] || { echo "needs root, for a mount name space"; exit 77; }
	export SLUICE_TEST_APART=1
	exec "$(dirname "$0")/../apart.sh" - bash "$0" "$@"
fi
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
mount_sluice oss://data "$T/mnt" output
store_away
echo data >"$T/mnt/file"

# Interrupted calls leave nothing behind in the process of the mount.
callers=()
for i in $(seq 16); do
	if [ $((i % 2)) -eq 0 ]; then verb=flush; else verb=umount; fi
	"$bin/sluice" "$verb" "$T/mnt" >"$T/caller.$i" 2>&1 &
	callers+=($!)
done
all_wait() { [ "$(find "/proc/$(json .pid)/fd" -lname 'socket:*' | wc -l)" -ge 17 ]; }
eventually 30 all_wait
expect_rc 69 "$bin/sluice" flush "$T/mnt" --deadline 1s
grep -q 'busy' "$T/err" || fail "a full house: $(cat "$T/err")"
expect_rc 0 "$bin/sluice" status "$T/mnt" # who only looks is answered
kill -INT "${callers[@]}" 2>/dev/null || true
kill "${callers[@]}"
wait "${callers[@]}" || true
room() {
	local rc=0
	"$bin/sluice" flush "$T/mnt" --deadline 1s 2>/dev/null || rc=$?
	[ "$rc" -eq 75 ]
}
eventually 30 room
store_back
expect_rc 0 timeout 60 "$bin/sluice" flush "$T/mnt"
mountpoint -q "$T/mnt" || fail 'an umount that was interrupted took the mount away'

# Names of mounts that drive a terminal, or are no text at all.
bad=$T/$'\e[31mred\nline\xff'
mount_sluice oss://data "$bad" input --restart off
# told WHAT COMMAND…: it works, and prints no control characters and no broken UTF-8.
told() {
	local what=$1
	shift
	expect_rc "$@"
	cat "$T/out" "$T/err" >"$T/said"
	if grep -q $'\e' "$T/said"; then fail "$what drives the terminal"; fi
	iconv -f UTF-8 -t UTF-8 "$T/said" >"$T/iconv" 2>&1 || fail "$what is not UTF-8"
}
pid=
for state in serving dead; do
	told 'status' 0 "$bin/sluice" status
	grep -q "^$T/mnt  output .*: serving" "$T/out" || fail "the other mount: $(cat "$T/out")"
	grep -q "red.*input .*: $state" "$T/out" || fail "no $state: $(cat "$T/out")"
	told 'the JSON' 0 "$bin/sluice" status --json
	jq -e ".mounts | length == 2 and any(.dir | contains(\"red\\nline\\ufffd\"))" "$T/out" >/dev/null ||
		fail "the JSON: $(cat "$T/out")"
	pid=$(jq '.mounts[] | select(.role == "input").pid' "$T/out")
	told 'the metrics' 0 "$bin/sluice" metrics
	[ "$(grep -c '^sluice_up{' "$T/out")" = 2 ] || fail "who is up: $(cat "$T/out")"
	/usr/bin/python3 -c 'import sys
from prometheus_client.parser import text_string_to_metric_families as parse
list(parse(open(sys.argv[1]).read()))' "$T/out" || fail 'not metrics'
	[ "$pid" = null ] || { kill -9 "$pid"; eventually 30 dead "$pid"; }
done
told 'umount' 0 "$bin/sluice" umount "$bad"

# So can the name of a process be.
python3 -c 'import sys, time
open("/proc/self/comm", "wb").write(b"\x1b[31mred\xff")
with open(sys.argv[1]) as f:
    print(flush=True)
    time.sleep(1000)' "$T/mnt/file" >"$T/user" &
user=$!
defer stop_pid $user
eventually 30 test -s "$T/user"
told 'umount' 75 "$bin/sluice" umount "$T/mnt"
grep -q "in use by $user .*red" "$T/err" || fail "who uses it: $(cat "$T/err")"
stop_pid $user
wait $user || true

# Another user's mount is not dead: only that user can ask its process.
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
chmod 755 "$T"
mkdir -m 700 "$T/nobody"
chown 65534 "$T/nobody"
for run in "$T/nobody" "$T/run"; do
	expect_rc 0 as_nobody env SLUICE_RUN_DIR="$run" "$bin/sluice" status
	grep -q "^$T/mnt .*: unknown" "$T/out" || fail "another user's: $(cat "$T/out")"
	expect_rc 77 as_nobody env SLUICE_RUN_DIR="$run" "$bin/sluice" status "$T/mnt"
done
expect_rc 0 as_nobody env SLUICE_RUN_DIR="$T/nobody" "$bin/sluice" metrics
if grep -q '^sluice_up{' "$T/out"; then fail "up or down? $(cat "$T/out")"; fi
expect_rc 0 "$bin/sluice" umount "$T/mnt"

# What does not get through is no success.
mkdir -p "$T/src"
echo data >"$T/src/file"
mount_sluice "file://$T/src" "$T/in" input
mount_sluice oss://data "$T/mnt" output
# to_full COMMAND…
to_full() {
	# shellcheck disable=SC2016
	expect_rc 70 timeout 60 bash -c 'exec "$@" >/dev/full' to_full "$@"
	grep -qE 'standard output: (No space|a write failed)' "$T/err" || fail "$*: $(cat "$T/err")"
}
to_full "$bin/sluice" flush "$T/mnt" --json
to_full "$bin/sluice" status
to_full "$bin/sluice" status "$T/in" --json
to_full "$bin/sluice" metrics
to_full "$bin/sluice" warm "$T/in/file" --wait --json
to_full "$bin/sluice" --help
to_full "$bin/sluice" umount "$T/mnt" --json
to_full "$bin/sluice" recover --state-dir "$T/state" --json
to_full "$bin/runner" --version
to_full "$bin/ossctl" ls oss://data/
if mountpoint -q "$T/mnt"; then fail 'the command itself was not done'; fi

# Files that are named from where the command stands are found by every later daemon, and by
# who recovers from elsewhere.
mkdir "$T/here"
jq -n '{AccessKeyId: env.OSS_ACCESS_KEY_ID, AccessKeySecret: env.OSS_ACCESS_KEY_SECRET}' >"$T/here/key"
chmod 600 "$T/here/key"
(cd "$T/here" && exec env -u OSS_ACCESS_KEY_ID -u OSS_ACCESS_KEY_SECRET \
	"$bin/sluice" mount oss://data "$T/mnt" --role output --credentials file:key \
	--state-dir ../state --log-file log)
kill_daemon
echo after >"$T/mnt/after"
expect_rc 0 timeout 60 "$bin/sluice" flush "$T/mnt"
[ "$(cat "$T/oss/data/after")" = after ] || fail 'not stored by the next daemon'
grep -q 'takes over' "$T/here/log" || fail 'the log is elsewhere'
expect_rc 0 "$bin/sluice" umount "$T/mnt"
(cd / && env -u OSS_ACCESS_KEY_ID -u OSS_ACCESS_KEY_SECRET \
	"$bin/sluice" recover --state-dir "$T/state") || fail 'not recovered from elsewhere'

# Who closes the standard descriptors gets a mount all the same, which uses their numbers for
# nothing else.
for restart in auto off; do
	timeout 60 "$bin/sluice" mount oss://data "$T/mnt" --role output --restart "$restart" \
		--state-dir "$T/state" <&- >&- 2>&- || fail "closed descriptors: exit $?"
	echo closed >"$T/mnt/closed"
	for pid in $(json '.pid, .restart.holder // empty'); do
		for fd in 0 1 2; do
			to=$(readlink "/proc/$pid/fd/$fd") || fail "$pid has no descriptor $fd"
			[[ $to == /dev/null || $to == "$T/state/log" ]] || fail "$fd of $pid is $to"
		done
	done
	expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
	[ "$(cat "$T/oss/data/closed")" = closed ] || fail 'not stored'
done
