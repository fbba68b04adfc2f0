#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --memory bounds what /output keeps in memory: while the store takes nothing, and of many
# files that are stored.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

own_mib=64   # programs, threads, tables of names
limit_mib=32 # --memory
start_ossd --bucket data
mount_sluice oss://data "$T/mnt" output --memory ${limit_mib}M --ttl 1h
pid=$("$bin/sluice" status "$T/mnt" --json | jq -r .pid)
# bounded WHEN: the most that was ever in memory is within the limit.
bounded() {
	local rss
	rss=$(awk '/^VmHWM/ {print int($2 / 1024)}' "/proc/$pid/status")
	[[ ${BUILD:-} == *san-* ]] || [ "$rss" -le $((limit_mib + own_mib)) ] || fail "$1: $rss MiB in memory"
}

ls "$T/mnt" >/dev/null
faults '[{"op":"PutObject","fault":"status","status":503},{"op":"UploadPart","fault":"status","status":503}]'
python3 - "$T/mnt" <<'END'
import os, sys
data = os.urandom(60000)
for i in range(1, 1501):
    with open(f"{sys.argv[1]}/f{i}", "wb") as f:
        f.write(data)
END
head -c 100000000 /dev/zero >"$T/mnt/large"
bounded "store away"
faults '[]'
expect_rc 0 timeout 120 "$bin/sluice" flush "$T/mnt"
[ "$(find "$T/oss/data" -name 'f*' -size 60000c | wc -l)" -eq 1500 ] || fail "not all stored"

# Many small files, twice as many as there may be nodes (TIMES=10: the long form), in
# directories of several sizes and depths; not much faster than they are stored: what is
# pending takes memory, too.
files=$((${TIMES:-2} * 4000))
python3 - "$T/mnt" "$bin/sluice" "$files" <<'END'
import json, os, subprocess, sys, time
root, sluice, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
def pending():
    out = subprocess.run([sluice, "status", root, "--json"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)["output"]["files_pending"]
dirs = ["flat"] + ["some/%02d" % i for i in range(20)] + ["deep/a/b/c/%d" % i for i in range(100)]
counts = [files // 4] + [files // 40] * 20 + [files // 400] * 100
made = 0
for d, n in zip(dirs, counts):
    os.makedirs(os.path.join(root, d))
    for i in range(n):
        with open(os.path.join(root, d, "%05d" % i), "w") as f:
            f.write("%s %d" % (d, i))
        made += 1
        while made % 1000 == 0 and pending() > 1000:
            time.sleep(0.05)
END
bounded "$files files stored"
drained() { [ "$(json .output.files_pending)" -eq 0 ]; }
eventually 60 drained
known=$(json .output.detail.nodes)
[ "$known" -lt 6000 ] || fail "$known nodes of a budget of 4096 are left"

# What was let go of is all there: by name, by listing, by content; and new names are free.
lists=$(oss_stat '.requests.ListObjectsV2 // 0')
echo new >"$T/mnt/flat/new"
[ "$(oss_stat '.requests.ListObjectsV2 // 0')" -eq "$lists" ] || fail "the store was asked for a new name"
(cd "$T/mnt" && find flat some deep -type f | sort) >"$T/shown"
(cd "$T/oss/data" && find flat some deep -type f | sort) >"$T/stored"
[ "$(wc -l <"$T/shown")" -eq $((files + 1)) ] || fail "$(wc -l <"$T/shown") files shown"
bounded "listed"
expect_rc 0 "$bin/sluice" flush "$T/mnt"
for i in 00000 01234 01999; do
	[ "$(cat "$T/mnt/flat/$i")" = "flat $((10#$i))" ] || fail "flat/$i has other content"
done
[ "$(cat "$T/mnt/deep/a/b/c/42/00019")" = "deep/a/b/c/42 19" ] || fail "a deep one has other content"
[ ! -e "$T/mnt/flat/$((files / 4 + 10000))" ] || fail "a name that never was"
! (set -C && echo again >"$T/mnt/flat/00007") 2>/dev/null || fail "a name that is there was free"
rm "$T/mnt/flat/00008"
[ ! -e "$T/mnt/flat/00008" ] || fail "a removed name is there"
! rmdir "$T/mnt/some/07" 2>/dev/null || fail "a directory with files was removed"
mv "$T/mnt/some/07" "$T/mnt/moved"
rm -r "$T/mnt/some/08"
[ ! -e "$T/mnt/some/08" ] || fail "a removed tree is there"
[ "$(cat "$T/mnt/moved/00150")" = "some/07 150" ] || fail "a file of a moved directory has other content"
(cd "$T/mnt" && find . -type f | sort) >"$T/shown"
expect_rc 0 timeout 120 "$bin/sluice" umount "$T/mnt"
(cd "$T/oss/data" && find . -type f | sort) >"$T/stored"
diff "$T/shown" "$T/stored" >&2 || fail "the bucket holds other names"
