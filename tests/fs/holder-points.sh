#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon dies at a chosen point of every few requests: before it was begun, between the
# tree's change and its transaction, behind that, before and behind the reply. Whatever comes
# again then has its one right outcome.
#
# EVERY=4 kills more often; it must be more than wait at once.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
start_ossd --bucket data --region cn-hangzhou

# killed_at POINT OPTION…
killed_at() {
	local point=$1 holder pid
	shift
	SLUICE_RESTART_MAX=250 SLUICE_KILL_AT=$point:${EVERY:-5} \
		mount_sluice oss://data "$T/mnt" output --io-uring off "$@"
	if [ "$(json .restart.used)" != true ]; then
		skip "this kernel does not send requests again"
	fi
	holder=$(json .restart.holder)
	"$here/holder_points.py" "$T/mnt" >"$T/work.txt" 2>&1 ||
		fail "killed at $point $*: $(cat "$T/work.txt")"
	echo "$point $*: $(tail -n 1 "$T/work.txt"), $(json .restart.count) kills"
	[ "$(json .restart.count)" -gt 1 ] || fail "$point is never come to"
	rm -rf "${T:?}/mnt/"*
	expect_rc 0 timeout 120 "$bin/sluice" umount "$T/mnt"
	eventually 30 gone "$holder"
}

for point in name.commit.before name.commit.after stage.write flush.reply.before; do
	killed_at "$point" --passthrough off
done
quick || for point in request.taken request.executed request.replied; do
	killed_at "$point" --passthrough off
done
for point in request.taken request.executed request.replied release.withdrawn; do
	killed_at "$point"
done
