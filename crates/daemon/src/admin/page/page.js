// Asks the daemon every two seconds and shows its answers: all channels, or the one in the address.

const EVERY_MS = 2000;
const PATIENCE_MS = 8000;

const overview = new Overview();
let section = null;
let answered = null;
let isRefused = false;
let last = null;
// Rows of other daemons, and whether they are being asked.
let others = [];
let isAsking = false;
// What changes slowly is asked for seldom: the last minutes of all channels, and the incidents of the one shown.
const SLOWLY_MS = 10000;
let recent = null;
let incidents = null;

// A token stays in this tab and ends with it. It may come in the address, as #token=…, a part that
// no browser sends anywhere.
const TOKEN = "csa-daemon token";
const address = () => new URLSearchParams(location.hash.slice(1));
const given = address().get("token");
if (given) {
  sessionStorage.setItem(TOKEN, given);
  const channel = address().get("channel");
  window.history.replaceState(null, "", channel === null ? location.pathname : `#channel=${encodeURIComponent(channel)}`);
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`/api/v1${path}`, { cache: "no-store", headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  isRefused = answer.status === 401;
  if (isRefused) document.getElementById("login").hidden = false;
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${readable(text.trim())}`);
  // In most answers nothing has to be made readable, and a look at each value of many channels takes time.
  if (!/\\[^"\\/]/.test(text) && text.search(ACTS) < 0) return JSON.parse(text);
  return JSON.parse(text, (key, value) => (typeof value === "string" ? readable(value) : value));
}

// Named up to this number; more are counted.
const NAMED = 3;

function verdict(all) {
  const away = all.filter((view) => view.isDaemon && view.state === "no_answer");
  const channels = all.filter((view) => !view.isDaemon);
  const not = [...channels, ...away].filter((view) => kindOf(view) !== "ok").sort((a, b) => rank(a) - rank(b) || byName(a, b));
  const where = document.getElementById("verdict");
  where.className = not.length === 0 ? "ok" : not.some((view) => kindOf(view) === "bad") ? "bad" : "warn";
  const standby = channels.filter((view) => view.state === "standby").length;
  const also = standby === 0 ? "" : `, ${standby} of them in another daemon`;
  let text = `${channels.length === 1 ? "The channel is running" : `All ${channels.length} channels are running`}${also}`;
  let parts = [text];
  if (not.length > NAMED) {
    const held = not.filter((view) => shownState(view) === "held_up").length;
    const down = not.length - away.length - held;
    const said = [
      ...(down > 0 ? [`${down} of ${channels.length} channels ${down === 1 ? "is" : "are"} not running`] : []),
      ...(held > 0 ? [down > 0 ? `${held} held up` : `${held} of ${channels.length} channels are held up`] : []),
      ...(away.length > 0 ? [`${plural(away.length, "daemon")} ${away.length === 1 ? "does" : "do"} not answer`] : []),
    ];
    text = said.join(", ");
    parts = [text];
  } else if (not.length > 0) {
    const says = (view) => (view.state === "no_answer" ? " does not answer" : ` ${view.state === "failed" ? "has" : "is"} ${words(shownState(view))}`);
    const name = (view) => (all.length === 1 ? view.channel_name : link(view));
    text = not.map((view) => `${view.channel_name}${says(view)}`).join(", ");
    parts = not.flatMap((view, index) => [index === 0 ? "" : ", ", name(view), says(view)]);
  }
  if (where.textContent !== text) where.replaceChildren(...parts);
  const title = `${not.length === 0 ? "" : "! "}${text} · csa-daemon`;
  if (document.title !== title) document.title = title;
}

function link(view) {
  return element("a", { href: addressOf(view), rel: "noreferrer" }, view.channel_name);
}

// The channel of the address, or the only one; none where all are shown.
function chosen({ channels, daemon }) {
  if (channels.length === 1 && !daemon.peers) return channels[0];
  return channels.find((view) => view.channel_name === address().get("channel"));
}

function render() {
  if (!last) return;
  const [status, history] = last;
  const { version, uptime_seconds: uptime } = status.daemon;
  say(document.getElementById("daemon"), `${version}, up ${duration(uptime)}`);
  const all = [...status.channels, ...others];
  verdict(all);
  const view = chosen(status);
  const past = history?.channels.find((one) => one.channel_name === view?.channel_name);
  const isOne = Boolean(view && past);
  const back = document.getElementById("back");
  back.hidden = !isOne || all.length === 1;
  back.firstElementChild.setAttribute("href", overview.address());
  document.getElementById("range").hidden = !isOne;
  // Row values are shown with a token only.
  const hasRow = view?.state === "failed" && view.last_error?.row;
  document.getElementById("login").hidden = status.daemon.shows_values || !hasRow;
  const main = document.getElementById("channels");
  if (!view) {
    if (main.firstElementChild !== overview.section) {
      overview.read(address());
      main.replaceChildren(overview.section);
    }
    overview.show(all, recent?.answer);
    section = null;
  } else if (past) {
    if (section?.name !== view.channel_name) {
      section = new ChannelSection(view.channel_name);
      main.replaceChildren(section.section);
      window.scrollTo(0, 0);
    }
    section.show(view, history, past, incidents?.channel === view.channel_name ? incidents.answer.incidents : null);
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

const historyOf = (view, seconds) => `/history?seconds=${seconds}&channel=${encodeURIComponent(view.channel_name)}`;

// Until somebody chooses: the shortest range that shows all samples, of which some may be older than the process.
async function chosenRange(view) {
  const chosen = () => document.querySelector("input[name=range]:checked");
  if (!chosen()) {
    const inputs = [...document.querySelectorAll("input[name=range]")];
    const { step, channels } = await ask(historyOf(view, inputs.at(-1).value));
    const states = channels.length > 0 ? channels[0].state : [];
    const known = states.length - states.findIndex((state) => state !== null);
    const fits = inputs.find((input) => Number(input.value) >= (known > states.length ? 0 : known - 1) * step);
    if (!chosen()) (fits || inputs.at(-1)).checked = true;
  }
  return chosen().value;
}

async function askSlowly({ channels }, view) {
  const isOld = (what) => !what || Date.now() - what.at > SLOWLY_MS;
  // A channel that has just come has no samples yet.
  const isShort = recent?.answer.channels.length !== channels.length;
  if (!view && (isShort || isOld(recent))) recent = { at: Date.now(), answer: await ask("/history/recent") };
  const isAnother = incidents?.channel !== view?.channel_name || incidents?.state !== view?.state;
  if (view && (isAnother || isOld(incidents))) {
    const { channel_name: channel, state } = view;
    incidents = { at: Date.now(), channel, state, answer: await ask(`/channels/${encodeURIComponent(channel)}/incidents`) };
  }
}

// A daemon that is slow holds up nothing else on the page.
async function refreshOthers(count) {
  if (!count) others = [];
  if (!count || isAsking) return;
  isAsking = true;
  if (others.length === 0) others = [nothingOf(plural(count, "other daemon"), location.origin, "starting", "being asked")];
  try {
    others = (await ask("/peers")).peers.flatMap(rowsOf);
  } catch (problem) {
    others = [nothingOf(plural(count, "other daemon"), location.origin, "no_answer", problem.message)];
  }
  isAsking = false;
  render();
}

async function refresh() {
  try {
    const status = await ask("/status");
    refreshOthers(status.daemon.peers);
    const view = chosen(status);
    const history = view ? await ask(historyOf(view, await chosenRange(view))) : null;
    await askSlowly(status, view);
    // The address may have changed meanwhile: then the next answer is the one to show.
    if (chosen(status)?.channel_name !== view?.channel_name) return;
    last = [status, history];
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

setInterval(() => section?.tick(), 1000);
document.querySelectorAll("input[name=range]").forEach((input) => input.addEventListener("change", refresh));
document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, document.getElementById("token").value);
  refresh();
});
window.addEventListener("hashchange", () => {
  if (overview.section.isConnected && !address().has("channel")) overview.read(address());
  refresh();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey;
  if (event.key === "/" && !isTyping && overview.section.isConnected) {
    event.preventDefault();
    overview.filter.focus();
  } else if (event.key === "Escape" && !document.getElementById("back").hidden) {
    location.hash = overview.address();
  }
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
new ResizeObserver(render).observe(document.getElementById("channels"));
run();
