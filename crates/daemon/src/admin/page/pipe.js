// Source, relay store and target as one pipe: what moves through it, and where it is narrowest.

// The part of the pipe that a cause concerns.
const PLACES = {
  network: "receiving", relay: "relay", memory: "applying", dependency: "applying", commit_turn: "applying", applier: "applying",
  throttle: "applying", paused: "applying", locks: "target", target: "target",
};

// Steps of speed: a transaction per second is seen to move, and ten thousand are not a blur.
function speedOf(rate) {
  if (!rate) return 0;
  return Math.min(4, 1 + Math.floor(Math.log10(Math.max(1, rate))));
}

// The newest known value of a column; the view has no rates while nothing runs.
function newest(past, column) {
  return past[column].findLast((value) => value !== null) ?? null;
}

class Pipe {
  constructor() {
    this.parts = {};
    const part = (key, title, name) => {
      const parts = { box: element("div", { class: name }), title: element("dt", {}, title), value: element("dd", { class: "value" }), beside: element("dd", { class: "beside" }) };
      parts.box.append(parts.title, parts.value, parts.beside);
      this.parts[key] = parts;
      return parts.box;
    };
    const flow = (key, title) => {
      const box = part(key, title, "flow");
      box.prepend(element("div", { class: "tube", "aria-hidden": "true" }, element("i", {})));
      return box;
    };
    this.list = element("dl", { class: "pipe" }, part("source", "Source", "node"), flow("receiving", "Received"), part("relay", "Backlog in the relay store", "node"),
      flow("applying", "Applied"), part("target", "Target", "node"));
    this.narrow = element("p", { class: "narrow" });
    this.figure = element("div", { class: "flows", role: "group", "aria-label": "The way from the source to the target" }, this.list, this.narrow);
  }

  set(key, value, beside, name) {
    const { box, value: first, beside: second } = this.parts[key];
    if (name.startsWith("node") && key !== "relay") sayAddress(first, value);
    else say(first, value);
    say(second, beside);
    mark(box, name);
  }

  show(view, past) {
    const { state, connection, applier, bottleneck, relay } = view;
    const place = this.place(view);
    const lit = (key) => (place === key ? " lit" : "");
    const server = (address, version) => [address || "not reached yet", version || ""];
    const isSourceAway = state === "waiting_for_source";
    const isTargetAway = ["waiting_for_target", "waiting_for_archive"].includes(state);
    this.set("source", ...server(connection.source, connection.source_version), `node${isSourceAway ? " away" : ""}`);
    const into = hasTarget(view) ? server(applier.target, applier.target_version) : [view.archive?.url || NONE, view.archive?.error || ""];
    this.set("target", ...into, `node${isTargetAway ? " away" : ""}${lit("target")}`);
    say(this.parts.target.title, hasTarget(view) ? "Target" : "Archive");
    say(this.parts.applying.title, hasTarget(view) ? "Applied" : "Archived");

    const received = view.received_transactions_per_second ?? newest(past, "received_transactions_per_second");
    const arriving = newest(past, "received_bytes_per_second");
    const receives = !isAway(view);
    this.set("receiving", receives ? rate(received) : NONE, receives ? (arriving === null ? "" : `${bytes(arriving)}/s`) : "nothing arrives",
      `flow speed-${receives ? speedOf(received) : 0}${receives ? "" : " closed"}${lit("receiving")}`);

    const [backlog, remark] = backlogFigure(view);
    const full = relay.space_limit_bytes > 0 ? Math.round((100 * relay.bytes) / relay.space_limit_bytes) : 0;
    const limit = full > 0 ? `, ${full} % of its space` : "";
    this.set("relay", backlog, `${remark}${limit}`, `node store${lit("relay")}`);

    const applied = view.applied_transactions_per_second ?? newest(past, "applied_transactions_per_second");
    const stands = ["failed", "stopped", "paused", "waiting_for_target", "waiting_for_archive", "waiting_for_lock"].includes(state);
    const isIdle = isAway(view) && view.backlog_transactions === 0;
    const groups = view.applied_groups_total;
    const size = groups > 0 ? `, ${(view.applied_transactions_total / groups).toFixed(1)} per group` : "";
    const total = hasTarget(view) ? view.applied_transactions_total : view.archive?.transactions_total ?? 0;
    this.set("applying", isIdle && !applied ? NONE : rate(applied), `${count(total)} since the start${size}`,
      `flow speed-${stands ? 0 : speedOf(applied)}${stands ? " closed" : ""}${state === "failed" ? " broken" : ""}${lit("applying")}`);

    this.narrow.hidden = place === null;
    if (place !== null) sayUnbroken(this.narrow, `Held up by: ${bottleneck.detail} (${Math.round(100 * bottleneck.share)} % of the last seconds)`);
  }

  // The narrowest place, while it matters.
  place(view) {
    const { state, bottleneck: { cause }, lag_seconds: lag, backlog_transactions: backlog } = view;
    if (state === "waiting_for_lock") return "target";
    if (state === "waiting_for_space") return "relay";
    // Without a backlog, only the way to it can be narrow.
    const isPending = backlog !== 0 || ["network", "relay"].includes(cause);
    const isLate = lag === null || lag > 1;
    return (isPending && isLate && state === "running" && PLACES[cause]) || null;
  }
}
