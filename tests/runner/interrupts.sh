#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C in the foreground: the job ends in order, whatever it is doing; twice hurries.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
fake_gateway

cat >"$T/job.yaml" <<-END
	name: fore
	command: "trap 'sleep 0.2; echo saved >/output/last; exit 0' TERM; touch /output/up; while :; do sleep 0.1; done"
	output: oss://bkt/out
	grace: 60s
END
begin() { # starts it in the background with signals as a shell in the foreground has them
	rm -f "$FAKE/store/bkt/out/"*
	: >"$FAKE/calls"
	setsid env --default-signal=INT "$runner" start "$T/job.yaml" "$@" >"$T/out" 2>"$T/err" &
	pid=$!
}
ended() {
	local rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq "$1" ] || fail "exit $rc, expected $1: $(cat "$T/err")"
	expect_clean fore
}

begin
eventually 30 test -e "$FAKE/store/bkt/out/up"
kill -INT "$pid"
ended 130
[ "$(cat "$FAKE/store/bkt/out/last")" = saved ] || fail "no time to save"
grep -q ^flush "$FAKE/calls" || fail "not flushed"

# A container that will not go: the second signal does not wait for the grace.
begin --set "command='trap \"\" TERM; touch /output/up; while :; do sleep 0.1; done'"
eventually 30 test -e "$FAKE/store/bkt/out/up"
SECONDS=0
kill -TERM "$pid"
sleep 0.3
kill -TERM "$pid"
ended 143
[ $SECONDS -lt 30 ] || fail "the second signal did not hurry"

# While the store is mounted.
echo 30 >"$FAKE/mount.sleep"
begin
eventually 30 grep -q ^mount "$FAKE/calls"
kill -INT "$pid"
ended 130
rm "$FAKE/mount.sleep"

# While the output is stored: once warns, twice leaves it for later, and says how.
echo 30 >"$FAKE/flush.sleep"
begin --set 'command="touch /output/up"'
eventually 30 grep -q ^flush "$FAKE/calls"
kill -INT "$pid"
eventually 30 grep -q 'interrupt again' "$T/err"
echo 75 >"$FAKE/flush.rc"
rm "$FAKE/flush.sleep"
kill -INT "$pid"
ended 75
grep -q 'sluice recover --state-dir' "$T/err" || fail "$(cat "$T/err")"
grep -q '^flush .*--deadline 2' "$FAKE/calls" || fail "$(cat "$FAKE/calls")"
