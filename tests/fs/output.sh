#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# /output over a directory: what is closed gets to the store with the same structure and
# bytes; the commands say how far it is.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/store/old"
echo before >"$T/store/old/file"
json() { "$bin/sluice" status "$T/mnt" --json | jq -er "$1"; }
stored() { cmp -s "$1" "$T/store/$2"; }

mount_sluice "file://$T/store" "$T/mnt" output
cd "$T"
head -c 3000000 /dev/urandom >big
cp big mnt/big
mkdir -p mnt/run/ckpt
cp big mnt/run/ckpt/step-1
echo one >mnt/log
echo two >>mnt/log
dd if=big of=mnt/patched bs=100000 count=10 status=none
dd if=/dev/zero of=mnt/patched bs=1000 seek=7 count=3 conv=notrunc status=none
dd if=big of=want bs=100000 count=10 status=none
dd if=/dev/zero of=want bs=1000 seek=7 count=3 conv=notrunc status=none
cmp mnt/patched want || fail "read back"
mv mnt/run/ckpt/step-1 mnt/run/ckpt/last
echo gone >mnt/short-lived
rm mnt/short-lived
: >mnt/empty
ln -s log mnt/link
[ "$(cat mnt/old/file)" = before ] || fail "what the store holds is not there"
echo after >mnt/old/file
expect_rc 1 ln mnt/log mnt/hard
grep -q 'not permitted' "$T/err" || fail "$(cat "$T/err")"

expect_rc 0 timeout 60 "$bin/sluice" flush mnt --json
jq -e '.status == "stored" and (.pending | length == 0)' out >/dev/null || fail "receipt: $(cat out)"
[ "$(json .output.files_pending)" -eq 0 ] || fail "pending after a flush"
stored big big && stored big run/ckpt/last && stored want patched || fail "not the same bytes"
[ "$(cat store/log)" = $'one\ntwo' ] || fail "log: $(cat store/log)"
[ "$(cat store/old/file)" = after ] || fail "not replaced"
[ -f store/empty ] && [ ! -s store/empty ] || fail "empty file"
[ ! -e store/short-lived ] && [ ! -e store/run/ckpt/step-1 ] || fail "a name too many"

# A drain at the end of the mount takes what was written last.
cp big mnt/final
expect_rc 0 timeout 60 "$bin/sluice" umount mnt
stored big final || fail "the last file is not there"
mountpoint -q mnt && fail "still mounted"
[ -z "$(ls run)" ] || fail "a socket is left"

# What a later mount sees is what was written.
mount_sluice "file://$T/store" "$T/mnt" output
cmp big mnt/run/ckpt/last
[ "$(readlink mnt/link)" = log ] || fail "a link that the store holds: $(readlink mnt/link)"
[ "$(json .state)" = serving ] && [ "$(json .role)" = output ] || fail "status"
