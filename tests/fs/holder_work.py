#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that must not notice that the mount's daemon dies.

holder_work.py MOUNT MANIFEST SEED THREADS STOP: works below MOUNT until the file STOP is
there, then writes what must be in the store to MANIFEST. Every error and every byte that reads
back wrong ends it with status 1.
"""
import os
import random
import sys

from holder_job import Worker, end, run, write_manifest

mount, manifest, seed, threads, stop = sys.argv[1:6]
expected = {}
rounds = [0]


def content(rng):
    n = rng.choice([0, 1, 100, 4096, 5000, 70000, 300000, 1500000])
    return rng.randbytes(rng.randint(n // 2, n) if n else 0)


def write_file(rng, path, data, flags):
    fd = os.open(path, flags | os.O_WRONLY, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:done + rng.choice([512, 65536, 1 << 20])])
        if rng.random() < 0.2:
            os.fsync(fd)
    finally:
        os.close(fd)


def check_file(path, data):
    with open(path, "rb") as f:
        got = f.read()
    if got != data:
        raise AssertionError(f"{path}: {len(got)} bytes read, {len(data)} written")


class Writer(Worker):
    def __init__(self, i):
        super().__init__(stop)
        self.rng = random.Random(int(seed) * 1000 + i)
        self.dir = f"{mount}/w{i}"
        self.mine = {}
        self.count = 0

    def new_name(self, where):
        self.count += 1
        return f"{where}/f{self.count:05d}"

    def step(self, dirs):
        rng = self.rng
        what = rng.random()
        if what < 0.5 or not self.mine:
            path, data = self.new_name(rng.choice(dirs)), content(rng)
            write_file(rng, path, data, os.O_CREAT | os.O_EXCL)
            self.mine[path] = data
        elif what < 0.6:
            path, data = rng.choice(list(self.mine)), content(rng)
            write_file(rng, path, data, os.O_TRUNC)
            self.mine[path] = data
        elif what < 0.7:
            path, new = rng.choice(list(self.mine)), self.new_name(rng.choice(dirs))
            os.rename(path, new)
            self.mine[new] = self.mine.pop(path)
        elif what < 0.75:
            path = rng.choice(list(self.mine))
            os.unlink(path)
            del self.mine[path]
        elif what < 0.8:
            dirs.append(self.new_name(self.dir))
            os.mkdir(dirs[-1], 0o755)
        elif what < 0.85:
            where = rng.choice(dirs)
            names = {n for n in os.listdir(where) if n.startswith("f")}
            want = {os.path.basename(p) for p in list(self.mine) + dirs[1:]
                    if os.path.dirname(p) == where}
            if not want <= names:
                raise AssertionError(f"{where}: not listed: {sorted(want - names)}")
        else:
            path = rng.choice(list(self.mine))
            check_file(path, self.mine[path])

    def work(self):
        os.mkdir(self.dir)
        dirs = [self.dir]
        log = os.open(f"{self.dir}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        held = os.open(f"{self.dir}/held", os.O_CREAT | os.O_RDWR)
        gone = os.open(f"{self.dir}/gone", os.O_CREAT | os.O_RDWR)
        os.unlink(f"{self.dir}/gone")
        lines, image = b"", bytearray(200000)
        while not self.stopped():
            self.step(dirs)
            line = f"{len(lines)} line\n".encode()
            if os.write(log, line) != len(line):
                raise AssertionError("a short append")
            lines += line
            at, piece = self.rng.randrange(190000), self.rng.randbytes(5000)
            os.pwrite(held, piece, at)
            os.pwrite(gone, piece, at)
            image[at:at + 5000] = piece
            for fd in (held, gone):
                got = os.pread(fd, 5000, at)
                if got != piece:
                    raise AssertionError("a piece reads back wrong")
            rounds[0] += 1
        size = os.fstat(held).st_size
        for fd in (held, gone):
            if os.pread(fd, 200000, 0) != bytes(image[:size]):
                raise AssertionError("an open file reads back wrong")
        for fd in (log, held, gone):
            os.close(fd)
        self.mine[f"{self.dir}/log"] = lines
        self.mine[f"{self.dir}/held"] = bytes(image[:size])
        for path, data in self.mine.items():
            check_file(path, data)
            expected[path] = data


run([Writer(i) for i in range(int(threads))])
write_manifest(manifest, mount, expected)
end(f"{rounds[0]} rounds, {len(expected)} files")
