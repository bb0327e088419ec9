// The archive of the channel's source: how far it is, and why it stands still.

class ArchiveLine {
  constructor() {
    this.state = element("p", {});
    this.gap = element("p", { class: "gap" });
    this.figure = element("div", { class: "archiving", hidden: "" }, element("h3", {}, "Archive"), this.state, this.gap);
  }

  show({ archive }) {
    this.figure.hidden = !archive;
    if (!archive) return;
    const { url, error, lag_seconds: lag, pending_bytes: pending, missing_transactions_total: missing } = archive;
    const isKnown = lag !== null && lag !== undefined;
    const far = !isKnown ? "it has not answered yet"
      : pending ? `${bytes(pending)} are still to be archived, the oldest ${duration(Math.round(lag))} old`
      : "everything that was received is archived";
    say(this.state, error ? `Nothing is archived at the moment: ${error} (${far})` : `${url}: ${far}`);
    this.figure.classList.toggle("differs", Boolean(error || missing));
    this.gap.hidden = !missing;
    if (missing) say(this.gap, `${plural(missing, "transaction")} left the relay store before they were archived: make a new backup.`);
  }
}
