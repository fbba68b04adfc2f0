#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may do what: permissions of files hold for other users although the mount is open to
# them; set-user-id and device files mean nothing; the control socket is the owner's; the
# process leaves no trace that others can read.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

[ "$(id -u)" -eq 0 ] || skip "needs root, to be somebody else"
chmod 755 "$T"
mkdir -p "$T/store"
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

mount_sluice "file://$T/store" "$T/mnt" output
echo secret >"$T/mnt/private"
chmod 600 "$T/mnt/private"
echo open >"$T/mnt/public"
chmod 644 "$T/mnt/public"
chmod 755 "$T/mnt"
[ "$(as_nobody cat "$T/mnt/public")" = open ] || fail "others cannot read what they may"
expect_rc 1 as_nobody cat "$T/mnt/private"
grep -q denied "$T/err" || fail "$(cat "$T/err")"
cat "$T/mnt/private" >/dev/null # now the kernel knows the name
expect_rc 1 as_nobody cat "$T/mnt/private"
expect_rc 1 as_nobody touch "$T/mnt/new"
expect_rc 1 mknod "$T/mnt/null" c 1 3
options=$(awk -v d="$T/mnt" '$5 == d {print $6}' /proc/self/mountinfo)
for option in nosuid nodev; do
	[[ ,$options, == *,$option,* ]] || fail "not mounted $option: $options"
done

# The run directory is closed, and so is the socket inside it for others.
[ "$(stat -c %a "$T/run")" = 700 ] || fail "mode of the run directory"
chmod 777 "$T/run"
chmod 777 "$T/run/"*.sock
expect_rc 69 as_nobody env SLUICE_RUN_DIR="$T/run" "$bin/sluice" flush "$T/mnt"
eventually 30 grep -q 'refused a caller uid=65534' "$T/state/log"
chmod 700 "$T/run"

# No core files, not to be traced, log and state for the owner only.
pid=$("$bin/sluice" status "$T/mnt" --json | jq .pid)
grep -q '^Max core file size *0 *0 ' "/proc/$pid/limits" || fail "core files are on"
[ "$(stat -c %a "$T/state")" = 700 ] && [ "$(stat -c %a "$T/state/log")" = 600 ] ||
	fail "modes of the state directory"
for fd in "/proc/$pid/fd/"*; do
	[ -z "$(readlink "$fd" | grep -E "^/dev/(pts|tty)")" ] || fail "holds the terminal"
done
