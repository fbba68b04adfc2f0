#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mount.sluice does what mount(8) and fstab expect of a helper: options by -o, names that
# are not ours passed over, and mount's exit codes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src" "$T/mnt"
echo hello >"$T/src/a"
ln -s "$bin/sluice" "$T/mount.sluice"
defer unmount_hard "$T/mnt"
common=state-dir=$T/state,cache-dir=$T/cache
helper() { timeout 60 "$T/mount.sluice" "$@"; }

expect_rc 0 helper "file://$T/src" "$T/mnt" -n -o \
	"role=input,$common,_netdev,nofail,x-systemd.automount,comment=x,noexec,ttl=5s"
[ "$(cat "$T/mnt/a")" = hello ] || fail "not mounted"
options=$(awk -v d="$T/mnt" '$5 == d {print $6}' /proc/self/mountinfo)
[[ ,$options, == *,noexec,* ]] || fail "noexec is not there: $options"
umount "$T/mnt"

# Fake: checks the line only.
expect_rc 0 helper -f "file://$T/src" "$T/mnt" -o "role=input,$common"
mountpoint -q "$T/mnt" && fail "-f mounted"

expect_rc 1 helper "file://$T/src"
expect_rc 1 helper "file://$T/src" "$T/mnt" -o "role=input,colour=blue"
grep -q colour "$T/err" || fail "$(cat "$T/err")"
expect_rc 1 helper "file://$T/src" "$T/mnt" -o "$common"
expect_rc 32 helper "file://$T/none" "$T/mnt" -o "role=input,$common"
expect_rc 32 helper "file://$T/src" "$T/none" -o "role=input,$common"
mountpoint -q "$T/mnt" && fail "mounted after a failure"
exit 0
