// The copy with which a channel begins, and the comparison that ends it.

const STEPS = {
  snapshot: "Opening snapshots", tables: "Making tables", rows: "Copying rows",
  programs: "Making views, programs and triggers", changes: "Applying what changed meanwhile",
  keys: "Adding unique keys and foreign keys",
};

const CHECKS = {
  comparing: "The copy is being compared with the source.", equal: "The copy equals the source.",
  unfinished: "The copy was not compared with the source: ",
};

// The number of rows is the source's guess: it may be exceeded.
const shareOf = ({ rows, rows_estimated: all }) => Math.min(1, all > 0 ? rows / all : 1);

class CopyBar {
  constructor() {
    this.bar = element("progress", { "aria-labelledby": "copying" });
    this.title = element("h3", { id: "copying" }, "Copy of the source");
    this.text = element("p", {});
    this.tables = element("ul", { class: "moving", "aria-label": "Tables that are copied now" });
    this.check = element("p", {});
    this.figure = element("div", { class: "copying", hidden: "" },
      this.title, this.bar, this.text, this.tables, this.check);
  }

  show({ copy, copy_check: check }) {
    this.figure.hidden = !copy && !check;
    for (const part of [this.bar, this.text, this.tables]) part.hidden = !copy;
    this.check.hidden = Boolean(copy) || !check;
    if (!this.check.hidden) say(this.check, this.checked(check));
    if (!copy) return;
    const { step, tables, tables_done: done, rows, rows_estimated: all, bytes: size, seconds, seconds_left: left, held } = copy;
    const isCounted = step === "rows" && all > 0;
    const share = shareOf(copy);
    if (isCounted) this.fill(this.bar, share);
    else this.bar.removeAttribute("value");
    const rest = isCounted && left !== null && share < 1 ? `; about ${duration(Math.round(left))} left` : "";
    const why = held ? `; ${held}` : "";
    say(this.text, `${STEPS[step] || words(step)}: ${count(done)} of ${plural(tables, "table")}, ` +
      `${count(rows)} of about ${plural(Math.max(all, rows), "row")}${isCounted ? ` (${Math.round(100 * share)} %)` : ""}, ` +
      `${bytes(size)} in ${duration(Math.round(seconds))}${rest}${why}`);
    this.tables.replaceChildren(...copy.moving.map((table) => this.moving(table)));
  }

  moving(table) {
    const bar = element("progress", { "aria-label": `Rows of ${table.table}` });
    this.fill(bar, shareOf(table));
    const text = `${table.table}: ${count(table.rows)} of about ${plural(Math.max(table.rows_estimated, table.rows), "row")}`;
    return element("li", {}, bar, element("span", {}, text));
  }

  fill(bar, share) {
    bar.max = 1;
    bar.value = share;
    bar.textContent = `${Math.round(100 * share)} %`;
  }

  checked({ outcome, tables, rows, text }) {
    const compared = outcome === "equal" ? ` ${plural(rows, "row")} of ${plural(tables, "table")} were compared.` : "";
    const known = CHECKS[outcome];
    if (!known) return text;
    return known.endsWith(": ") ? known + text : known + compared;
  }
}
