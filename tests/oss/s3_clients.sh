#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The S3 dialect of ossd, driven by rclone and s3fs with signatures V4 and V2, all of them
# verified: what one dialect writes, the other reads.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
command -v rclone >/dev/null || skip 'no rclone: scripts/setup installs it'
start_ossd --bucket box
unset "${!AWS_@}"
export AWS_ACCESS_KEY_ID=$OSS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$OSS_ACCESS_KEY_SECRET
export RCLONE_CONFIG=$T/rclone.conf RCLONE_CONFIG_S_TYPE=s3 RCLONE_CONFIG_S_PROVIDER=Other
export RCLONE_CONFIG_S_ENDPOINT=$OSS_ENDPOINT RCLONE_LOG_LEVEL=ERROR
export RCLONE_CONFIG_S_ACCESS_KEY_ID=$OSS_ACCESS_KEY_ID
export RCLONE_CONFIG_S_SECRET_ACCESS_KEY=$OSS_ACCESS_KEY_SECRET
export RCLONE_CONFIG_S_FORCE_PATH_STYLE=true RCLONE_CONFIG_S_REGION=us-east-1
export RCLONE_S3_CHUNK_SIZE=5M RCLONE_S3_UPLOAD_CUTOFF=6M
ctl() { "$bin/ossctl" "$@" --retry-for 2s; }

mkdir -p "$T/from/sub" "$T/to"
head -c 300000 /dev/urandom >"$T/from/small"
head -c 17000000 /dev/urandom >"$T/from/large"
: >"$T/from/sub/empty"
echo text >"$T/from/sub/odd a+b&=#%(1) ä.txt"

for v2 in false true; do
	export RCLONE_S3_V2_AUTH=$v2
	dir=s:box/v2-$v2
	rclone copy "$T/from" "$dir"
	rclone check "$T/from" "$dir"
	rclone check --download "$T/from" "$dir"
	[ "$(rclone lsf -R --files-only "$dir" | wc -l)" -eq 4 ]
	ctl get "oss://box/v2-$v2/large" "$T/back"
	cmp "$T/from/large" "$T/back"
	# Times are metadata that a copy in place rewrites; names change by copy and delete.
	touch -d '2001-02-03 04:05:06.789 UTC' "$T/from/small"
	rclone copy "$T/from" "$dir"
	[ "$(TZ=UTC rclone lsjson --stat "$dir/small" | jq -r .ModTime | cut -c1-23)" = \
		2001-02-03T04:05:06.789 ]
	rclone moveto "$dir/small" "$dir/sub/moved"
	rclone copyto "$dir/sub/moved" "$T/back"
	cmp "$T/from/small" "$T/back"
	rclone purge "$dir"
	[ "$(ctl ls "oss://box/v2-$v2/" --json)" = '[]' ]
	# From OSS to S3.
	ctl put "$T/from/large" "oss://box/oss-large"
	rclone copyto s:box/oss-large "$T/back"
	cmp "$T/from/large" "$T/back"
	rclone mkdir "s:made-$v2"
	[ "$(rclone lsd s: | grep -c made-$v2)" -eq 1 ]
	rclone rmdir "s:made-$v2"
done
for v2 in false true; do
	! RCLONE_S3_V2_AUTH=$v2 RCLONE_CONFIG_S_SECRET_ACCESS_KEY=wrong rclone lsf --retries 1 \
		--low-level-retries 1 s:box >"$T/out" 2>&1 || fail 'a wrong secret was taken'
	grep -q SignatureDoesNotMatch "$T/out"
done
curl -fsS "$(RCLONE_S3_V2_AUTH=false rclone link s:box/oss-large)" | cmp - "$T/from/large"

command -v s3fs >/dev/null || skip 'no s3fs: scripts/setup installs it'
[ -r /dev/fuse ] && [ "$(id -u)" -eq 0 ] || skip 's3fs needs /dev/fuse and root'
unmount_quietly() { ! mountpoint -q "$1" || umount -l "$1"; }
for v in sigv4 sigv2; do
	mkdir -p "$T/mnt-$v"
	s3fs box "$T/mnt-$v" -o "url=$OSS_ENDPOINT,use_path_request_style,$v" \
		-o "multipart_size=5,endpoint=us-east-1"
	defer unmount_quietly "$T/mnt-$v"
	eventually 10 mountpoint -q "$T/mnt-$v"
	cp -r "$T/from" "$T/mnt-$v/tree-$v"
	diff -r "$T/from" "$T/mnt-$v/tree-$v"
	ctl get "oss://box/tree-$v/large" "$T/back"
	cmp "$T/from/large" "$T/back"
	mv "$T/mnt-$v/tree-$v/large" "$T/mnt-$v/tree-$v/renamed"
	chmod 640 "$T/mnt-$v/tree-$v/renamed"
	[ "$(stat -c %a "$T/mnt-$v/tree-$v/renamed")" = 640 ]
	ctl put "$T/from/small" "oss://box/by-oss-$v"
	cmp "$T/from/small" "$T/mnt-$v/by-oss-$v"
	rm -r "$T/mnt-$v/tree-$v"
	[ "$(ctl ls "oss://box/tree-$v/" --json)" = '[]' ]
	umount "$T/mnt-$v"
done
