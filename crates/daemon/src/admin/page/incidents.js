// The times of the last hours in which the channel did not do what it should.

const SPAN = 12 * 3600;
const LISTED = 6;

const INCIDENTS = {
  failed: "failed", waiting_for_target: "target away", waiting_for_archive: "archive away", waiting_for_source: "source away", stopped: "stopped", paused: "paused",
};

function incidentText(incident, now) {
  const { state, ended, began, times, number, table, caught_up_transactions: transactions, caught_up_seconds: seconds } = incident;
  const what = `${INCIDENTS[state] || words(state)}${number > 0 ? ` with error ${number}` : ""}${table ? ` in ${table}` : ""}`;
  const long = duration(Math.max(0, (ended ?? now) - began));
  const often = times > 1 ? ` (${times} times)` : "";
  if (ended === null) return `${what} for ${long}${often}, not over`;
  const caught = transactions > 0 ? `, ${plural(transactions, "transaction")} caught up in ${seconds > 0 ? duration(seconds) : "under 1 s"}` : "";
  return `${what} ${long}${often}${caught}`;
}

// A number and its unit stay on a line.
function together(text) {
  return text.replace(/(\d) (ms|s|min|h|d)\b/g, "$1\u00a0$2");
}

function incidentItem(incident, now) {
  const time = moment(incident.began * 1000).replace(/:\d\d$/, "");
  const detail = incident.state === "failed" ? causeFirst(incident.detail).cause : incident.detail;
  return element("li", { class: stateKind(incident.state) },
    element("span", { class: "when" }, time), " ", element("span", { class: "what" }, together(incidentText(incident, now))),
    ...(detail ? [" ", element("span", { class: "why", title: detail }, detail)] : []));
}

class Incidents {
  constructor() {
    this.strip = drawn("svg", { class: "strip", role: "img", viewBox: "0 0 1000 10", preserveAspectRatio: "none" });
    this.axis = element("div", { class: "axis", "aria-hidden": "true" });
    this.none = element("p", { class: "muted" }, "No incident is known of this time.");
    this.list = element("ol", { class: "incidents", "aria-labelledby": "incidents" });
    this.earlier = element("ol", { class: "incidents", "aria-label": "Earlier incidents" });
    this.earlierPart = element("details", {}, element("summary", {}, "Earlier incidents"), this.earlier);
    this.figure = element("section", { class: "past", "aria-labelledby": "incidents" }, element("h3", { id: "incidents" }, "Incidents, last 12 hours"),
      this.strip, this.axis, this.none, this.list, this.earlierPart);
  }

  // incidents: oldest first; null until the daemon has answered.
  show(incidents, now) {
    if (incidents === null) return;
    // To the minute: nothing else moves on the strip.
    const minute = Math.ceil(now / 60) * 60;
    const shown = JSON.stringify([incidents, incidents.some(({ ended }) => ended === null) ? now : minute]);
    if (shown === this.shown) return;
    this.shown = shown;
    const first = minute - SPAN;
    const recent = incidents.filter(({ ended }) => (ended ?? now) >= first);
    this.draw(recent, first, now);
    const newestFirst = recent.toReversed();
    const older = [...newestFirst.slice(LISTED), ...incidents.toReversed().filter((one) => !recent.includes(one))];
    this.none.hidden = recent.length > 0;
    this.list.replaceChildren(...newestFirst.slice(0, LISTED).map((one) => incidentItem(one, now)));
    this.earlierPart.hidden = older.length === 0;
    this.earlier.replaceChildren(...older.map((one) => incidentItem(one, now)));
  }

  draw(recent, first, now) {
    const x = (second) => (1000 * Math.max(0, second - first)) / SPAN;
    this.strip.replaceChildren(drawn("rect", { class: "ground", x: 0, y: 0, width: 1000, height: 10 }), ...recent.map((incident) => {
      const [from, to] = [x(incident.began), x(incident.ended ?? now)];
      // Half a minute is less than a pixel, and still to be seen.
      return drawn("rect", { class: stateKind(incident.state), x: Math.min(from, 996), y: 0, width: Math.max(4, to - from), height: 10 });
    }));
    this.strip.setAttribute("aria-label", `The last 12 hours: ${recent.length === 0 ? "no incidents" : plural(recent.length, "incident")}`);
    this.axis.replaceChildren(...[0, 1, 2, 3, 4].map((quarter) => element("span", {}, clock(first + (quarter * SPAN) / 4).slice(0, 5))));
  }
}
