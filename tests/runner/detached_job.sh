#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job in the background: list, status, logs, stop; and a supervisor that is killed.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
fake_gateway

cat >"$T/job.yaml" <<-END
	name: back
	command: "echo up; echo kept >/output/\$HOSTNAME; exec sleep $MARK"
	roles: {worker: {count: 2}}
	output: oss://bkt/out
END
expect_rc 0 timeout 60 "$runner" start --detach "$T/job.yaml"
[ "$(phase back)" = running ] || fail "started is not running: $(phase back)"
[ "$(pgrep -fc "^sleep $MARK")" -ge 1 ] || eventually 30 pgrep -f "^sleep $MARK"
grep -q '^back  *running' < <("$runner" list) || fail "$("$runner" list)"
"$runner" list --json | jq -e '.[0].name == "back"' >/dev/null || fail "list --json"
eventually 30 grep -q up "$SLUICE_RUN_DIR/jobs/back/logs/worker-1.log"
[ "$("$runner" logs)" = $'worker-0 | up\nworker-1 | up' ] || fail "$("$runner" logs)"
[ "$("$runner" logs -c worker-1 --raw)" = up ] || fail "logs of one container"
expect_rc 78 "$runner" logs -c nobody

# One at a time.
expect_rc 78 timeout 60 "$runner" start "$T/job.yaml"
[ "$(wc -l <"$T/err")" -eq 1 ] && grep -q 'runner stop back' "$T/err" || fail "$(cat "$T/err")"

# Followers end with the job.
timeout 60 "$runner" logs -f >"$T/follow" &
follower=$!
expect_rc 0 timeout 60 "$runner" stop
wait "$follower" || fail "logs -f did not end well"
grep -q 'worker-1 | up' "$T/follow" || fail "$(cat "$T/follow")"
"$runner" status back --json | jq -e '.phase == "stopped" and .exit_code == 143 and
	.output == "stored"' >/dev/null || fail "$("$runner" status --json)"
grep -q ^flush "$FAKE/calls" || fail "a stopped job was not flushed"
expect_clean back
expect_rc 0 "$runner" stop back # once more is no mistake

# A supervisor that is killed takes its containers with it; stop does the rest.
: >"$FAKE/calls"
expect_rc 0 timeout 60 "$runner" start --detach "$T/job.yaml"
kill -9 "$(cut -d' ' -f1 "$SLUICE_RUN_DIR/jobs/back/supervisor")"
eventually 30 is_phase back lost
expect_rc 78 timeout 60 "$runner" start "$T/job.yaml"
grep -q 'runner stop back' "$T/err" || fail "$(cat "$T/err")"
expect_rc 0 timeout 60 "$runner" stop back
[ "$(cut -d' ' -f1 "$FAKE/calls" | paste -sd' ')" = "mount flush umount" ] || fail "$(cat "$FAKE/calls")"
expect_clean back

# A start that fails says why, also when detached.
echo 77 >"$FAKE/mount.rc"
echo 'sluice: oss://bkt/out: access denied: check the key' >"$FAKE/mount.err"
expect_rc 77 timeout 60 "$runner" start --detach "$T/job.yaml"
grep -q 'access denied: check the key' "$T/err" || fail "$(cat "$T/err")"
[ "$(wc -l <"$T/err")" -eq 1 ] || fail "more than one line: $(cat "$T/err")"
expect_clean back
