#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What /output does not support is refused with the error that sluice(8) names, and nothing is
# left of it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

M=$T/mnt
mkdir "$T/store"
for how in on off; do
	mount_sluice "file://$T/store" "$M" output --passthrough $how
	head -c 300000 /dev/urandom >"$T/data"
	cp "$T/data" "$M/file"
	python3 - "$M" <<-'END' || fail "--passthrough $how"
		import ctypes, errno, os, socket, stat, sys
		os.chdir(sys.argv[1])
		libc = ctypes.CDLL(None, use_errno=True)
		n = ctypes.c_int64

		def refused(want, what, call):
		    try:
		        call()
		    except OSError as e:
		        got = errno.errorcode[e.errno]
		    else:
		        got = "done"
		    if got != errno.errorcode[want]:
		        sys.exit("%s: %s, not %s" % (what, got, errno.errorcode[want]))

		def called(r):
		    if r < 0:
		        raise OSError(ctypes.get_errno(), "")

		fd = os.open("file", os.O_RDWR)
		allocate = lambda mode: called(libc.fallocate(fd, mode, n(0), n(4096)))
		rename = lambda flags: called(libc.renameat2(-100, b"file", -100, b"new", flags))

		refused(errno.EPERM, "link", lambda: os.link("file", "new"))
		refused(errno.EPERM, "fifo", lambda: os.mkfifo("new"))
		refused(errno.EPERM, "device", lambda: os.mknod("new", stat.S_IFCHR | 0o600, 0x103))
		refused(errno.EPERM, "socket", lambda: socket.socket(socket.AF_UNIX).bind("new"))
		refused(errno.EOPNOTSUPP, "setxattr", lambda: os.setxattr("file", "user.a", b"b"))
		refused(errno.EOPNOTSUPP, "state", lambda: os.setxattr("file", "user.sluice.state", b"b"))
		refused(errno.EOPNOTSUPP, "removexattr", lambda: os.removexattr("file", "user.sluice.state"))
		refused(errno.EOPNOTSUPP, "O_TMPFILE", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR))
		for name, mode in ("COLLAPSE_RANGE", 8), ("INSERT_RANGE", 0x20), ("UNSHARE_RANGE", 0x40):
		    refused(errno.EOPNOTSUPP, name, lambda: allocate(mode))
		refused(errno.EINVAL, "RENAME_WHITEOUT", lambda: rename(4))
		if os.listdir() != ["file"]:
		    sys.exit("left: %s" % os.listdir())
	END
	cmp "$T/data" "$M/file" || fail "something was done to the file"

	# What is named beside it is supported.
	truncate -s 8192 "$T/want"
	tail -c +8193 "$T/data" >>"$T/want"
	fallocate -z -o 0 -l 4096 "$M/file"
	fallocate -p -o 4096 -l 4096 "$M/file"
	cmp "$T/want" "$M/file" || fail "ZERO_RANGE or PUNCH_HOLE"
	rm "$T/want"
	fallocate -n -o 300000 -l 4096 "$M/file"
	[ "$(stat -c %s "$M/file")" -eq 300000 ] || fail "KEEP_SIZE"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
done
