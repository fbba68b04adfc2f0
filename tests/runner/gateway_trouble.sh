#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the runner makes of a gateway that refuses, stays behind or dies.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
fake_gateway

printf 'name: gate\ncommand: "echo x >/output/x"\ninput: oss://bkt/in\noutput: oss://bkt/out\n' >"$T/job.yaml"
start() { timeout 60 "$runner" start "$T/job.yaml" "$@"; }
reset() { rm -f "$FAKE"/*.rc "$FAKE"/*.err "$FAKE/calls"; }

# Its exit code and its words reach the shell.
for rc in 69 77 78; do
	echo $rc >"$FAKE/mount.rc"
	echo "sluice: oss://bkt: reason $rc" >"$FAKE/mount.err"
	expect_rc $rc start
	grep -q "cannot mount /input: oss://bkt: reason $rc" "$T/err" || fail "$(cat "$T/err")"
	expect_clean gate
done

# Done, but not all in the store.
reset
echo 75 >"$FAKE/flush.rc"
echo '{"files_pending":3}' >"$FAKE/receipt"
expect_rc 75 start
grep -q '3 files of the output not in the store' "$T/err" || fail "$(cat "$T/err")"
"$runner" status gate --json | jq -e '.phase == "succeeded" and .output == "pending"' >/dev/null ||
	fail "$("$runner" status gate --json)"
grep -q "sluice recover --state-dir $SLUICE_RUN_DIR/outputs/gate-" "$T/err" || fail "$(cat "$T/err")"
[ -n "$(ls -A "$SLUICE_RUN_DIR/outputs")" ] || fail "what is pending was removed"
expect_clean gate

# What the gateway set aside as damaged is never removed.
reset
echo '{"files_pending":0,"damaged":1}' >"$FAKE/receipt"
expect_rc 0 start
grep -q 'set aside in .*/outputs/gate-' "$T/err" || fail "$(cat "$T/err")"
[ -n "$(ls -A "$SLUICE_RUN_DIR/outputs")" ] || fail "what is damaged was removed"
rm "$FAKE/receipt"

# A failed job keeps its own code, even when output is pending too.
echo 75 >"$FAKE/flush.rc"
expect_rc 6 start --set 'command="exit 6"'
[ "$("$runner" status gate --json | jq -r .output)" = pending ] || fail "not pending"

# A daemon that has died: what it left is recovered, and then it is stored.
reset
echo 69 >"$FAKE/flush.rc"
expect_rc 0 start
grep -q "^recover --state-dir $SLUICE_RUN_DIR/outputs/gate-" "$FAKE/calls" || fail "$(cat "$FAKE/calls")"
expect_clean gate
reset
echo 69 >"$FAKE/flush.rc"
echo 75 >"$FAKE/recover.rc"
expect_rc 75 start
expect_clean gate

# An unmount that fails is done past the gateway.
reset
echo 70 >"$FAKE/umount.rc"
sed -i '/umount "\$2"/d' "$T/bin/sluice"
expect_rc 0 start
expect_clean gate

# No gateway at all.
rm "$T/bin/sluice"
PATH=/usr/bin:/bin:/usr/sbin:/sbin expect_rc 69 start
grep -q 'sluice) is not installed' "$T/err" || fail "$(cat "$T/err")"
