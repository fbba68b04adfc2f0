#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several writers do random things to a mount and to a plain directory, with a store that
# fails now and then: both answer alike, and in the end, with all local state gone, the
# bucket holds what the directory holds.
#
# MODEL_SEED repeats a run, MODEL_STEPS makes it longer.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

seed=${MODEL_SEED:-$RANDOM}
steps=${MODEL_STEPS:-100}
echo "MODEL_SEED=$seed"
start_ossd --bucket data --region cn-hangzhou

# work SEED OPTION…: what the workers do to one mount.
work() {
	local seed=$1 workers=() w
	shift
	mount_sluice "oss://data/$prefix/" "$mnt" output --publish-interval 1s "$@"
	faults "[{\"fault\":\"status\",\"status\":503,\"probability\":0.05},
		{\"fault\":\"commit-then-500\",\"probability\":0.05},
		{\"fault\":\"reset\",\"after\":1000,\"probability\":0.03}]"
	for w in 1 2 3; do
		python3 "$(dirname "$0")/model.py" "$T/plain$rounds" "$mnt" "$seed" $w "$steps" \
			>"$T/worker$w.out" 2>&1 &
		workers+=($!)
	done
	for w in 1 2 3; do
		wait "${workers[w - 1]}" || fail "$* MODEL_SEED=$seed worker $w: $(tail -n 5 "$T/worker$w.out")"
	done
	faults '[]'
	timeout 60 "$bin/sluice" flush "$mnt" --json >"$T/receipt" ||
		fail "$* MODEL_SEED=$seed: no flush"
	receipt_is_true "$T/receipt" "$prefix/"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$mnt"
	rm -rf "$T/state" "$T/cache"
}

# run OPTION…: one round in a fresh bucket prefix. The second mount has listed nothing of
# what the first one left.
run() {
	local prefix=r$((++rounds))
	local mnt=$T/mnt$rounds
	mkdir "$T/plain$rounds"
	work "$seed" "$@"
	work "$((seed + 1))" "$@"
	mount_sluice "oss://data/$prefix/" "$mnt" output "$@"
	diff -r --no-dereference "$T/plain$rounds" "$mnt" >"$T/diff" ||
		fail "MODEL_SEED=$seed: the bucket differs: $(head -n 5 "$T/diff")"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$mnt"
	rm -rf "$T/state" "$T/cache"
}

rounds=0
run
run --passthrough off --io-uring off
[ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" != Y ] || run --io-uring on
