
// Lines over time, drawn to the available width. All charts of a channel share one cursor.

const HEIGHT = 124;
const LEFT = 62;
const BOTTOM = 18;
const TOP = 6;

// The next 1, 2 or 5 times a power of ten; for times, the next round minute or hour.
function ceiling(value, isTime) {
  const steps = isTime ? [1, 2, 5, 10, 20, 30, 60, 120, 240, 600, 1200, 1800, 3600, 7200, 14400, 28800, 57600, 86400, 172800, 345600] : [];
  const step = value >= 1 ? steps.find((one) => value <= one) : undefined;
  if (step) return step;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => value <= n * 1.0001);
}

// Seconds between the labels of the time axis.
function spacing(seconds, width) {
  const room = Math.max(2, Math.floor(width / 90));
  return [30, 60, 120, 300, 600, 900, 1200, 1800, 3600].find((step) => seconds / step <= room) || 3600;
}

class Chart {
  // lines: [{ name, column }]; a single line is filled.
  constructor(title, lines, format, least, options) {
    this.title = title;
    this.lines = lines;
    this.format = format;
    this.least = least;
    this.isTime = Boolean(options && options.isTime);
    this.readout = element("span", { class: "readout" });
    const keys = lines.length > 1
      ? lines.map((line, n) => element("span", { class: n === 0 ? "key" : "key second" }, element("i"), line.name))
      : [];
    const caption = element("figcaption", { class: "caption" });
    caption.append(element("span", { class: "keys" }, element("h3", {}, title), ...keys), this.readout);
    this.plot = drawn("svg", { class: "plot", role: "img", tabindex: "0", height: HEIGHT });
    this.figure = element("figure", {}, caption, this.plot);
    this.cursor = null;
    this.onCursor = () => {};
    this.plot.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.plot.addEventListener("pointerleave", () => this.onCursor(null));
    this.plot.addEventListener("blur", () => this.onCursor(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  point(x) {
    const inside = (x - LEFT) / (this.width - LEFT);
    this.onCursor(Math.max(0, Math.min(this.length - 1, Math.floor(inside * this.length))));
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const from = this.cursor === null ? this.length : this.cursor;
    this.onCursor(Math.max(0, Math.min(this.length - 1, from + moves[event.key])));
  }

  x(index) {
    return LEFT + ((index + 0.5) * (this.width - LEFT)) / this.length;
  }

  y(value) {
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - value / this.top);
  }

  draw(history, channel) {
    this.history = history;
    this.channel = channel;
    this.width = Math.max(160, this.figure.clientWidth);
    this.length = channel.state.length;
    const known = this.lines.flatMap((line) => channel[line.column]).filter((value) => value !== null);
    this.top = ceiling(Math.max(this.least, ...known), this.isTime);
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.plot.replaceChildren();
    this.bands();
    this.axes();
    this.lines.forEach((line, n) => this.line(channel[line.column], n));
    this.plot.setAttribute("aria-label", this.summary());
    this.show(this.cursor);
  }

  // Shades the times in which the channel did not run.
  bands() {
    const states = this.channel.state;
    for (let from = 0; from < states.length; from += 1) {
      if (states[from] === null || stateKind(states[from]) === "ok") continue;
      let to = from;
      while (to + 1 < states.length && states[to + 1] === states[from]) to += 1;
      const half = (this.width - LEFT) / this.length / 2;
      this.plot.append(drawn("rect", {
        class: `band ${states[from]}`, x: this.x(from) - half, y: TOP, width: this.x(to) - this.x(from) + 2 * half, height: HEIGHT - BOTTOM - TOP,
      }));
      from = to;
    }
  }

  axes() {
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(this.y(this.top * part));
      this.plot.append(drawn("line", { class: "grid", x1: LEFT, x2: this.width, y1: y, y2: y }));
      this.text(part === 0 ? "0" : this.format(this.top * part), LEFT - 8, y + 4, "end");
    }
    const { first, step } = this.history;
    const seconds = this.length * step;
    const every = spacing(seconds, this.width - LEFT);
    const zone = new Date(first * 1000).getTimezoneOffset() * 60;
    for (let at = Math.ceil((first - zone) / every) * every + zone; at < first + seconds; at += every) {
      const x = LEFT + ((at - first) / seconds) * (this.width - LEFT);
      if (x < LEFT + 14 || x > this.width - 22) continue;
      this.plot.append(drawn("line", { class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
      this.text(clock(at).slice(0, every < 60 ? 8 : 5), x, HEIGHT - 3, "middle");
    }
  }

  text(words, x, y, anchor) {
    const text = drawn("text", { x, y, "text-anchor": anchor });
    text.textContent = words;
    this.plot.append(text);
  }

  // Interrupted where nothing is known; a single point is a dot.
  line(values, n) {
    let path = "";
    let area = "";
    let start = null;
    values.forEach((value, index) => {
      if (value === null) return;
      const at = `${this.x(index).toFixed(1)} ${this.y(value).toFixed(1)}`;
      const begins = start === null;
      if (begins) start = index;
      path += `${begins ? "M" : "L"}${at}`;
      if (index + 1 === values.length || values[index + 1] === null) {
        if (begins) path += "h0.01";
        const [from, to] = [this.x(start).toFixed(1), this.x(index).toFixed(1)];
        const run = values.slice(start, index + 1).map((v, i) => `L${this.x(start + i).toFixed(1)} ${this.y(v).toFixed(1)}`);
        area += `M${from} ${this.y(0)}${run.join("")}L${to} ${this.y(0)}Z`;
        start = null;
      }
    });
    if (this.lines.length === 1 && area) this.plot.append(drawn("path", { class: "area", d: area }));
    if (path) this.plot.append(drawn("path", { class: n === 0 ? "line" : "line second", d: path }));
  }

  when(index) {
    return clock(this.history.first + index * this.history.step);
  }

  show(index) {
    this.cursor = index === null || index >= this.length ? null : index;
    this.plot.querySelector(".cursor")?.remove();
    if (this.cursor === null) {
      say(this.readout, this.highest());
      return;
    }
    const x = this.x(this.cursor);
    this.plot.append(drawn("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    const values = this.lines.map((line) => {
      const value = this.channel[line.column][this.cursor];
      const text = value === null ? "not known" : this.format(value);
      return this.lines.length > 1 ? `${line.name} ${text}` : text;
    });
    const state = this.channel.state[this.cursor];
    const aside = state !== null && stateKind(state) !== "ok" ? `, ${words(state)}` : "";
    say(this.readout, `${this.when(this.cursor)}: ${values.join(", ")}${aside}`);
  }

  highest() {
    const parts = this.lines.map((line) => {
      const values = this.channel[line.column];
      const most = Math.max(...values.filter((value) => value !== null));
      if (most === -Infinity) return this.lines.length > 1 ? "" : "not known in this time";
      if (most === 0) return this.lines.length > 1 ? "" : "0 all the time";
      const name = this.lines.length > 1 ? `${line.name} ` : "";
      return `${name}at most ${this.format(most)} (${this.when(values.indexOf(most))})`;
    });
    return parts.filter(Boolean).join(", ");
  }

  summary() {
    const now = this.lines.map((line) => {
      const value = this.channel[line.column].findLast((one) => one !== null);
      return `${this.lines.length > 1 ? `${line.name} ` : ""}${value === undefined ? "not known" : this.format(value)}`;
    });
    return `${this.title} from ${this.when(0)} to ${this.when(this.length - 1)}: last ${now.join(", ")}; ${this.highest()}`;
  }
}
