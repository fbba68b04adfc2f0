#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A large file is on its way to the store while it is still being written, and what gets
# there is what was there at close: whatever was rewritten, renamed, cut or removed since
# parts of it were sent, and whoever was killed meanwhile.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
parts() { [ "$(oss_stat '.requests.UploadPart // 0')" -ge "$1" ]; }
uploads() { find "$T/oss/.ossd/uploads" -mindepth 1 -maxdepth 1 | wc -l; }
no_uploads() { [ "$(uploads)" -eq 0 ]; }
start() {
	mount_sluice oss://data "$T/mnt" output --state-dir "$T/state-$mode" "$@"
	curl -fsS -X DELETE "$OSS_ADMIN/stats" >/dev/null
}
stop() {
	expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
	no_uploads || fail "$mode: $(uploads) unfinished uploads"
}
# write_early NAME: most of its 6 parts are in the store, and it stays open until close_early,
# which first appends the file `more`, if there is one. (The end of a child of the shell would
# be a close.)
write_early() {
	curl -fsS -X DELETE "$OSS_ADMIN/stats" >/dev/null
	rm -f close more
	python3 - "$T/mnt/$1" >"$T/writer.out" 2>"$T/writer.err" <<-'END' &
		import os, sys, time
		with open(sys.argv[1], "wb") as f, open("data", "rb") as data:
		    while piece := data.read(1 << 20):
		        f.write(piece)
		    f.flush()
		    # A kernel that writes back would keep it as long as it likes.
		    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
		    while not os.path.exists("close"):
		        time.sleep(0.02)
		    if os.path.exists("more"):
		        f.write(open("more", "rb").read())
	END
	writer=$!
	defer stop_pid "$writer"
	eventually 30 parts 5
}
close_early() {
	touch close
	wait "$writer" || fail "$mode: the writer: $?"
}

cd "$T"
head -c $((48 * 1024 * 1024)) /dev/urandom >data
mode=passthrough
start

# Nothing is pending, nothing is shown of it.
write_early f
[ "$(json .output.files_pending)" -eq 0 ] || fail "$mode: pending while it is written"
[ ! -e "$S/f" ] || fail "$mode: shown before it was closed"
close_early
expect_rc 0 timeout 60 "$bin/sluice" flush mnt
cmp data "$S/f" || fail "$mode: not the bytes"
[ "$(oss_stat .requests.UploadPart)" -eq 6 ] || fail "$mode: parts were sent twice"

# The kernel may write where nobody sees it: also behind a part that was sent.
cp data changed
write_early f
for at in 3 17; do
	head -c 100 /dev/urandom >new
	dd if=new of=mnt/f bs=1M seek=$at conv=notrunc status=none
	dd if=new of=changed bs=1M seek=$at conv=notrunc status=none
done
close_early
expect_rc 0 timeout 60 "$bin/sluice" flush mnt
cmp changed "$S/f" || fail "$mode: old bytes under what was rewritten"

write_early removed
rm mnt/removed
eventually 30 no_uploads
close_early
write_early cut
truncate -s 10000000 mnt/cut
close_early
write_early before
mkdir mnt/dir
mv mnt/before mnt/dir/after
close_early
expect_rc 0 timeout 60 "$bin/sluice" flush mnt
head -c 10000000 data | cmp - "$S/cut" || fail "$mode: cut"
cmp data "$S/dir/after" || fail "$mode: renamed"
[ ! -e "$S/removed" ] && [ ! -e "$S/before" ] || fail "$mode: a key too many"

# A drain takes what there is and waits for nobody.
write_early open
expect_rc 0 timeout 60 "$bin/sluice" flush mnt
cmp data "$S/open" || fail "$mode: not published"
cp new more
close_early
expect_rc 0 timeout 60 "$bin/sluice" flush mnt
cat data new | cmp - "$S/open" || fail "$mode: behind a drain"
stop

# The daemon dies, and another one goes on with the open file.
mode=holder
start --io-uring off
if [ "$(json .restart.used)" = true ]; then
	write_early held
	kill_daemon
	cp new more
	close_early
	expect_rc 0 timeout 60 "$bin/sluice" flush mnt
	cat data new | cmp - "$S/held" || fail "after a death"
fi
stop

# Nobody goes on: the next mount removes what was sent.
mode=killed
start --restart off
write_early lost
pid=$(json .pid)
kill -9 "$pid"
touch close
wait "$writer" || true
eventually 30 dead "$pid"
umount -l "$T/mnt" 2>/dev/null || true
[ "$(uploads)" -eq 1 ] || fail "$(uploads) uploads behind a death"
start --restart off
eventually 30 no_uploads
stop
