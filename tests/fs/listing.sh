#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Large directories of a bucket: one listing in parallel, no request for each file, paged to
# the reader while it goes on, little memory, there again after a restart.
# SLUICE_LISTING_COUNT=1000000 makes the large one as large as the README speaks of.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

count=${SLUICE_LISTING_COUNT:-100000}
python3 - "$T/oss/data" "$count" <<'END'
import os, sys
def fill(name, keys):
    os.makedirs(name)
    at = os.open(name, os.O_RDONLY)
    for key in keys:
        os.close(os.open(key, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at))
    os.close(at)
fill(sys.argv[1] + "/big", ("img_%08d.jpg" % i for i in range(int(sys.argv[2]))))
fill(sys.argv[1] + "/small", ("f%03d" % i for i in range(300)))
END
start_ossd
jq_status() { "$bin/sluice" status "$T/in" --json | jq -er "$1"; }
requests() { oss_stat ".requests.$1 // 0"; }
reset() { curl -fsS -X DELETE "$OSS_ADMIN/stats" >/dev/null; }
rss_kb() { awk '/^VmHWM/ {print $2}' "/proc/$(jq_status .pid)/status"; }
# Names, sizes and times as they come, and what comes before the listing is complete.
names() { find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n'; }

mount_sluice oss://data "$T/in" input --memory 32M --immutable

# A small directory costs one listing, and the way to it a look-up.
reset
[ "$(names "$T/in/small" | wc -l)" -eq 300 ] || fail "the small directory is not complete"
[ "$(requests ListObjectsV2)" -le 2 ] || fail "$(requests ListObjectsV2) listings for 300 files"

# The first names come while pages are still on their way.
faults '[{"op":"ListObjectsV2","skip":4,"fault":"latency","ms":300}]'
reset
python3 - "$T/in/big" "$OSS_ADMIN/stats" "$count" <<'END'
import json, os, sys, urllib.request
def pages():
    return json.load(urllib.request.urlopen(sys.argv[2]))["requests"]["ListObjectsV2"]
seen, last, at_first = 0, "", None
with os.scandir(sys.argv[1]) as entries:
    for e in entries:
        if at_first is None:
            at_first = pages()
        assert e.name > last, f"{e.name} after {last}"
        last = e.name
        seen += 1
assert seen == int(sys.argv[3]), seen
assert at_first < pages() / 2, (at_first, pages())
END
faults '[]'
pages=$(requests ListObjectsV2)
[ "$pages" -le $((count / 1000 * 13 / 10 + 12)) ] || fail "$pages pages for $count files"

# Sizes and times of all of them: from the listing.
dropped=$(kernel_dropped)
[ "$(ls -lU "$T/in/big" | wc -l)" -eq $((count + 1)) ] || fail "ls -l is not complete"
[ "$(requests HeadObject)" -le 1 ] || fail "$(requests HeadObject) HEADs"
[ "$(requests ListObjectsV2)" -eq "$pages" ] || fail "listed again"
# The kernel is asked to let go of what would take more than its share of --memory.
inodes=$(jq_status '.input.detail.inodes // .input.inodes')
[ "$inodes" -le 70000 ] || fail "$inodes inodes are held"
kb=$(rss_kb)
[[ ${BUILD:-} == *san-* ]] || [ "$kb" -le $((96 * 1024)) ] || fail "$kb KB resident for $count entries"

# Those that go do not make the kernel ask for the ones that come: 16 times the 400 or so
# that are on their way then. Older kernels must be told each name. What the kernel drops by
# itself, now and then all it has, may be some that were on their way, too.
fuse_requests() { jq_status ".fuse.requests.$1"; }
asked=$(fuse_requests lookup) most=10
[ "$(kernel_dropped)" = "$dropped" ] || most=$((count / 4))
[ "$asked" -le "$most" ] || fail "$asked look-ups for ls -l"
asked=$(fuse_requests getattr)
kernel=$(uname -r | awk -F. '{print $1 * 100 + $2}')
[ "$kernel" -lt 618 ] || [ "$asked" -le $((most + count / 8)) ] || fail "$asked of $count asked for one by one"

# Positions are what they were, forwards and backwards.
cat >"$T/seek.c" <<'END'
#include <dirent.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	static char names[4000][256];
	static long at[4000];
	DIR *d = opendir(argv[argc - 1]);
	struct dirent *e;

	for (int i = 0; i < 4000; i++) {
		at[i] = telldir(d);
		e = readdir(d);
		if (!e)
			return 1;
		strcpy(names[i], e->d_name);
	}
	for (int i = 3999; i >= 0; i -= 7) {
		seekdir(d, at[i]);
		e = readdir(d);
		if (!e || strcmp(e->d_name, names[i]))
			return printf("%d: %s\n", i, names[i]), 1;
	}
	return 0;
}
END
${CC:-cc} -o "$T/seek" "$T/seek.c" && { "$T/seek" "$T/in/big" || fail "seekdir"; }

# After a restart nothing of it is asked again.
"$bin/sluice" umount "$T/in" || fail "umount"
mount_sluice oss://data "$T/in" input --memory 32M --immutable
reset
stat -c %s "$T/in/big/img_00000042.jpg" "$T/in/small/f007" >/dev/null || fail "stat"
[ "$(names "$T/in/big" | sort -u | wc -l)" -eq "$count" ] || fail "not complete after a restart"
expect_rc 1 stat "$T/in/big/nothing"
[ "$(requests ListObjectsV2)" -le 2 ] || fail "listed again after a restart"

# Where the source may change, what is new is seen when the time to live is over.
"$bin/sluice" umount "$T/in" || fail "umount"
mount_sluice oss://data "$T/in" input --ttl 1s
[ "$(names "$T/in/small" | wc -l)" -eq 300 ] || fail "the small directory again"
"$bin/ossctl" put "$0" oss://data/small/new --endpoint "$OSS_ENDPOINT" >/dev/null
eventually 20 test -e "$T/in/small/new"
eventually 20 sh -c "ls '$T/in/small' | grep -x new"
