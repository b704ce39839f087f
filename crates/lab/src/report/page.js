"use strict";
// Draws what the document holds; every figure in it was computed before.
const runs = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("report");

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const text = (value) => document.createTextNode(value);
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const rate = (value) => (value >= 100 ? number.format(value) : value.toPrecision(3));
function time(millis) {
  if (millis === null || millis === undefined) return "–";
  if (millis < 1) return `${(millis * 1000).toPrecision(3)} µs`;
  if (millis < 1000) return `${millis.toPrecision(3)} ms`;
  return `${(millis / 1000).toPrecision(3)} s`;
}
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes >= 100 || unit === 0 ? bytes.toFixed(0) : bytes.toFixed(1)} ${units[unit]}`;
}
function table(heads, rows) {
  const cell = (tag, value, head) => {
    const attributes = head.endsWith(">") ? { class: "number" } : {};
    return element(tag, attributes, value instanceof Node ? value : text(value));
  };
  return element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, heads.map((head) => cell("th", head.replace(">", ""), head)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((value, at) => cell("td", value, heads[at])))))));
}
// By its name, so that a page that was opened in the dark is printed in colours for paper.
const css = (name) => `var(${name})`;
const width = Math.min(920, root.clientWidth - 8);
const half = root.clientWidth > 860 ? Math.min(450, width / 2 - 16) : width;
const base = () => ({ marginBottom: 44, style: { color: css("--ink"), background: "transparent", fontSize: "12px", fontFamily: "system-ui, sans-serif" } });
function figure(caption, plot) {
  return element("figure", {}, plot, element("figcaption", {}, text(caption)));
}

function verdict(run) {
  const summary = run.summary;
  const word = summary.verdict === "PASS" && summary.required.length === 0 ? "VALID" : summary.verdict;
  // Of a database's steps those beside the plateau may be void, and nothing rests on them.
  const plateau = isDatabase(run) ? run.charts.ramp.findIndex((step) => step.plateau) : -1;
  const valid = plateau < 0 ? "every figure is valid" : "the plateau is valid, whatever the steps beside it are";
  const says = {
    PASS: summary.required.length ? "Every requirement is met." : `Nothing was required; ${valid}.`,
    FAIL: "A requirement is not met.",
    INVALID: "What is marked as void allows no conclusion.",
    INCONCLUSIVE: "Too little was measured to say.",
  }[summary.verdict];
  const marks = [run.run.quick ? "quick: a sketch, and no result" : null,
    run.run.locked ? null : "the profile was modified: not to be held against others",
    run.run.cut_short ? "ended before its time" : null].filter(Boolean);
  const least = summary.required.map((one) => one.met.headroom).filter((one) => one !== null);
  const headroom = least.length && ["PASS", "FAIL"].includes(summary.verdict) ? ` Headroom ${(Math.min(...least) * 100).toFixed(0)}%.` : "";
  const rests = summary.required.length ? summary.required.map((one) => summary.points[one.point])
    : plateau < 0 ? summary.points : [summary.points[plateau]];
  const grade = rests.map((one) => one.grade).sort().at(-1);
  return element("section", { class: `verdict ${summary.verdict}` },
    element("strong", {}, text(word)),
    element("div", {}, element("p", {}, text(says + headroom)),
      grade ? element("p", {}, text("Trust in what it rests on: "), element("span", { class: `grade ${grade}` }, text(grade))) : null, marks.map((mark) => element("p", { class: "soft" }, text(mark)))));
}
function requirements(run) {
  if (!run.summary.required.length) return null;
  const beside = (run.summary.beside ?? []).map((one) => ({ ...one, beside: true }));
  const rows = [...run.summary.required, ...beside].map(({ point, met, beside }) => [
    beside ? `beside, deciding nothing: ${met.requirement}` : met.requirement, met.told, met.headroom === null ? "–" : `${(met.headroom * 100).toFixed(0)}%`,
    element("span", { class: met.met ? "met" : "missed" }, text(met.met === null ? "cannot be said" : met.met ? "met" : "not met")),
    run.summary.points[point].name,
  ]);
  return [element("h2", {}, text("What was required")), table(["requirement", "measured", "headroom>", "", "where"], rows)];
}
const isDatabase = (run) => run.charts.ramp.length > 0;
const what = (run) => (isDatabase(run) ? "transactions" : "I/Os");
const nanos = (value) => time(value === null ? null : value / 1e6);
function figures(run) {
  if (isDatabase(run)) return users(run);
  const rows = run.charts.points.flatMap((point, at) => (point.together.length ? point.together : point.streams).map((one) => [
    point.name, `${one.stream}, ${one.side}`, one.load, rate(one.iops), `${size(one.bytes)}/s`,
    time(one.mean), time(one.p50), time(one.p99), time(one.p999), time(one.max), time(one.service),
    element("span", { class: `grade ${run.summary.points[at].grade}` }, text(run.summary.points[at].grade)),
  ]));
  return [element("h2", {}, text("Figures")),
    element("p", { class: "soft" }, text("Times are response times: of an open loop from the moment an I/O was meant to be issued, of a closed one from when there was room for it. Service, a mean, is what the storage took of that." +
      (run.charts.points.some((point) => point.together.length) ? " Streams that do the same on a volume each are one here." : ""))),
    table(["point", "stream", "loop", "IOPS>", "bytes>", "mean>", "p50>", "p99>", "p99.9>", "max>", "service>", "trust"], rows)];
}
function users(run) {
  const steps = run.charts.ramp;
  // Where a disk is moved or recovered, steps have names; as many users may come again.
  const cycles = run.charts.migration !== null || run.charts.chain !== null;
  const rows = steps.map((step, at) => [`${cycles ? step.name : step.users}${step.plateau && run.charts.migration === null ? " (plateau)" : ""}`, rate(step.nopm), rate(step.tpm),
    ...["p50", "p90", "p99", "max"].map((one) => nanos(step.transactions[0][one])),
    element("span", { class: `grade ${run.summary.points[at].grade}` }, text(run.summary.points[at].grade))]);
  const plateau = steps.find((step) => step.plateau) || steps[0];
  const kinds = plateau.transactions.map((one) => [one.name, rate(one.per_minute),
    ...["mean", "p50", "p90", "p99", "p99_9", "max"].map((figure) => nanos(one[figure]))]);
  const marked = [Plot.ruleX(steps.filter((step) => step.plateau), { x: "users", stroke: css("--soft"), strokeDasharray: "3 3" })];
  const x = { label: "users →", type: "log", ticks: steps.map((step) => step.users), tickFormat: "d" };
  const throughput = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true, x,
    y: { label: "↑ NOPM", zero: true, tickFormat: "~s" },
    marks: [...marked, Plot.line(steps, { x: "users", y: "nopm", stroke: css("--blue") }),
      Plot.dot(steps, { x: "users", y: "nopm", stroke: css("--blue"), tip: true,
        title: (d) => `${d.users} users\n${rate(d.nopm)} NOPM, ${rate(d.tpm)} TPM` })] });
  const waits = steps.flatMap((step) => ["p50", "p90", "p99"].map((of) => ({ users: step.users, of, millis: step.transactions[0][of] / 1e6 })));
  const latency = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true, x,
    y: { label: "↑ ms", type: "log", tickFormat: "~r" }, color: { legend: true },
    marks: [...marked, Plot.line(waits, { x: "users", y: "millis", stroke: "of" }),
      Plot.dot(waits, { x: "users", y: "millis", stroke: "of", tip: true })] });
  return [element("h2", {}, text("Users")),
    element("p", { class: "soft" }, text("NOPM: New-Orders a minute, TPM: all transactions a minute, both of what was committed. Times are those of New-Order, from its first attempt to its commit. This is no TPC-C result.")),
    table([cycles ? "step" : "users>", "NOPM>", "TPM>", "p50>", "p90>", "p99>", "max>", "trust"], rows),
    steps.length > 1 && !cycles ? element("div", { class: "pair" },
      figure("Orders by users. Dashed: the plateau, the last step that gained more than noise.", throughput),
      figure("Response time of New-Order by users.", latency)) : null,
    element("h3", {}, text(cycles ? `Of ${plateau.name}` : `With ${plateau.users} ${plateau.users === 1 ? "user" : "users"}`)),
    table(["transaction", "a minute>", "mean>", "p50>", "p90>", "p99>", "p99.9>", "max>"], kinds)];
}
function reduction(run) {
  const rows = run.charts.points.flatMap((point) => point.reduced.map((one) => [point.name, one.volume, size(one.held_bytes),
    `${one.dedupe_declared.toFixed(2)}:1`, `${one.dedupe.toFixed(2)}:1`, `${one.compression_declared.toFixed(2)}:1`, `${one.compression.toFixed(2)}:1`]));
  return rows.length ? [element("details", {}, element("summary", {}, text("How far what was written reduces")),
    element("p", { class: "soft" }, text("Of what the volumes hold after each point: blocks of 4 KiB for each different one, and bytes for each that LZ4 and zstd leave. A target that reduces data stores so much less at best.")),
    table(["point", "volume", "holds>", "duplicates declared>", "counted>", "compression declared>", "counted>"], rows))] : null;
}
function phases(run) {
  const rows = run.charts.tasks.map((task) => [task.name, { fill: "write", copy: "copy", check: "read and look at" }[task.kind] + ` ${task.what}`,
    time(task.seconds * 1000), size(task.bytes), (task.rate / 1e6).toFixed(1)]);
  return rows.length ? [element("h2", {}, text("Phases")), table(["phase", "did", "took>", "bytes>", "MB/s>"], rows)] : null;
}
function search(run) {
  const rows = run.charts.probes.map((one) => [`${one.outstanding}`, rate(one.iops), one.told,
    element("span", { class: one.kept ? "met" : "missed" }, text(one.kept ? "kept" : "not kept")), one.chosen ? "chosen" : ""]);
  return rows.length ? [element("h2", {}, text("Search for the best I/Os in flight")),
    element("p", { class: "soft" }, text(`Doubled until ${run.charts.probes[0].requirement} is not kept or nothing is gained, then halved between.`)),
    table(["in flight>", "I/Os a second>", "measured>", "", ""], rows)] : null;
}
function outages(run) {
  const seconds = (value) => (value === null ? "never" : `${value.toFixed(2)} s`);
  const found = (one, what) => (one.found ? number.format(what(one.found)) : "–");
  const rows = run.charts.outages.map((one) => [one.name, one.promise === "ack" ? "acknowledged" : "flushed", seconds(one.resume), seconds(one.silent),
    found(one, (f) => f.checked), found(one, (f) => f.lost), found(one, (f) => f.stale), found(one, (f) => f.misplaced + f.corrupt),
    found(one, (f) => f.gone_acknowledged), found(one, (f) => f.gone_flushed), found(one, (f) => f.torn)]);
  return rows.length ? [element("h2", {}, text("Outages")),
    element("p", { class: "soft" }, text("Sectors of 512 bytes, of every block afterwards and of what the load read. What is behind the acknowledged and not promised may be; torn are blocks of 4 KiB with old and new sectors, each of which may be what it is.")),
    table(["outage", "promised is what was", "to resume>", "silent>", "sectors>", "lost>", "stale>", "misplaced or corrupt>", "behind acknowledged>", "behind flushed>", "torn blocks>"], rows)] : null;
}
function curve(run) {
  const data = run.charts.curve;
  if (data.length < 2) return null;
  const plot = Plot.plot({ ...base(), width, height: 320, marginLeft: 60, grid: true,
    x: { label: "I/Os a second →", zero: true, tickFormat: "~s" }, y: { label: "↑ ms", type: "log", tickFormat: "~r" },
    color: { legend: true, domain: ["mean", "p99"], range: [css("--blue"), css("--orange")] },
    marks: ["mean", "p99"].flatMap((what) => [
      Plot.line(data, { x: "iops", y: what, z: (d) => d.step, stroke: () => what, sort: "iops" }),
      Plot.dot(data, { x: "iops", y: what, stroke: () => what, symbol: (d) => d.kind, tip: what === "p99",
        title: (d) => `${d.step}, ${d.label} (${d.kind}${d.knee ? ", the knee" : ""})\n${rate(d.iops)}/s, mean ${time(d.mean)}, p99 ${time(d.p99)}` }),
    ]).concat(Plot.text(data.filter((d) => d.knee), { x: "iops", y: "mean", text: (d) => `knee: ${d.label}`, dy: 14 })) });
  return [element("h2", {}, text("Throughput and latency")),
    figure("The knee, of each sweep, is the load with the most throughput for its response time: what lies right of it waits in queues.", plot)];
}
function cliff(run) {
  const data = run.charts.cliff;
  if (!data.length) return null;
  const plot = Plot.plot({ ...base(), width, height: 300, marginLeft: 60, grid: true,
    x: { label: "part of each volume that is used →", percent: true }, y: { label: "↑ I/Os a second", zero: true, tickFormat: "~s" },
    color: { legend: true },
    marks: [Plot.line(data, { x: "footprint", y: "iops", stroke: "step" }), Plot.dot(data, { x: "footprint", y: "iops", stroke: "step", tip: true })] });
  return [element("h2", {}, text("Working set")), figure("A fall shows where a cache ends.", plot)];
}
function timeline(point, unit, events) {
  const warm = point.timeline.filter((one) => one.second < 0);
  const shade = warm.length ? [Plot.rectX([{ from: warm[0].second, to: 0 }], { x1: "from", x2: "to", fill: css("--soft"), fillOpacity: 0.15 })] : [];
  const draw = (what, label, colour, options) => Plot.plot({ ...base(), width: half, height: 200, marginLeft: 60, grid: true,
    x: { label: "seconds →" }, y: { label, zero: true, ...options },
    marks: [...shade, Plot.ruleX(events, { x: "second", stroke: css("--ink"), strokeDasharray: "4 3" }),
      Plot.text(events, { x: "second", text: "what", frameAnchor: "top", dy: -12, textAnchor: "start", rotate: 0 }), Plot.line(point.timeline, { x: "second", y: what, stroke: css(colour), tip: true })] });
  return element("div", { class: "pair" },
    figure(`${unit} a second; what is shaded went before and is not counted.`, draw("iops", `↑ ${unit} a second`, "--blue", { tickFormat: "~s" })),
    figure("99th percentile of the response time of each second.", draw("p99", "↑ ms", "--orange", {})));
}
function spectra(point, unit) {
  const percentile = (d) => (d === 1 ? "0%" : `${+(100 - 100 / d).toPrecision(8)}%`);
  const spectrum = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true,
    x: { type: "log", label: "percentile →", ticks: d3.range(0, 8).map((at) => 10 ** at).filter((at) => at <= d3.max(point.spectrum, (d) => d.one_in)), tickFormat: percentile },
    y: { type: "log", label: "↑ ms", tickFormat: "~r" },
    color: { legend: true, domain: ["response", "service"], range: [css("--orange"), css("--blue")] },
    marks: [Plot.line(point.spectrum.filter((d) => d.millis > 0), { x: "one_in", y: "millis", stroke: "of", tip: true })] });
  const cumulative = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true,
    x: { type: "log", label: "ms →", tickFormat: "~r" }, y: { label: `↑ % of ${unit}`, percent: true, domain: [0, 100] },
    marks: [Plot.line(point.cumulative, { x: "within", y: "share", stroke: css("--blue"), curve: "step-after" }),
      Plot.ruleX([5, 20].filter((at) => at >= point.cumulative[0].within && at <= point.cumulative.at(-1).within), { stroke: css("--soft"), strokeDasharray: "3 3" })] });
  return element("div", { class: "pair" },
    figure(`How long the slowest took: where response lies above service, ${unit} waited before they were begun.`, spectrum),
    figure(`Share of ${unit} that took no longer. Dashed: 5 and 20 ms.`, cumulative));
}
function costs({ generator, machine }) {
  const told = [generator === null ? null : `${time(generator / 1000)} of the load's threads`, machine === null ? null : `${time(machine / 1000)} of all processors of its machine`].filter((one) => one !== null);
  return told.length ? ` An I/O took ${told.join(", and ")}.` : "";
}
function points(run) {
  return [element("h2", {}, text("Point by point")), run.charts.points.map((point, at) => {
    const judged = run.summary.points[at];
    const gates = judged.gates.map((gate) => [gate.name, element("span", { class: gate.state }, text(gate.state)), gate.why]);
    const kept = judged.fidelity.map((one) => [`${one.what} of ${one.stream}`, one.asked, one.delivered,
      element("span", { class: one.kept ? "pass" : "fail" }, text(one.kept ? "kept" : "not kept"))]);
    return element("section", {},
      element("h3", {}, text(`${point.name} `), element("span", { class: `grade ${judged.grade}` }, text(judged.grade))),
      element("p", { class: "soft" }, text(isDatabase(run) ? `${rate(point.iops)} transactions a second.` : `${rate(point.iops)} I/Os and ${size(point.bytes)} a second; the generator's busiest thread used ${(point.busy * 100).toFixed(0)}% of its time${point.machine ? `, the machine ${point.machine.min.toFixed(1)} to ${point.machine.max.toFixed(1)} processors, ${point.machine.mean.toFixed(1)} on average` : ""}.${costs(point.cpu)}`)),
      point.shares.length ? element("p", { class: "soft" }, text(`${point.shares.join("; ")}.`)) : null,
      point.timeline.length > 1 ? timeline(point, what(run), events(run, point)) : null,
      point.spectrum.length ? spectra(point, what(run)) : null,
      element("details", {}, element("summary", {}, text("What speaks for and against it")),
        table(["rule", "", "why"], gates), kept.length ? table(["property", "asked", "delivered", ""], kept) : null));
  })];
}
function events(run, point) {
  return run.charts.outages.filter((one) => one.point === point.name).flatMap((one) => [
    { second: one.struck, what: one.kind }, { second: one.restored, what: "back" },
    ...(one.answered === null ? [] : [{ second: one.answered, what: "" }])]);
}
function migration(run) {
  const found = run.charts.migration;
  if (!found) return null;
  const share = (value) => (value === null ? "–" : `${rate(value)} (${((100 * value) / found.baseline).toFixed(0)}%)`);
  const rows = [["it took", found.seconds === null ? found.failure ?? "it had not ended" : `${found.seconds.toFixed(1)} s`],
    ["gone over, holes among it", `${size(found.bytes)}${found.bytes_per_second === null ? "" : `, ${size(found.bytes_per_second)} a second`}`],
    ["before it", rate(found.baseline)], ["while it moved", share(found.during)], ["in the worst ten seconds", share(found.least)],
    ["under half of what was before", `${found.low_seconds} s`], ["after it", share(found.after)]];
  const marks = [["begins", found.began], ["alike", found.alike], ["moved", found.moved]].flatMap(([what, second]) => (second === null ? [] : [{ what, second }]));
  const plot = Plot.plot({ ...base(), width, height: 280, marginLeft: 60, grid: true,
    x: { label: "seconds →" }, y: { label: "↑ transactions a minute", zero: true, tickFormat: "~s" },
    marks: [Plot.ruleY([found.baseline, found.baseline / 2], { stroke: css("--soft"), strokeDasharray: "3 3" }),
      Plot.line(found.windows, { x: (d) => d.second + 5, y: "rate", stroke: css("--blue") }),
      Plot.ruleX(marks, { x: "second", stroke: css("--orange") }),
      // One below the other: a move may take a moment.
      ...marks.map((mark, at) => Plot.text([mark], { x: "second", text: "what", frameAnchor: "top", textAnchor: "start", dx: 4, dy: 4 + 14 * at }))] });
  return [element("h2", {}, text("The disk is moved")),
    element("p", { class: "soft" }, text(`To ${found.to}, by the mirror of QEMU ${found.front}'s storage daemon. Rates are transactions a minute.`)),
    table(["", ""], rows), figure("Windows of ten seconds, warm-ups among them. Dashed: the rate before the move, and half of it.", plot)];
}
function chain(run) {
  const found = run.charts.chain;
  if (!found) return null;
  const seconds = (value) => (value === null ? "never" : `${value.toFixed(2)} s`);
  const share = (value) => (value === null ? "–" : `${(value * 100).toFixed(0)}%`);
  const native = found.native ? [["native", "", "", "", "", "", `${found.native.users}`, rate(found.native.tpm), ""]] : [];
  const rows = found.points.map((one) => [one.name, seconds(one.recovered), seconds(one.mounted), seconds(one.started), seconds(one.first), seconds(one.native_again),
    one.plateau ? `${one.plateau.users}` : "–", one.plateau ? rate(one.plateau.tpm) : "–", share(one.share)]);
  const windows = found.points.flatMap((one) => one.windows.map(([second, value]) => ({ point: one.name, second, value })));
  const firsts = found.points.map((one) => ({ point: one.name, second: one.first }));
  const plot = Plot.plot({ ...base(), width, height: 280, marginLeft: 60, grid: true,
    x: { label: "seconds since the point was asked for →", zero: true }, y: { label: "↑ transactions a minute", zero: true, tickFormat: "~s" }, color: { legend: true, domain: found.points.map((one) => one.name) },
    marks: [found.native ? Plot.ruleY([found.native.tpm, 0.9 * found.native.tpm], { stroke: css("--soft"), strokeDasharray: "3 3" }) : null,
      Plot.line(windows, { x: "second", y: "value", stroke: "point" }),
      Plot.dot(firsts, { x: "second", y: () => 0, stroke: "point", symbol: "triangle", r: 5 })] });
  return [element("h2", {}, text("Recovered points")),
    element("p", { class: "soft" }, text(`${found.kept} points, kept by ${found.keeper}: ${seconds(found.keep_seconds)} each, ${seconds(found.keep_seconds_max)} at most, with some ${rate(found.change)} transactions between two. Times are since a point was asked for, rates transactions a minute.`)),
    found.neighbours.map((one) => element("p", { class: "soft" }, text(`Beside it ${one.profile} on ${one.target}: ${rate(one.iops)} I/Os a second, of ${rate(one.asked)}; mean ${nanos(one.mean)}, p99 ${nanos(one.p99)}${one.failure ? `; ${one.failure}` : ""}.`))),
    found.complaints.map((why) => element("p", { class: "missed" }, text(why))),
    table(["recovered", "disk>", "mounted>", "started>", "first order>", "90% of native>", "users>", "TPM>", "of native>"], [...native, ...rows]),
    windows.length ? figure("Windows of five seconds, warm-up and sample. Triangles: the first order. Dashed: the native rate, and nine tenths of it.", plot) : null];
}
function tiles(run) {
  const found = run.charts.tiles;
  if (!found) return null;
  const share = (value) => (value === null ? "–" : `${(value * 100).toFixed(2)}%`);
  const says = (value) => element("span", { class: value ? "met" : "missed" }, text(value === null ? "cannot be said" : value ? "yes" : "no"));
  const times = (one) => [rate(one.iops), share(one.within), time(one.mean), time(one.p99), time(one.max)];
  const shown = found.steps.find((step) => step.tiles === found.tiles) ?? found.steps[0];
  const of = (count, vms) => `${number.format(vms)} virtual machines (${count} ${count === 1 ? "tile" : "tiles"})`;
  const missed = found.steps.flatMap((step) => step.missed.map((why) => element("p", { class: "soft" }, text(`${step.tiles} ${step.tiles === 1 ? "tile" : "tiles"}: ${why}`))));
  return [element("h2", {}, text("Tiles")),
    element("p", {}, text(`${found.at_least ? "At least " : ""}${of(found.tiles, found.vms)}; with 99% of all I/Os within 20 ms: ${of(found.strict_tiles, found.strict_vms)}; ${found.ended}.`)),
    found.price.map((line) => element("p", {}, text(line))),
    found.scale < 1 ? element("p", { class: "soft" }, text(`Volumes are ${found.scale} of the published size, and places moved with it.`)) : null,
    table(["tiles>", "machines>", "I/Os a second>", "within 20 ms>", "mean>", "p99>", "max>", "passed", "99% within 20 ms"],
      found.steps.map((step) => [`${step.tiles}`, `${step.vms}`, ...times(step.all), says(step.passed), says(step.strict)])),
    missed,
    shown && shown.operations.length ? [element("h3", {}, text(`Beside ${of(shown.tiles, shown.vms)}`)),
      found.score === null ? null : element("p", {}, text(`Score ${found.score.toFixed(2)}: the smaller ratio to what is required. Their geometric mean: ${found.score_mean.toFixed(2)}.`)),
      table(["what", "done>", "required>", "ratio>", "mean of each step"], shown.operations.map((one) => [one.name, `${one.done}`, one.required.toFixed(2), one.ratio.toFixed(2),
        one.steps.map(([step, took]) => `${step} ${took === null ? "–" : `${took.toFixed(1)} s`}`).join(", ") + (one.failure ? `; ${one.failure}` : "")]))] : null,
    shown ? [element("h3", {}, text(`Applications of ${of(shown.tiles, shown.vms)}`)),
      table(["application", "machines>", "I/Os a second>", "within 20 ms>", "mean>", "p99>", "max>"], shown.applications.map((one) => [one.name, `${one.vms}`, ...times(one)])),
      machines(found)] : null,
    element("details", {}, element("summary", {}, text("The volumes of a tile")), table(["machine", "trace", "published>", "here>", "touched>"],
      found.plan.map((vm, at) => [vm.name, vm.trace, size(vm.published_bytes), size(vm.bytes), shown ? size(shown.machines[at].footprint_bytes) : "–"])))];
}
function machines(found) {
  const cells = found.steps.flatMap((step) => step.machines.map((one) => ({ ...one, step: `${step.tiles} ${step.tiles === 1 ? "tile" : "tiles"}` }))).filter((one) => one.mean !== null);
  if (!cells.length) return null;
  const most = Math.max(...found.steps.map((step) => step.tiles));
  const plot = Plot.plot({ ...base(), width, marginLeft: 90, marginRight: 60, padding: 0.06,
    x: { label: "tile", domain: d3.range(1, most + 1), tickFormat: "d" }, y: { label: null, domain: found.plan.map((vm) => vm.name) },
    fy: { label: null, domain: found.steps.map((step) => `${step.tiles} ${step.tiles === 1 ? "tile" : "tiles"}`) },
    height: 60 + found.steps.length * (found.plan.length * 17 + 16), color: { type: "log", scheme: "YlOrRd", label: "mean, ms", legend: true, tickFormat: "~r" },
    marks: [Plot.cell(cells, { x: "tile", y: "vm", fy: "step", fill: "mean", tip: true,
      title: (d) => `${d.vm}, tile ${d.tile} of ${d.step}\n${rate(d.iops)}/s, mean ${time(d.mean)}, p99 ${time(d.p99)}` })] });
  return figure("Each machine's mean response time, at each number of tiles. One that stands out was treated otherwise; one of which nothing was asked is left out.", plot);
}
function heat(run) {
  // Kinds of transactions are not alike, and tiles have a map of their own.
  if (isDatabase(run) || run.charts.tiles) return null;
  const cells = run.charts.points.flatMap((point) => point.streams.map((one) => ({ point: point.name, stream: `${one.stream}, ${one.side}`, p99: one.p99, iops: one.iops })));
  const streams = new Set(cells.map((cell) => cell.stream));
  if (streams.size < 4) return null;
  const plot = Plot.plot({ ...base(), width, marginLeft: 150, marginBottom: 90, padding: 0.04,
    x: { label: null, tickRotate: -30 }, y: { label: null }, color: { type: "log", scheme: "YlOrRd", label: "p99, ms", legend: true },
    marks: [Plot.cell(cells, { x: "point", y: "stream", fill: "p99", tip: true, title: (d) => `${d.stream}\n${d.point}\n${rate(d.iops)}/s, p99 ${time(d.p99)}` })] });
  return [element("h2", {}, text("Stream by stream")), figure("A stream that stands out from its like was treated otherwise.", plot)];
}
function system(told) {
  if (!told) return [["behind the target", "not told: --system FILE says what these are the figures of"]];
  const sizes = ["memory", "cache", "usable"];
  const words = (name, value) => name === "price" ? `${value.total.toFixed(2)} ${value.currency} at the prices of ${value.date}` : sizes.includes(name) ? size(value) : `${value}`;
  return Object.entries(told).filter(([, value]) => value !== null && value !== "").map(([name, value]) => [`behind the target: ${name}`, words(name, value)]);
}
function bytes(space) {
  if (!space || (space.written === null && !space.physical.length)) return [];
  return [["bytes", [`logical ${size(space.logical)}`, ...(space.written === null ? [] : [`written ${size(space.written)}`]),
    ...space.physical.map((one) => one.bytes === null ? `physical not told by ${one.target}` : `physical ${size(one.bytes)} as ${one.target} tells`)].join(", ")]];
}
const longer = (one) => (one.least_seconds ? `, each load for ${one.least_seconds} s at least` : "");
function configuration(run) {
  const machine = Object.entries(run.run.machine).map(([name, value]) => [name, value]);
  return [element("h2", {}, text("What was run, and on what")),
    table(["", ""], [["profile", `${run.run.profile}${run.run.quick ? ", quick" : ""}${run.run.locked ? "" : ", modified"}${longer(run.run)}`],
      ["target", run.run.targets.join(", ")], [isDatabase(run) ? "database" : "volumes", size(run.run.bytes) + (run.run.scale ? `, ${run.run.scale.toFixed(4)} times the profile's` : "")], ...bytes(run.charts.space),
      ...(run.run.outages ? run.run.outages.outages.flatMap((one) => [[`${one.name}: strike`, element("code", {}, text(one.strike))], [`${one.name}: restore`, element("code", {}, text(one.restore))]]) : []), [isDatabase(run) ? "users at most" : "threads of the load", `${run.run.threads}`],
      ["read back and compared", run.run.verified ? "yes" : "no"], ["began", new Date(run.run.began * 1000).toISOString().replace(".000Z", " UTC").replace("T", " ")],
      ...system(run.run.system), ["version", run.run.version], ...machine, ["again", element("code", {}, text(run.run.reproduce))],
      ["raw data", element("code", {}, text(run.bundle || "not kept"))]]),
    element("details", {}, element("summary", {}, text("The profile")), element("pre", {}, text(run.profile)))];
}

const figureNames = { rate: "I/Os a second", mean: "mean response", p99: "p99 response", cpu: "CPU for a million I/Os", orders: "New-Orders a minute", took: "how long it took" };
function amount(value, name) {
  if (name === "mean" || name === "p99") return time(value / 1e6);
  return name === "cpu" || name === "took" ? `${value.toFixed(1)} s` : rate(value);
}
function says(one) {
  if (one.void) return ["nothing: void", "void"];
  const found = one.comparison.finding, more = one.figure === "rate" || one.figure === "orders";
  if (found === "no-difference") return ["no difference", "pass"];
  if (found === "inconclusive") return ["too few rounds", "warn"];
  const good = (found === "higher") === more;
  const words = one.figure === "cpu" ? ["less CPU", "more CPU"] : ["faster", "slower"];
  return [good ? words[0] : words[1], good ? "met" : "missed"];
}
function trialVerdict({ trial, findings }) {
  const word = findings.verdict === "PASS" ? "VALID" : findings.verdict;
  const why = { PASS: "What is said below holds for this load on this machine.", INVALID: "What is void allows no conclusion.",
    INCONCLUSIVE: "Too few rounds were whole and steady to say." }[findings.verdict];
  const marks = [trial.quick ? "quick: a sketch, and no result" : null, trial.locked ? null : "the profile was modified: not to be held against others",
    trial.narrow ? `rounds went on until intervals reached ${(trial.within * 100).toFixed(1)}% either way`
      : trial.runs.length < trial.arms.length * trial.rounds ? "ended before its time"
      : trial.within ? `after all rounds not every interval reaches less than ${(trial.within * 100).toFixed(1)}% either way` : null].filter(Boolean);
  return element("section", { class: `verdict ${findings.verdict}` }, element("strong", {}, text(word)),
    element("div", {}, element("p", {}, text(why)), marks.map((mark) => element("p", { class: "soft" }, text(mark)))));
}
function forest({ trial, findings, confidence }) {
  const several = trial.arms.length > 2;
  const all = findings.contrasts.map((one) => ({ ...one.comparison, figure: one.figure, void: one.void,
    name: several ? `${one.point}: ${trial.arms[one.arm]}` : `${one.point}: ${figureNames[one.figure]}`, says: says(one)[0] }))
    .filter((one) => one.low > 0 && one.high !== null);
  if (!all.length) return null;
  const colour = (one) => (["faster", "less CPU"].includes(one.says) ? css("--blue") : ["slower", "more CPU"].includes(one.says) ? css("--orange") : css("--soft"));
  const left = Math.min(260, width * 0.45);
  const draw = (rows) => Plot.plot({ ...base(), width, height: 60 + rows.length * 26, marginLeft: left, grid: true,
    x: { type: "log", label: `ratio to ${trial.arms[0]} →`, tickFormat: ".2f", inset: 8 }, y: { domain: rows.map((one) => one.name), label: null },
    marks: [Plot.ruleX([1], { stroke: css("--ink"), strokeDasharray: "4 3" }),
      Plot.link(rows, { x1: "low", x2: "high", y1: "name", y2: "name", stroke: colour, strokeWidth: 3 }),
      Plot.dot(rows, { x: "ratio", y: "name", r: 4.5, fill: colour, tip: true,
        title: (d) => `${d.name}\n${d.ratio.toFixed(3)} (${d.low.toFixed(3)} to ${d.high.toFixed(3)}): ${d.says}` })] });
  const reads = `Ratio with its interval; of equal arms all intervals together hold 1 in ${(confidence * 100).toFixed(0)} of 100 comparisons. Grey: no difference that can be told, or void. Blue: better than ${trial.arms[0]}. Orange: worse.`;
  if (!several) return [element("h2", {}, text("What differs")), figure(reads, draw(all))];
  // A chart of everything would be longer than anybody looks: the first figure is shown, the others are a click away.
  const kinds = [...new Set(all.map((one) => one.figure))];
  return [element("h2", {}, text("What differs")), kinds.map((kind, at) => {
    const chart = figure(`${figureNames[kind]}. ${at ? "" : reads}`, draw(all.filter((one) => one.figure === kind)));
    return at ? element("details", {}, element("summary", {}, text(figureNames[kind])), chart) : chart;
  })];
}
// What each arm did, whatever can be concluded from it.
function levels({ trial, findings }) {
  const of = (kind) => findings.levels.filter((level) => level.figure === kind).flatMap((level) => level.medians.map((median, arm) => ({ point: level.point, arm: trial.arms[arm], median })))
    .filter((one) => one.median !== null);
  const nanoseconds = (kind) => kind === "mean" || kind === "p99";
  const draw = (kind) => {
    const dots = of(kind).map((one) => ({ ...one, value: nanoseconds(kind) ? one.median / 1e6 : one.median }));
    if (!dots.length) return null;
    const names = [...new Set(dots.map((dot) => dot.point))];
    return figure(`${figureNames[kind]}: the median of each arm's runs.`, Plot.plot({ ...base(), width, height: 70 + names.length * 22, marginLeft: Math.min(220, width * 0.4), grid: true,
      x: { label: nanoseconds(kind) ? "ms →" : `${figureNames[kind]} →`, type: nanoseconds(kind) ? "log" : "linear", zero: !nanoseconds(kind), tickFormat: nanoseconds(kind) ? "~r" : "~s", inset: 8 },
      y: { domain: names, label: null }, color: { legend: true, domain: trial.arms },
      marks: [Plot.dot(dots, { x: "value", y: "point", fill: "arm", r: 4.5, tip: true, title: (d) => `${d.arm}, ${d.point}\n${amount(d.median, kind)}` })] }));
  };
  const drawn = ["rate", "p99", "orders"].map(draw).filter(Boolean);
  return drawn.length ? [element("h2", {}, text("What each did")), drawn] : null;
}
function rounds({ trial, findings }) {
  const rates = findings.contrasts.filter((one) => one.figure === "rate" || one.figure === "orders");
  const dots = rates.flatMap((one) => one.comparison.pairs.flatMap(([a, b], round) => [
    ...(one.arm === 1 ? [{ point: one.point, round: round + 1, arm: trial.arms[0], iops: a }] : []),
    { point: one.point, round: round + 1, arm: trial.arms[one.arm], iops: b }]));
  if (!dots.length) return null;
  const names = [...new Set(dots.map((dot) => dot.point))], what = figureNames[rates[0].figure];
  return [element("h2", {}, text("Round by round")), names.map((name) => figure(`${name}: each run's ${what}.`, Plot.plot({ ...base(), width, height: 180, marginLeft: 60, grid: true,
    x: { label: "round →", tickFormat: "d", interval: 1 }, y: { label: `↑ ${what}`, zero: true, tickFormat: "~s" },
    color: { legend: true, domain: trial.arms, range: trial.arms.length === 2 ? [css("--blue"), css("--orange")] : undefined },
    marks: [Plot.line(dots.filter((dot) => dot.point === name), { x: "round", y: "iops", stroke: "arm" }),
      Plot.dot(dots.filter((dot) => dot.point === name), { x: "round", y: "iops", fill: "arm", tip: true })] })))];
}
const interval = ({ low, high }) => (low > 0 && high !== null ? `${low.toFixed(3)} to ${high.toFixed(3)}` : "–");
function contrasts({ trial, findings }) {
  const of = (level, arm) => findings.contrasts.find((one) => one.point === level.point && one.figure === level.figure && one.arm === arm);
  const median = (level, arm) => (level.medians[arm] === null ? "–" : amount(level.medians[arm], level.figure));
  const voids = [...new Set(findings.contrasts.filter((one) => one.void).map((one) => `${one.point}: ${one.void}`))];
  return [element("h2", {}, text("Every figure")),
    trial.arms.length > 2 ? armByArm(trial, findings, of, median) : oneByOne(trial, findings, of, median),
    [...voids, ...new Set(findings.contrasts.filter((one) => one.unsteady).map((one) => `${one.point}: rounds that did not become steady and are left out: ${one.unsteady}`)), ...findings.unlike.map((why) => `Not alike: ${why}`), ...findings.left_out].map((why) => element("p", { class: "soft" }, text(why))),
    trial.arms.length > 2 ? findings.spread.map(([point, spread]) => element("p", {}, text(`${point}: the best arm does ${spread.toFixed(2)} times the I/Os of the worst.`))) : null];
}
// Two arms: a line for each of their medians, and what can be said of the second.
function oneByOne(trial, findings, of, median) {
  const rows = findings.levels.flatMap((level) => level.medians.map((_, arm) => {
    const one = of(level, arm);
    const told = [level.point, figureNames[level.figure], trial.arms[arm], median(level, arm)];
    if (!one) return [...told, "", "", "", ""];
    const { ratio, detectable } = one.comparison, [word, kind] = says(one);
    return [...told, one.comparison.pairs.length ? ratio.toFixed(3) : "–", interval(one.comparison),
      element("span", { class: kind }, text(word)), detectable === null ? "–" : `${(detectable * 100).toFixed(1)}%`];
  }));
  return table(["point", "figure", "arm", "median>", `÷ ${trial.arms[0]}>`, "interval", "says", "would have shown>"], rows);
}
// More arms: a column for each, with its median, its ratio to the first and what that says.
function armByArm(trial, findings, of, median) {
  const cell = (level, arm) => {
    const one = of(level, arm);
    if (!one) return median(level, arm);
    const { ratio, detectable, pairs } = one.comparison, [word, kind] = says(one);
    const line = pairs.length ? [element("small", { class: "soft" }, text(`× ${ratio.toFixed(3)} (${interval(one.comparison)})`)), element("br")] : [];
    return element("div", { title: detectable === null ? "" : `a difference of ${(detectable * 100).toFixed(1)}% would have shown` },
      text(median(level, arm)), element("br"), line, element("span", { class: kind }, text(word)));
  };
  const figures = [...new Set(findings.levels.map((level) => level.figure))];
  return figures.map((figure) => [element("h3", {}, text(figureNames[figure])),
    table(["point", ...trial.arms.map((arm) => `${arm}>`)],
      findings.levels.filter((level) => level.figure === figure).map((level) => [level.point, ...trial.arms.map((_, arm) => cell(level, arm))]))]);
}
function trialConfiguration({ trial, runs: made }) {
  return [element("h2", {}, text("What was run, and on what")),
    table(["", ""], [["profile", `${trial.profile}${trial.quick ? ", quick" : ""}${trial.locked ? "" : ", modified"}${longer(trial)}`],
      ...trial.arms.map((arm, number) => [`arm ${arm}`, made.find((one) => one.turn.arm === number)?.targets.join(", ") ?? "–"]),
      ...trial.arms.flatMap((arm, number) => trial.systems[number] ? system(trial.systems[number]).map(([name, what]) => [name.replace("the target", arm), what]) : []),
      ...(trial.shared ?? []).map((one) => ["shares of a capacity are, for every arm, of what the least does", `${one.arms.map((most, arm) => `${trial.arms[arm]} ${rate(most)}`).join(", ")} I/Os a second of ${one.streams.join(", ")}`]),
      ...Object.entries(trial.commands), ...Object.entries(trial.machine), ["version", trial.version], [trial.arms_hash ? "again, in the folder of the raw data" : "again", element("code", {}, text(trial.reproduce))]]),
    element("details", {}, element("summary", {}, text("Every run")), table(["round>", "arm", "verdict", "raw data"],
      made.map((one) => [`${one.turn.round + 1}`, trial.arms[one.turn.arm], one.verdict, element("code", {}, text(one.bundle.slice(0, 16) || "not kept"))])))];
}

for (const one of runs.filter((one) => one.trial)) {
  root.append(...[element("h1", {}, text(`${one.trial.profile}: ${one.trial.arms.join(" against ")}`)),
    element("p", { class: "soft" }, text(new Date(one.trial.began * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC")),
    trialVerdict(one), levels(one), forest(one), rounds(one), contrasts(one), trialConfiguration(one)].flat(3).filter(Boolean));
}
for (const run of runs.filter((one) => one.run)) {
  root.append(...[
    element("h1", {}, text(`${run.run.profile} on ${run.run.targets.join(", ")}`)),
    element("p", { class: "soft" }, text(new Date(run.run.began * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC")),
    verdict(run), requirements(run), migration(run), chain(run), tiles(run), outages(run), phases(run), search(run), figures(run), reduction(run), curve(run), cliff(run), heat(run), points(run), configuration(run),
  ].flat(3).filter(Boolean));
}
document.title = runs.map((one) => (one.trial ? `${one.trial.profile}: ${one.trial.arms.join(" against ")}` : `${one.run.profile}: ${one.summary.verdict}`)).join(", ");
