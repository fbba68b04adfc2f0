#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the same random things to two directories and expects the same answers.

usage: model.py PLAIN MOUNTED SEED WORKER STEPS

A worker keeps to the sub-directory of its number, so several can run at once. What an
operation returns, or the error it ends with, must be the same in both; so must what a
look at everything shows, now and then and at the end. Prints the operation that differed
and ends with 1.
"""
import errno
import mmap
import os
import random
import stat
import sys

BLOCK = 4096


class Worker:
    def __init__(self, roots, seed, number, steps):
        self.roots = [os.path.join(root, f"w{number}") for root in roots]
        self.random = random.Random(f"{seed}/{number}")
        self.steps = steps
        self.seed = seed
        for root in self.roots:
            os.makedirs(root, exist_ok=True)

    # ---- what is done to one root; the same arguments for both ----

    def write(self, root, path, data, flags):
        fd = os.open(os.path.join(root, path), flags, 0o644)
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, data[done : done + 70000])
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def overwrite(self, root, path, off, data, sync):
        fd = os.open(os.path.join(root, path), os.O_RDWR)
        try:
            os.pwrite(fd, data, off)
            if sync:
                os.fsync(fd)
            return os.pread(fd, 2 * BLOCK, max(0, off - BLOCK))
        finally:
            os.close(fd)

    def map(self, root, path, off, data):
        fd = os.open(os.path.join(root, path), os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            if size < off + len(data):
                return "too short"
            with mmap.mmap(fd, size) as m:
                m[off : off + len(data)] = data
                m.flush()
            return size
        finally:
            os.close(fd)

    def truncate(self, root, path, size):
        os.truncate(os.path.join(root, path), size)

    def truncate_open(self, root, path, size, data):
        with open(os.path.join(root, path), "r+b", buffering=0) as f:
            f.truncate(size)
            f.seek(size)
            f.write(data)
            return os.fstat(f.fileno()).st_size

    def allocate(self, root, path, off, size):
        fd = os.open(os.path.join(root, path), os.O_WRONLY)
        try:
            os.posix_fallocate(fd, off, size)
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def read(self, root, path):
        with open(os.path.join(root, path), "rb") as f:
            return f.read()

    def rename(self, root, path, to):
        os.rename(os.path.join(root, path), os.path.join(root, to))

    def unlink(self, root, path):
        os.unlink(os.path.join(root, path))

    def unlink_open(self, root, path, data):
        """Goes on with a file that has no name any more."""
        fd = os.open(os.path.join(root, path), os.O_RDWR)
        try:
            os.unlink(os.path.join(root, path))
            os.pwrite(fd, data, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            return os.read(fd, 1 << 22)
        finally:
            os.close(fd)

    def mkdir(self, root, path):
        os.mkdir(os.path.join(root, path), 0o755)

    def rmdir(self, root, path):
        os.rmdir(os.path.join(root, path))

    def symlink(self, root, path, target):
        os.symlink(target, os.path.join(root, path))

    def chmod(self, root, path, mode):
        os.chmod(os.path.join(root, path), mode)

    def utime(self, root, path, seconds):
        os.utime(os.path.join(root, path), (seconds, seconds))

    def look(self, root):
        """Everything below the root: kinds, modes, sizes, targets, bytes."""
        seen = {}
        for base, dirs, files in os.walk(root):
            for name in dirs + files:
                path = os.path.join(base, name)
                st = os.lstat(path)
                what = [stat.S_IFMT(st.st_mode)]
                if stat.S_ISLNK(st.st_mode):
                    what.append(os.readlink(path))
                elif stat.S_ISREG(st.st_mode):
                    with open(path, "rb") as f:
                        data = f.read()
                    what += [stat.S_IMODE(st.st_mode), st.st_size, hash(data), data]
                seen[os.path.relpath(path, root)] = what
        return seen

    # ---- the choice ----

    def name(self):
        depth = self.random.choice((0, 0, 1, 1, 2))
        dirs = [f"d{self.random.randrange(2)}" for _ in range(depth)]
        return "/".join(dirs + [self.random.choice(("d0", "d1", "a", "b", "c", "e"))])

    def data(self, most=None):
        sizes = (0, 1, 100, BLOCK, 5000, 70000, 300000)
        size = self.random.choice(sizes)
        if self.random.random() < 0.03:
            size = 6 << 20
        if most is not None:
            size = min(size, most)
        return self.random.randbytes(size)

    def choose(self):
        r = self.random
        flags = os.O_WRONLY | os.O_CREAT
        off = r.choice((0, 1, BLOCK - 1, BLOCK, 100000, 400000))
        return r.choices(
            [
                lambda: (self.write, self.name(), self.data(), flags | os.O_TRUNC),
                lambda: (self.write, self.name(), self.data(), flags | os.O_APPEND),
                lambda: (self.write, self.name(), self.data(), flags | os.O_EXCL),
                lambda: (self.overwrite, self.name(), off, self.data(9000), r.random() < 0.3),
                lambda: (self.map, self.name(), off, self.data(9000)),
                lambda: (self.truncate, self.name(), r.choice((0, 1, 3000, 70001, 350000))),
                lambda: (self.truncate_open, self.name(), r.choice((0, 10, 5000)), self.data(5000)),
                lambda: (self.allocate, self.name(), off, r.choice((1, BLOCK, 100000))),
                lambda: (self.read, self.name()),
                lambda: (self.rename, self.name(), self.name()),
                lambda: (self.unlink, self.name()),
                lambda: (self.unlink_open, self.name(), self.data(5000)),
                lambda: (self.mkdir, self.name()),
                lambda: (self.rmdir, self.name()),
                lambda: (self.symlink, self.name(), self.name()),
                lambda: (self.chmod, self.name(), r.choice((0o600, 0o644, 0o755))),
                lambda: (self.utime, self.name(), r.randrange(1 << 31)),
            ],
            weights=[20, 10, 5, 10, 4, 4, 4, 2, 6, 10, 6, 2, 10, 3, 2, 2, 2],
        )[0]()

    def attempt(self, operation, root, *args):
        try:
            return operation(root, *args)
        except OSError as e:
            return errno.errorcode[e.errno]

    def differ(self, step, what, answers):
        short = [repr(a)[:200] for a in answers]
        print(f"step {step} of seed {self.seed}: {what}\n  plain:   {short[0]}\n  mounted: {short[1]}")
        sys.exit(1)

    def compare(self, step):
        plain, mounted = (self.look(root) for root in self.roots)
        if plain == mounted:
            return
        for path in sorted(plain.keys() | mounted.keys()):
            pair = [tree.get(path) for tree in (plain, mounted)]
            if pair[0] != pair[1]:
                short = [[str(x)[:60] for x in p] if p else p for p in pair]
                self.differ(step, f"they show {path} differently", short)

    def run(self):
        for step in range(self.steps):
            operation, *args = self.choose()
            answers = [self.attempt(operation, root, *args) for root in self.roots]
            if answers[0] != answers[1]:
                short = [a if not isinstance(a, bytes) else f"{len(a)} bytes" for a in args]
                self.differ(step, f"{operation.__name__} {short}", answers)
            if step % 50 == 49:
                self.compare(step)
        self.compare(self.steps)


def main():
    plain, mounted, seed, number, steps = sys.argv[1:]
    os.umask(0o022)
    Worker((plain, mounted), seed, number, int(steps)).run()


main()
