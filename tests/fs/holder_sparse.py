#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that changes large objects of the store in place and must not notice that the mount's
daemon dies: none of the bytes it wrote is anywhere but in the staged file, none of the others
anywhere but in the store.

holder_sparse.py MOUNT ORIGINALS MANIFEST SEED STEPS STOP: one thread for each file of ORIGINALS,
whose copy is in MOUNT, until STEPS were taken or the file STOP is there; then closes and writes
what must be in the store to MANIFEST (holder_job.py). Every error and every
byte that reads back wrong ends it with status 1.
"""
import ctypes
import os
import random
import sys

from holder_job import Worker, end, run, write_manifest

MIB = 1 << 20
LEAST, MOST = 6 * MIB, 20 * MIB  # smaller objects are fetched whole
KEEP_SIZE, PUNCH_HOLE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)
mount, originals, manifest, seed, steps, stop = sys.argv[1:7]
expected = {}
taken = [0]


def punch(fd, at, n):
    if libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(at), ctypes.c_long(n)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Changer(Worker):
    def __init__(self, name):
        super().__init__(stop)
        self.rng = random.Random(f"{seed} {name}")
        self.name, self.path, self.moves = name, f"{mount}/{name}", 0
        with open(f"{originals}/{name}", "rb") as f:
            self.image = bytearray(f.read())

    def open(self):
        self.fd = os.open(self.path, os.O_RDWR)
        self.reader = os.open(self.path, os.O_RDONLY)

    def close(self):
        os.close(self.fd)
        os.close(self.reader)

    def place(self):
        n = self.rng.choice([1, 10, 4096, 5000, 100000, 300000])
        return self.rng.randrange(len(self.image)), n

    def write(self):
        at, n = self.place()
        data = self.rng.randbytes(n)
        if os.pwrite(self.fd, data, at) != n:
            raise AssertionError("a short write")
        self.image[at:at + n] = data

    def check(self, at, n, fd):
        got, want = os.pread(fd, n, at), self.image[at:at + n]
        if got != want:
            first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b),
                         min(len(got), len(want)))
            raise AssertionError(f"{self.path}: {at}+{n} reads back wrong from {at + first} on: "
                                 f"{len(got)} bytes, {got[first:first + 8]}, "
                                 f"not {want[first:first + 8]}")

    def read(self):
        self.check(*self.place(), self.rng.choice([self.fd, self.reader]))

    def cut(self):
        size = self.rng.randint(LEAST, MOST)
        os.ftruncate(self.fd, size)
        del self.image[size:]
        self.image.extend(bytes(size - len(self.image)))

    def punch(self):
        at, n = self.place()
        n = min(n, len(self.image) - at)
        punch(self.fd, at, n)
        self.image[at:at + n] = bytes(n)

    def again(self):
        self.close()
        self.open()

    def rename(self):
        self.moves += 1
        path = f"{mount}/{self.name}-{self.moves}"
        os.rename(self.path, path)
        self.path = path

    def whole(self):
        self.check(0, len(self.image) + 1, self.reader)

    def work(self):
        what = [(self.write, 50), (self.read, 40), (self.cut, 2), (self.punch, 2),
                (lambda: os.fsync(self.fd), 2), (self.again, 1), (self.rename, 1),
                (self.whole, 1)]
        self.open()
        for _ in range(int(steps)):
            if self.stopped():
                break
            self.rng.choices([w[0] for w in what], [w[1] for w in what])[0]()
            taken[0] += 1
        self.whole()
        self.close()
        with open(self.path, "rb") as f:
            if f.read() != self.image:
                raise AssertionError(f"{self.path} reads back wrong")
        expected[self.path] = self.image


run([Changer(name) for name in sorted(os.listdir(originals))])
write_manifest(manifest, mount, expected)
end(f"{taken[0]} steps")
