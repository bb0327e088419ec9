"use strict";

// Numbers and times in readable form; elements built from text, never from markup.

const NONE = "–";

function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return "under 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(seconds);
  const two = (one, unit, rest, lesser) => (rest === 0 ? `${one} ${unit}` : `${one} ${unit} ${rest} ${lesser}`);
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

function count(number) {
  return number === null || number === undefined ? NONE : Math.round(number).toLocaleString("en");
}

function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

function bytes(number) {
  if (number === null || number === undefined) return NONE;
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let value = number;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function rate(number) {
  if (number === null || number === undefined) return NONE;
  return `${number > 0 && number < 10 ? number.toFixed(1).replace(/\.0$/, "") : count(number)}/s`;
}

// Times are the reader's own; the footer names the zone.
function clock(second) {
  const time = new Date(second * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

// Control characters, and those that turn the direction of text, as csa-daemon status shows them.
const ACTS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function readable(text) {
  return text.replace(ACTS, (c) => SHORT[c] || `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function words(name) {
  return name.replaceAll("_", " ");
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function drawn(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
}

// The time of a timestamp, with its date unless that is today.
function moment(timestamp) {
  const time = new Date(timestamp);
  const isToday = time.toDateString() === new Date().toDateString();
  const date = [time.getFullYear(), time.getMonth() + 1, time.getDate()].map((n) => String(n).padStart(2, "0")).join("-");
  return `${isToday ? "" : `${date} `}${clock(time / 1000)}`;
}

function mark(where, name) {
  if (where.className !== name) where.className = name;
}

// Unchanged text stays: a screen reader does not read it again, and a selection remains.
function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}
