// One channel: its state in words, its way from source to target, its charts, its errors.

class ChannelSection {
  constructor(name) {
    this.name = name;
    this.heading = element("h2", {}, name);
    this.state = element("span", { class: "state" });
    this.detail = element("span", { class: "detail" });
    this.runbook = runbookLink();
    this.standing = element("p", { class: "route", hidden: "" });
    // Not a part of the text, so that only the time changes every second.
    this.countdown = element("span", { class: "countdown", role: "timer", "aria-live": "off" });
    this.standingText = element("span", {});
    this.standingCommand = element("span", {});
    this.standing.append(this.standingText, this.countdown, this.standingCommand);
    this.figures = element("dl", { class: "figures" });
    this.values = {};
    for (const [key, title] of [["lag", "Lag"], ["drain", "Drained in"]]) {
      const value = element("dd", { class: "value" });
      const beside = element("dd", { class: "beside" });
      this.values[key] = { value, beside };
      this.figures.append(element("div", {}, element("dt", {}, title), value, beside));
    }
    this.pipe = new Pipe();
    this.copying = new CopyBar();
    this.verifying = new VerifyLine();
    this.archiving = new ArchiveLine();
    this.incidents = new Incidents();
    const backlog = [{ name: "backlog", column: "backlog_transactions" }];
    const rates = [
      { name: "applied", column: "applied_transactions_per_second" },
      { name: "received", column: "received_transactions_per_second" },
    ];
    this.charts = [
      new Chart("Lag", [{ name: "lag", column: "lag_seconds" }], duration, 1, { isTime: true }),
      new Chart("Backlog, transactions", backlog, count, 10),
      new Chart("Transactions per second", rates, rate, 10),
    ];
    for (const chart of this.charts) {
      chart.onCursor = (index) => this.charts.forEach((one) => one.show(index));
    }
    this.timeline = new Timeline();
    this.errors = element("ul", { class: "errors", "aria-label": "Errors that persist" });
    this.earlier = element("ul", { class: "errors" });
    this.earlierPart = element("details", {}, element("summary", {}, "Earlier errors"), this.earlier);
    this.facts = element("dl", { class: "facts" });
    const charts = element("div", { class: "stack" }, ...this.charts.map((chart) => chart.figure));
    this.section = element("section", { class: "channel" },
      element("header", { class: "head" }, this.heading, this.state, this.detail, this.runbook, this.standing),
      this.errors, this.copying.figure, this.verifying.figure, this.archiving.figure,
      element("div", { class: "way" }, this.figures, this.pipe.figure),
      element("div", { class: "body" }, charts, element("div", { class: "stack" }, this.incidents.figure, this.timeline.figure)),
      this.facts,
      this.earlierPart);
    this.heading.id = `channel-${name}`;
    this.section.setAttribute("aria-labelledby", this.heading.id);
  }

  show(view, history, past, incidents) {
    mark(this.state, `state ${kindOf(view)}`);
    say(this.state, words(shownState(view)));
    const isBelow = past.errors.some((error) => error.current && error.message === view.state_detail);
    const isSaid = isBelow || ["stopped", "paused"].includes(view.state) || Boolean(view.copy);
    sayUnbroken(this.detail, isSaid ? "" : view.state_detail);
    showRunbook(this.runbook, view);
    this.showStanding(view);
    this.showFigures(view);
    this.showErrors(past.errors, view.last_error);
    this.showFacts(view);
    this.copying.show(view);
    this.verifying.show(view);
    this.archiving.show(view);
    this.pipe.show(view, past);
    this.incidents.show(incidents, history.now);
    this.charts.forEach((chart) => chart.draw(history, past));
    this.timeline.figure.hidden = !hasTarget(view);
    this.timeline.draw(history, past, view);
  }

  // The button of a command stays while only the time changes: it may have the focus.
  showStanding(view) {
    const standing = standingIn(view);
    const pause = view.next_attempt_seconds;
    this.attempt = typeof pause === "number" ? performance.now() + 1000 * pause : null;
    this.standing.hidden = standing === null && this.attempt === null;
    say(this.standingText, standing === null ? "" : standing.text);
    const said = standing?.command || "";
    if (this.commandShown !== said) {
      this.commandShown = said;
      this.standingCommand.replaceChildren(...(said ? [` ${standing.to} `, command(said)] : []));
    }
    this.tick();
  }

  // Counts down between two answers of the daemon.
  tick() {
    const left = this.attempt === null ? null : Math.max(0, Math.round((this.attempt - performance.now()) / 1000));
    say(this.countdown, left === null ? "" : left === 0 ? " Next attempt now." : ` Next attempt in ${duration(left)}.`);
  }

  figure(key, value, beside, name) {
    say(this.values[key].value, value);
    say(this.values[key].beside, beside);
    mark(this.values[key].value, name);
  }

  showFigures(view) {
    const lag = view.lag_seconds;
    const isNotKnown = view.copy ? "not known before the copy is made" : isAway(view) ? "not known without the source" : "not known now";
    this.figure("lag", duration(lag), lag === null ? isNotKnown : `after the source's commits${delayed(view.applier)}`,
      kindOf(view) !== "ok" && (undesired(view) ?? 0) > HELD_UP ? "value warn" : "value");
    const [value, beside, isBad] = drain(view);
    this.figure("drain", value, beside, isBad ? "value warn" : "value");
  }

  showErrors(errors, last) {
    const text = JSON.stringify([errors.map((error) => ({ ...error, last: error.current ? 0 : error.last })), last]);
    if (text === this.errorsShown) return;
    this.errorsShown = text;
    const newestFirst = errors.toReversed();
    const current = newestFirst.filter((error) => error.current);
    const earlier = newestFirst.filter((error) => !error.current);
    this.errors.hidden = current.length === 0;
    // Row values, where they may be shown, are in the status; the history never has them.
    const shown = (error) => (error.about === "channel" && last ? { ...error, message: last.message, ways_on: last.ways_on } : error);
    this.errors.replaceChildren(...current.map((error) => errorItem(shown(error), error.about === "channel" && last ? last.row : null)));
    this.earlierPart.hidden = earlier.length === 0;
    this.earlier.replaceChildren(...earlier.map((error) => errorItem(error, null)));
  }

  showFacts(view) {
    const { relay, event_memory: memory, connection, applier, settings } = view;
    const held = applier.dependencies.slice(0, 3).map(({ table, rows }) => `${table} ${count(rows)}`);
    const throttle = settings.throttle > 0 ? `, throttled to ${count(settings.throttle)} transactions/s` : "";
    const limit = relay.space_limit_bytes > 0 ? ` of ${bytes(relay.space_limit_bytes)}` : "";
    const free = relay.free_disk_bytes === null ? "" : `, ${bytes(relay.free_disk_bytes)} of disk left`;
    const archived = view.archive ? view.archive.archived_transaction_set : "";
    const rows = !hasTarget(view) ? [
      ["Archived GTIDs", archived || NONE, true],
      ["Received GTIDs", view.received_transaction_set || NONE, true],
      ["Relay store", `${bytes(relay.bytes)}${limit} in ${plural(relay.segments, "segment")}${free}`],
      ["Heartbeats", `${count(connection.count_received_heartbeats)}, connected ${plural(connection.connects_total, "time")}`],
    ] : [
      ["Last applied", applier.last_applied_transaction || NONE, true],
      ["Applied GTIDs", view.applied_transaction_set || NONE, true],
      ["Received GTIDs", view.received_transaction_set || NONE, true],
      ["Workers", `at most ${count(settings.worker_count)}${throttle}`],
      ...throttled(view.throttle_by),
      ["Relay store", `${bytes(relay.bytes)}${limit} in ${plural(relay.segments, "segment")}${free}`],
      ["Events in memory", `${bytes(memory.held_bytes)} of ${bytes(memory.limit_bytes)}, at most ${bytes(memory.peak_bytes)}`],
      ["Heartbeats", `${count(connection.count_received_heartbeats)}, connected ${plural(connection.connects_total, "time")}`],
      ["Retries", `${count(applier.count_transactions_retries)}, lock inversions ${count(applier.lock_inversions_total)}`],
      ["Account management", plural(applier.accounts_left_out_total, "transaction") + " left out"],
      ...(applier.target_rewinds_total > 0 ? [["Target came back older", `${plural(applier.target_rewinds_total, "time")}, last ${applier.last_target_rewind_timestamp} without ${applier.last_target_rewind_transaction_set || "anything missing"}; applied again`]] : []),
      ["Rows held back", held.length > 0 ? held.join(", ") : "none"],
    ];
    const text = JSON.stringify(rows);
    if (text === this.factsShown) return;
    this.factsShown = text;
    this.facts.replaceChildren(...rows.flatMap(([name, value, isNumber]) =>
      [element("dt", {}, name), element("dd", isNumber ? { class: "number wide" } : {}, ...unbroken(value))]));
  }
}

function errorItem(error, row) {
  const about = { source: "Source", target: "Target", channel: "Channel stopped" }[error.about];
  const number = error.number > 0 ? `, error ${error.number}` : "";
  let when = clock(error.first);
  if (error.current) when = `since ${when}`;
  else if (error.last > error.first) when = `${when} to ${clock(error.last)}`;
  const { cause, transaction } = causeFirst(error.message, { number: error.number, table: row?.table });
  const named = transaction || error.transaction;
  const item = element("li", error.current ? { class: "current" } : {},
    element("p", { class: "when" }, `${about}${number}, ${when}`),
    element("p", { class: "message" }, ...unbroken(cause)));
  if (named && !cause.includes(named)) item.append(element("p", { class: "muted" }, "Transaction ", element("span", { class: "number" }, ...unbroken(named))));
  item.append(...(row ? [failingRow(row)] : []), waysOn(error.ways_on));
  return item;
}

// The row that the target refused, next to the target's own.
function failingRow(row) {
  const found = row.target_row_detail ? `${row.target_row}: ${row.target_row_detail}` : row.target_row;
  const by = row.key ? ` by ${row.key}` : "";
  const cells = (values) => values.map((value) => element("td", {}, value === null ? NONE : value));
  const title = `${row.table}: the target's row${by} is ${found}`;
  if (row.columns.length === 0) return element("div", { class: "row" }, element("p", {}, title));
  const heads = ["column", "source before", "source after", "target now"].map((name) => element("th", { scope: "col" }, name));
  const columns = row.columns.map((column) => element("tr", {}, element("th", { scope: "row" }, column.name),
    ...cells([column.source_before, column.source_after, column.target])));
  return element("div", { class: "row", tabindex: "0", role: "region", "aria-label": "The row's values" },
    element("table", {}, element("caption", {}, title), element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...columns)));
}

function delayed({ desired_delay: delay }) {
  return delay > 0 ? `, ${duration(delay)} of it intended` : "";
}

// Each limit with its value, and the rate that they leave.
function throttled(by) {
  if (!by) return [];
  const said = by.limits.map(({ key, server, value, limit, unanswered }) => {
    const show = key === "replica_lag" ? duration : count;
    return `${words(key)} of ${server} ${value === null ? NONE : show(value)}, limit ${show(limit)}${unanswered ? ` (${unanswered})` : ""}`;
  });
  const rate = by.rate === null ? "not throttled" : `${count(by.rate)} transactions/s since ${moment(by.since)}`;
  return [["Throttle by health", `${rate}; ${said.join("; ")}`]];
}
