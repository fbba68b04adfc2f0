# SPDX-License-Identifier: Apache-2.0
"""The contenders: a folder, and what serving it costs."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from harness import BUILD, Failed, TooSlow, run

TICK = os.sysconf("SC_CLK_TCK")


class Native:
    """Local ext4: nothing serves it."""

    def cpu(self):
        return 0

    def rss_mib(self):
        return 0


class Mount:
    """A file system in user space over one bucket. `kept`: the rounds leave it mounted.
    `cache`: "fresh", or "kept" from the mount before."""

    name = ""

    def __init__(self, bench, bucket, role, *options, kept=False, cache="fresh", label=""):
        self.bench, self.bucket, self.role, self.options = bench, bucket, role, options
        self.kept = kept
        self.dir = bench.work / "mnt" / (label or self.name)
        self.cache = bench.work / "cache" / self.name
        self.dir.mkdir(parents=True, exist_ok=True)
        if cache == "fresh":
            shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        self.pid = self.process = None
        bench.mounts.append(self)
        try:
            self.start()
        except Failed:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.kill()
        else:
            self.stop()

    def start(self):
        raise NotImplementedError

    def spawn(self, *args):
        """A daemon in the foreground, until its mount is there."""
        log = self.bench.work / f"{self.name}.log"
        with open(log, "w", encoding="utf-8") as f:
            self.process = subprocess.Popen([str(a) for a in args], stdout=f, stderr=f,
                                            start_new_session=True)
        self.pid = self.process.pid
        until = time.monotonic() + 30
        while not os.path.ismount(self.dir):
            if self.process.poll() is not None or time.monotonic() > until:
                last = log.read_text().strip().splitlines()[-1:]
                raise Failed(f"{self.name} did not mount: {''.join(last)}")
            time.sleep(0.02)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss_mib(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return 0

    def stop(self):
        """Takes it away in the polite way; what is pending is in the store then."""
        if self not in self.bench.mounts:
            return
        subprocess.run(["umount", self.dir], check=False, stderr=subprocess.DEVNULL)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        self.bench.mounts.remove(self)

    def kill(self):
        if self in self.bench.mounts:
            self.bench.mounts.remove(self)
        if self.process:
            self.process.kill()
        subprocess.run(["umount", "-l", self.dir], check=False, stderr=subprocess.DEVNULL)
        if self.process:
            self.process.wait()

    def settle(self, path):
        """Waits until a file that was read is served as it will be from now on."""

    def stored(self, key, size, puts):
        """Waits until everything written is in the store: here close() saw to it."""


class Sluice(Mount):
    name = "this"

    def start(self):
        run(BUILD / "sluice", "mount", f"oss://{self.bucket}", self.dir, "--role", self.role,
            "--endpoint", self.bench.store.url, "--region", "cn-hangzhou",
            "--cache-dir", self.cache / "cache", "--state-dir", self.cache / f"state-{self.dir.name}",
            *self.options)
        self.pid = self.status()["pid"]

    def status(self):
        return json.loads(run(BUILD / "sluice", "status", self.dir, "--json"))

    def settle(self, path):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with open(path, "rb"):
                fuse = self.status()["fuse"]
            if fuse["opens"]["passthrough"] or not fuse["passthrough"]["used"]:
                return
            time.sleep(0.2)

    def stop(self):
        if self not in self.bench.mounts:
            return
        try:
            run(BUILD / "sluice", "umount", self.dir)
        except Failed:
            self.kill()
            raise
        self.bench.mounts.remove(self)

    def kill(self):
        if self in self.bench.mounts:
            self.bench.mounts.remove(self)
        try:
            run(BUILD / "sluice", "umount", self.dir, "--force", timeout=30)
        except TooSlow as e:
            e.process.kill()
        except Failed:
            pass
        if self.pid and os.path.ismount(self.dir):
            os.kill(self.pid, signal.SIGKILL)
            subprocess.run(["umount", "-l", self.dir], check=False)

    def stored(self, key, size, puts):
        run(BUILD / "sluice", "flush", self.dir)


class S3fs(Mount):
    name = "s3fs"

    def start(self):
        self.spawn("s3fs", self.bucket, self.dir, "-f", "-o",
                   f"url={self.bench.store.url},use_path_request_style,sigv4,"
                   f"endpoint=cn-hangzhou,use_cache={self.cache},kernel_cache,"
                   "stat_cache_expire=3600,enable_noobj_cache", *self.options)


class Rclone(Mount):
    name = "rclone"

    def start(self):
        os.environ.update({
            "RCLONE_CONFIG": str(self.bench.work / "rclone.conf"),
            "RCLONE_CONFIG_S_TYPE": "s3", "RCLONE_CONFIG_S_PROVIDER": "Other",
            "RCLONE_CONFIG_S_ENV_AUTH": "true", "RCLONE_CONFIG_S_REGION": "cn-hangzhou",
            "RCLONE_CONFIG_S_FORCE_PATH_STYLE": "true",
            "RCLONE_CONFIG_S_ENDPOINT": self.bench.store.url})
        self.puts = self.bench.store.stats()["requests"].get("PutObject", 0)
        self.spawn("rclone", "mount", f"S:{self.bucket}", self.dir, "--log-level", "ERROR",
                   "--vfs-cache-mode", "full", "--vfs-write-back", "0s",
                   "--use-server-modtime", "--vfs-fast-fingerprint",
                   "--cache-dir", self.cache, "--dir-cache-time", "1h",
                   "--attr-timeout", "1h", *self.options)

    def stored(self, key, size, puts):
        """It uploads in the background and does not say when it is done."""
        until = time.monotonic() + self.bench.args.limit
        while time.monotonic() < until:
            done = self.bench.store.stats()["requests"].get("PutObject", 0) - self.puts
            if self.bench.store.size(self.bucket, key) == size if key else done >= puts:
                self.bench.store.settle()
                return
            time.sleep(0.02)
        self.kill()
        raise TooSlow("rclone: not stored in time", self.bench.args.limit)


def peers():
    """The peers that are installed."""
    return [kind for kind in (S3fs, Rclone) if shutil.which(kind.name)]
