#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times of files on /output: set to the nanosecond, in any year that fits, before and after the
# store has them; moved by what moves them on a local disk. Names that are too long are called that.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
start_ossd --bucket data --region cn-hangzhou
for pass in on off; do
	mount_sluice oss://data "$T/mnt" output --passthrough "$pass"
	mkdir "$T/mnt/$pass"
	"$here/times.py" "$T/mnt/$pass" || fail "passthrough $pass"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
	mount_sluice oss://data "$T/mnt" output --passthrough "$pass"
	"$here/times.py" "$T/mnt/$pass" stored || fail "stored, passthrough $pass"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
done
