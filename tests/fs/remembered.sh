#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the kernel keeps of names: a listing, attributes, that there is no such file. The
# second time costs the daemon nothing, or at least the store.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/oss/data/d"
for i in $(seq -w 200); do echo "$i" >"$T/oss/data/d/$i"; done
start_ossd
asked() { "$bin/sluice" status "$T/in" --json | jq -er ".fuse.requests | $1"; }
stored() { oss_stat .total; }
# again KINDS COMMAND…: done again it costs no request of these kinds. (A listing may go by
# before the kernel learns that it may keep it.)
again() { undisturbed costs_nothing "$@"; }
costs_nothing() {
	local filter before after
	filter=$(printf '.%s, ' $1)
	shift
	"$@" >/dev/null 2>&1 || true
	"$@" >/dev/null 2>&1 || true
	before=$(asked "${filter%, }")
	"$@" >"$T/again" 2>&1 || true
	after=$(asked "${filter%, }")
	[ "$before" = "$after" ] || { echo "$*: $filter: $before, then $after" | paste -sd' '; return 1; }
}

mount_sluice oss://data "$T/in" input --immutable
ls -l "$T/in/d" >"$T/first"
expect_rc 1 stat "$T/in/d/nothing"
before=$(stored)
again "readdir lookup getattr opendir" ls -l "$T/in/d"
cmp "$T/first" "$T/again" || fail "another listing"
again "lookup" stat "$T/in/d/nothing"
again "lookup" cat "$T/in/d/nothing"
# Another name that is not there is known from the listing.
expect_rc 1 stat "$T/in/d/nothing-else"
again "lookup" stat "$T/in/d/nothing-else"
[ "$(stored)" -eq "$before" ] || fail "the store was asked again"
"$bin/sluice" umount "$T/in"

# While the source may change, names and attributes are kept for the time to live.
mount_sluice oss://data "$T/in" input --ttl 10m
ls -l "$T/in/d" >"$T/first"
expect_rc 1 stat "$T/in/d/nothing"
before=$(stored)
again "lookup getattr" ls -l "$T/in/d"
cmp "$T/first" "$T/again" || fail "another listing"
again "lookup" stat "$T/in/d/nothing"
[ "$(stored)" -eq "$before" ] || fail "the store was asked again"
"$bin/sluice" umount "$T/in"

# Afterwards both are asked for.
mount_sluice oss://data "$T/in" input --ttl 1s
expect_rc 1 stat "$T/in/d/new"
"$bin/ossctl" put "$0" oss://data/d/new --endpoint "$OSS_ENDPOINT" >/dev/null
eventually 20 test -e "$T/in/d/new"
rm "$T/in/d/new" 2>"$T/err" && fail "removed from a read-only mount"
"$bin/ossctl" rm oss://data/d/new --endpoint "$OSS_ENDPOINT" >/dev/null
gone() { [ ! -e "$T/in/d/new" ]; }
eventually 20 gone
