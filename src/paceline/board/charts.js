"use strict";
// Charts on canvas: lines and stacked shares over a common x axis, with zoom and a read-out.
// Nothing here knows what a run is.

const PAD = { right: 10, top: 8, bottom: 22 };

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function niceTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough * 0.999) * power;
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) ticks.push(n * step);
  return ticks;
}

function shortNumber(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  if (size < 1e-3) return value.toExponential(1);
  return String(+value.toPrecision(4));
}

// A zoom is shared by all charts with the same x axis: {from, to}, or null for everything.
class Zoom {
  constructor(changed) { this.range = null; this.changed = changed; }
  set(range) { this.range = range; this.changed(); }
}

class Chart {
  // series(): [{name, colour, points: [[x, y], ...]}], x ascending.
  // stacked: points are [x, {part: amount}] in one series, drawn as shares of each stretch.
  constructor(place, { title, zoom, series, formatX, formatY, floor, stacked }) {
    Object.assign(this, { title, zoom, series, formatX, formatY, floor, stacked });
    this.box = document.createElement("div");
    this.box.className = "chart";
    const heading = document.createElement("h2");
    heading.textContent = title;
    this.key = document.createElement("div");
    this.key.className = "key";
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.dataset.title = title;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.box.append(heading, this.key, this.canvas, this.tip);
    place.append(this.box);
    this.left = 40;
    this.drag = null;
    this.hover = null;
    this.listen();
  }

  listen() {
    const at = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
    this.canvas.addEventListener("pointerdown", (event) => {
      this.drag = { from: at(event), to: at(event) };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag.to = at(event);
      this.hover = at(event);
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => this.endDrag());
    this.canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.draw(); });
    this.canvas.addEventListener("dblclick", () => this.zoom.set(null));
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; // plain scrolling belongs to the page
      event.preventDefault();
      this.zoomAround(at(event), event.deltaY > 0 || event.deltaX > 0 ? 1.25 : 0.8);
    }, { passive: false });
  }

  endDrag() {
    const drag = this.drag;
    this.drag = null;
    if (drag && Math.abs(drag.to - drag.from) > 8 && this.scale) {
      const ends = [this.scale.unX(drag.from), this.scale.unX(drag.to)].sort((a, b) => a - b);
      this.zoom.set({ from: ends[0], to: ends[1] });
    }
    this.draw();
  }

  zoomAround(pixel, factor) {
    if (!this.scale) return;
    const middle = this.scale.unX(pixel);
    const { from, to } = this.scale;
    this.zoom.set({ from: middle - (middle - from) * factor, to: middle + (to - middle) * factor });
  }

  // ---- drawing

  draw() {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    const all = this.series().filter((one) => one.points.length);
    this.scale = this.makeScale(all, pen, width, height);
    this.tip.hidden = true;
    this.canvas.dataset.points = all.reduce((sum, one) => sum + one.points.length, 0);
    if (!this.scale) { this.drawNothing(pen, width, height); return; }
    this.canvas.dataset.from = this.scale.from;
    this.canvas.dataset.to = this.scale.to;
    this.drawAxes(pen, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(this.left - 3, 0, width - this.left - PAD.right + 6, height);
    pen.clip();
    if (this.stacked) this.drawStack(pen, all[0], height); else all.forEach((one) => this.drawLine(pen, one));
    pen.restore();
    this.drawKey(all);
    this.drawDrag(pen, height);
    this.drawHover(pen, all, width, height);
  }

  drawNothing(pen, width, height) {
    this.key.replaceChildren();
    pen.fillStyle = cssColour("quiet");
    pen.textAlign = "center";
    pen.fillText("nothing yet", width / 2, height / 2);
    this.canvas.setAttribute("aria-label", `${this.title}: nothing yet`);
  }

  makeScale(all, pen, width, height) {
    if (!all.length) return null;
    let from = Math.min(...all.map((one) => one.points[0][0]));
    let to = Math.max(...all.map((one) => one.points[one.points.length - 1][0]));
    if (this.zoom.range) ({ from, to } = this.zoom.range);
    if (!(to > from)) { from -= 0.5; to += 0.5; }
    const [low, high] = this.stacked ? [0, 1] : this.range(all, from, to);
    const labels = niceTicks(low, high, 4).map((tick) => pen.measureText(this.formatY(tick)).width);
    this.left = Math.ceil(Math.max(24, ...labels)) + 8;
    const inner = { w: width - this.left - PAD.right, h: height - PAD.top - PAD.bottom };
    return {
      from, to, low, high,
      x: (value) => this.left + ((value - from) / (to - from)) * inner.w,
      y: (value) => PAD.top + (1 - (value - low) / (high - low)) * inner.h,
      unX: (pixel) => from + ((Math.min(Math.max(pixel, this.left), width - PAD.right) - this.left) / inner.w) * (to - from),
    };
  }

  range(all, from, to) {
    let low = Infinity, high = -Infinity;
    for (const one of all) for (const [x, y] of one.points) {
      if (x < from || x > to || y === null) continue;
      if (y < low) low = y;
      if (y > high) high = y;
    }
    if (!(high >= low)) [low, high] = [0, 1];
    if (this.floor !== undefined) low = Math.min(low, this.floor);
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [this.floor !== undefined && low >= this.floor ? low : low - room, high + room];
  }

  drawAxes(pen, width, height) {
    const { x, y, from, to, low, high } = this.scale;
    pen.strokeStyle = cssColour("line");
    pen.fillStyle = cssColour("quiet");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const tick of niceTicks(low, high, 4)) {
      const at = Math.round(y(tick)) + 0.5;
      pen.beginPath(); pen.moveTo(this.left, at); pen.lineTo(width - PAD.right, at); pen.stroke();
      pen.fillText(this.formatY(tick), this.left - 6, at);
    }
    pen.textBaseline = "top";
    const labels = this.formatX.ticks ? this.formatX.ticks(from, to, width) : niceTicks(from, to, width / 90);
    for (const tick of labels) {
      pen.textAlign = x(tick) > width - 40 ? "right" : "center";
      pen.fillText(this.formatX(tick), Math.min(x(tick), width - PAD.right), height - PAD.bottom + 6);
    }
  }

  drawLine(pen, one) {
    const { x, y, from, to } = this.scale;
    pen.strokeStyle = pen.fillStyle = cssColour(one.colour);
    pen.lineWidth = 1.6;
    pen.beginPath();
    let open = false, column = null, num = 0;
    const flush = () => {
      if (!column) return;
      if (open) pen.lineTo(column.x, column.first); else pen.moveTo(column.x, column.first);
      if (column.num > 2) { pen.lineTo(column.x, column.low); pen.lineTo(column.x, column.high); }
      pen.lineTo(column.x, column.last);
      open = true;
    };
    let first = one.points.findIndex((point) => point[0] >= from);
    first = Math.max(0, (first < 0 ? one.points.length : first) - 1);
    for (let i = first; i < one.points.length; i++) {
      const [px, py] = one.points[i];
      if (py === null) { flush(); column = null; open = false; continue; }
      const at = Math.round(x(px) * 2) / 2, up = y(py);
      num++;
      if (column && column.x === at) { // many points in one column of pixels: draw their extent
        column.low = Math.min(column.low, up); column.high = Math.max(column.high, up);
        column.last = up; column.num++;
      } else { flush(); column = { x: at, first: up, low: up, high: up, last: up, num: 1 }; }
      if (px > to) break;
    }
    flush();
    pen.stroke();
    if (num <= 40) for (const [px, py] of one.points) if (py !== null) {
      pen.beginPath(); pen.arc(x(px), y(py), 2.4, 0, 7); pen.fill();
    }
  }

  // Shares of the parts per stretch of about three pixels.
  bins(one) {
    const { from, to, x } = this.scale;
    const found = new Map();
    for (const [px, parts] of one.points) {
      if (px < from || px > to) continue;
      const bin = Math.floor(x(px) / 3);
      const sums = found.get(bin) || {};
      for (const [name, amount] of Object.entries(parts)) sums[name] = (sums[name] || 0) + Math.max(amount, 0);
      found.set(bin, sums);
    }
    return [...found.entries()].sort((a, b) => a[0] - b[0]);
  }

  drawStack(pen, one, height) {
    const bins = this.bins(one);
    bins.forEach(([bin, sums], number) => {
      const whole = Object.values(sums).reduce((a, b) => a + b, 0) || 1;
      const left = number ? (bins[number - 1][0] + 1) * 3 : Math.max(this.left, bin * 3 - 3);
      let done = 0;
      for (const part of one.parts) {
        const share = (sums[part] || 0) / whole;
        if (!share) continue;
        pen.fillStyle = cssColour(part);
        const top = this.scale.y(done + share), bottom = this.scale.y(done);
        pen.fillRect(left, top, (bin + 1) * 3 - left + 0.3, bottom - top + 0.3);
        done += share;
      }
    });
  }

  drawKey(all) {
    const names = this.stacked ? all[0].parts.map((part) => [part, part]) : all.map((one) => [one.name, one.colour]);
    this.key.replaceChildren(...names.map(([name, colour]) => {
      const item = document.createElement("span"), mark = document.createElement("i");
      mark.style.background = `var(--${colour})`;
      item.append(mark, name);
      return item;
    }));
    const last = this.stacked ? "" : all.map((one) => {
      const point = one.points[one.points.length - 1];
      return `${one.name} ${point[1] === null ? "none" : this.formatY(point[1])}`;
    }).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${last}`);
  }

  drawDrag(pen, height) {
    if (!this.drag || Math.abs(this.drag.to - this.drag.from) < 3) return;
    pen.fillStyle = cssColour("accent");
    pen.globalAlpha = 0.18;
    pen.fillRect(Math.min(this.drag.from, this.drag.to), PAD.top, Math.abs(this.drag.to - this.drag.from), height - PAD.top - PAD.bottom);
    pen.globalAlpha = 1;
  }

  drawHover(pen, all, width, height) {
    if (this.hover === null || this.drag || this.hover < this.left || this.hover > width - PAD.right) return;
    const wanted = this.scale.unX(this.hover);
    const rows = all.map((one) => [one, nearest(one.points, wanted)]).filter(([, point]) => point);
    if (!rows.length) return;
    const x = rows[0][1][0];
    pen.strokeStyle = cssColour("quiet");
    pen.setLineDash([3, 3]);
    pen.beginPath(); pen.moveTo(this.scale.x(x), PAD.top); pen.lineTo(this.scale.x(x), height - PAD.bottom); pen.stroke();
    pen.setLineDash([]);
    const lines = [this.formatX(x, true), ...rows.flatMap(([one, point]) => this.read(one, point))];
    this.tip.replaceChildren(...lines.map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    }));
    this.tip.hidden = false;
    const left = this.scale.x(x) + this.canvas.offsetLeft;
    const fits = left + 14 + this.tip.offsetWidth < width + this.canvas.offsetLeft;
    this.tip.style.left = `${fits ? left + 14 : Math.max(4, left - 14 - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${this.canvas.offsetTop + 8}px`;
  }

  read(one, point) {
    if (!this.stacked) return [`${one.name}: ${point[1] === null ? "none" : this.formatY(point[1], true)}`];
    const whole = Object.values(point[1]).reduce((a, b) => a + b, 0) || 1;
    return one.parts.filter((part) => point[1][part] / whole >= 0.005)
      .map((part) => `${part}: ${(100 * point[1][part] / whole).toFixed(1)} %`);
  }
}

function nearest(points, wanted) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < wanted) low = middle; else high = middle;
  }
  if (!points.length) return null;
  return Math.abs(points[low][0] - wanted) < Math.abs(points[high][0] - wanted) ? points[low] : points[high];
}
