
// One channel: its state in words, its figures, its charts, its errors.

const KIND = { running: "ok", waiting_for_delay: "ok", standby: "ok", failed: "bad", no_answer: "bad" };

function stateKind(state) {
  return KIND[state] || "warn";
}

class ChannelSection {
  constructor(name) {
    this.name = name;
    this.heading = element("h2", {}, name);
    this.state = element("span", { class: "state" });
    this.detail = element("span", { class: "detail" });
    this.missing = element("p", { class: "route" });
    this.bottleneck = element("p", { class: "route" });
    this.route = element("p", { class: "route muted" });
    this.figures = element("dl", { class: "figures" });
    this.values = {};
    for (const [key, title] of [["lag", "Lag"], ["backlog", "Backlog"], ["applied", "Applied"], ["received", "Received"], ["drain", "Drained in"]]) {
      const value = element("dd", { class: "value" });
      const beside = element("dd", { class: "beside" });
      this.values[key] = { value, beside };
      this.figures.append(element("div", {}, element("dt", {}, title), value, beside));
    }
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
    this.errors = element("ul", { class: "errors" });
    this.earlier = element("ul", { class: "errors" });
    this.earlierPart = element("details", {}, element("summary", {}, "Earlier errors"), this.earlier);
    this.facts = element("dl", { class: "facts" });
    const charts = element("div", { class: "stack" }, ...this.charts.map((chart) => chart.figure));
    this.section = element("section", { class: "channel" },
      element("header", { class: "head" }, this.heading, this.state, this.detail, this.missing, this.bottleneck, this.route),
      this.errors, this.figures,
      element("div", { class: "body" }, charts, element("div", { class: "stack" }, this.timeline.figure, this.facts)),
      this.earlierPart);
    this.heading.id = `channel-${name}`;
    this.section.setAttribute("aria-labelledby", this.heading.id);
  }

  show(view, history, past) {
    this.state.className = `state ${stateKind(view.state)}`;
    say(this.state, words(view.state));
    const isBelow = past.errors.some((error) => error.current && error.message === view.state_detail);
    const isSaid = isBelow || ["stopped", "paused"].includes(view.state);
    say(this.detail, isSaid ? "" : view.state_detail);
    const server = (address, version) => `${address || "a server not reached yet"}${version ? `, ${version}` : ""}`;
    say(this.route, `from ${server(view.connection.source, view.connection.source_version)}, ` +
      `to ${server(view.applier.target, view.applier.target_version)}`);
    const standing = standingIn(view);
    this.missing.hidden = standing.length === 0;
    const said = JSON.stringify(standing);
    if (this.missingShown !== said) {
      this.missingShown = said;
      this.missing.replaceChildren(...standing.map((part) => (part.command ? element("code", {}, part.command) : part)));
    }
    const { cause, detail, share } = view.bottleneck;
    const isLate = view.lag_seconds === null || view.lag_seconds > 1;
    const isHeldUp = isLate && view.state === "running" && !["", "none", "source"].includes(cause);
    this.bottleneck.hidden = !isHeldUp;
    say(this.bottleneck, `Held up by: ${detail} (${Math.round(100 * share)} % of the last seconds)`);
    this.showFigures(view, past);
    this.showErrors(past.errors, view.last_error);
    this.showFacts(view);
    this.charts.forEach((chart) => chart.draw(history, past));
    this.timeline.draw(history, past, view.applier);
  }

  figure(key, value, beside) {
    say(this.values[key].value, value);
    say(this.values[key].beside, beside);
  }

  showFigures(view, past) {
    const { applied_transactions_per_second: applied, received_transactions_per_second: received } = view;
    const lag = view.lag_seconds;
    const isNotKnown = isAway(view) ? "not known without the source" : "not known now";
    this.figure("lag", duration(lag), lag === null ? isNotKnown : `after the source's commits${delayed(view.applier)}`);
    this.figure("backlog", ...backlogFigure(view));
    const groups = view.applied_groups_total;
    const size = groups > 0 ? `, ${(view.applied_transactions_total / groups).toFixed(1)} per group` : "";
    const isIdle = isAway(view) && view.backlog_transactions === 0;
    this.figure("applied", isIdle ? NONE : rate(applied), `${count(view.applied_transactions_total)} since the start${size}`);
    const arriving = past.received_bytes_per_second.findLast((value) => value !== null);
    this.figure("received", isAway(view) ? NONE : rate(received), isAway(view) ? "nothing arrives" : arriving === undefined ? "" : `${bytes(arriving)}/s`);
    const [value, beside, isBad] = drain(view);
    this.figure("drain", value, beside);
    this.values.drain.value.className = isBad ? "value warn" : "value";
  }

  showErrors(errors, last) {
    const text = JSON.stringify([errors, last]);
    if (text === this.errorsShown) return;
    this.errorsShown = text;
    const newest = errors.toReversed();
    const current = newest.filter((error) => error.current);
    const earlier = newest.filter((error) => !error.current);
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
    const rows = [
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
    this.facts.replaceChildren(...rows.flatMap(([name, value, isNumber]) =>
      [element("dt", {}, name), element("dd", isNumber ? { class: "number" } : {}, value)]));
  }
}

function errorItem(error, row) {
  const about = { source: "Source", target: "Target", channel: "Channel stopped" }[error.about];
  const number = error.number > 0 ? `, error ${error.number}` : "";
  let when = clock(error.first);
  if (error.current) when = `since ${when}`;
  else if (error.last > error.first) when = `${when} to ${clock(error.last)}`;
  const item = element("li", error.current ? { class: "current" } : {},
    element("p", { class: "when" }, `${about}${number}, ${when}`),
    element("p", { class: "message" }, error.message),
    ...(row ? [failingRow(row)] : []),
    waysOn(error.ways_on));
  if (error.transaction && !error.message.includes(error.transaction)) {
    item.append(element("p", { class: "number" }, error.transaction));
  }
  return item;
}

function waysOn(ways) {
  if (ways.length === 1) return element("p", {}, ways[0]);
  return element("ol", {}, ...ways.map((way) => element("li", {}, way)));
}

// The row that the target refused, next to the target's own.
function failingRow(row) {
  const found = row.target_row_detail ? `${row.target_row}: ${row.target_row_detail}` : row.target_row;
  const by = row.key ? ` by ${row.key}` : "";
  const cells = (tag, values) => element("tr", {}, ...values.map((value) => element(tag, {}, value === null ? NONE : value)));
  return element("div", { class: "row" },
    element("p", {}, `${row.table}: the target's row${by} is ${found}`),
    ...(row.columns.length === 0 ? [] : [element("table", {},
      cells("th", ["column", "source before", "source after", "target now"]),
      ...row.columns.map((column) => cells("td", [column.name, column.source_before, column.source_after, column.target])))]));
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

// The source sends nothing: it is away, or reception has ended.
function isAway({ connection }) {
  return connection.service_state !== "ON";
}

// The backlog and a remark. Without the source it is not known what else it has: no "0" then.
function backlogFigure(view) {
  const { backlog_transactions: backlog, backlog_bytes: size } = view;
  if (backlog === null) return [NONE, "not known now"];
  if (!isAway(view)) return [count(backlog), `transactions, ${bytes(size)}`];
  if (backlog === 0) return [NONE, "all that was received is applied; the source may have more"];
  return [count(backlog), `received transactions, ${bytes(size)}; the source may have more`];
}

// The server that is missing, or the command that holds the channel; and how to proceed.
function standingIn(view) {
  const { state, connection, applier, settings, channel_name: name } = view;
  const receiving = isAway(view) ? "" : " Receiving continues.";
  const command = (words) => ({ command: `csa-daemon --channel ${name} ${words}` });
  const pause = view.next_attempt_seconds;
  const next = typeof pause === "number" ? ` Next attempt in ${duration(pause)}.` : "";
  if (state === "waiting_for_source") {
    return [`The source ${connection.source || ""} is away. What was received is applied, and the daemon connects again on its own.`];
  }
  if (state === "waiting_for_target") {
    return [`The target ${applier.target} is away.${receiving} The daemon connects again on its own.${next}`];
  }
  if (state === "failed" && next !== "") {
    return [`The daemon tries again on its own.${next} To try at once: `, command("restart")];
  }
  if (state === "paused") {
    const pausing = view.state_detail.startsWith("pausing") ? ` ${view.state_detail.split(";")[0]}.` : "";
    const since = settings.paused_since ? ` since ${moment(settings.paused_since)} (${duration((Date.now() - new Date(settings.paused_since)) / 1000)})` : "";
    const by = settings.paused_by ? ` by ${settings.paused_by}` : "";
    return [`Paused${by}${since}.${pausing}${receiving} To resume: `, command("resume")];
  }
  if (state === "stopped") {
    const detail = `${view.state_detail[0].toUpperCase()}${view.state_detail.slice(1)}.`;
    const isAtEnd = settings.until !== null && detail.includes("until");
    return isAtEnd ? [`${detail} To resume beyond the end: `, command("until --clear")] : [`${detail} To start it: `, command("restart")];
  }
  return [];
}

// The time to drain, a remark, and whether it is bad news.
function drain(view) {
  const { backlog_transactions: backlog, seconds_to_drain: seconds, applied_transactions_per_second: applied } = view;
  if (backlog === null) return [NONE, "not known now", false];
  if (backlog === 0) return isAway(view) ? [NONE, "not known without the source", false] : ["0 s", "nothing to drain", false];
  if (view.state === "waiting_for_target") return [NONE, "the target is away", true];
  if (backlog <= 2 * applied) return ["under 2 s", "keeps up", false];
  if (["paused", "stopped", "waiting_for_delay"].includes(view.state)) return [NONE, "held back on request", false];
  if (seconds === null) return [NONE, "the backlog does not shrink", true];
  return [duration(seconds), "at the present rates", false];
}
