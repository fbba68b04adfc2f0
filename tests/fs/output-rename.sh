#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints as programs write them: a large file under another name, closed, renamed at
# once over the last one. Its bytes are sent once, whenever the rename comes and whoever is
# killed behind it, and the store moves what they became.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
size=$((96 * 1024 * 1024))
sent() { oss_stat .bytes_in; }
reset() { curl -fsS -X DELETE "$OSS_ADMIN/stats" >/dev/null; }
parts() { [ "$(oss_stat '.requests.UploadPart // 0')" -ge "$1" ]; }
no_uploads() { [ -z "$(find "$T/oss/.ossd/uploads" -mindepth 1 -maxdepth 1)" ]; }
completing() { [ "$(oss_stat '.requests.CompleteMultipartUpload // 0')" -ge 1 ]; }
start() { mount_sluice oss://data "$T/mnt" output --state-dir "$T/state" "$@"; }
flush() { expect_rc 0 timeout 60 "$bin/sluice" flush mnt; }
# sent_once WHAT FILES: since reset() no more than a tenth was sent twice.
sent_once() {
	local n
	n=$(sent)
	[ "$n" -le $((size * $2 * 11 / 10)) ] || fail "$1: $n bytes were sent for $2 of $size"
}
only() {
	[ "$(cd "$S" && find . -type f -printf '%P\n' | sort | tr '\n' ' ')" = "$1 " ] ||
		fail "the bucket has other keys than $1: $(ls "$S")"
	eventually 30 no_uploads
}

cd "$T"
for i in 1 2 3; do head -c $size /dev/urandom >data$i; done
start

# At once, three times over, the third while the second is on its way: the same two names.
for i in 1 2 3; do
	reset
	cp data$i mnt/ckpt.tmp
	mv mnt/ckpt.tmp mnt/ckpt
	[ ! -e mnt/ckpt.tmp ] || fail 'the old name is still there'
	[ $i -ne 1 ] || { flush; sent_once 'renamed at once' 1; }
	cmp data$i mnt/ckpt || fail "checkpoint $i"
done
flush
cmp data3 "$S/ckpt" || fail 'not the last one'
only ckpt

# When some of it is there; a new file takes the old name at once.
reset
cp data1 mnt/ckpt.tmp
eventually 30 parts 1
mv mnt/ckpt.tmp mnt/first
cp data2 mnt/ckpt.tmp
mv mnt/ckpt.tmp mnt/second
echo third >mnt/ckpt.tmp
flush
cmp data1 "$S/first" || fail 'first'
cmp data2 "$S/second" || fail 'second'
[ "$(cat "$S/ckpt.tmp")" = third ] || fail 'the new file of the old name'
rm mnt/ckpt.tmp mnt/first mnt/second
flush
expect_rc 0 timeout 60 "$bin/sluice" umount mnt

# The daemon is killed behind the rename, with all parts sent and the upload unfinished: the
# next mount finishes it, or `recover` without one.
for next in mount recover; do
	data=data1
	[ $next = mount ] || data=data2
	start --restart off
	reset
	faults '[{"op":"CompleteMultipartUpload","fault":"status","status":503}]'
	cp $data mnt/ckpt.tmp
	eventually 30 completing
	mv mnt/ckpt.tmp mnt/ckpt
	sync mnt/ckpt
	pid=$(json .pid)
	kill -9 "$pid"
	eventually 30 dead "$pid"
	umount -l mnt
	faults '[]'
	reset
	if [ $next = mount ]; then
		start --restart off
		[ ! -e mnt/ckpt.tmp ] || fail 'the old name came back'
		cmp $data mnt/ckpt || fail 'not the new file'
		expect_rc 0 timeout 60 "$bin/sluice" umount mnt
	else
		expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir state
	fi
	cmp $data "$S/ckpt" || fail "$next: not the new object"
	only ckpt
	[ "$(sent)" -le $((size / 10)) ] || fail "$next: $(sent) bytes of $size were sent behind a death"
done
