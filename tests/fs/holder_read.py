#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that reads and must not notice that the mount's daemon dies.

holder_read.py MOUNT TRUTH SEED THREADS STOP: reads below MOUNT what must be the same as below
TRUTH, until the file STOP is there. Every error and every wrong byte ends it with status 1.
"""
import mmap
import os
import random
import sys

from holder_job import Worker, end, run

mount, truth, seed, threads, stop = sys.argv[1:6]
rounds = [0]
names = []
for top, dirs, files in os.walk(truth):
    names += [os.path.relpath(os.path.join(top, f), truth) for f in files]
names.sort()
listings = {os.path.relpath(top, truth): sorted(dirs + files)
            for top, dirs, files in os.walk(truth)}


def expect(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: {len(got)} read, {len(want)} expected")


class Held:
    """An open file and what it must hold."""

    def __init__(self, name):
        self.name = name
        self.fd = os.open(f"{mount}/{name}", os.O_RDONLY)
        with open(f"{truth}/{name}", "rb") as f:
            self.data = f.read()

    def check(self, rng):
        at = rng.randrange(len(self.data) + 1)
        n = rng.choice([1, 4096, 100000, 2000000])
        expect(os.pread(self.fd, n, at), self.data[at:at + n], f"{self.name} at {at}")

    def check_mapped(self, rng):
        if not self.data:
            return
        with mmap.mmap(self.fd, 0, prot=mmap.PROT_READ) as m:
            at = rng.randrange(len(self.data))
            expect(m[at:at + 5000], self.data[at:at + 5000], f"{self.name} mapped")


class Reader(Worker):
    def __init__(self, i):
        super().__init__(stop)
        self.rng = random.Random(int(seed) * 1000 + i)

    def step(self, held):
        rng = self.rng
        what = rng.random()
        if what < 0.3 or not held:
            held.append(Held(rng.choice(names)))
            if len(held) > 20:
                os.close(held.pop(rng.randrange(len(held))).fd)
        elif what < 0.8:
            rng.choice(held).check(rng)
        elif what < 0.85:
            rng.choice(held).check_mapped(rng)
        elif what < 0.95:
            name = rng.choice(names)
            size = os.stat(f"{mount}/{name}").st_size
            if size != os.stat(f"{truth}/{name}").st_size:
                raise AssertionError(f"{name}: {size} bytes")
        else:
            where = rng.choice(list(listings))
            expect(sorted(os.listdir(f"{mount}/{where}")), listings[where], where)

    def work(self):
        held = []
        try:
            while not self.stopped():
                self.step(held)
                rounds[0] += 1
            for h in held:
                expect(os.pread(h.fd, len(h.data) + 1, 0), h.data, h.name)
        finally:
            for h in held:
                os.close(h.fd)


run([Reader(i) for i in range(int(threads))])
end(f"{rounds[0]} rounds")
