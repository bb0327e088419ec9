// All channels in one table: those that need somebody come first.

const RANKS = ["failed", "no_answer", "waiting_for_target", "waiting_for_archive", "waiting_for_source", "waiting_for_space", "waiting_for_lock", "held_up", "stopped", "paused", "starting"];
// A running channel whose lag is above the first is worse than one above the second. Below the last, the
// order of names is kept, so that rows do not jump about.
const LATE = [3600, 600, 60, 10];

function rank(view) {
  const known = RANKS.indexOf(shownState(view));
  if (known >= 0) return known;
  const late = LATE.findIndex((limit) => (undesired(view) ?? 0) > limit);
  return RANKS.length + (late >= 0 ? late : LATE.length);
}

function isLate(view) {
  return (undesired(view) ?? 0) > 60;
}

// Other daemons' channels have the daemon's address.
const keyOf = (view) => `${view.daemon || ""} ${view.channel_name}`;
const hostOf = (address) => address.replace(/^https?:../, "");

// Rows of another daemon: its channels, or the reason why nothing is known of them.
function rowsOf({ address, error, channels }) {
  if (error === null) return channels.map((view) => ({ ...view, daemon: address }));
  return [nothingOf(hostOf(address), address, "no_answer", error)];
}

function nothingOf(name, daemon, state, detail) {
  return {
    channel_name: name, daemon, isDaemon: true, state, state_detail: detail, lag_seconds: null, backlog_transactions: null, seconds_to_drain: null,
    applied_transactions_per_second: null, bottleneck: { cause: "" }, settings: {}, connection: { source: "", service_state: "" }, applier: { target: NONE, desired_delay: 0 },
  };
}

function addressOf({ channel_name: name, daemon, isDaemon }) {
  return `${daemon ? `${daemon}/` : ""}${isDaemon ? "" : `#channel=${encodeURIComponent(name)}`}`;
}

const targetOf = (view) => (hasTarget(view) ? view.applier.target : "archive only");

const byName = (a, b) => a.channel_name.localeCompare(b.channel_name, "en", { numeric: true });

// value: sorted by; unknown ones come last. isFirst: the most at the top when chosen.
const COLUMNS = [
  { title: "Channel", value: (view) => view.channel_name, name: "name" },
  { title: "State", value: rank, name: "standing" },
  { title: "Lag", value: (view) => view.lag_seconds, isNumber: true, name: "trend" },
  { title: "Applied", value: (view) => view.applied_transactions_per_second, isNumber: true, name: "trend" },
  { title: "Backlog", value: (view) => view.backlog_transactions, isNumber: true, name: "backlog" },
  { title: "Drained in", value: (view) => view.seconds_to_drain, isNumber: true, name: "drain" },
  { title: "Held up by", value: heldUpBy, name: "cause" },
  { title: "Source", value: (view) => view.connection.source, name: "server" },
  { title: "Target", value: targetOf, name: "server" },
];

// Roles are named, because a narrow page lays the table out as blocks, which would no longer be one.
function cell(name, ...children) {
  return element("td", { role: "cell", class: name }, ...children);
}

class Row {
  constructor(first) {
    const { channel_name: name, daemon, isDaemon } = first;
    this.isOurs = !daemon;
    this.link = element("a", { href: addressOf(first), rel: "noreferrer" }, name);
    this.state = element("span", { class: "state" });
    this.detail = element("span", { class: "detail" });
    this.trends = [["Lag", "lag", duration, 1], ["Applied transactions per second", "applied", rate, 10]].map(([title, label, format, least]) => {
      const spark = new Sparkline(title, format, least);
      const value = element("span", { class: "value" });
      return { spark, value, cell: element("td", { role: "cell", class: "number trend", "data-label": label }, spark.svg, value) };
    });
    [this.backlog, this.drain] = [["backlog", "backlog"], ["drain", "drained in"]].map(([name, label]) => element("td", { role: "cell", class: `number ${name}`, "data-label": label }));
    this.cause = cell("cause");
    [this.source, this.target] = [0, 1].map(() => cell("server"));
    this.row = element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader", class: "name" }, this.link,
      ...(daemon && !isDaemon ? [element("span", { class: "daemon muted", title: daemon }, hostOf(daemon))] : [])),
      cell("standing", this.state, " ", this.detail),
      ...this.trends.map((trend) => trend.cell), this.backlog, this.drain, this.cause, this.source, this.target);
  }

  show(view) {
    this.view = view;
    mark(this.state, `state ${kindOf(view)}`);
    say(this.state, words(shownState(view)));
    const { cause, transaction } = reason(view);
    const why = transaction ? `${cause} (transaction ${transaction})` : cause;
    if (this.why !== why) {
      this.why = why;
      this.detail.title = why;
      this.detail.replaceChildren(...unbroken(cause), ...(transaction ? [" ", element("span", { class: "muted" }, "transaction ", ...unbroken(transaction))] : []));
    }
    const [lag, applied] = this.trends;
    say(lag.value, duration(view.lag_seconds));
    mark(lag.value, isLate(view) ? "value warn" : "value");
    say(applied.value, rate(view.applied_transactions_per_second));
    say(this.backlog, backlogFigure(view)[0]);
    say(this.drain, drain(view)[0]);
    say(this.cause, heldUpBy(view));
    const servers = [view.connection.source || NONE, targetOf(view)];
    [this.source, this.target].forEach((cell, index) => {
      say(cell, servers[index]);
      if (cell.title !== servers[index]) cell.title = servers[index];
    });
    this.text = [view.channel_name, view.daemon || "", words(shownState(view)), why, this.cause.textContent, ...servers].join(" ").toLowerCase();
  }

  // What the daemon remembers of the last minutes; of other daemons' channels it is not asked.
  remember(past) {
    const [lag, applied] = this.trends;
    lag.spark.show(past ? past.lag_seconds : null);
    applied.spark.show(past ? past.applied_transactions_per_second : null);
  }
}

class Overview {
  constructor() {
    this.rows = new Map();
    this.column = 1;
    this.isReversed = false;
    this.state = "";
    this.filter = element("input", { type: "search", placeholder: "Filter: name, state, server…", "aria-label": "Filter channels", autocomplete: "off", spellcheck: "false" });
    this.filter.addEventListener("input", () => this.choose());
    this.states = element("div", { class: "states", role: "group", "aria-label": "Filter by state" });
    this.shown = element("span", { class: "muted", role: "status" });
    this.heads = COLUMNS.map((column, index) => {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sort(index));
      return element("th", { scope: "col", role: "columnheader", class: `${column.isNumber ? "number " : ""}${column.name}` }, button);
    });
    this.body = element("tbody", { role: "rowgroup" });
    const caption = element("caption", { class: "unseen" }, "All channels: state with its cause, lag and applied transactions of the last 10 minutes, backlog and servers");
    const table = element("table", { class: "channels", role: "table" }, caption,
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.heads)), this.body);
    this.none = element("p", { class: "none muted" }, "No channel matches.");
    this.section = element("section", { class: "overview", "aria-label": "Channels" }, element("h2", { class: "unseen" }, "Channels"),
      element("div", { class: "tools" }, this.filter, this.states, this.shown), table, this.none);
  }

  // recent: the last minutes of this daemon's channels, once they are known.
  show(channels, recent) {
    const keys = new Set(channels.map(keyOf));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.row.remove();
      this.rows.delete(key);
    }
    for (const view of channels) {
      const key = keyOf(view);
      let row = this.rows.get(key);
      if (!row) {
        row = new Row(view);
        this.rows.set(key, row);
      }
      row.show(view);
    }
    if (recent && recent !== this.recent) {
      const past = new Map(recent.channels.map((one) => [one.channel_name, one]));
      for (const row of this.rows.values()) if (row.isOurs) row.remember(past.get(row.view.channel_name));
    }
    this.recent = recent;
    this.count(channels);
    this.arrange();
  }

  // A button for each state that there is, worst first.
  count(channels) {
    const counts = new Map();
    for (const view of channels.toSorted((a, b) => rank(a) - rank(b))) counts.set(shownState(view), (counts.get(shownState(view)) || 0) + 1);
    if (this.state && !counts.has(this.state)) this.state = "";
    const text = JSON.stringify([...counts, this.state]);
    if (text === this.counted) return;
    this.counted = text;
    const chosen = document.activeElement?.dataset?.state;
    const button = (state, title) => {
      const made = element("button", { type: "button", "data-state": state || "all", "aria-pressed": String(this.state === state), class: state ? stateKind(state) : "" }, title);
      made.addEventListener("click", () => {
        this.state = this.state === state ? "" : state;
        this.count(channels);
        this.choose();
      });
      return made;
    };
    this.states.replaceChildren(button("", `all ${count(channels.length)}`),
      ...[...counts].map(([state, number]) => button(state, `${words(state)} ${count(number)}`)));
    if (chosen) this.states.querySelector(`[data-state="${chosen}"]`)?.focus();
  }

  sort(index) {
    // Numbers begin with the largest, all else with the least; the same again turns it round.
    this.isReversed = this.column === index ? !this.isReversed : Boolean(COLUMNS[index].isNumber);
    this.column = index;
    this.choose();
  }

  // The choice is a part of the address, so that it can be kept, sent and returned to.
  choose() {
    window.history.replaceState(null, "", this.address());
    this.arrange();
  }

  address() {
    const parts = [["filter", this.filter.value], ["state", this.state],
      ["sort", this.column === 1 && !this.isReversed ? "" : `${this.isReversed ? "-" : ""}${COLUMNS[this.column].title}`]];
    return `#${new URLSearchParams(parts.filter(([, value]) => value))}`;
  }

  read(address) {
    this.filter.value = address.get("filter") || "";
    this.state = address.get("state") || "";
    const sort = address.get("sort") || "State";
    this.isReversed = sort.startsWith("-");
    this.column = Math.max(0, COLUMNS.findIndex(({ title }) => title === sort.replace(/^-/, "")));
  }

  compare(a, b) {
    const { value } = COLUMNS[this.column];
    const [one, other] = [value(a.view), value(b.view)];
    const isUnknown = (one === null || one === NONE) - (other === null || other === NONE);
    if (isUnknown !== 0) return isUnknown;
    const order = typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
    return (this.isReversed ? -order : order) || byName(a.view, b.view);
  }

  // Moves only what is not in its place: a selection and the focus remain.
  arrange() {
    const wanted = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...this.rows.values()]
      .filter(({ view, text }) => (!this.state || shownState(view) === this.state) && wanted.every((word) => text.includes(word)))
      .sort((a, b) => this.compare(a, b));
    const nodes = rows.map(({ row }) => row);
    const kept = new Set(nodes);
    for (const node of [...this.body.children]) if (!kept.has(node)) node.remove();
    nodes.forEach((node, index) => {
      const there = this.body.children[index];
      if (there !== node) this.body.insertBefore(node, there || null);
    });
    this.heads.forEach((head, index) => {
      if (index !== this.column) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.isReversed ? "descending" : "ascending");
    });
    this.none.hidden = nodes.length > 0;
    say(this.shown, nodes.length === this.rows.size ? "" : `${count(nodes.length)} of ${plural(this.rows.size, "channel")}`);
  }
}
