// All channels in one table: those that need somebody come first.

const RANKS = ["failed", "no_answer", "waiting_for_target", "waiting_for_source", "waiting_for_space", "waiting_for_lock", "stopped", "paused", "starting"];
// A running channel whose lag is above the first is worse than one above the second. Below the last, the
// order of names is kept, so that rows do not jump about.
const LATE = [3600, 600, 60, 10];

// The lag that nobody asked for.
function undesired(view) {
  return view.lag_seconds === null ? null : Math.max(0, view.lag_seconds - view.applier.desired_delay);
}

function rank(view) {
  const known = RANKS.indexOf(view.state);
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
    bottleneck: { cause: "" }, settings: {}, connection: { source: "", service_state: "" }, applier: { target: NONE, desired_delay: 0 },
  };
}

function addressOf({ channel_name: name, daemon, isDaemon }) {
  return `${daemon ? `${daemon}/` : ""}${isDaemon ? "" : `#channel=${encodeURIComponent(name)}`}`;
}

const byName = (a, b) => a.channel_name.localeCompare(b.channel_name, "en", { numeric: true });

// The reason in one sentence, with the name of the server that is missing.
function reason(view) {
  const { state, state_detail: detail, connection, applier, settings } = view;
  if (stateKind(state) === "ok") return "";
  if (state === "paused" && settings.paused_by) return `by ${settings.paused_by} since ${moment(settings.paused_since)}`;
  const missing = { waiting_for_source: connection.source, waiting_for_target: applier.target }[state];
  return missing && !detail.includes(missing) ? `${missing}: ${detail}` : detail;
}

function heldUpBy({ state, bottleneck, backlog_transactions: backlog }) {
  return state === "running" && backlog !== 0 && !["none", "source"].includes(bottleneck.cause) ? words(bottleneck.cause) : NONE;
}

// value: sorted by; unknown ones come last. isFirst: the most at the top when chosen.
const COLUMNS = [
  { title: "Channel", value: (view) => view.channel_name },
  { title: "State", value: rank },
  { title: "Lag", value: (view) => view.lag_seconds, isNumber: true },
  { title: "Backlog", value: (view) => view.backlog_transactions, isNumber: true },
  { title: "Drained in", value: (view) => view.seconds_to_drain, isNumber: true },
  { title: "Held up by", value: heldUpBy },
  { title: "Source", value: (view) => view.connection.source },
  { title: "Target", value: (view) => view.applier.target },
];

class Row {
  constructor(first) {
    const { channel_name: name, daemon, isDaemon } = first;
    this.link = element("a", { href: addressOf(first), rel: "noreferrer" }, name);
    this.state = element("span", { class: "state" });
    this.detail = element("span", { class: "detail muted" });
    [this.lag, this.backlog, this.drain] = ["lag", "backlog", "drained in"].map((label) => element("td", { class: "number", "data-label": label }));
    this.cause = element("td", { class: "cause" });
    [this.source, this.target] = [0, 1].map(() => element("td", { class: "server" }));
    this.row = element("tr", {}, element("th", { scope: "row" }, this.link,
      ...(daemon && !isDaemon ? [element("span", { class: "daemon muted", title: daemon }, hostOf(daemon))] : [])),
      element("td", { class: "standing" }, this.state, this.detail),
      this.lag, this.backlog, this.drain, this.cause, this.source, this.target);
  }

  show(view) {
    this.view = view;
    mark(this.state, `state ${stateKind(view.state)}`);
    say(this.state, words(view.state));
    const why = reason(view);
    say(this.detail, why);
    if (this.detail.title !== why) this.detail.title = why;
    say(this.lag, duration(view.lag_seconds));
    mark(this.lag, isLate(view) ? "number warn" : "number");
    say(this.backlog, backlogFigure(view)[0]);
    say(this.drain, drain(view)[0]);
    say(this.cause, heldUpBy(view));
    const servers = [view.connection.source || NONE, view.applier.target];
    [this.source, this.target].forEach((cell, index) => {
      say(cell, servers[index]);
      if (cell.title !== servers[index]) cell.title = servers[index];
    });
    this.text = [view.channel_name, view.daemon || "", words(view.state), why, this.cause.textContent, ...servers].join(" ").toLowerCase();
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
      return element("th", column.isNumber ? { class: "number" } : {}, button);
    });
    ["", "standing", "", "", "", "cause", "server", "server"].forEach((name, index) => name && this.heads[index].classList.add(name));
    this.body = element("tbody", {});
    const table = element("table", { class: "channels" }, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.none = element("p", { class: "none muted" }, "No channel matches.");
    this.section = element("section", { class: "overview", "aria-label": "Channels" },
      element("div", { class: "tools" }, this.filter, this.states, this.shown), table, this.none);
  }

  show(channels) {
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
    this.count(channels);
    this.arrange();
  }

  // A button for each state that there is, worst first.
  count(channels) {
    const counts = new Map();
    for (const view of channels.toSorted((a, b) => rank(a) - rank(b))) counts.set(view.state, (counts.get(view.state) || 0) + 1);
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
      .filter(({ view, text }) => (!this.state || view.state === this.state) && wanted.every((word) => text.includes(word)))
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
