"use strict";
// The page of a run: asks the server for what is new, keeps it, and shows it.
// Texts of a run are only ever set as text, never as markup.

const store = { server: "", upto: 0, now: null };

function forget() {
  Object.assign(store, { upto: 0, steps: [], scores: [], probes: new Map(), warnings: [], saves: [] });
}
forget();

const take = {
  steps: (record) => store.steps.push(record),
  score: (record) => store.scores.push(record),
  checkpoint: (record) => store.saves.push(record),
  warning: (record) => store.warnings.push(record),
  probe: (record) => {
    if (!store.probes.has(record.host)) store.probes.set(record.host, []);
    store.probes.get(record.host).push(record);
  },
  // An attempt began anew at this step: what came after it was lost and is done again.
  cut: (record) => {
    for (const name of ["steps", "scores", "saves"]) {
      store[name] = store[name].filter((one) => one.step <= record.step);
    }
  },
};

// ---- words

function bytes(value) {
  for (const [size, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size * 0.9995) return `${+(value / size).toPrecision(3)} ${name}`;
  }
  return `${Math.round(value)} B`;
}

function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 0.1) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const total = Math.round(seconds), minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min ${String(total % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${String(hours % 24).padStart(2, "0")} h`;
}

const percent = (share) => `${(100 * share).toFixed(0)} %`;
const clock = (time) => new Date(time * 1e3).toLocaleTimeString([], { hour12: false });
const whole = (number) => number.toLocaleString("en");

function formatStep(step, long) { return long ? `step ${whole(Math.round(step))}` : shortNumber(step); }
formatStep.ticks = (from, to, width) => niceTicks(from, to, width / 90).filter(Number.isInteger);

function formatTime(time, long) {
  return long ? new Date(time * 1e3).toLocaleString([], { hour12: false }) : clock(time).slice(0, formatTime.letters || 8);
}
formatTime.ticks = (from, to, width) => {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const wanted = (to - from) / Math.max(width / 95, 1);
  const step = steps.find((one) => one >= wanted) || Math.ceil(wanted / 86400) * 86400;
  formatTime.letters = step >= 60 ? 5 : 8;
  const shift = new Date(from * 1e3).getTimezoneOffset() * 60; // round hours of the local clock
  const ticks = [];
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) ticks.push(t);
  return ticks;
};

// ---- charts

const redraw = () => {
  document.getElementById("reset").hidden = !(stepZoom.range || timeZoom.range);
  charts.forEach((chart) => chart.draw());
};
const stepZoom = new Zoom(redraw), timeZoom = new Zoom(redraw);
const charts = [];

function line(name, colour, records, x, y) {
  return { name, colour, points: records.map((record) => [record[x], y(record)]) };
}

function scoreLines(name, colours) {
  return ["validation", "train"].map((split, number) => line(
    `${split} ${name}`, colours[number],
    store.scores.filter((one) => one.split === split && name in one.scores), "step", (one) => one.scores[name],
  ));
}

function scoreName() {
  const known = store.scores.length ? Object.keys(store.scores[0].scores) : [];
  const best = store.now && store.now.best_by;
  return known.includes(best) ? best : known.find((name) => name !== "loss") || "loss";
}

function hostLines(pick, suffix = "", first = 0) {
  return [...store.probes.entries()].sort().map(([host, probes], number) =>
    line(`${host}${suffix}`, `c${(first + number) % 6}`, probes, "time", pick)
  ).map((one) => ({ ...one, points: one.points.filter((point) => point[1] !== null) }));
}

function stepChart(title, series, more) {
  const shape = { zoom: stepZoom, formatX: formatStep, formatY: shortNumber, ...more };
  charts.push(new Chart(document.getElementById("charts"), { title, series, ...shape }));
}

function timeChart(title, series, more) {
  const shape = { zoom: timeZoom, formatX: formatTime, floor: 0, ...more };
  charts.push(new Chart(document.getElementById("charts"), { title, series, ...shape }));
}

function makeCharts() {
  stepChart("Loss", () => [
    line("while training", "c0", store.steps, "step", (one) => one.loss), ...scoreLines("loss", ["c1", "c2"]),
  ]);
  stepChart("Score", () => scoreLines(scoreName(), ["c1", "c2"]));
  stepChart("Where the time goes", () => [{
    parts: usedPhases(store.steps.map((one) => one.phases)),
    points: store.steps.map((one) => [one.step, one.phases]),
  }], { stacked: true, formatY: percent });
  stepChart("Speed", () => [line(`${unit()}/s`, "c0", store.steps, "step", (one) => one.units_per_second)], { floor: 0 });
  stepChart("Step time", () => [line("mean of an interval", "c0", store.steps, "step", (one) => one.step_seconds)], { floor: 0, formatY: duration });
  stepChart("Learning rate", () => [line("rate", "c0", store.steps, "step", (one) => one.rate)], { floor: 0 });
  timeChart("Utilisation", () => [
    ...hostLines((one) => one.cpu_share, " processor"), ...hostLines((one) => one.device_share, " devices", 3),
  ].filter((one) => one.points.length), { formatY: percent });
  timeChart("Network, out", () => hostLines((one) => one.sent_per_second), { formatY: (v) => `${bytes(v)}/s` });
  timeChart("Network, in", () => hostLines((one) => one.received_per_second), { formatY: (v) => `${bytes(v)}/s` });
  timeChart("Memory", () => hostLines((one) => one.memory_share), { formatY: percent });
  timeChart("Disk", () => hostLines((one) => one.disk_per_second), { formatY: (v) => `${bytes(v)}/s` });
}

const unit = () => {
  const name = (store.now && store.now.unit) || "unit";
  return name.endsWith("s") ? name : `${name}s`;
};

function usedPhases(all) {
  const used = new Set(all.flatMap((phases) => Object.keys(phases)));
  return (store.now ? store.now.phases : []).filter((name) => used.has(name));
}

// ---- everything else

function element(kind, text, kindOf) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (kindOf) made.className = kindOf;
  return made;
}

function showHead(now) {
  const place = (id) => document.getElementById(id);
  document.title = `${now.run}: ${now.state}`;
  place("run").textContent = now.run;
  place("state").textContent = now.state;
  const good = ["running", "finished"].includes(now.state), waiting = ["starting", "not started", "silent", "stopped"].includes(now.state);
  place("state").className = `chip ${good ? "good" : waiting ? "warn" : "bad"}`;
  const processes = now.world_size ? `${now.world_size} ${now.world_size === 1 ? "process" : "processes"}` : "";
  place("facts").textContent = [now.workload, processes, now.attempt > 1 ? `attempt ${now.attempt}` : ""].filter(Boolean).join(", ");
  const done = now.total_steps ? Math.min(now.step / now.total_steps, 1) : 0;
  place("progress").value = done;
  const left = now.seconds_left === null ? "" : `, ${duration(now.seconds_left)} left`;
  place("where").textContent = now.total_steps ? `step ${whole(now.step)} of ${whole(now.total_steps)} (${(100 * done).toFixed(1)} %)${left}` : "";
  const link = place("tensorboard");
  link.hidden = !now.tensorboard_starting;
  link.textContent = now.tensorboard ? "TensorBoard" : "TensorBoard is starting…";
  if (now.tensorboard) link.href = now.tensorboard; else link.removeAttribute("href");
}

function showFigures() {
  const last = store.steps[store.steps.length - 1];
  const figures = [];
  if (last) {
    figures.push(["loss", last.loss === null ? "not finite" : last.loss.toPrecision(4)]);
    figures.push([`${unit()}/s`, whole(Math.round(last.units_per_second))]);
    figures.push(["a step", duration(last.step_seconds)]);
    figures.push(["learning rate", last.rate === null ? "?" : last.rate.toPrecision(3)]);
  }
  const scored = store.scores.filter((one) => one.split === "validation");
  for (const [name, value] of Object.entries(scored.length ? scored[scored.length - 1].scores : {})) {
    figures.push([`validation ${name}`, value === null ? "not finite" : value.toPrecision(4)]);
  }
  if (store.saves.length) figures.push(["last saved", `step ${whole(store.saves[store.saves.length - 1].step)}`]);
  document.getElementById("figures").replaceChildren(...figures.map(([name, value]) => {
    const box = element("div", undefined, "figure");
    box.append(element("b", value), element("span", name));
    return box;
  }));
}

function showRanks(now) {
  const used = usedPhases(now.ranks.map((rank) => rank.phases));
  document.getElementById("legend").replaceChildren(...used.map((name) => {
    const item = element("span"), mark = element("i");
    mark.style.background = `var(--${name})`;
    item.append(mark, name);
    return item;
  }));
  document.getElementById("ranks").replaceChildren(...now.ranks.map((rank) => {
    const row = element("div", undefined, "rank"), bar = element("div", undefined, "bar");
    const sum = Object.values(rank.phases).reduce((a, b) => a + b, 0) || 1;
    for (const name of used) {
      const part = element("div");
      part.style.width = `${(100 * (rank.phases[name] || 0)) / sum}%`;
      part.style.background = `var(--${name})`;
      part.title = `${name}: ${percent((rank.phases[name] || 0) / sum)}`;
      bar.append(part);
    }
    const most = Object.entries(rank.phases).sort((a, b) => b[1] - a[1]).slice(0, 2);
    row.append(element("span", `rank ${rank.rank}${rank.host ? ` on ${rank.host}` : ""}`), bar,
      element("span", most.map(([name, seconds]) => `${name} ${percent(seconds / sum)}`).join(", "), "quiet"));
    return row;
  }));
  const slow = now.straggler, notice = document.getElementById("straggler");
  notice.hidden = !slow;
  if (slow) notice.textContent = `The others wait for rank ${slow.rank}, which spends more in ${slow.phase}: ${percent(slow.share)} of their time.`;
}

function showHosts(now) {
  const names = ["host", "cores busy", "memory", "interface", "out", "in", "link", "devices"];
  const rows = [names.map((name) => element("th", name))];
  for (const probe of now.hosts) {
    const seconds = Math.max(probe.seconds, 1e-9);
    const devices = (probe.devices || []).map((one) => [
      one.name, one.utilisation === null ? "" : percent(one.utilisation),
      `${bytes(one.memory_bytes)} of ${bytes(one.memory_total_bytes)}`,
      one.power_watts === null ? "" : `${one.power_watts.toFixed(0)} W`,
    ].filter(Boolean).join(" "));
    rows.push([
      probe.host, percent(probe.cpu_share), `${bytes(probe.memory_bytes)} of ${bytes(probe.memory_total_bytes)}`,
      probe.interface, `${bytes(probe.sent_bytes / seconds)}/s`, `${bytes(probe.received_bytes / seconds)}/s`,
      probe.link_bits_per_second ? `${shortNumber(probe.link_bits_per_second)}bit/s` : "not known", devices.join("; ") || "none",
    ].map((text, place) => {
      const cell = element("td", text);
      cell.dataset.name = names[place];  // on a phone each host is a list of these
      return cell;
    }));
  }
  document.getElementById("hosts").replaceChildren(...(rows.length > 1 ? rows : []).map((cells) => {
    const row = element("tr");
    row.append(...cells);
    return row;
  }));
}

function showWarnings() {
  const last = store.warnings.slice(-20).reverse();
  document.getElementById("warnings").replaceChildren(...(last.length ? last.map((one) => {
    const item = element("li");
    item.append(element("time", clock(one.time)), `rank ${one.rank}: ${one.text}`);
    return item;
  }) : [element("li", "none", "quiet")]));
}

function show() {
  showHead(store.now);
  showFigures();
  showRanks(store.now);
  showHosts(store.now);
  showWarnings();
  charts.forEach((chart) => chart.draw());
}

async function ask() {
  const trouble = document.getElementById("trouble");
  let wait = 5000;
  try {
    const lacking = `data?server=${encodeURIComponent(store.server)}&since=${store.upto}`;
    const answer = await fetch(lacking, { signal: AbortSignal.timeout(20000) });
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    const told = await answer.json();
    if (told.from === 0) forget();
    Object.assign(store, { server: told.server, upto: told.upto, now: told.now });
    for (const record of told.records) if (take[record.kind]) take[record.kind](record);
    trouble.hidden = true;
    show();
    wait = told.now.going_on ? 1000 : 5000;
  } catch (error) {
    trouble.textContent = `Not up to date: ${error.message}. Is \`paceline board\` still running?`;
    trouble.hidden = false;
  }
  setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", ask, { once: true }) : ask()), wait);
}

document.getElementById("reset").addEventListener("click", () => { stepZoom.set(null); timeZoom.set(null); });
window.addEventListener("resize", () => charts.forEach((chart) => chart.draw()));
makeCharts();
ask();
