#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# More large files in use than the daemon may have descriptors: all are read right, from the
# cache, with and without opens.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src"
for i in $(seq 120); do head -c $((300000 + i)) /dev/urandom >"$T/src/$i"; done
mkdir "$T/in"
defer unmount_hard "$T/in"
status() { "$bin/sluice" status "$T/in" --json | jq -er "$1"; }

for options in "" "--passthrough off" "--immutable --profile small"; do
	# shellcheck disable=SC2086
	prlimit --nofile=128:128 "$bin/sluice" mount "file://$T/src" "$T/in" --role input \
		--cache-dir "$T/cache" --state-dir "$T/state" $options
	python3 - "$T/src" "$T/in" "$(status .pid)" <<'END'
import os, sys
source, mount, pid = sys.argv[1:]
want = {n: open(f"{source}/{n}", "rb").read() for n in os.listdir(source)}
for _ in range(2):
    files = {n: open(f"{mount}/{n}", "rb") for n in want}
    for half in range(2):
        for n, f in files.items():
            data = f.read(150000) if half == 0 else f.read()
            at = 150000 * half
            assert data == want[n][at:at + 150000 if half == 0 else None], n
            used = len(os.listdir(f"/proc/{pid}/fd"))
            assert used < 110, f"{used} descriptors"
    for f in files.values():
        f.close()
END
	[ "$(status .fuse.errors)" -eq 0 ] || fail "errors: $(status .)"
	[ "$(status .cache.bypassed)" -eq 0 ] || fail "the cache disk was given up: $(status .cache)"
	"$bin/sluice" umount "$T/in"
done
