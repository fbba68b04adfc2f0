#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that compare what they find with what they left: times, modes, owners and bytes on
# /output are those of a local disk, while the mount that wrote them lives and in a fresh one.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

command -v rsync >/dev/null || skip "needs rsync"
mkdir -p "$T/oss/data"
start_ossd --bucket data --region cn-hangzhou
mnt=$T/mnt
export HOME=$T GIT_CONFIG_NOSYSTEM=1
git config --global user.name tester
git config --global user.email tester@example.com
git config --global init.defaultBranch main

# Another mount that knows only what the store has; what the kernel knew goes, too.
fresh_mount() {
	if mountpoint -q "$mnt"; then
		expect_rc 0 timeout 60 "$bin/sluice" umount "$mnt"
		rm -rf "$T/state"
	fi
	mount_sluice oss://data "$mnt" output
}
# What ls -l shows, but for numbers of directories' bytes and links.
facts() { (cd "$1" && find . -mindepth 1 -printf '%P %y %m %U:%G %T@ %l ' \( -type f -printf '%s' -o -true \) -printf '\n' | sort); }
same() { diff <(facts "$1") <(facts "$2") >"$T/facts" || fail "$3: $(head -n 5 "$T/facts")"; }
synced() {
	rsync -a --itemize-changes "$T/tree/" "$mnt/copy/" >"$T/items" 2>&1 || fail "$1: $(tail -n 3 "$T/items")"
	[ ! -s "$T/items" ] || fail "$1: $(wc -l <"$T/items") changes, as $(head -n 3 "$T/items")"
}

# A tree with short and long files, odd modes, an owner, old times, links, an empty directory.
mkdir -p "$T/tree/sub/deep" "$T/tree/empty" "$T/tree/many"
for i in {1..40}; do echo "$i" >"$T/tree/many/$i"; done
for size in 0 1 4095 4096 70000 5000000; do head -c $size /dev/urandom >"$T/tree/sub/$size"; done
cp "$T/tree/sub/70000" "$T/tree/sub/deep/program"
chmod 750 "$T/tree/sub/deep/program"
chmod 600 "$T/tree/sub/4096" "$T/tree/sub/1"
chown 1234:2345 "$T/tree/sub/70000" "$T/tree/many/7"
ln -s ../sub/4096 "$T/tree/many/link"
chmod 700 "$T/tree/sub/deep"
chmod 2775 "$T/tree/empty"
find "$T/tree" -exec touch -h -d '2020-02-02 02:02:02.123456789' {} +
touch -d '2021-01-01' "$T/tree/sub/70000"

fresh_mount
rsync -a "$T/tree/" "$mnt/copy/"
same "$T/tree" "$mnt/copy" "after rsync"
synced "a second rsync"
expect_rc 0 timeout 60 "$bin/sluice" flush "$mnt"
synced "a second rsync, all being stored"
fresh_mount
synced "rsync to a fresh mount"
fresh_mount
same "$T/tree" "$mnt/copy" "a fresh mount"
# Reading changes nothing, neither while a file is open nor afterwards.
diff -r "$T/tree" "$mnt/copy" || fail "other bytes"
exec 3<"$mnt/copy/sub/5000000" 4<"$mnt/copy/sub/4095"
head -c 100 <&3 >/dev/null
head -c 100 <&4 >/dev/null
same "$T/tree" "$mnt/copy" "while files are read"
exec 3<&- 4<&-
same "$T/tree" "$mnt/copy" "after they were read"
synced "rsync after all was read"

# The first to look is who has the file open, or only reads the directory.
fresh_mount
for size in 4095 4096 5000000; do
	want=$(stat -c '%a %u %Y' "$T/tree/sub/$size")
	got=$(stat -L -c '%a %u %Y' /dev/stdin <"$mnt/copy/sub/$size")
	[ "$got" = "$want" ] || fail "open file of $size: $got, not $want"
done
fresh_mount
# shellcheck disable=SC2012 # what ls makes of it is the point
[ "$(ls -ln --time-style=+%s "$mnt/copy/sub" | awk '{print $1, $3, $6, $7}' | sort)" = \
	"$(ls -ln --time-style=+%s "$T/tree/sub" | awk '{print $1, $3, $6, $7}' | sort)" ] ||
	fail "ls -l: $(ls -ln "$mnt/copy/sub")"

# cp, mv of a tree, find, du, tar.
touch "$T/now"
cp -a "$mnt/copy" "$mnt/twin"
same "$T/tree" "$mnt/twin" "cp -a"
[ -z "$(find "$mnt/twin" -newer "$T/now" -mindepth 1)" ] || fail "find -newer: $(find "$mnt/twin" -newer "$T/now" -mindepth 1)"
touch "$mnt/twin/many/5"
[ "$(find "$mnt/twin" -mindepth 1 -newer "$T/now")" = "$mnt/twin/many/5" ] || fail "find -newer does not find"
touch -r "$T/tree/many/5" "$mnt/twin/many/5"
mv "$mnt/twin" "$mnt/moved"
same "$T/tree" "$mnt/moved" "mv"
[ "$(du -sb --apparent-size "$mnt/moved/sub/deep/program" | cut -f1)" = 70000 ] || fail "du"
tar -C "$mnt" --format=posix -cf "$T/moved.tar" moved
mkdir "$T/unpacked" "$mnt/untar"
tar -C "$T/unpacked" -xpf "$T/moved.tar"
same "$T/tree" "$T/unpacked/moved" "tar -c"
tar -C "$mnt/untar" -xpf "$T/moved.tar"
same "$T/tree" "$mnt/untar/moved" "tar -x"
expect_rc 0 timeout 60 "$bin/sluice" flush "$mnt"
same "$T/tree" "$mnt/moved" "mv, stored"
fresh_mount
same "$T/tree" "$mnt/moved" "mv, fresh mount"
same "$T/tree" "$mnt/untar/moved" "tar -x, fresh mount"

# git believes its index: sizes, times and modes have to be those that it noted.
cp -r "$T/tree" "$T/work"
chmod -R u+rwX "$T/work"
git init -q "$mnt/repository"
cp -r "$T/work/." "$mnt/repository"
git -C "$mnt/repository" add -A
git -C "$mnt/repository" commit -qm first
clean() {
	[ -z "$(git -C "$mnt/repository" status --porcelain)" ] || fail "$1: $(git -C "$mnt/repository" status --porcelain | sed -n 1,3p)"
	[ -z "$(git -C "$mnt/repository" diff-files --name-only)" ] || fail "$1: stale $(git -C "$mnt/repository" diff-files --name-only | sed -n 1,3p)"
}
clean "git status"
fresh_mount
clean "git status in a fresh mount"
git -C "$mnt/repository" fsck --strict >"$T/fsck" 2>&1 || fail "git fsck: $(cat "$T/fsck")"
git clone -q "$mnt/repository" "$mnt/clone"
echo more >>"$mnt/clone/many/1"
git -C "$mnt/clone" commit -qam second
git -C "$mnt/repository" pull -q "$mnt/clone" main
[ "$(git -C "$mnt/repository" log -1 --format=%s)" = second ] || fail "git pull"
git -C "$mnt/clone" gc -q
git -C "$mnt/clone" fsck >"$T/fsck" 2>&1 || fail "git fsck: $(cat "$T/fsck")"

# sqlite: byte-range locks, a rollback journal that comes and goes, a log mapped by all.
cat >"$T/database.py" <<'PYTHON'
import sqlite3, sys
path, mode, step = sys.argv[1:]
a = sqlite3.connect(path, timeout=10)
assert a.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
if step == "fill":
    a.execute("create table t (n integer primary key, text)")
    for base in range(0, 1000, 200):
        with a:
            a.executemany("insert into t values (?, ?)", [(n, str(n) * 20) for n in range(base, base + 200)])
    b = sqlite3.connect(path, timeout=10)
    assert b.execute("select count(*) from t").fetchone()[0] == 1000
    a.execute("begin immediate")
    a.execute("delete from t where n < 500")
    assert b.execute("select count(*) from t").fetchone()[0] == 1000
    a.rollback()
assert a.execute("select count(*), sum(n) from t").fetchone() == (1000, 499500)
assert a.execute("pragma integrity_check").fetchone()[0] == "ok"
PYTHON
for mode in delete wal; do
	python3 "$T/database.py" "$mnt/$mode.db" $mode fill || fail "sqlite with $mode"
done
fresh_mount
for mode in delete wal; do
	python3 "$T/database.py" "$mnt/$mode.db" $mode check || fail "sqlite with $mode, fresh mount"
done
expect_rc 0 timeout 60 "$bin/sluice" umount "$mnt"
