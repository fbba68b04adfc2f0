#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first failure ends the job with its code and its name; output is flushed all the same.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
fake_gateway

job() { # NAME COMMAND [SET…]
	local name=$1 command=$2
	shift 2
	printf 'name: %s\ncommand: "%s"\nroles: {worker: {count: 2}}\noutput: oss://bkt/%s\n' \
		"$name" "$command" "$name" >"$T/$name.yaml"
	timeout 60 "$runner" start "$T/$name.yaml" "$@"
}

expect_rc 3 job exits "echo kept >/output/\$HOSTNAME; [ \$RUNNER_INDEX = 1 ] && sleep 0.3 && exit 3; sleep $MARK"
grep -qx 'runner: worker-1 failed with exit code 3' "$T/err" || fail "$(cat "$T/err")"
[ "$(cat "$FAKE/store/bkt/exits/worker-0")" = kept ] || fail "output of a failed job"
grep -q ^flush "$FAKE/calls" || fail "a failed job was not flushed"
"$runner" status exits --json | jq -e '.phase == "failed" and .first_failure == 1 and
	.replicas[0].state == "stopped" and .replicas[1].exit_code == 3' >/dev/null ||
	fail "$("$runner" status exits --json)"
expect_clean exits

expect_rc 139 job segv "kill -SEGV \$\$"
grep -q 'signal 11' "$T/err" || fail "$(cat "$T/err")"

expect_rc 127 job absent x --set 'command=[/no/such/program]'
grep -q 'command not found (/no/such/program)' "$T/err" || fail "$(cat "$T/err")"

expect_rc 137 job oom x --set roles.worker.memory=32M --set \
	'command=[python3, -c, "b = bytearray(256 << 20); b[::4096] = b[::4096]"]'
grep -q 'OOM' "$T/err" || fail "$(cat "$T/err")"
"$runner" status oom --json | jq -e '.replicas[.first_failure].oom' >/dev/null || fail "oom not noted"
expect_clean oom
