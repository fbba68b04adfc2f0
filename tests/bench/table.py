# SPDX-License-Identifier: Apache-2.0
"""Rows, their goals, and how they are shown."""
import statistics

COLUMNS = ("this", "ext4", "raw", "s3fs", "rclone")


class Row:
    """`unit`: MB/s, files/s and the like are the more the better, ms and x (bytes moved per
    byte of use) the less. `goal`: (">=", factor, contenders) times the slowest of these
    contenders, ("<=", value), or ("requests", count at most)."""

    def __init__(self, title, unit, goal, said, variants=("this",), rss_max=None):
        self.title, self.unit, self.goal, self.said = title, unit, goal, said
        self.variants, self.rss_max = variants, rss_max

    def value(self, result):
        if self.unit == "ms":
            return result["seconds"] * 1000
        if self.unit == "x":
            return max(result["fetched"], result["sent"]) / result["bytes"]
        if self.unit == "MB/s":
            return result["bytes"] / result["seconds"] / 1e6
        return result.get("items", result["bytes"]) / result["seconds"]


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


class Table:
    """results[row][contender]: list of results; failures[row][contender]: why not, and after
    how many seconds (0: it was no question of time)."""

    def __init__(self, rows):
        self.use(rows)

    def use(self, rows):
        self.rows = rows
        self.results = {name: {} for name in rows}
        self.failures = {name: {} for name in rows}

    def keep_only(self, names):
        """Those of `names` that are no rows; the others are all that is left."""
        unknown = [name for name in names if name not in self.rows]
        self.use({name: row for name, row in self.rows.items() if name in names})
        return unknown

    def add(self, row, contender, result):
        if row in self.rows:
            self.results[row].setdefault(contender, []).append(result)

    def fail(self, row, contender, error):
        if row in self.rows:
            self.failures[row][contender] = (str(error), error.seconds)

    def median(self, row, contender):
        """The median of a contender; of several raw ones the best. None: nothing there."""
        found = self.results[row].get(contender)
        if found is None and contender in ("raw", "ext4"):
            best = [self.median(row, name) for name in self.results[row]
                    if name.startswith(contender + " ")]
            best = [b for b in best if b is not None]
            return max(best) if best else None
        return statistics.median(self.rows[row].value(r) for r in found) if found else None

    def reference(self, row):
        goal = self.rows[row].goal
        if goal[0] != ">=":
            return None
        values = [self.median(row, name) for name in goal[2]]
        return min(values) if values and None not in values else None

    def ratio(self, row, contender):
        value, reference = self.median(row, contender), self.reference(row)
        return value / reference if value is not None and reference else None

    def reached(self, row):
        """Whether the goal is met by any of the variants that it is about: a profile is there
        to be chosen. None: cannot be said."""
        r = self.rows[row]
        if r.goal[0] == "requests":
            found = self.results[row].get("this")
            return found and statistics.median(f["requests"] for f in found) <= r.goal[1]
        if r.goal[0] == "<=":
            value = self.median(row, "this")
            return None if value is None else value <= r.goal[1]
        ratios = [self.ratio(row, v) for v in r.variants if v not in r.goal[2]]
        if None in ratios:
            return None
        rss = [f["rss"] for f in self.results[row][r.variants[0]]] if r.rss_max else [0]
        return max(ratios) >= r.goal[1] and max(rss) <= (r.rss_max or 0)

    def cell(self, row, contender):
        value = self.median(row, contender)
        if value is not None:
            return number(value)
        failure = self.failures[row].get(contender)
        return "–" if not failure else f"> {failure[1]} s" if failure[1] else "failed"

    def cost(self, row, contender):
        """CPU s/GB, peak RSS, requests, bytes moved per byte."""
        found = self.results[row].get(contender, [])
        if not found:
            return "–", "–", "–", "–"
        gb = [r["cpu"] * 1e9 / r["bytes"] for r in found if r["bytes"] > 1e6]
        moved = [max(r["fetched"], r["sent"]) / r["bytes"] for r in found
                 if "fetched" in r and r["bytes"] > 1e6]
        return (number(statistics.median(gb)) if gb else "–",
                f"{max(r.get('rss', 0) for r in found):.0f}" if found[0].get("rss") else "–",
                f"{statistics.median(r['requests'] for r in found):.0f}"
                if "requests" in found[0] else "–",
                number(statistics.median(moved)) if moved else "–")

    # ---- showing ----------------------------------------------------------------------

    def main(self):
        head = ["work", "unit", "to reach", *COLUMNS, "ratio", "CPU s/GB", "peak RSS MiB",
                "requests", "moved/byte"]
        lines = []
        for name, row in self.rows.items():
            if not self.results[name] and not self.failures[name]:
                continue
            cells = [" / ".join(self.cell(name, v) for v in row.variants)]
            cells += [self.cell(name, c) for c in COLUMNS[1:]]
            ratios = [self.ratio(name, v) for v in row.variants]
            shown = " / ".join(f"{r:.2f}" for r in ratios if r is not None) or "–"
            costs = [self.cost(name, v) for v in row.variants]
            cost = [" / ".join(dict.fromkeys(c[i] for c in costs)) for i in range(4)]
            mark = {None: "", True: " ✓", False: " ✗"}[self.reached(name)]
            lines.append([row.title, row.unit, row.said, *cells, shown + mark, *cost])
        return head, lines

    def details(self):
        head = ["row", "contender", "runs", "median", "least", "most", "CPU s/GB",
                "peak RSS MiB", "requests", "moved/byte"]
        lines = []
        for name, row in self.rows.items():
            for contender, found in self.results[name].items():
                values = [row.value(r) for r in found]
                lines.append([name, contender, str(len(found)),
                              f"{number(statistics.median(values))} {row.unit}",
                              number(min(values)), number(max(values)),
                              *self.cost(name, contender)])
            for contender, (why, _) in self.failures[name].items():
                lines.append([name, contender, "–", why, *["–"] * 6])
        return head, lines


def show(head, lines):
    """A Markdown table whose columns line up."""
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]
    for row in [head, ["-" * w for w in widths], *lines]:
        print("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |")
