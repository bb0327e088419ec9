// A line of the last minutes, as small as a word.

const SPARK = { width: 60, height: 20 };

class Sparkline {
  // least: the value at the top at least, so that noise does not look like a mountain.
  constructor(title, format, least) {
    this.title = title;
    this.format = format;
    this.least = least;
    this.area = drawn("path", { class: "area" });
    this.line = drawn("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.svg = drawn("svg", { class: "spark", role: "img", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, preserveAspectRatio: "none" });
    this.svg.append(this.area, this.line);
    this.show(null);
  }

  // values: oldest first, null where nothing is known.
  show(values) {
    const known = (values || []).filter((value) => value !== null);
    const label = known.length === 0 ? `${this.title}: not known in the last 10 minutes`
      : `${this.title} in the last 10 minutes: at most ${this.format(Math.max(...known))}, last ${this.format(known.at(-1))}`;
    const shape = JSON.stringify(values);
    if (shape === this.shown) return;
    this.shown = shape;
    this.svg.setAttribute("aria-label", label);
    const top = Math.max(this.least, ...known);
    const { width, height } = SPARK;
    const x = (index) => ((index + 0.5) * width) / values.length;
    const y = (value) => height - 1 - ((height - 3) * value) / top;
    let line = "";
    let area = "";
    let from = null;
    (values || []).forEach((value, index) => {
      if (value === null) return;
      const at = `${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      if (from === null) {
        from = index;
        line += `M${at}`;
        area += `M${x(index).toFixed(1)} ${height}L${at}`;
      } else {
        line += `L${at}`;
        area += `L${at}`;
      }
      if (index + 1 < values.length && values[index + 1] !== null) return;
      if (from === index) line += "h0.01";
      area += `L${x(index).toFixed(1)} ${height}Z`;
      from = null;
    });
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }
}
