#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What programs see of their own writes, and what gets to the store, is the same whether the
# kernel writes the staged file itself, gathers writes in its page cache, or sends each.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

json() { "$bin/sluice" status "$T/mnt" --json | jq -er "$1"; }
switches() {
	cat /proc/"$1"/task/*/status | awk '/ctxt_switches/ {n += $2} END {print n}'
}

# Several writers append to one file at once: no line is lost, none is torn.
appenders() {
	local i j pids=()
	for i in 1 2 3 4; do
		(for j in $(seq 50); do echo "writer $i line $j"; done) >>mnt/appended &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
	[ "$(wc -l <mnt/appended)" -eq 200 ] || fail "$mode: lines: $(wc -l <mnt/appended)"
	[ "$(sort mnt/appended | uniq -c | awk '$1 != 1 || NF != 5')" = "" ] ||
		fail "$mode: torn or twice"
}

# Size and content as a second program sees them while the first one still writes.
while_open() {
	exec 7>mnt/open
	dd if="$T/data" bs=4096 status=none >&7
	[ "$(stat -c %s mnt/open)" -eq 3000000 ] || fail "$mode: size $(stat -c %s mnt/open)"
	cp --sparse=auto mnt/open copy # looks for holes
	cmp copy "$T/data" || fail "$mode: a copy of an open file"
	truncate -s 1000 mnt/open
	[ "$(stat -c %s mnt/open)" -eq 1000 ] || fail "$mode: not cut"
	exec 7>&-
	head -c 1000 "$T/data" | cmp - mnt/open || fail "$mode: after a cut"
}

times() {
	echo x >mnt/times
	touch -d @1000000000 mnt/times
	[ "$(stat -c %Y mnt/times)" -eq 1000000000 ] || fail "$mode: utimes"
	exec 7>>mnt/times
	echo y >&7
	touch -d @1100000000 mnt/times
	exec 7>&-
	[ "$(stat -c %Y mnt/times)" -eq 1100000000 ] || fail "$mode: utimes of an open file"
}

# A page is appended to behind a version that is on its way.
appended_later() {
	printf one >mnt/later
	"$bin/sluice" flush mnt >/dev/null
	for word in two three four; do printf %s "$word" >>mnt/later; done
	[ "$(cat mnt/later)" = onetwothreefour ] || fail "$mode: later: $(cat mnt/later)"
}

plain() { [ "$(stat -c %a mnt/suid)" = 777 ]; }
privileges() {
	[ "$(id -u)" -eq 0 ] || return 0
	echo x >mnt/suid
	chmod 6777 mnt/suid
	setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'echo y >>mnt/suid' ||
		fail "$mode: cannot append"
	# The kernel does not look again before the attributes that it knows are old.
	eventually 10 plain
}

# Small writes need not each wake the daemon; `limit` is far below one each.
wakes() {
	local pid before after
	pid=$(json .pid)
	dd if=/dev/zero of=mnt/warm bs=4096 count=10 status=none
	before=$(switches "$pid")
	dd if=/dev/zero of=mnt/many bs=4096 count=20000 status=none
	after=$(switches "$pid")
	[ $((after - before)) -lt 10000 ] || fail "$mode: $((after - before)) switches for 20000 writes"
}

others_replace() {
	echo short >"$store/theirs"
	eventually 10 test -e mnt/theirs
	[ "$(cat mnt/theirs)" = short ] || fail "$mode: theirs"
	rm "$store/theirs" && echo "something longer" >"$store/theirs"
	eventually 10 grep -q longer mnt/theirs
	[ "$(stat -c %s mnt/theirs)" -eq 17 ] || fail "$mode: size of what others replaced"
}

cd "$T"
chmod 711 . # someone without rights looks in too
head -c 3000000 /dev/urandom >"$T/data"
for mode in passthrough write_back; do
	option=auto
	[ $mode = passthrough ] || option=off
	store=$T/store-$mode
	mkdir -p "$store"
	mount_sluice "file://$store" "$T/mnt" output --passthrough $option --allow-other on \
		--ttl 100ms --state-dir "$T/state-$mode"
	if [ $mode = write_back ]; then
		[ "$(json .fuse.write_back.used)" = true ] || fail "no write-back: $(json .fuse)"
	fi
	used=$(json ".fuse.$mode.used" || true)
	appenders
	while_open
	times
	appended_later
	privileges
	# Before 3.17 the library cannot keep the kernel from asking before each write.
	[ "$used" = false ] || [[ $(json .fuse.libfuse) == 3.1[0-6]* ]] || wakes
	others_replace
	expect_rc 0 timeout 60 "$bin/sluice" umount mnt
	[ "$(wc -l <"$store/appended")" -eq 200 ] || fail "$mode: stored lines"
	head -c 1000 data | cmp - "$store/open" || fail "$mode: stored bytes"
	[ "$(cat "$store/later")" = onetwothreefour ] || fail "$mode: stored later"
	[ "$(stat -c %s "$store/many" 2>/dev/null || echo 81920000)" -eq 81920000 ] ||
		fail "$mode: stored many"
done
