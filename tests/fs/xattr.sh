#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Extended attributes of /output: whether a file is in the store, and as what. They never say
# "stored" of bytes that are not.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
M=$T/mnt

attr() { python3 -c 'import os,sys; print(os.getxattr(*sys.argv[1:]).decode())' "$1" "$2"; }
state() { attr "$1" user.sluice.state; }
is() { [ "$(state "$1")" = "$2" ]; }
expect_state() { is "$1" "$2" || fail "$how: ${1##*/} is $(state "$1"), not $2"; }
names() { python3 -c 'import os,sys; print(*os.listxattr(sys.argv[1]))' "$1"; }
# errno CALL ARGUMENT…: the name of its error.
errno() {
	python3 - "$@" <<-'END'
		import errno, os, sys
		call, *args = sys.argv[1:]
		try:
		    getattr(os, call)(*args)
		    print("none")
		except OSError as e:
		    print(errno.errorcode[e.errno])
	END
}
etag() {
	"$bin/ossctl" stat "oss://data/$1" --endpoint "$OSS_ENDPOINT" --region cn-hangzhou --json |
		jq -r .etag
}
expect_stored() {
	timeout 60 "$bin/sluice" flush "$M" || fail "$how: no flush"
	expect_state "$M/$1" stored
	[ "$(attr "$M/$1" user.sluice.etag)" = "$(etag "$1")" ] ||
		fail "$how: $1 has another etag than its object, $(etag "$1")"
	[ "$(names "$M/$1")" = "user.sluice.state user.sluice.etag" ] ||
		fail "$how: names: $(names "$M/$1")"
}
# states FILE MODE STATE WORD…: in one process, for the end of any that has the file open is a
# close. "write" writes and has the kernel hand it over, "flush" is of the mount; after each
# the state is compared.
states() {
	python3 - "$bin/sluice" "$M" "$@" <<-'END' || fail "$how: ${1##*/}, opened $2"
		import ctypes, os, subprocess, sys
		sluice, mount, path, mode, *steps = sys.argv[1:]
		libc = ctypes.CDLL(None, use_errno=True)
		n = ctypes.c_int64
		fd = os.open(path, {"new": os.O_RDWR | os.O_CREAT, "rw": os.O_RDWR,
		                    "append": os.O_WRONLY | os.O_APPEND}[mode], 0o644)
		for do, want in zip(steps[::2], steps[1::2]):
		    if do == "flush":
		        subprocess.run([sluice, "flush", mount], check=True, timeout=60)
		    elif do != "open":
		        os.write(fd, os.urandom(int(do)))
		        if libc.sync_file_range(fd, n(0), n(0), 7):
		            sys.exit("sync_file_range: %d" % ctypes.get_errno())
		    got = os.getxattr(path, "user.sluice.state").decode()
		    if want != "any" and got != want:
		        sys.exit("after %s: %s, not %s" % (do, got, want))
	END
}

# One file that travels in the journal, one that is too large for that.
for how in on off; do
	mount_sluice oss://data "$M" output --passthrough $how --publish-interval 0
	for size in 1000 300000; do
		f=$how-$size
		store_away
		head -c $size /dev/urandom >"$M/$f"
		is "$M/$f" stored && fail "$how: stored in a store that is away"
		[ "$(names "$M/$f")" = user.sluice.state ] || fail "$how: names: $(names "$M/$f")"
		[ "$(errno getxattr "$M/$f" user.sluice.etag)" = ENODATA ] || fail "an etag of nothing"
		rm "$M/$f"
		faults '[{"op":"PutObject","fault":"latency","ms":2000}]'
		states "$M/$f" new open local $size local
		eventually 30 is "$M/$f" uploading
		store_back
		expect_stored "$f"

		# Rewritten: local as soon as there are other bytes, until the store has them.
		# While it is open, a large one that has not changed cannot always be told from one
		# that has.
		unchanged=any
		[ $size -gt 1000 ] || unchanged=stored
		states "$M/$f" rw open $unchanged 10 local
		expect_stored "$f"
		states "$M/$f" append open $unchanged 10 local flush $unchanged 10 local
		expect_stored "$f"
		cmp "$M/$f" "$T/oss/data/$f"
	done
	mkdir "$M/dir-$how"
	[ -z "$(names "$M/dir-$how")" ] || fail "a directory has attributes"
	[ "$(errno getxattr "$M/dir-$how" user.sluice.state)" = ENODATA ] || fail "a directory's state"
	[ "$(errno getxattr "$M/$f" user.other)" = ENODATA ] || fail "another attribute"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
done
