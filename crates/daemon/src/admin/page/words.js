// What a channel's view means, in words: its state, the reason for it, its backlog, how to proceed.

const KIND = { running: "ok", waiting_for_delay: "ok", standby: "ok", failed: "bad", no_answer: "bad" };

function stateKind(state) {
  return KIND[state] || "warn";
}

// More lag than this, and something that holds the channel up: it runs, but not as it should.
const HELD_UP = 10;

// The lag that nobody asked for.
function undesired(view) {
  return view.lag_seconds === null ? null : Math.max(0, view.lag_seconds - view.applier.desired_delay);
}

// The state as it is shown: a running channel may be held up.
function shownState(view) {
  return view.state === "running" && heldUpBy(view) !== NONE && (undesired(view) ?? 0) > HELD_UP ? "held_up" : view.state;
}

function kindOf(view) {
  return stateKind(shownState(view));
}

function heldUpBy({ state, bottleneck, backlog_transactions: backlog }) {
  return state === "running" && backlog !== 0 && !["", "none", "source"].includes(bottleneck.cause) ? words(bottleneck.cause) : NONE;
}

// A channel without a target only archives.
function hasTarget(view) {
  return view.applier.target !== "";
}

// The source sends nothing: it is away, or reception has ended.
function isAway({ connection }) {
  return connection.service_state !== "ON";
}

const GTID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?::[a-z_][a-z0-9_]{0,31})?:[0-9]+/;
const FAILED = /^transaction (\S+) \((?:row changes of (.+?)|(.+?))\) failed on the target: error (\d+): (.*)$/s;

// The reason, with the cause first: what failed is read before the transaction's long name.
function causeFirst(text, { number = 0, table = null } = {}) {
  const failed = FAILED.exec(text);
  if (failed) {
    const [, gtid, rows, other, code, message] = failed;
    const where = table || rows || other;
    return { cause: `Error ${code} in ${where}: ${message}`, transaction: gtid };
  }
  const gtid = GTID.exec(text)?.[0] || null;
  const begins = gtid && text.startsWith(`transaction ${gtid}`);
  const rest = begins ? text.slice(`transaction ${gtid}`.length).replace(/^[:,]? /, "") : text;
  const code = number > 0 && !rest.includes(`${number}`) ? `Error ${number}: ` : "";
  return { cause: `${code}${rest}`, transaction: begins ? gtid : null };
}

// The lock and who has it, before the transaction that waits.
function lockCause({ what, lock, seconds, holders }) {
  const by = holders.map(({ connection, user, host }) => (connection === null ? "a prepared transaction" : `connection ${connection} of ${user}@${host}`));
  return `${lock}${by.length > 0 ? ` held by ${by.join(", ")}` : ""}, waited for ${duration(seconds)}: ${what}`;
}

// The reason in one sentence, with the name of the server that is missing.
function reason(view) {
  const { state, state_detail: detail, connection, applier, settings, bottleneck, last_error: error } = view;
  if (shownState(view) === "held_up") return { cause: bottleneck.detail || `by ${words(bottleneck.cause)}` };
  if (stateKind(state) === "ok") return { cause: "" };
  if (state === "paused" && settings.paused_by) return { cause: `by ${settings.paused_by} since ${moment(settings.paused_since)}` };
  if (state === "failed") return causeFirst(detail, error ? { number: error.number, table: error.row?.table } : {});
  if (state === "waiting_for_lock" && applier.lock_wait) return { cause: lockCause(applier.lock_wait) };
  const missing = { waiting_for_source: connection.source, waiting_for_target: applier.target }[state];
  return { cause: missing && !detail.includes(missing) ? `${missing}: ${detail}` : detail };
}

// A text whose names of servers are not broken: it may wrap before and after a UUID.
const UUID = /([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/;

function unbroken(text) {
  const parts = text.split(UUID);
  if (parts.length === 1) return parts;
  return parts.flatMap((part, index) => {
    if (index % 2 === 1) return [element("span", { class: "uuid" }, part)];
    return part.split(/(?<=[:,])/).flatMap((piece) => (/[:,]$/.test(piece) ? [piece, element("wbr")] : [piece]));
  });
}

// An address may wrap where its parts end.
function sayAddress(where, text) {
  if (where.textContent !== text) where.replaceChildren(...text.split(/(?<=\.)|(?=:)/).flatMap((part) => [element("wbr"), part]));
}

// Unchanged text stays, as in say().
function sayUnbroken(where, text) {
  if (where.textContent !== text) where.replaceChildren(...unbroken(text));
}

// The backlog and a remark. Without the source it is not known what else it has: no "0" then.
function backlogFigure(view) {
  const { backlog_transactions: backlog, backlog_bytes: size } = view;
  if (backlog === null) return [NONE, "not known now"];
  if (!isAway(view)) return [count(backlog), `${backlog === 1 ? "transaction" : "transactions"}, ${bytes(size)}`];
  if (backlog === 0) return [NONE, `all that was received is ${hasTarget(view) ? "applied" : "archived"}; the source may have more`];
  return [count(backlog), `received ${backlog === 1 ? "transaction" : "transactions"}, ${bytes(size)}; the source may have more`];
}

// The time to drain, a remark, and whether it is bad news.
function drain(view) {
  const { backlog_transactions: backlog, seconds_to_drain: seconds, applied_transactions_per_second: applied } = view;
  if (view.state === "failed") return [NONE, "the channel has failed", false];
  if (!hasTarget(view)) return [NONE, "the archive gets a file after each interval", false];
  if (backlog === null) return [NONE, "not known now", false];
  if (backlog === 0) return isAway(view) ? [NONE, "not known without the source", false] : ["0 s", "nothing to drain", false];
  if (view.state === "waiting_for_target") return [NONE, "the target is away", false];
  if (["paused", "stopped", "waiting_for_delay"].includes(view.state)) return [NONE, "held back on request", false];
  if (backlog <= 2 * applied) return ["under 2 s", "keeps up", false];
  if (seconds === null) return [NONE, "the backlog does not shrink", true];
  return [duration(seconds), "at the present rates", false];
}

// The server that is missing, or the command that holds the channel; and how to proceed.
function standingIn(view) {
  const { state, connection, applier, settings, channel_name: name } = view;
  const receiving = isAway(view) ? "" : " Receiving continues.";
  const say = (text, to, command) => ({ text, to, command: command && `csa-daemon --channel ${name} ${command}` });
  if (state === "waiting_for_source") {
    return say(`The source ${connection.source || ""} is away. What was received is ${hasTarget(view) ? "applied" : "archived"}, and the daemon connects again on its own.`);
  }
  if (state === "waiting_for_target") {
    return say(`The target ${applier.target} is away.${receiving} The daemon connects again on its own.`);
  }
  if (state === "waiting_for_archive") return say(`The archive can't be written.${receiving} The daemon tries again on its own.`);
  if (state === "failed" && typeof view.next_attempt_seconds === "number") {
    return say("The daemon tries again on its own.", "To try at once:", "restart");
  }
  if (state === "paused") {
    const pausing = view.state_detail.startsWith("pausing") ? ` ${view.state_detail.split(";")[0]}.` : "";
    const since = settings.paused_since ? ` since ${moment(settings.paused_since)}` : "";
    const by = settings.paused_by ? ` by ${settings.paused_by}` : "";
    return say(`Paused${by}${since}.${pausing}${receiving}`, "To resume:", "resume");
  }
  if (state === "stopped") {
    const detail = `${view.state_detail[0].toUpperCase()}${view.state_detail.slice(1)}.`;
    const isAtEnd = settings.until !== null && detail.includes("until");
    return isAtEnd ? say(detail, "To resume beyond the end:", "until --clear") : say(detail, "To start it:", "restart");
  }
  return null;
}
