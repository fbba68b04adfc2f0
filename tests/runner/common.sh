# SPDX-License-Identifier: Apache-2.0
# What the tests of the job runner share. Sourced after tests/lib.sh.
# shellcheck shell=bash disable=SC2154

need_containers() {
	[ "$(id -u)" -eq 0 ] || skip "containers need root"
	command -v runc >/dev/null || skip "runc is not installed"
	runner=$bin/runner
}

# fake_gateway: from now on $runner is a copy beside a `sluice` that notes how it is called
# and shows directories by bind mounts: oss://bucket/x is $FAKE/store/bucket/x. What it
# answers is set by files: $FAKE/VERB.rc the exit code, $FAKE/VERB.err its last words,
# $FAKE/VERB.sleep seconds before.
fake_gateway() {
	export FAKE=$T/fake
	mkdir -p "$FAKE/store" "$T/bin"
	cp "$bin/runner" "$T/bin/runner"
	cat >"$T/bin/sluice" <<-'END'
		#!/bin/bash
		echo "$*" >>"$FAKE/calls"
		env | grep -E '^(OSS|SECRET)_' >"$FAKE/$1.env"
		[ -e "$FAKE/$1.sleep" ] && sleep "$(cat "$FAKE/$1.sleep")"
		[ -e "$FAKE/$1.err" ] && cat "$FAKE/$1.err" >&2
		if [ "$1" = mount ]; then
			source=${2#file://}
			case $2 in oss://*) source=$FAKE/store/${2#oss://} && mkdir -p "$source" ;; esac
			[ -e "$FAKE/mount.rc" ] || mount --bind "$source" "$3" || exit 69
		fi
		[ "$1" = flush ] && { cat "$FAKE/receipt" 2>/dev/null || echo '{"pending":[]}'; }
		[ "$1" = umount ] && umount "$2"
		exit "$(cat "$FAKE/$1.rc" 2>/dev/null || echo 0)"
	END
	chmod +x "$T/bin/sluice"
	runner=$T/bin/runner
	defer release_jobs
}

# Whatever a test that failed has left.
release_jobs() {
	local dir
	for dir in "$SLUICE_RUN_DIR"/jobs/*; do
		[ -d "$dir" ] && timeout 30 "$runner" stop --now --quiet "${dir##*/}" >/dev/null 2>&1
	done
	while read -r dir; do umount -l "$dir"; done < <(
		awk -v t="$T/" 'index($5, t) == 1 {print $5}' /proc/self/mountinfo | sort -r)
	return 0
}

# expect_clean NAME: nothing of the job is left but its records.
expect_clean() {
	local dir=$SLUICE_RUN_DIR/jobs/$1 left
	grep -q " $SLUICE_RUN_DIR/" /proc/self/mountinfo && fail "still mounted: $1"
	for left in mnt run net engine code; do
		[ ! -e "$dir/$left" ] || fail "left on disk: $dir/$left"
	done
	pgrep -f "sleep $MARK" >/dev/null && fail "a container still runs"
	return 0
}
# A duration that no other test sleeps: its processes are known by it.
MARK=$((100000 + $$)).$RANDOM

phase() { "$runner" status "$1" --json | jq -r .phase; }
is_phase() { [ "$(phase "$1")" = "$2" ]; }
