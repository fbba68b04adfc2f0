#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Names that a store cannot hold are refused before anything is acknowledged, and are not
# there where one looks for them; all others arrive byte for byte.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
long=$(printf 'n%.0s' {1..250})

# refused ERRNO CALL: it fails with that.
refused() {
	python3 - "$T/mnt" "$1" "$2" <<'EOF' || fail "not refused as it should be"
import errno, os, sys
m, want = os.fsencode(sys.argv[1]) + b"/", getattr(errno, sys.argv[2])
try:
    eval(sys.argv[3])
except OSError as e:
    sys.exit(0 if e.errno == want else f"{sys.argv[3]}: {e}")
sys.exit(f"{sys.argv[3]}: no error")
EOF
}

mount_sluice oss://data "$T/mnt" output
for name in '\xff' '\xed\xa0\x80' '\xc0\xaf'; do # no UTF-8, a surrogate, an overlong form
	refused EILSEQ "open(m + b'$name', 'wb')"
	refused EILSEQ "os.mkdir(m + b'$name')"
	refused EILSEQ "os.symlink(b'x', m + b'$name')"
	refused ENOENT "os.stat(m + b'$name')"
done
refused EINVAL "open(m + b'\\\\first', 'wb')"

# A key has 1023 bytes; the slash behind a directory is one of them.
d=$long/$long/$long/$(printf 'd%.0s' {1..255})
mkdir -p "$T/mnt/$d" "$T/mnt/shallow/$long"
echo full >"$T/mnt/$d/fourteen-bytes"
refused ENAMETOOLONG "open(m + b'$d/fifteen---bytes', 'wb')"
mkdir "$T/mnt/$d/thirteenbytes"
refused ENAMETOOLONG "os.mkdir(m + b'$d/fourteen.bytes')"
echo moved >"$T/mnt/a"
refused EILSEQ "os.rename(m + b'a', m + b'\xff')"
# What lies in it would have no key.
refused ENAMETOOLONG "os.rename(m + b'$long', m + b'shallow/$long/x')"
[ "$(<"$T/mnt/a")" = moved ] || fail 'a is gone'
[ "$(<"$T/mnt/$d/fourteen-bytes")" = full ] || fail 'the tree is gone'

# Odd, but names: each arrives as it is.
odd=('back\slash' $'control\x01\x7f' $'new\nline' 'grün€' ' lead' 'trail ' '%41+&=?#' '*' '-')
for name in "${odd[@]}"; do echo "$name" >"$T/mnt/$name"; done
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt" # so nothing is pending
mount_sluice oss://data "$T/mnt" input
for name in "${odd[@]}"; do
	[ "$(<"$T/mnt/$name")" = "$name" ] || fail "read back: $name"
done
[ "$(<"$T/mnt/$d/fourteen-bytes")" = full ] || fail 'the longest key'
refused ENOENT "os.stat(m + b'\xff')"
refused ENOENT "os.stat(m + b'\\\\first')"
refused ENAMETOOLONG "os.stat(m + b'$d/thirteenbytes/x')"
expect_rc 0 "$bin/sluice" umount "$T/mnt"

# The source's prefix is part of the key: there is less room, and a backslash is not first.
mount_sluice "oss://data/$long" "$T/mnt" output --state-dir "$T/state-prefix"
echo x >"$T/mnt/\\first"
d=$long/$long/$(printf 'd%.0s' {1..255})
mkdir -p "$T/mnt/$d"
echo full >"$T/mnt/$d/fourteen-bytes"
refused ENAMETOOLONG "open(m + b'$d/fifteen---bytes', 'wb')"
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"

# A local directory takes any bytes.
mkdir "$T/plain"
mount_sluice "file://$T/plain" "$T/mnt" output --state-dir "$T/state-plain"
echo bytes >"$T/mnt/"$'\xff'
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
[ "$(<"$T/plain/"$'\xff')" = bytes ] || fail 'any bytes'
