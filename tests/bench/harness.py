# SPDX-License-Identifier: Apache-2.0
"""What every row of the benchmarks uses: the store, the rounds, the clients, the clean-up."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = TOP / os.environ.get("BUILD", "build")
MIB = 1 << 20
SYNC_S = 10
LINKS = 50000 # ext4 has at most 65000 of one file
FAR = [{"op": "*", "fault": "latency", "ms": 20}]
CAPPED = FAR + [{"op": "*", "fault": "bandwidth", "rate": 200000000}]


class Failed(Exception):
    """One measurement went wrong: that contender is out of the row."""

    seconds = 0


class TooSlow(Failed):
    """It did not end within the limit."""

    def __init__(self, text, seconds, process=None):
        super().__init__(text)
        self.seconds, self.process = seconds, process


def run(*args, timeout=120, **kw):
    """A program to its end; its output. Failed with its last line, TooSlow when it takes
    longer."""
    args = [str(a) for a in args]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True, **kw)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as e:
        name = pathlib.Path(args[0]).name
        raise TooSlow(f"{name} {args[1]}: over {timeout} s", timeout, process) from e
    except BaseException:
        process.kill()
        raise
    if process.returncode:
        last = (err.strip() or out.strip()).splitlines()[-1:]
        raise Failed(f"{' '.join(args[:3])}: exit {process.returncode}: {''.join(last)}")
    return out


class Store:
    """A local OSS server over a folder, without authentication: the limit is the wire."""

    def __init__(self, work, above):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="sluice-bench-store.", dir=above))
        self.out = work / "ossd.out"
        self.process = None
        self.url = self.admin = None

    def start(self):
        """Indexes what lies in the folder, then serves."""
        with open(self.out, "w", encoding="utf-8") as f:
            self.process = subprocess.Popen(
                [BUILD / "ossd", "--root", self.root, "--listen", "127.0.0.1:0",
                 "--admin", "127.0.0.1:0", "--no-auth"], stdout=f, start_new_session=True)
        until = time.monotonic() + 600
        while "admin " not in self.out.read_text():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("bench: ossd did not start")
            time.sleep(0.05)
        lines = dict(line.split() for line in self.out.read_text().splitlines())
        self.url, self.admin = lines["ready"], lines["admin"]

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def remove(self):
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def call(self, method, url, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, method=method, data=data)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def faults(self, rules):
        self.call("PUT", self.admin + "/faults", rules)

    def stats(self):
        return json.loads(self.call("GET", self.admin + "/stats"))

    def settle(self):
        """Until no request is under way: a request counts when its answer has left."""
        for _ in range(100):
            if not self.stats()["in_flight"]:
                return
            time.sleep(0.02)

    def size(self, bucket, key):
        """Bytes of an object; -1 when there is none."""
        request = urllib.request.Request(f"{self.url}/{bucket}/{key}", method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.headers["Content-Length"])
        except urllib.error.HTTPError:
            return -1

    def create(self, bucket):
        self.call("PUT", f"{self.url}/{bucket}")


class Meter:
    """What a mount's daemon used and the store was asked since this was made."""

    def __init__(self, store, mount):
        self.store, self.mount = store, mount
        self.cpu, self.stats = mount.cpu(), store.stats()

    def read(self, result):
        """A copy of a client's result with it all."""
        now = self.store.stats()
        operations = {name: count - self.stats["requests"].get(name, 0)
                      for name, count in now["requests"].items()}
        return dict(result, cpu=result["cpu"] + self.mount.cpu() - self.cpu,
                    rss=self.mount.rss_mib(),
                    requests=now["total"] - self.stats["total"],
                    operations={name: n for name, n in operations.items() if n},
                    fetched=now["bytes_out"] - self.stats["bytes_out"],
                    sent=now["bytes_in"] - self.stats["bytes_in"])


class Bench:
    """The work folder, the data sets, the rounds."""

    def __init__(self, args, table):
        self.args, self.table = args, table
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sluice-bench.", dir=args.dir))
        os.environ["SLUICE_RUN_DIR"] = str(self.work / "run")
        # Every contender signs; the server does not look.
        for name in [n for n in os.environ if n.startswith(("AWS_", "RCLONE_", "OSS_"))]:
            del os.environ[name]
        for name, value in (("OSS_ACCESS_KEY_ID", "bench-id"), ("AWS_ACCESS_KEY_ID", "bench-id"),
                            ("OSS_ACCESS_KEY_SECRET", "bench-secret"),
                            ("AWS_SECRET_ACCESS_KEY", "bench-secret")):
            os.environ[name] = value
        self.random = random.Random(args.seed)
        self.scale = args.scale
        self.store = Store(self.work, args.store or self.work)
        self.until = time.monotonic() + 60 * args.minutes
        self.mounts = []
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupt)

    def interrupt(self, *_):
        """The programs have sessions of their own: what is asked to end is this one."""
        self.interrupted = True
        raise KeyboardInterrupt

    def some(self, count):
        """A count or a number of bytes at the scale of this run, in whole MiB if large."""
        n = max(1, int(count * self.scale))
        return n if count < MIB else max(MIB, n // MIB * MIB)

    def passes(self, count):
        """How often something warm is read: the time it takes stays that of the full scale."""
        return max(1, round(count / self.scale))

    def folder(self, name):
        return self.store.root / name

    def client(self, program, *args, limit=None):
        """A program of tests/bench to its end; what it measured."""
        try:
            out = run(BUILD / "bench" / program, *args, timeout=limit or self.args.limit)
        except TooSlow as e:
            self.abandon(e.process)
            raise
        return json.loads(out)

    def abandon(self, process):
        """Ends a client that may hang in a mount: only without the mount it can die."""
        for mount in list(self.mounts):
            mount.kill()
        process.kill()
        process.wait()

    # ---- data -------------------------------------------------------------------------

    def fill(self, bucket, count, size):
        """A bucket of `count` objects "%06d"; made while the store is down."""
        folder = self.folder(bucket)
        folder.mkdir(parents=True)
        noise = random.Random(count).randbytes(min(size + count, 8 * MIB + count) if size else 0)
        for i in range(count):
            if not size and i % LINKS: # a name more costs less than a file more
                os.link(folder / f"{i - i % LINKS:06d}", folder / f"{i:06d}")
                continue
            fd = os.open(folder / f"{i:06d}", os.O_WRONLY | os.O_CREAT, 0o644)
            for at in range(0, size, 8 * MIB):
                os.write(fd, noise[i:i + min(size - at, 8 * MIB)])
            os.close(fd)

    def empty(self, bucket):
        """Removes all objects of a bucket that the rounds wrote."""
        run(BUILD / "ossctl", "rm", "-r", f"oss://{bucket}/", "--endpoint", self.store.url,
            "--region", "cn-hangzhou", timeout=300)

    def path_list(self, name, folder, count):
        """A file with the paths of a data set in one random order, the same for all."""
        names = [f"{i:06d}" for i in range(count)]
        random.Random(1).shuffle(names)
        path = self.work / f"list-{name}"
        path.write_text("".join(f"{folder}/{n}\n" for n in names))
        return path

    def scratch(self, name):
        """An empty folder on the same disk."""
        path = self.work / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    # ---- measuring --------------------------------------------------------------------

    def observed(self, mount, work):
        """work()'s result with what the daemon used and the store was asked meanwhile."""
        meter = Meter(self.store, mount)
        return meter.read(work())

    def wants(self, *rows):
        return any(row in self.table.rows for row in rows)

    def attempt(self, rows, contender, work):
        """work() prepares and measures for one contender in several rows."""
        if not self.wants(*rows):
            return
        try:
            work()
        except Failed as e:
            for row in rows:
                self.table.fail(row, contender, e)
            self.say(f"  {contender}: {e}")
            self.go_on()

    def go_on(self):
        """What fails while things are taken away after an interrupt hides the interrupt."""
        if self.interrupted:
            raise KeyboardInterrupt

    def one(self, contender, work):
        """One run; False when the contender has no place in further rounds."""
        try:
            results = work()
        except Failed as e:
            for row in self.running:
                self.table.fail(row, contender, e)
            self.say(f"  {contender}: {e}")
            self.go_on()
            return False
        finally:
            for mount in list(self.mounts):
                if not mount.kept:
                    mount.kill()
        for row, result in results.items():
            self.table.add(row, contender, result)
        return True

    def rounds(self, rows, contenders, rounds=None):
        """contenders: name -> function that returns {row: result}. Each runs once a round, in
        random order; one that has used up its time sits the later rounds out."""
        self.running = rows
        spent = dict.fromkeys(contenders, 0.0)
        out = set()
        for n in range(min(rounds or self.args.rounds, self.args.rounds)):
            order = [name for name in contenders if name not in out]
            self.random.shuffle(order)
            for name in order:
                if n and time.monotonic() > self.until:
                    out.add(name)
                    continue
                self.write_back()
                began = time.monotonic()
                fit = self.one(name, contenders[name])
                spent[name] += time.monotonic() - began
                peer = name.split()[0] in ("s3fs", "rclone")
                if not fit or spent[name] > self.args.budget * (1 if peer else 4):
                    out.add(name)
        self.say(f"  {', '.join(rows)}: " + ", ".join(
            f"{name} {seconds:.0f} s" for name, seconds in spent.items()))

    def write_back(self):
        """What one contender left dirty is not to slow the next one. Others may be writing to
        the same disk all the time: no longer than SYNC_S."""
        process = subprocess.Popen(["sync", "-f", self.work])
        try:
            process.wait(SYNC_S)
        except subprocess.TimeoutExpired:
            self.say(f"  the disk is busy: not synced within {SYNC_S} s")

    def say(self, text):
        if self.args.verbose:
            print(text, flush=True)

    def close(self):
        for mount in list(self.mounts):
            mount.kept = False
            mount.kill()
        self.store.remove()
        if str(self.work) in pathlib.Path("/proc/self/mountinfo").read_text():
            print(f"bench: something is still mounted below {self.work}", file=sys.stderr)
            return
        shutil.rmtree(self.work, ignore_errors=True)
