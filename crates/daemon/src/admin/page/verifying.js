// The comparisons that the daemon makes on its own: the last result, its age, and the progress of the next.

// A time in UTC, as files and logs have it.
const MOMENT = /\d{4}-\d\d-\d\dT[\d:.]+Z/;

class VerifyLine {
  constructor() {
    this.result = element("p", {});
    this.progress = element("p", { class: "verifying-now" });
    this.figure = element("div", { class: "verifying", hidden: "" }, element("h3", {}, "Comparison with the source"),
      this.result, this.progress);
  }

  show({ verify }) {
    this.figure.hidden = !verify;
    if (!verify) return;
    const { last, progress } = verify;
    this.figure.classList.toggle("differs", Boolean(last) && last.outcome === "different");
    say(this.result, last ? `${duration(Math.round(last.age_seconds))} ago: ${last.text}` : "Not all tables were compared yet.");
    const rows = progress
      ? `; ${count(progress.tables_done)} of ${plural(progress.tables, "table")}, ${count(progress.rows)} of about ` +
        `${plural(Math.max(progress.rows_estimated, progress.rows), "row")} of ${progress.table || "the next"}`
      : "";
    const detail = verify.detail.replace(MOMENT, (time) => clock(Date.parse(time) / 1000));
    say(this.progress, `${words(verify.state || "waiting")}: ${detail}${rows}`);
  }
}
