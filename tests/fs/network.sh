#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The network between a mount and its store: a black hole, resets, lost packets, a server
# that stands still. Calls end in time, what was closed stays, and all arrives afterwards.
# Runs in name spaces of its own, for the network and for mounts.
if [ -z "${IN_NETNS:-}" ]; then
	IN_NETNS=1 exec "$(dirname "$0")/../apart.sh" - unshare -n "$0"
fi
ip link set lo up
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

S=$T/oss/data
mkdir -p "$S"
head -c 3000000 /dev/urandom >"$T/data"
for i in $(seq 8); do cp "$T/data" "$S/cold-$i"; done
start_ossd --bucket data --region cn-hangzhou
port=${OSS_ENDPOINT##*:}
rule() { iptables "$1" INPUT -p tcp --dport "$port" "${@:2}"; }

mount_sluice oss://data "$T/mi" input --deadline 3s
mount_sluice oss://data "$T/mo" output --ttl 10m --state-dir "$T/state2"
# What a directory holds is known; without that, names could not be made in time.
ls "$T/mi" "$T/mo" >/dev/null

# broken N: a cold read ends with an error, a write is taken, a flush says what is missing.
broken() {
	local start=$SECONDS
	expect_rc 1 timeout -s KILL 30 cat "$T/mi/cold-$1"
	grep -Eq 'timed out|Input/output' "$T/err" || fail "$(cat "$T/err")"
	[ $((SECONDS - start)) -le 15 ] || fail "the reader waited $((SECONDS - start)) s"
	cp "$T/data" "$T/mo/written-$1"
	expect_rc 75 timeout -s KILL 30 "$bin/sluice" flush "$T/mo" --deadline 500ms
}
# healed N: the same works.
healed() {
	read_again() { cmp "$T/data" "$T/mi/cold-$1"; }
	eventually 20 read_again "$1"
	expect_rc 0 timeout 60 "$bin/sluice" flush "$T/mo"
	cmp "$T/data" "$S/written-$1"
}

# Packets vanish.
rule -A -j DROP
broken 1
rule -D -j DROP
healed 1

# Connections are reset.
rule -A -j REJECT --reject-with tcp-reset
broken 3
rule -D -j REJECT --reject-with tcp-reset
healed 3

# One packet in ten is lost: slower, and nothing else.
rule -A -m statistic --mode random --probability 0.1 -j DROP
for i in 4 5 6; do
	cmp "$T/data" "$T/mi/cold-$i"
	cp "$T/data" "$T/mo/lossy-$i"
done
expect_rc 0 timeout 100 "$bin/sluice" flush "$T/mo"
rule -D -m statistic --mode random --probability 0.1 -j DROP
for i in 4 5 6; do cmp "$T/data" "$S/lossy-$i"; done

# The server stands still in the middle of an upload, and goes on.
cp "$T/data" "$T/mo/still"
hang "$OSSD_PID"
cp "$T/data" "$T/mo/still-too"
expect_rc 75 timeout -s KILL 30 "$bin/sluice" flush "$T/mo" --deadline 2s
kill -CONT "$OSSD_PID"
expect_rc 0 timeout 60 "$bin/sluice" flush "$T/mo"
cmp "$T/data" "$S/still" && cmp "$T/data" "$S/still-too"

# What a mount left behind is recovered within the deadline or not at all, also when the first
# request finds nobody: no store, no server for names.
store_away
cp "$T/data" "$T/mo/left"
expect_rc 75 "$bin/sluice" umount "$T/mo" --deadline 500ms
# in_time: a deadline of 2 s is kept, give or take a busy machine.
in_time() {
	local start=$SECONDS
	expect_rc 69 timeout -s KILL 60 "$bin/sluice" recover --state-dir "$T/state2" --deadline 2s
	[ $((SECONDS - start)) -le 12 ] || fail "2 s took $((SECONDS - start)) s: $(cat "$T/err")"
}
hang "$OSSD_PID"
in_time
kill -CONT "$OSSD_PID"
cp "$T/state2/mount.json" "$T/mount.json"
jq '.endpoint = "http://store.example"' "$T/mount.json" >"$T/state2/mount.json"
ip route add 192.0.2.0/24 dev lo
printf 'nameserver 192.0.2.1\noptions timeout:15\n' >"$T/resolv.conf"
mount --bind "$T/resolv.conf" /etc/resolv.conf
defer umount /etc/resolv.conf
in_time
grep -qi 'resolv' "$T/err" || fail "another error: $(cat "$T/err")"
cp "$T/mount.json" "$T/state2/mount.json"
store_back
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/state2"
cmp "$T/data" "$S/left"
