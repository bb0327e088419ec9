// How to proceed: commands that can be copied, and the section of the runbook.

// Said to a screen reader after a copy; a button's new text is not always read.
function announce(text) {
  say(document.getElementById("announced"), text);
}

// Without a secure context (plain HTTP from another host) there is no clipboard: then the browser's older way,
// and last a selection that the reader copies.
async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied";
  } catch {
    const selection = window.getSelection();
    selection.selectAllChildren(shown);
    try {
      if (document.execCommand("copy")) return "Copied";
    } catch {
      // The selection remains.
    }
    return "Selected";
  }
}

const SHOWN_MS = 2000;

function command(text) {
  const code = element("code", {}, ...unbroken(text));
  const button = element("button", { type: "button", class: "copy", "aria-label": `Copy ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    const outcome = await copyText(text, code);
    say(button, outcome);
    announce(outcome === "Copied" ? "Copied" : "Selected: copy it with the keyboard");
    button.focus();
    setTimeout(() => {
      say(button, "Copy");
      announce("");
    }, SHOWN_MS);
  });
  return element("span", { class: "command" }, code, button);
}

// Commands end where the sentence does. One with other characters than these is shown, but not offered: a
// shell could read more in it than a name.
const COMMAND = /csa-daemon (?:--channel|[a-z]+)\b.*?(?=; (?:then|verify|csa-daemon)|, |\. |\.$|\)|$)/gs;
const PLAIN = /^csa-daemon(?: [\w@%+=:./*-]+)+$/;
// A statement that repairs a row. A character that is shown as \u0000 is another in the statement.
const STATEMENT = /^(.*\bRun there: )(.+)(; then: csa-daemon restart .*)$/s;

function withCommands(text) {
  const repair = STATEMENT.exec(text);
  if (repair) {
    const [, before, statement, after] = repair;
    const shown = /\\u[0-9a-f]{4}/.test(statement) ? element("code", {}, statement) : command(statement);
    return [...withCommands(before), shown, ...withCommands(after)];
  }
  const parts = [];
  let from = 0;
  for (const { 0: found, index } of text.matchAll(COMMAND)) {
    if (!PLAIN.test(found)) continue;
    parts.push(...unbroken(text.slice(from, index)), command(found));
    from = index + found.length;
  }
  return [...parts, ...unbroken(text.slice(from))];
}

function waysOn(ways) {
  if (ways.length === 1) return element("p", {}, ...withCommands(ways[0]));
  return element("ol", { "aria-label": "Ways to proceed" }, ...ways.map((way) => element("li", {}, ...withCommands(way))));
}

const SECTIONS = {
  failed: "CsaChannelFailed", stopped: "CsaChannelStopped", paused: "CsaChannelStopped",
  waiting_for_source: "CsaSourceUnreachable", waiting_for_target: "CsaTargetUnreachable", waiting_for_archive: "CsaArchiveFailing", held_up: "CsaLagHigh",
};

// The section that fits the channel as it is; null where nothing is wrong.
function runbookSection(view) {
  const state = shownState(view);
  if (state === "running" && view.relay.waiting !== null) return "CsaReceptionWaiting";
  if (state === "held_up" && view.throttle_by && view.throttle_by.rate !== null) return "CsaThrottled";
  return SECTIONS[state] || null;
}

function runbookLink() {
  return element("a", { class: "runbook", rel: "noreferrer" }, "Runbook");
}

function showRunbook(link, view) {
  const name = runbookSection(view);
  link.hidden = name === null;
  if (name === null) return;
  const target = `/runbook#${name.toLowerCase()}`;
  if (link.getAttribute("href") !== target) link.setAttribute("href", target);
  say(link, `Runbook: ${name}`);
}
