#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whatever is wrong is said in one line, with a documented exit code, and leaves nothing
# mounted, no process and no socket behind.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src" "$T/dir" "$T/full" "$T/store"
touch "$T/full/x" "$T/file"
defer unmount_hard "$T/dir"
options=(--state-dir "$T/state" --cache-dir "$T/cache")

# refused CODE PATTERN COMMAND…: the code, one line on standard error that matches.
refused() {
	local code=$1 pattern=$2
	shift 2
	expect_rc "$code" timeout 60 "$@"
	grep -qiE -- "$pattern" "$T/err" || fail "no \"$pattern\" in: $(cat "$T/err") ($*)"
	[ "$(wc -l <"$T/err")" -eq 1 ] || fail "more than one line: $(cat "$T/err") ($*)"
	if grep -q "$T" /proc/self/mountinfo; then fail "something is mounted after: $*"; fi
	if ls "$T"/run/*.sock >/dev/null 2>&1; then fail "a socket is left by: $*"; fi
}
refused_mount() {
	local code=$1 pattern=$2
	shift 2
	refused "$code" "$pattern" "$bin/sluice" mount "$@" "${options[@]}"
}

# The command line.
refused 64 'missing argument' "$bin/sluice" mount "file://$T/src"
refused 64 'unexpected argument' "$bin/sluice" flush a b
refused 64 'did you mean "?--role' "$bin/sluice" mount a b --rule input
refused 64 'must be one of' "$bin/sluice" mount a b --role both
refused 64 'which role' "$bin/sluice" mount "file://$T/src" "$T/dir"
refused 64 'unknown command' "$bin/sluice" mout
refused_mount 64 . "$T/src" "$T/dir" --role input
refused_mount 64 . "s3://bucket" "$T/dir" --role input
refused_mount 64 . "oss://" "$T/dir" --role input
refused_mount 64 'not a size' "file://$T/src" "$T/dir" --role input --cache-size much
refused_mount 64 'permissions' "file://$T/src" "$T/dir" --role input --file-mode 9
refused_mount 64 'not a number' "file://$T/src" "$T/dir" --role input --uid root
refused_mount 64 'area' "file://$T/src" "$T/dir" --role input --debug nonsense
refused_mount 64 'device' "file://$T/src" "$T/dir" --role input -o suid
refused 64 'state-dir' "$bin/sluice" recover

# The mount point.
refused_mount 78 'No such file' "file://$T/src" "$T/none" --role input
refused_mount 78 'Not a directory' "file://$T/src" "$T/file" --role input
refused_mount 78 'not empty' "file://$T/src" "$T/full" --role input
refused 78 'under the mount point' "$bin/sluice" mount "file://$T/src" "$T/dir" --role output \
	--state-dir "$T/dir/state" --cache-dir "$T/cache"
refused 78 'nothing of sluice' "$bin/sluice" umount "$T/dir"
refused 78 'nothing of sluice' "$bin/sluice" status "$T/dir"
refused 78 'no mount' "$bin/sluice" flush "$T/dir"
refused 78 'mount.json' "$bin/sluice" recover --state-dir "$T/src"
refused 78 'No such file' "$bin/sluice" recover --state-dir "$T/none"

# Directories of ours.
ln -s "$T/src" "$T/link"
refused 78 . "$bin/sluice" mount "file://$T/src" "$T/dir" --role output --state-dir "$T/link"
mkdir -m 777 "$T/open"
refused 77 'belong' "$bin/sluice" mount "file://$T/src" "$T/dir" --role output \
	--state-dir "$T/open"

# The store.
refused_mount 78 . "file://$T/nowhere" "$T/dir" --role input
export OSS_ACCESS_KEY_ID=x OSS_ACCESS_KEY_SECRET=y
refused_mount 69 . oss://bucket "$T/dir" --role input --endpoint http://127.0.0.1:1 \
	--region cn-hangzhou
refused_mount 78 'region|endpoint' oss://bucket "$T/dir" --role input
unset OSS_ACCESS_KEY_ID OSS_ACCESS_KEY_SECRET
start_ossd --bucket data --region cn-hangzhou
refused_mount 78 'NoSuchBucket|no such bucket' oss://other "$T/dir" --role input
refused_mount 78 'region|endpoint' oss://data "$T/dir" --role input --region cn-nowhere
OSS_ACCESS_KEY_SECRET=wrong refused_mount 77 'signature|secret' oss://data "$T/dir" --role input
OSS_ACCESS_KEY_ID=stranger refused_mount 77 'InvalidAccessKeyId|key' oss://data "$T/dir" \
	--role output
OSS_ACCESS_KEY_ID='' OSS_ACCESS_KEY_SECRET='' HOME=$T refused_mount 77 'credentials' \
	oss://data "$T/dir" --role input

# A state directory belongs to one source and one mount at a time.
mount_sluice "file://$T/store" "$T/mnt" output
expect_rc 78 "$bin/sluice" mount "file://$T/store" "$T/dir" --role output --state-dir "$T/state"
expect_rc 78 "$bin/sluice" mount "file://$T/store" "$T/mnt" --role output --state-dir "$T/other"
grep -q 'is mounted there' "$T/err" || fail "$(cat "$T/err")"
expect_rc 78 "$bin/sluice" mount "file://$T/src" "$T/dir" --role output --state-dir "$T/state"
grep -q 'is the state of' "$T/err" || fail "$(cat "$T/err")"
[ "$(grep -c "$T" /proc/self/mountinfo)" -eq 1 ] || fail "more than one mount"
