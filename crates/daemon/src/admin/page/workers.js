// The workers of a channel over the last minutes.

// Shown only where the target reports it.
function progress({ work_completed: done, work_estimated: all }) {
  return done !== null && all > 0 ? ` (${Math.round((100 * done) / all)} %)` : "";
}

// A row of states for each worker, newest at the right.
class Timeline {
  constructor() {
    this.keys = element("div", { class: "keys" });
    this.canvas = element("canvas", { role: "img" });
    this.readout = element("span", { class: "readout" });
    this.longest = element("p", { class: "muted" });
    const caption = element("figcaption", { class: "caption" }, element("h3", {}, "Workers, last 5 minutes"), this.readout);
    this.figure = element("figure", {}, caption, this.canvas, this.keys, this.longest);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => say(this.readout, ""));
  }

  draw(history, channel, view) {
    this.history = history;
    this.rows = channel.workers;
    this.states = history.worker_states;
    const seconds = this.seconds();
    const room = this.rows.length;
    this.row = room > 32 ? 6 : room > 12 ? 9 : 14;
    const width = Math.max(160, this.figure.clientWidth);
    const height = Math.max(1, room) * this.row;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    this.width = width;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`) || style.getPropertyValue("--other");
    this.rows.forEach((row, y) => {
      for (let from = 0; from < seconds; ) {
        let to = from + 1;
        while (to < seconds && row.states[to] === row.states[from]) to += 1;
        if (row.states[from] !== " ") {
          pen.fillStyle = colour(this.name(row.states[from]));
          pen.fillRect((from * width) / seconds, y * this.row, ((to - from) * width) / seconds, this.row - 2);
        }
        from = to;
      }
    });
    this.canvas.hidden = room === 0;
    this.legend(view);
  }

  seconds() {
    return this.rows.length > 0 ? this.rows[0].states.length : 0;
  }

  name(letter) {
    return letter === "." ? "idle" : this.states[Number(letter)] || "other";
  }

  legend({ state, applier: { workers, statement } }) {
    const shares = new Map();
    let all = 0;
    for (const row of this.rows) {
      for (const letter of row.states) {
        if (letter === " ") continue;
        all += 1;
        shares.set(letter, (shares.get(letter) || 0) + 1);
      }
    }
    const parts = [...shares].sort((a, b) => b[1] - a[1]).map(([letter, times]) => [this.name(letter), Math.round((100 * times) / all)]);
    this.keys.replaceChildren(...parts.map(([name, share]) =>
      element("span", { class: "key" }, element("i", { class: `swatch ${name}` }), `${words(name)} ${share} %`)));
    const shared = parts.map(([name, share]) => `${words(name)} ${share} %`).join(", ");
    this.canvas.setAttribute("aria-label", `What ${plural(this.rows.length, "worker")} did in the last 5 minutes: ${shared}`);
    const longest = workers.reduce((a, b) => (a && a.seconds_in_state >= b.seconds_in_state ? a : b), null);
    let text = "No worker has had a group in this time.";
    if (state === "waiting_for_target") {
      text = "The target is away: what its sessions did last is not known.";
    } else if (longest) {
      const connection = longest.thread_id === null ? "" : `, connection ${longest.thread_id} on the target`;
      text = `${plural(workers.length, "worker")} with a group. Longest in one state: worker ${longest.worker_id}, ` +
        `${words(longest.state)} for ${duration(longest.seconds_in_state)}${connection}.`;
    } else if (this.rows.length > 0) {
      text = "No worker has a group now.";
    }
    if (statement && state !== "waiting_for_target") text = `A statement runs alone for ${duration(statement.seconds)}: ${statement.statement}${progress(statement)}`;
    say(this.longest, text);
  }

  point(x, y) {
    const row = this.rows[Math.floor(y / this.row)];
    const second = Math.floor((x / this.width) * this.seconds());
    if (!row || row.states[second] === undefined) return;
    const letter = row.states[second];
    const did = letter === " " ? "not known" : words(this.name(letter));
    say(this.readout, `worker ${row.worker_id}, ${clock(this.history.workers_first + second)}: ${did}`);
  }
}
