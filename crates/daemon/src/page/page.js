
// Asks the daemon every two seconds and shows its answers.

const EVERY_MS = 2000;
const PATIENCE_MS = 8000;

const sections = new Map();
let answered = null;
let isRefused = false;
let last = null;

// A token stays in this tab and ends with it. It may come in the address, as #token=…, a part that
// no browser sends anywhere.
const TOKEN = "csa-daemon token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(TOKEN, given);
  window.history.replaceState(null, "", location.pathname);
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  isRefused = answer.status === 401;
  if (isRefused) document.getElementById("login").hidden = false;
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${readable(text.trim())}`);
  return JSON.parse(text, (key, value) => (typeof value === "string" ? readable(value) : value));
}

function verdict(channels) {
  const not = channels.filter((view) => stateKind(view.state) !== "ok");
  const where = document.getElementById("verdict");
  where.className = not.length === 0 ? "ok" : not.some((view) => view.state === "failed") ? "bad" : "warn";
  const names = not.map((view) => `${view.channel_name} ${view.state === "failed" ? "has" : "is"} ${words(view.state)}`).join(", ");
  const standby = channels.filter((view) => view.state === "standby").length;
  const also = standby === 0 ? "" : `, ${standby} of them in another daemon`;
  const all = `${channels.length === 1 ? "The channel is running" : `All ${channels.length} channels are running`}${also}`;
  const text = not.length === 0 ? all : names;
  say(where, text);
  const title = `${not.length === 0 ? "" : "! "}${text} · csa-daemon`;
  if (document.title !== title) document.title = title;
}

function render() {
  if (!last?.[1]) return;
  const [status, history] = last;
  const { version, uptime_seconds: uptime } = status.daemon;
  say(document.getElementById("daemon"), `${version}, up ${duration(uptime)}`);
  verdict(status.channels);
  // Row values are shown with a token only.
  const hasRow = status.channels.some((view) => view.state === "failed" && view.last_error?.row);
  document.getElementById("login").hidden = status.daemon.shows_values || !hasRow;
  const main = document.getElementById("channels");
  for (const [name, section] of sections) {
    if (status.channels.some((view) => view.channel_name === name)) continue;
    section.section.remove();
    sections.delete(name);
  }
  for (const view of status.channels) {
    const past = history.channels.find((one) => one.channel_name === view.channel_name);
    if (!past) continue;
    let section = sections.get(view.channel_name);
    if (!section) {
      section = new ChannelSection(view.channel_name);
      sections.set(view.channel_name, section);
      main.append(section.section);
    }
    section.show(view, history, past);
  }
}

function freshness(problem) {
  const stale = document.getElementById("stale");
  document.body.classList.toggle("is-stale", Boolean(problem));
  stale.hidden = !problem;
  if (problem) {
    const since = answered ? `What is shown is from ${clock(answered)}.` : "Nothing is known yet.";
    say(stale, isRefused ? `The daemon asks for a token. ${since}` : `The daemon does not answer: ${problem}. ${since}`);
    if (answered) document.title = "? no answer · csa-daemon";
  }
}

// Until somebody chooses: the shortest range that shows all samples.
function chosenRange() {
  if (!document.querySelector("input[name=range]:checked")) {
    const inputs = [...document.querySelectorAll("input[name=range]")];
    const fits = inputs.find((input) => Number(input.value) >= last[0].daemon.uptime_seconds);
    (fits || inputs.at(-1)).checked = true;
  }
  return document.querySelector("input[name=range]:checked").value;
}

async function refresh() {
  try {
    if (!last) last = [await ask("/status"), null];
    last = await Promise.all([ask("/status"), ask(`/history?seconds=${chosenRange()}`)]);
    answered = Date.now() / 1000;
    render();
    freshness(null);
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    say(document.getElementById("clock"), `As of ${clock(answered)}, times in ${zone}`);
  } catch (problem) {
    freshness(problem.message);
  }
}

async function run() {
  for (;;) {
    // A hidden page asks nothing.
    if (!document.hidden) await refresh();
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

document.querySelectorAll("input[name=range]").forEach((input) => input.addEventListener("change", refresh));
document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, document.getElementById("token").value);
  refresh();
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
new ResizeObserver(render).observe(document.getElementById("channels"));
run();
